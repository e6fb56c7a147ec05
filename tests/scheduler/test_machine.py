"""The scheduler's state machine: for any order of events, nothing is given out twice and nothing is lost."""

from __future__ import annotations

from typing import NoReturn

import pytest
from hypothesis import given, settings

from gavel.core.cluster import Server
from gavel.core.errors import InputError
from gavel.core.events import (
    AllocationReady,
    Command,
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobSubmitted,
    Launch,
    RateMeasured,
    RatesProfiled,
    Renew,
    RestartMeasured,
    RoundDue,
    ServerJoined,
    ServerLost,
    Solve,
    SolveFailed,
    Stop,
    WakeAt,
)
from gavel.core.jobs import JobSpec
from gavel.core.locality import Locality
from gavel.core.problem import Problem
from gavel.core.throughputs import builtin_table
from gavel.estimator.learned import LearnedTable
from gavel.policies.registry import allocate
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import SPARE_PROFILES, Scheduler, Settings, check_invariants
from gavel.scheduler.placement import ServerPool
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.rounds import Mechanism
from gavel.scheduler.state import dump, restore
from stories import Story, Teller, stories

MECHANISMS = (Credits, Priorities)


def scheduler(mechanism: Mechanism | None = None, *, space_sharing: bool = False) -> Scheduler:
    return Scheduler(builtin_table(), mechanism or Credits(), Settings(space_sharing=space_sharing))


def answer(command: Solve, time: float) -> AllocationReady:
    return AllocationReady(time, command.number, allocate(command.problem))


def settle(machine: Scheduler, event: Event) -> list[Command]:
    """Handle an event and, like a world, answer the solves and the rounds that it asks for at once."""
    done: list[Command] = []
    events = [event]
    while events:
        now = events.pop(0)
        commands = machine.handle(now)
        check_invariants(machine)
        for command in commands:
            if isinstance(command, Solve):
                events.append(answer(command, now.time))
            if isinstance(command, WakeAt) and command.time <= now.time:
                events.append(RoundDue(command.time))
        done += commands
    return done


def job(name: str, template: str = "A3C", workers: int = 1, steps: float = 1e6) -> JobSpec:
    return JobSpec(name, template, workers, steps)


def test_rounds_do_not_wait_for_a_policy_that_answers_too_late() -> None:
    machine = Scheduler(builtin_table(), Credits(), Settings(solve_patience_seconds=1.0))
    machine.handle(ServerJoined(0.0, Server("a", "v100", 2)))
    machine.handle(JobSubmitted(0.0, job("one")))
    first = machine.handle(RoundDue(0.0))[0]
    assert isinstance(first, Solve)
    machine.handle(answer(first, 0.5))
    machine.handle(JobSubmitted(10.0, job("two")))
    (second, wake) = machine.handle(RoundDue(360.5))
    assert wake == WakeAt(361.5)  # the last answer came in time
    machine.handle(RoundDue(361.5))
    assert isinstance(second, Solve)
    machine.handle(answer(second, 400.0))
    machine.handle(JobSubmitted(500.0, job("three")))
    commands = machine.handle(RoundDue(721.5))
    assert isinstance(commands[0], Solve)
    assert Renew(721.5 + 360.0) in commands  # it begins at once, with the current allocation


def test_a_job_on_an_idle_cluster_starts_at_once() -> None:
    machine = scheduler()
    machine.handle(ServerJoined(0.0, Server("a", "v100", 4)))
    commands = settle(machine, JobSubmitted(100.0, job("j")))
    assert [c for c in commands if isinstance(c, Launch)] == [Launch("j", "v100", {"a": 1}, 460.0)]
    assert commands[-2:] == [Renew(460.0), WakeAt(460.0)]


def test_a_job_that_continues_is_renewed_and_not_restarted() -> None:
    machine = scheduler()
    machine.handle(ServerJoined(0.0, Server("a", "v100", 4)))
    settle(machine, JobSubmitted(0.0, job("j")))
    assert settle(machine, RoundDue(360.0)) == [Renew(720.0), WakeAt(720.0)]


