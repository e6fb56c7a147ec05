"""A scheduler that is dumped and restored gives the same commands from then on, for any sequence of events."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.core.cluster import Server
from gavel.core.codec import decode_fact, encode_command, encode_event
from gavel.core.errors import InputError
from gavel.core.events import AllocationReady, JobSubmitted, RoundDue, ServerJoined, Solve, SolveFailed
from gavel.core.jobs import Entity, JobSpec
from gavel.core.problem import Problem
from gavel.core.throughputs import ThroughputTable, builtin_table
from gavel.estimator.learned import LearnedTable
from gavel.policies.registry import allocate
from gavel.scheduler.credits import Credits
from gavel.scheduler.ledger import Ledger
from gavel.scheduler.machine import Scheduler, Settings, check_invariants
from gavel.scheduler.patience import Patience
from gavel.scheduler.placement import ServerPool
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.rounds import Mechanism, Plan
from gavel.scheduler.rules import Rules
from gavel.scheduler.state import COUNTERS, FORMAT, dump, restore
from stories import Story, Teller, stories

TABLE = builtin_table()
IMPATIENT = Rules(patience=Patience(horizon_seconds=3600.0, turn_restarts=1.0), trading=1.0)
MECHANISMS: tuple[Callable[[], Mechanism], ...] = (Credits, lambda: Credits(IMPATIENT), Priorities)


def through_json(document: Any) -> Any:
    return json.loads(json.dumps(document, allow_nan=False))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=["credits", "impatient credits", "priorities"])
@pytest.mark.parametrize("space_sharing", [False, True])
@given(story=stories(at_most=60), cut=st.integers(0, 80))
@settings(max_examples=25)
def test_a_restored_scheduler_gives_exactly_the_same_commands(
    mechanism: Callable[[], Mechanism], space_sharing: bool, story: Story, cut: int
) -> None:
    how = Settings(space_sharing=space_sharing)
    first, teller = Scheduler(TABLE, mechanism(), how), Teller(story)
    second: Scheduler | None = None
    for number, event in enumerate(teller.events(first)):
        if number == cut:
            written = through_json(dump(first))
            second = restore(written, TABLE, mechanism(), how)
            check_invariants(second)
            assert through_json(dump(second)) == written
        commands = first.handle(event)
        if second is not None:
            assert [*map(encode_command, commands)] == [*map(encode_command, second.handle(event))]
        teller.hear(commands)
    if second is not None:
        assert through_json(dump(first)) == through_json(dump(second))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=["credits", "impatient credits", "priorities"])
@given(story=stories(at_most=60), cut=st.integers(0, 80))
@settings(max_examples=25)
def test_a_restored_scheduler_that_learns_rates_types_and_entities_gives_the_same_commands(
    mechanism: Callable[[], Mechanism], story: Story, cut: int
) -> None:
    how = Settings(space_sharing=True, open_entities=True)
    table, teller = LearnedTable(TABLE), Teller(story, open=True)
    first = Scheduler(table, mechanism(), how)
    second: Scheduler | None = None
    for number, event in enumerate(teller.events(first)):
        if number == cut:
            written = through_json({"scheduler": dump(first), "table": table.document()})
            second = restore(written["scheduler"], LearnedTable.of(TABLE, written["table"]), mechanism(), how)
        commands = first.handle(event)
        if second is not None:
            assert [*map(encode_command, commands)] == [*map(encode_command, second.handle(event))]
        teller.hear(commands)


class _Deciding(Exception):  # noqa: N818 - it is not an error of ours
    """Raised by a mechanism when it has to decide while facts are replayed."""


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=["credits", "impatient credits", "priorities"])
@given(story=stories(at_most=60))
@settings(max_examples=40)
def test_facts_alone_give_the_same_state_without_any_decision(mechanism: Callable[[], Mechanism], story: Story) -> None:
    """After every fact: recovery from any prefix of a journal gives the state that existed then."""
    how = Settings(space_sharing=True, open_entities=True)
    table, learned, teller = LearnedTable(TABLE), LearnedTable(TABLE), Teller(story, open=True)
    first, second = Scheduler(table, mechanism(), how), Scheduler(learned, mechanism(), how)

    def decide(_: object) -> Plan:
        raise _Deciding

    second.mechanism.decide = decide  # type: ignore[method-assign,assignment]
    for event in teller.events(first):
        facts = first.take(event)
        for fact in facts:
            second.evolve(decode_fact(through_json(encode_event(fact)), _problem_of(second)))
        assert through_json(dump(first)) == through_json(dump(second))
        assert table.document() == learned.document()
        check_invariants(second)
        teller.hear([command for fact in facts for command in first.commands(fact)])


def _problem_of(scheduler: Scheduler) -> Callable[[int], Problem]:
    def find(number: int) -> Problem:
        assert scheduler.unanswered is not None
        assert scheduler.unanswered.number == number
        return scheduler.unanswered.problem

    return find


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=["credits", "impatient credits", "priorities"])
@given(story=stories())
@settings(max_examples=10)
def test_dumping_changes_no_command(mechanism: Callable[[], Mechanism], story: Story) -> None:
    often, never = (Scheduler(TABLE, mechanism(), Settings(space_sharing=True)) for _ in range(2))
    teller = Teller(story)
    for event in teller.events(often):
        dump(often)
        commands = often.handle(event)
        assert [*map(encode_command, commands)] == [*map(encode_command, never.handle(event))]
        teller.hear(commands)


def test_every_attribute_is_dumped_or_follows_from_the_rest() -> None:
    """A new attribute of the scheduler must be listed here, with what becomes of it in a dump."""
    scheduler = Scheduler(TABLE, Credits(), Settings())
    brought = {"table", "mechanism", "settings", "prices", "_tree"}
    own = {"roster", "beliefs", "occupancy", "allocation", "unanswered", "accelerator_seconds"}
    own |= {"_tight_room", "_problem_base", "_held", "_on_hold", "_reclassed"}
    between_events = {"_facts", "_begun", "_ended"}  # empty between events
    compared = {"_edits"}  # only with what was planned since the start
    runs = {"_roster", "server_pools", "placed", "run_of"}
    assert vars(scheduler).keys() | vars(scheduler.occupancy).keys() == (
        brought | own | COUNTERS.keys() | runs | between_events | compared
    )
    beliefs = {"table", "types", "profiles", "rates", "restarts", "restarts_in_use", "stated"}
    assert vars(scheduler.beliefs).keys() == beliefs | {"_server_pools"}
    assert vars(Credits()).keys() == {"ledger", "_prices"} | {"rules", "price_aware", "_settled"}
    ledger = {"entries", "lag", "members", "class_rate", "alone", "entry_of", "run_of"}
    assert {each.name for each in fields(Ledger)} == ledger | {
        "class_of",
        "_classes",
        "_order",
        "_present",
        "_meant",
        "_by_class",
        "_rows",
        "_drift",
    }
    plain = {"_combos", "_target", "_declined", "_seconds", "_prices"}
    assert vars(Priorities()).keys() == plain | {"knows_speeds", "price_aware", "_steady", "_index"}
    pool = {"_size", "_figures", "_with_free", "_free", "_shared", "_closed"}
    assert vars(ServerPool()).keys() == pool | {"capacity", "free", "_columns"}


def asked() -> tuple[Scheduler, Solve]:
    """A scheduler that waits for the policy's answer."""
    scheduler = Scheduler(TABLE, Credits(), Settings(), entities={"lab": Entity()})
    scheduler.handle(ServerJoined(0.0, Server("a", "v100", 2)))
    scheduler.handle(JobSubmitted(0.0, JobSpec("j", "A3C", 1, 1e6, entity="lab")))
    solve = scheduler.handle(RoundDue(0.0))[0]
    assert isinstance(solve, Solve)
    return scheduler, solve