def test_a_round_does_not_wait_for_a_slow_solver() -> None:
    machine = scheduler()
    machine.handle(ServerJoined(0.0, Server("a", "v100", 1)))
    settle(machine, JobSubmitted(0.0, job("one")))
    machine.handle(JobSubmitted(10.0, job("two")))
    asked = machine.handle(RoundDue(360.0))
    assert isinstance(asked[0], Solve)
    late = machine.handle(RoundDue(361.0))
    assert late == [Renew(721.0), WakeAt(721.0)]
    assert machine.handle(answer(asked[0], 400.0)) == []  # used from the next round on


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_answer_with_a_job_that_has_left_still_serves_the_others(mechanism: type[Mechanism]) -> None:
    machine = scheduler(mechanism())
    machine.handle(ServerJoined(0.0, Server("a", "v100", 2)))
    for name in ("one", "two"):
        machine.handle(JobSubmitted(0.0, job(name)))
    asked = machine.handle(RoundDue(0.0))
    assert isinstance(asked[0], Solve)
    machine.handle(JobCancelled(0.5, "one"))
    launched = [c.job for c in machine.handle(answer(asked[0], 0.7)) if isinstance(c, Launch)]
    assert launched == ["two"]


def test_a_failed_solve_leaves_the_old_allocation_in_force() -> None:
    machine = scheduler()
    machine.handle(ServerJoined(0.0, Server("a", "v100", 1)))
    settle(machine, JobSubmitted(0.0, job("one")))
    machine.handle(JobSubmitted(10.0, job("two")))
    asked = machine.handle(RoundDue(360.0))
    assert isinstance(asked[0], Solve)
    commands = machine.handle(SolveFailed(360.0, asked[0].number, "no luck"))
    assert commands == [Renew(720.0), WakeAt(720.0)]
    assert isinstance(machine.handle(RoundDue(720.0))[0], Solve)  # and the question is asked again


def test_a_lost_server_stops_its_jobs_and_they_run_elsewhere() -> None:
    machine = scheduler()
    for name in ("a", "b"):
        machine.handle(ServerJoined(0.0, Server(name, "v100", 1)))
    first = settle(machine, JobSubmitted(0.0, job("j")))
    where = next(c for c in first if isinstance(c, Launch)).accelerators
    lost = next(iter(where))
    commands = settle(machine, ServerLost(100.0, lost))
    assert Stop("j") in commands
    assert next(c for c in commands if isinstance(c, Launch)).accelerators == {({"a", "b"} - {lost}).pop(): 1}


def test_a_job_larger_than_every_type_waits_without_disturbing_the_others() -> None:
    machine = scheduler()
    machine.handle(ServerJoined(0.0, Server("a", "v100", 4)))
    machine.handle(JobSubmitted(0.0, job("huge", "LM (batch size 5)", workers=8)))
    commands = settle(machine, JobSubmitted(0.0, job("small")))
    commands += settle(machine, RoundDue(0.0))
    assert {c.job for c in commands if isinstance(c, Launch)} == {"small"}


def with_singles_on(servers: str) -> Scheduler:
    """Servers of four accelerators; each of the named ones runs a single worker."""
    machine = scheduler()
    for name in sorted(set(servers)):
        machine.handle(ServerJoined(0.0, Server(name, "v100", 4)))
    for number in range(len(servers)):
        machine.handle(JobSubmitted(0.0, job(f"s{number}", "ResNet-50 (batch size 64)")))
    settle(machine, RoundDue(0.0))
    for run, name in zip(list(machine.placed), servers, strict=True):
        machine.server_pools[run.type_index].give_back(machine.placed[run])
        machine.placed[run] = machine.server_pools[run.type_index].take_exactly({name: 1})
    check_invariants(machine)
    return machine


def test_gangs_sit_on_one_server_even_if_single_workers_must_move() -> None:
    machine = with_singles_on("abab")
    machine.handle(JobSubmitted(1.0, job("gang", "LM (batch size 5)", workers=4)))
    commands = settle(machine, RoundDue(360.0))
    launched = {c.job: c for c in commands if isinstance(c, Launch)}
    assert len(launched["gang"].accelerators) == 1
    assert launched["gang"].locality is Locality.SERVER


def test_gangs_larger_than_a_server_sit_on_as_few_as_possible() -> None:
    machine = with_singles_on("aabc")
    machine.handle(JobSubmitted(1.0, job("gang", "LM (batch size 5)", workers=8)))
    commands = settle(machine, RoundDue(360.0))
    launched = {c.job: c for c in commands if isinstance(c, Launch)}
    assert launched["gang"].accelerators == {"b": 4, "c": 4}
    assert launched["gang"].locality is Locality.SERVER


def test_room_is_made_with_the_fewest_moves_and_only_if_there_is_somewhere_to_go() -> None:
    pool = ServerPool()
    for name in "abc":
        pool.join(Server(name, "v100", 4))
    pool.take_exactly({"a": 1, "b": 3, "c": 2})
    singles = {"a": [1], "b": [1, 1, 1], "c": [1, 1]}
    assert pool.cheapest_clearing(3, singles) == {}  # there is room already
    assert pool.cheapest_clearing(4, singles) == {"a": [0]}
    assert pool.cheapest_clearing(4, {"b": [1, 1, 1], "c": [1, 1]}) == {"c": [0, 1]}
    assert pool.cheapest_clearing(6, singles) == {"a": [0], "c": []}  # four beside two
    assert pool.cheapest_clearing(8, singles) == {}  # the workers of a and c would not fit on b
    assert pool.cheapest_clearing(4, {}) == {}


def test_gangs_make_room_only_where_each_fits_on_one_server() -> None:
    pool = ServerPool()
    for name, size in {"large": 8, "middle": 4, "small": 2, "other": 2}.items():
        pool.join(Server(name, "v100", size))
    pool.take_exactly({"large": 7, "middle": 2})
    assert pool.cheapest_clearing(8, {"large": [1, 4, 2]}) == {}  # the gang of four would be split
    pool.give_back({"middle": 2})
    assert pool.cheapest_clearing(8, {"large": [1, 4, 2]}) == {"large": [0, 2, 1]}
    assert pool.cheapest_clearing(5, {"large": [1, 4, 2]}) == {"large": [1]}  # moving the gang of four is enough
    assert pool.take_elsewhere(2, {"large", "small"}) == {"other": 2}
    assert pool.take_elsewhere(2, {"large", "small"}) == {"middle": 2}


def test_smaller_gangs_move_for_one_that_only_a_large_server_holds() -> None:
    machine = scheduler()
    machine.handle(ServerJoined(0.0, Server("large", "v100", 8)))
    for number in range(2):
        machine.handle(JobSubmitted(0.0, job(f"four{number}", "LM (batch size 5)", workers=4)))
    settle(machine, RoundDue(0.0))
    for name in ("a", "b"):
        machine.handle(ServerJoined(1.0, Server(name, "v100", 4)))
    machine.handle(JobSubmitted(1.0, job("eight", "LM (batch size 5)", workers=8)))
    commands = settle(machine, RoundDue(360.0))
    launched = {c.job: c for c in commands if isinstance(c, Launch)}
    assert launched["eight"].accelerators == {"large": 8}
    assert sorted(str(launched[name].accelerators) for name in ("four0", "four1")) == ["{'a': 4}", "{'b': 4}"]
    assert all(launch.locality is Locality.SERVER for launch in launched.values())
    assert [c.job for c in commands if isinstance(c, Stop)] == ["four0", "four1"]


def sizes(problem: Problem) -> dict[str, tuple[int, ...]]:
    return {kind.name: kind.servers for kind in problem.types if kind.count}