def test_a_restored_scheduler_asks_an_unanswered_question_again() -> None:
    scheduler, solve = asked()
    assert scheduler.unanswered is solve
    again = restore(through_json(dump(scheduler)), TABLE, Credits(), Settings(), entities={"lab": Entity()})
    assert again.unanswered is not None
    assert encode_command(again.unanswered) == encode_command(solve)
    again.handle(SolveFailed(0.5, solve.number, "no luck"))
    assert again.unanswered is None


def test_a_solve_that_fails_late_is_asked_again_by_the_next_round() -> None:
    scheduler, solve = asked()
    scheduler.handle(RoundDue(1.0))
    assert scheduler.handle(SolveFailed(30.0, solve.number, "no luck")) == []
    assert isinstance(scheduler.handle(RoundDue(361.0))[0], Solve)


def test_jobs_keep_their_entities_when_others_are_described_later() -> None:
    scheduler, _ = asked()
    written = through_json(dump(scheduler))
    more = restore(written, TABLE, Credits(), Settings(), entities={"club": Entity(), "lab": Entity()})
    assert more.entities[more.roster.entity[more.roster.slot_of["j"]]] == "lab"
    with pytest.raises(InputError, match="jobs belong to lab, but no such entity is described any more"):
        restore(written, TABLE, Credits(), Settings(), entities={"club": Entity()})