def test_the_problem_follows_servers_that_join_and_leave() -> None:
    machine = scheduler()
    machine.handle(JobSubmitted(0.0, job("gang", "LM (batch size 5)", workers=4)))
    for name, kind, size in (("a", "v100", 2), ("b", "v100", 8), ("c", "k80", 4), ("d", "v100", 4)):
        machine.handle(ServerJoined(0.0, Server(name, kind, size)))
    [asked, _] = machine.handle(RoundDue(0.0))
    assert isinstance(asked, Solve)
    assert sizes(asked.problem) == {"v100": (8, 4, 2), "k80": (4,)}
    machine.handle(answer(asked, 0.0))
    machine.handle(ServerLost(1.0, "b"))
    assert sizes(machine.problem(1.0)) == {"v100": (4, 2), "k80": (4,)}
    machine.handle(ServerLost(2.0, "c"))
    machine.handle(ServerJoined(3.0, Server("e", "v100", 1)))
    again = machine.problem(3.0)
    assert sizes(again) == {"v100": (4, 2, 1)}
    assert again.types[0].count == 7
    assert machine.problem(4.0).types is again.types  # computed again only when servers change


def test_gangs_are_not_granted_more_time_together_than_servers_have_room_for() -> None:
    machine = scheduler()
    for name, size in (("a", 4), ("b", 2), ("c", 2)):
        machine.handle(ServerJoined(0.0, Server(name, "v100", size)))
    for number in range(2):
        machine.handle(JobSubmitted(0.0, job(f"gang{number}", "LM (batch size 5)", workers=4)))
    rows = list(allocate(machine.problem(0.0)).rows())
    assert sum(row.consolidated.get("v100", 0.0) for row in rows) == pytest.approx(1.0)
    assert sum(row.shares["v100"] for row in rows) == pytest.approx(2.0)


def test_an_unknown_template_is_refused_before_anything_changes() -> None:
    machine = scheduler()
    with pytest.raises(InputError, match="A3D"):
        machine.handle(JobSubmitted(0.0, job("j", "A3D")))
    assert "j" not in machine.roster
    with pytest.raises(InputError, match="t4"):
        machine.handle(ServerJoined(0.0, Server("x", "t4", 1)))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("space_sharing", [False, True])
@given(story=stories())
@settings(max_examples=15)
def test_no_order_of_events_breaks_the_invariants(
    mechanism: type[Mechanism], space_sharing: bool, story: Story
) -> None:
    machine, teller = scheduler(mechanism(), space_sharing=space_sharing), Teller(story)
    for event in teller.events(machine):
        before = set(machine.roster.slot_of)
        commands = machine.handle(event)
        check_invariants(machine)
        teller.hear(commands)
        assert {c.job for c in commands if isinstance(c, Launch | Stop)} <= before
        launched = [c.job for c in commands if isinstance(c, Launch)]
        assert len(set(launched)) == len(launched)
    assert len(machine.roster) <= teller.submitted


def learning() -> Scheduler:
    known = builtin_table().only(set(builtin_table().templates) - {"A3C"})
    machine = Scheduler(LearnedTable(known), Credits(), Settings(space_sharing=True))
    machine.handle(ServerJoined(0.0, Server("a", "v100", 1)))
    return machine


def ignored(machine: Scheduler) -> list[str]:
    return list(machine.table.document()["ignored"])


def test_a_measurement_beside_a_job_that_has_left_is_ignored_with_a_reason() -> None:
    machine = learning()
    settle(machine, JobSubmitted(0.0, job("j")))
    before = machine.rates_of("j")
    machine.handle(RateMeasured(10.0, "j", "v100", 3.0, beside="nobody"))
    machine.handle(RateMeasured(10.0, "nobody", "v100", 3.0))
    machine.handle(RateMeasured(10.0, "j", "v100", -3.0))
    assert machine.rates_of("j") == before
    assert ignored(machine) == [
        "job j on v100: 3 steps a second, but job nobody is gone",
        "job nobody on v100: 3 steps a second, but job nobody is gone",
        "A3C on v100: -3 steps a second cannot be",
    ]


def test_profiled_rates_change_the_next_allocation() -> None:
    machine = learning()
    settle(machine, JobSubmitted(0.0, job("j")))
    machine.handle(RatesProfiled(10.0, "A3C", "v100", 7.0))
    assert machine.rates_of("j")["v100"] == 7.0
    assert any(isinstance(command, Solve) for command in machine.handle(RoundDue(360.0)))