def test_a_state_without_servers_is_read_and_the_next_problem_has_them() -> None:
    """As dumped by earlier versions: without servers in the base problem, the question and the allocation."""
    scheduler, solve = asked()
    scheduler.handle(AllocationReady(0.5, solve.number, allocate(solve.problem)))
    scheduler.handle(JobSubmitted(1.0, JobSpec("k", "A3C", 1, 1e6)))
    assert isinstance(scheduler.handle(RoundDue(360.5))[0], Solve)
    written = through_json(dump(scheduler))
    problems = [written["base"], written["allocation"]["problem"], written["unanswered"]["problem"]]
    for kind in [kind for problem in problems for kind in problem["types"]]:
        assert kind.pop("servers", None) == ([2] if kind["name"] == "v100" else None)
    again = restore(written, TABLE, Credits(), Settings(), entities={"lab": Entity()})
    assert again.unanswered is not None
    assert again.unanswered.problem.types[0].servers == ()
    answer = AllocationReady(360.7, again.unanswered.number, allocate(again.unanswered.problem))
    assert [*map(encode_command, again.handle(answer))] == [*map(encode_command, scheduler.handle(answer))]
    assert again.problem(361.0).types == scheduler.problem(361.0).types
    assert again.problem(361.0).types[0].servers == (2,)


@pytest.mark.parametrize("mechanism", [Credits, Priorities])
def test_a_state_that_counted_rounds_is_read_and_every_job_continues_where_it_runs(mechanism: type[Mechanism]) -> None:
    """As dumped by format 1: credits in rounds, no launch times, no plans during a round."""
    kept = json.loads((Path(__file__).parent / "state_format_1.json").read_text(encoding="utf-8"))
    written = kept["credits" if mechanism is Credits else "priorities"]
    scheduler = restore(written["dump"], TABLE, mechanism(), Settings())
    check_invariants(scheduler)
    placed = [
        [sorted(scheduler.roster.ids[slot] or "" for slot in run.members), scheduler.types[run.type_index], dict(where)]
        for run, where in scheduler.placed.items()
    ]
    assert placed == written["placed"]
    if isinstance(scheduler.mechanism, Credits):
        before = written["dump"]["mechanism"]["entries"]["credit"]
        assert scheduler.mechanism.ledger.entries.credit.tolist() == [credit * 360.0 for credit in before]
    assert through_json(dump(scheduler))["format"] == FORMAT


@given(story=stories(at_most=40))
@settings(max_examples=15)
def test_another_mechanism_and_other_settings_find_every_run_in_place(story: Story) -> None:
    first, teller = Scheduler(TABLE, Credits(), Settings()), Teller(story)
    for event in teller.events(first):
        teller.hear(first.handle(event))
    other = restore(through_json(dump(first)), TABLE, Priorities(), Settings(round_seconds=60.0, space_sharing=True))
    check_invariants(other)
    assert [*other.placed.values()] == [*first.placed.values()]
    assert [run.members for run in other.placed] == [run.members for run in first.placed]
    other.handle(RoundDue((first.round_ends or 0.0) + 1.0))
    check_invariants(other)


def test_what_cannot_be_restored_is_refused_with_a_reason() -> None:
    written = through_json(dump(Scheduler(TABLE, Credits(), Settings())))
    with pytest.raises(InputError, match="has format 99; this version of Gavel reads format 4"):
        restore(written | {"format": 99}, TABLE, Credits(), Settings())
    with pytest.raises(InputError, match="has format None"):
        restore([], TABLE, Credits(), Settings())
    with pytest.raises(InputError, match="lacks 'roster'"):
        restore({k: v for k, v in written.items() if k != "roster"}, TABLE, Credits(), Settings())
    counters = {k: v for k, v in written["counters"].items() if k != "_scattered"}
    with pytest.raises(InputError, match="lacks '_scattered' of a scheduler"):
        restore(written | {"counters": counters}, TABLE, Credits(), Settings())
    other = ThroughputTable(("h100",), TABLE.profiles, TABLE.alone[:, :1].copy(), TABLE.shared[..., :1].copy())
    with pytest.raises(InputError, match="has the types v100, p100, k80, but the throughput table has h100"):
        restore(written, other, Credits(), Settings())