def test_profiled_pairs_are_believed_and_those_that_do_not_fit_are_refused() -> None:
    machine = learning()
    machine.handle(RatesProfiled(0.0, "A3C", "v100", 7.0))
    machine.handle(RatesProfiled(1.0, "A3C", "v100", 6.0, "CycleGAN", 4.0))
    machine.handle(RatesProfiled(2.0, "A3C", "v100", 0.0, "LM (batch size 5)", 0.0))
    together = {(c.template, c.beside): rate for c, rate in machine.table.measured().items() if c.beside}  # type: ignore[attr-defined]
    assert together == {("A3C", "CycleGAN"): 6.0, ("CycleGAN", "A3C"): 4.0}
    assert machine.table.document()["failures"] == [["A3C", 1, "v100", True, "LM (batch size 5)", 1]]


def packed() -> Scheduler:
    """Two light jobs on one accelerator."""
    machine = Scheduler(LearnedTable(builtin_table()), Credits(), Settings(space_sharing=True))
    for name, template in (("i", "ResNet-18 (batch size 16)"), ("j", "A3C")):
        machine.handle(JobSubmitted(0.0, job(name, template)))
    commands = settle(machine, ServerJoined(0.0, Server("a", "v100", 1)))
    assert {c.job: c.beside for c in commands if isinstance(c, Launch)} == {"i": "j", "j": "i"}
    return machine


def test_jobs_that_crash_beside_each_other_are_not_packed_again() -> None:
    machine = packed()
    machine.handle(JobFailed(10.0, "i", "out of memory", crashed=True))
    launches = [c for c in settle(machine, RoundDue(360.0)) if isinstance(c, Launch)]
    assert all(launch.beside is None for launch in launches)
    assert "out of memory" in ignored(machine)[-1]


def test_jobs_that_lost_their_agent_may_be_packed_again() -> None:
    machine = packed()
    machine.handle(JobFailed(10.0, "i", "its agent is lost"))
    assert machine.table.document()["failures"] == []
    assert len(machine.problem(360.0).pairs.first) == 3  # each template with itself, and the two together


# ---- during a round ----


def started(commands: list[Command]) -> dict[str, float]:
    """By launched job: when its lease ends."""
    return {command.job: command.until for command in commands if isinstance(command, Launch)}


def busy(jobs: int, waiting: int) -> Scheduler:
    """A round from 0 to 360 s in which all accelerators are busy and the other jobs wait."""
    machine = scheduler()
    machine.handle(ServerJoined(0.0, Server("a", "v100", jobs)))
    for number in range(jobs + waiting):
        machine.handle(JobSubmitted(0.0, job(f"j{number}")))
    assert len(started(settle(machine, RoundDue(0.0)))) == jobs
    return machine


def test_a_job_that_arrives_beside_idle_accelerators_starts_at_once_until_the_round_ends() -> None:
    machine = busy(1, 0)
    machine.handle(ServerJoined(50.0, Server("b", "v100", 1)))
    commands = settle(machine, JobSubmitted(100.0, job("late")))
    assert started(commands) == {"late": 360.0}
    assert commands[-1] == WakeAt(360.0)
    assert not any(isinstance(command, Solve | Stop | Renew) for command in commands)


def test_places_of_jobs_that_finish_at_one_moment_are_filled_by_one_plan_without_a_solve() -> None:
    machine = busy(6, 7)
    before = machine._plans
    running = [machine.roster.name(slot) for run in machine.placed for slot in run.members][:5]
    asked = [command for name in running for command in machine.handle(JobFinished(100.0, name))]
    assert asked == [WakeAt(100.0)]
    commands = settle(machine, RoundDue(100.0))
    assert machine._plans == before + 1
    assert len(started(commands)) == 5
    assert set(started(commands).values()) == {360.0}
    assert not any(isinstance(command, Solve) for command in commands)


def test_later_events_do_not_postpone_a_wake() -> None:
    machine = busy(3, 2)
    assert machine.handle(JobCancelled(100.0, "j0")) == [WakeAt(100.0)]
    assert machine.handle(JobSubmitted(100.1, job("new"))) == []
    assert machine.handle(JobCancelled(100.2, "j1")) == []
    assert len(started(machine.handle(RoundDue(100.3)))) == 2
    assert machine.handle(JobCancelled(100.4, "j2")) == [WakeAt(100.4)]


def test_a_wake_after_the_end_of_the_round_begins_the_next_one() -> None:
    machine = busy(1, 1)
    machine.handle(JobSubmitted(1.0, job("other")))
    machine.handle(ServerJoined(359.0, Server("b", "v100", 1)))
    assert set(started(settle(machine, RoundDue(361.0))).values()) == {721.0}


def test_a_job_that_has_paused_after_a_failure_starts_again_during_the_round() -> None:
    machine = busy(2, 0)
    commands = machine.handle(JobFailed(100.0, "j0", "exit code 1", not_before=110.0))
    assert commands == [WakeAt(110.0)]
    commands = machine.handle(RoundDue(110.0))
    assert started(commands) == {"j0": 360.0}
    assert commands[-1] == WakeAt(360.0)


def test_a_pause_is_remembered_while_others_start_and_ends_with_the_round_at_the_latest() -> None:
    machine = busy(2, 1)
    assert machine.handle(JobFailed(100.0, "j0", "exit code 1", not_before=200.0)) == [WakeAt(100.0)]
    commands = machine.handle(RoundDue(100.0))
    assert list(started(commands)) == ["j2"]
    assert commands[-1] == WakeAt(200.0)
    assert machine.handle(RoundDue(200.0)) == [WakeAt(360.0)]  # no room yet
    assert machine.handle(JobFailed(300.0, "j1", "exit code 1", not_before=400.0)) == [WakeAt(300.0)]
    commands = machine.handle(RoundDue(300.0))
    assert list(started(commands)) == ["j0"]
    assert commands[-1] == WakeAt(360.0)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_server_of_a_new_type_that_joins_during_a_round_is_used_at_once(mechanism: type[Mechanism]) -> None:
    machine = Scheduler(LearnedTable(builtin_table()), mechanism(), Settings())
    machine.handle(ServerJoined(0.0, Server("a", "v100", 1)))
    for number in range(2):
        machine.handle(JobSubmitted(0.0, job(f"j{number}")))
    settle(machine, RoundDue(0.0))
    assert list(started(settle(machine, ServerJoined(100.0, Server("b", "h100", 1))))) == ["j1"]


# ---- what restarts cost ----


def cost_of(machine: Scheduler, name: str) -> float:
    return float(machine.round_input(0.0).restart[machine.roster.slot_of[name]])


def test_restarts_cost_what_was_measured_for_their_template_or_what_is_configured() -> None:
    machine = busy(2, 0)
    machine.handle(JobSubmitted(1.0, job("other", "CycleGAN")))
    machine.handle(RestartMeasured(10.0, "j0", 40.0))
    assert cost_of(machine, "j0") == 10.0  # updated with the next allocation
    settle(machine, RoundDue(360.0))
    assert [cost_of(machine, name) for name in ("j0", "j1", "other")] == [40.0, 40.0, 10.0]


def test_the_newest_restart_counts_for_a_quarter() -> None:
    machine = busy(1, 0)
    for seconds in (40.0, 80.0, 30.0):
        machine.handle(RestartMeasured(10.0, "j0", seconds))
    settle(machine, RoundDue(360.0))
    assert cost_of(machine, "j0") == 45.0


@pytest.mark.parametrize(("seconds", "asks"), [(40.0, True), (11.0, False), (3.0, True)])
def test_a_cost_that_differs_by_much_makes_the_next_round_ask_for_an_allocation(seconds: float, asks: bool) -> None:
    machine = busy(1, 0)
    machine.handle(RestartMeasured(10.0, "j0", seconds))
    assert isinstance(machine.handle(RoundDue(360.0))[0], Solve) is asks


def test_measured_restarts_do_not_reset_a_mechanism_that_does_not_weigh_them() -> None:
    machine = Scheduler(builtin_table(), Priorities(), Settings(weigh_restarts=False))
    machine.handle(ServerJoined(0.0, Server("a", "v100", 1)))
    machine.handle(JobSubmitted(0.0, job("j0")))
    settle(machine, RoundDue(0.0))
    machine.handle(RestartMeasured(10.0, "j0", 40.0))
    assert machine.handle(RoundDue(360.0)) == [Renew(720.0), WakeAt(720.0)]


def test_impossible_restart_costs_and_those_of_unknown_jobs_are_ignored() -> None:
    machine = busy(1, 0)
    for name, seconds in (("nobody", 40.0), ("j0", -1.0), ("j0", float("nan")), ("j0", float("inf"))):
        assert machine.handle(RestartMeasured(10.0, name, seconds)) == []
    assert machine.handle(RoundDue(360.0)) == [Renew(720.0), WakeAt(720.0)]


def test_a_restored_scheduler_knows_what_restarts_cost() -> None:
    machine = busy(1, 0)
    machine.handle(RestartMeasured(10.0, "j0", 40.0))
    again = restore(dump(machine), builtin_table(), Credits(), Settings())
    for each in (machine, again):
        settle(each, RoundDue(360.0))
    assert cost_of(again, "j0") == cost_of(machine, "j0") == 40.0


def test_a_mechanism_is_told_of_every_second_also_between_rounds() -> None:
    """Two jobs on one accelerator: the waiting job falls behind by as long as it waits."""
    mechanism = Credits()
    machine = scheduler(mechanism)
    machine.handle(ServerJoined(0.0, Server("a", "v100", 1)))
    for name in ("first", "second"):
        machine.handle(JobSubmitted(0.0, job(name)))
    settle(machine, RoundDue(0.0))
    machine.account(250.0)
    waiting = machine.roster.slot_of["second"]
    assert machine.roster.running_on[waiting] == 0
    assert mechanism.ledger.lag[waiting] == pytest.approx(250.0)
    machine.account(300.0)
    assert mechanism.ledger.lag[waiting] == pytest.approx(300.0)


def test_templates_without_jobs_are_forgotten_and_those_with_jobs_stay() -> None:
    """A sweep of thousands of templates must not make every later round slower."""
    machine = Scheduler(LearnedTable(builtin_table()), Credits(), Settings())
    machine.handle(ServerJoined(0.0, Server("a", "v100", 2)))
    settle(machine, JobSubmitted(0.0, job("stays", "A3C")))
    machine.handle(RestartMeasured(1.0, "stays", 40.0))
    rates = machine.rates_of("stays")
    for number in range(500):
        time = 10.0 + number
        settle(machine, JobSubmitted(time, job(f"j{number}", f"mine {number}")))
        settle(machine, JobFinished(time + 0.5, f"j{number}"))
    assert len(machine.templates) <= SPARE_PROFILES + 4
    assert machine.rates_of("stays") == rates
    settle(machine, RoundDue(720.0))
    assert cost_of(machine, "stays") == 40.0
    again = restore(dump(machine), LearnedTable(builtin_table()), Credits(), Settings())
    check_invariants(again)
    assert again.templates == machine.templates


def test_pairs_are_looked_at_only_where_jobs_may_share() -> None:
    class WithoutPairs(LearnedTable):
        def pairs(self, profiles: object, types: object) -> NoReturn:
            raise AssertionError(profiles, types)

    for sharing in (False, True):
        machine = Scheduler(WithoutPairs(builtin_table()), Credits(), Settings(space_sharing=sharing))
        machine.handle(ServerJoined(0.0, Server("a", "v100", 2)))
        machine.handle(JobSubmitted(0.0, job("j")))
        if sharing:
            with pytest.raises(AssertionError):
                machine.handle(RoundDue(0.0))
        else:
            assert isinstance(machine.handle(RoundDue(0.0))[0], Solve)


def test_a_job_that_fits_nowhere_does_not_wake_the_scheduler() -> None:
    """With 10,000 arrivals, the scheduler must not plan for each one that cannot use the idle accelerators."""
    machine = scheduler()
    machine.handle(ServerJoined(0.0, Server("a", "v100", 2)))
    settle(machine, JobSubmitted(0.0, job("one")))
    assert machine.handle(JobSubmitted(10.0, job("gang", "ResNet-18 (batch size 16)", workers=4))) == []
    assert machine.handle(JobSubmitted(20.0, job("two"))) == [WakeAt(20.0)]
