"""User-defined mechanisms: how they are found, how their plans are checked, and how their errors are reported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gavel.core.errors import GavelError, InputError
from gavel.policies.mechanisms import (
    check_mechanism,
    mechanism_for,
    suited,
    trouble_of,
)
from gavel.policies.registry import find_policy
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Settings
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.rounds import NO_TEAM, RoundInput, Run, RunNumbers
from gavel.scheduler.user_defined import fault, load
from gavel.sim.experiment import Experiment, run
from gavel.sim.results import digest, point_of, settings_of
from gavel.sim.sweep import Contender

MODULE = """
from gavel import Mechanism, Plan, Run
class Theirs(Mechanism):
    def __init__(self): self.calls = []
    def adopt(self, allocation, slots): pass
    def account(self, elapsed): pass
    def leave(self, slot): pass
    def dump(self, numbers): return {{"calls": self.calls}}
    def restore(self, document, runs): self.calls = document["calls"]
    def decide(self, given):
        {body}
class WithoutDecide(Mechanism):
    def adopt(self, allocation, slots): pass
    def account(self, elapsed): pass
    def leave(self, slot): pass
def with_arguments(patience): pass
thing = 3
"""
KEPT = "return Plan()"
Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a module whose mechanism decides with this code, and return the mechanism's name."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)

    def write(body: str) -> str:
        (tmp_path / "theirs.py").write_text(MODULE.format(body=body))
        return "theirs.Theirs"

    return write


def round_input(running: tuple[Run, ...] = (), *, mid_round: bool = False) -> RoundInput:
    """Two accelerators of type 0 and one of type 1. Slots 0 to 3 have jobs, slot 4 has none. Job 3 is a gang of two.

    Job 2 cannot run on type 1.
    """
    runs = {slot for one in running for slot in one.members}
    return RoundInput(
        number=1,
        time=0.0,
        capacity=[2, 1],
        free=[2 - sum(one.workers for one in running), 1],
        running=running,
        waiting=np.array([slot for slot in range(4) if slot not in runs], dtype=np.intp),
        workers=np.array([1, 1, 1, 2, 1]),
        rates=np.array([[2.0, 1.0], [2.0, 1.0], [2.0, 0.0], [2.0, 1.0], [2.0, 1.0]]),
        rate_here=np.array([2.0 * (slot in runs) for slot in range(5)]),
        started=np.zeros(5, dtype=np.intp),
        steps_heard=np.full(5, 100.0),
        heard=np.full(5, np.inf),
        received=np.zeros((5, 2)),
        launched=np.zeros(5),
        arrival=np.zeros(5),
        restart=np.full(5, 10.0),
        team=np.full(5, NO_TEAM),
        round_seconds=360.0,
        mid_round=mid_round,
    )


ALONE = Run((0,), 0, 1)
PAIR = Run((0, 1), 0, 1)


@pytest.mark.parametrize(
    ("running", "plan", "sentence"),
    [
        ((), [Run((0,), 0, 1), Run((0,), 1, 1)], "the job in slot 0 would run twice"),
        ((), [Run((0,), 0, 1), Run((0,), 0, 1)], "the job in slot 0 would run twice"),
        ((), [Run((0,), 0, 1), Run((3,), 0, 2)], "3 of 2 accelerators of type 0 would be in use"),
        ((), [Run((3,), 0, 1)], "the job in slot 3 would get 1 workers, but it needs 2"),
        ((), [Run((4,), 0, 1)], "the job in slot 4 neither runs nor waits"),
        ((), [Run((-1,), 0, 1)], "the job in slot -1 neither runs nor waits"),
        ((), [Run((99,), 0, 1)], "the job in slot 99 neither runs nor waits"),
        ((), [Run((2,), 1, 1)], "the job in slot 2 cannot run on type 1"),
        ((), [Run((0,), 2, 1)], "there is no type 2; the types are 0 to 1"),
        ((), [Run((0,), -1, 1)], "there is no type -1"),
        ((), [Run((), 0, 1)], "a tuple of one or two slots, not"),
        ((), [Run((0, 0), 0, 1)], "a tuple of one or two slots, not"),
        ((), [Run([0], 0, 1)], "a tuple of one or two slots, not"),  # type: ignore[arg-type]
        ((), [Run((0.0,), 0, 1)], "a tuple of one or two slots, not"),  # type: ignore[arg-type]
        ((), [Run((0, 2), 0, 1)], "the jobs in slots 0 and 2 would share accelerators of type 0"),
        ((), [Run((0, 1), 1, 1)], "the jobs in slots 0 and 1 would share accelerators of type 1"),
        ((), [(0, 0)], "it contains a tuple instead of a gavel.Run"),
        ((ALONE,), [Run((1,), 0, 1)], "the job in slot 0 would be stopped during a round"),
    ],
)
def test_a_plan_that_cannot_run_is_refused(running: tuple[Run, ...], plan: list[Run], sentence: str) -> None:
    told = fault(round_input(running, mid_round=bool(running)), plan, {((0, 1), 0)})
    assert told is not None
    assert sentence in told


@pytest.mark.parametrize(
    ("running", "plan"),
    [
        ((), []),
        ((), [PAIR, Run((2,), 0, 1)]),
        ((), [Run((3,), 0, 2), Run((0,), 1, 1)]),
        ((Run((0, 2), 0, 1),), [Run((2, 0), 0, 1)]),  # they already share
        ((ALONE,), [Run((0,), 1, 1), Run((3,), 0, 2)]),  # moved to another type
    ],
)
def test_a_plan_that_can_run_is_not_refused(running: tuple[Run, ...], plan: list[Run]) -> None:
    assert fault(round_input(running, mid_round=bool(running)), plan, {((0, 1), 0)}) is None


def test_a_job_may_be_stopped_when_a_round_begins() -> None:
    assert fault(round_input((ALONE,)), [Run((1,), 0, 1)], ()) is None


def test_a_run_of_the_same_jobs_on_the_same_type_continues(write: Write) -> None:
    theirs = load(write("return Plan.of(given, [Run((1, 0), 0, 1), Run((2,), 0, 1)])"))
    plan = theirs.decide(round_input((PAIR,)))
    assert not plan.stopped
    assert [run.members for run in plan.started] == [(2,)]


def test_an_error_names_the_mechanism_and_its_line(write: Write) -> None:
    theirs = load(write("return 1 / 0"))
    with pytest.raises(GavelError, match=r"mechanism theirs.Theirs failed: ZeroDivisionError.* \(theirs.py, line 11\)"):
        theirs.decide(round_input())


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("return None", "mechanism theirs.Theirs returned a NoneType instead of a Plan"),
        (
            "return Plan.of(given, [Run((0,), 0, 2)])",
            "mechanism theirs.Theirs returned a plan that cannot run: the job in slot 0",
        ),
        ("return Plan.of(given, [(0,)])", "mechanism theirs.Theirs failed: .*a tuple instead of a gavel.Run"),
        ("given.received[0] = 1.0", "mechanism theirs.Theirs failed: ValueError: .*read-only"),
        ("given.capacity[0] += 1", "mechanism theirs.Theirs failed: TypeError"),
        ("given.time = 1.0", "mechanism theirs.Theirs failed: FrozenInstanceError"),
    ],
)
def test_a_simulation_ends_with_the_sentence(write: Write, body: str, sentence: str) -> None:
    with pytest.raises(GavelError, match=sentence):
        load(write(body)).decide(round_input())


def test_a_forgiving_mechanism_keeps_what_runs_and_says_why(write: Write) -> None:
    theirs = load(write("return Plan.of(given, [] if len(given.waiting) == 4 else [Run((1,), 0, 7)])"), forgiving=True)
    given = round_input((ALONE,))
    assert theirs.decide(given).runs(given) == [ALONE]
    assert "it needs 1" in trouble_of(theirs)
    assert not theirs.decide(round_input()).started
    assert not trouble_of(theirs)
    assert not trouble_of(Credits())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere.Mechanism", "there is no module 'nowhere'; install it, or put its directory on PYTHONPATH"),
        ("theirs.Nothing", "'Nothing' of 'theirs' does not exist; it must be a class or function"),
        ("theirs.thing", "'thing' of 'theirs' is a int; it must be a class or function"),
        ("theirs.with_arguments", "cannot be made without arguments: TypeError"),
        ("theirs.WithoutDecide", "a WithoutDecide has no method 'decide'; see gavel.Mechanism"),
        (".Mechanism", "write module.NAME"),
    ],
)
def test_a_name_that_is_not_a_mechanism_is_refused_with_a_sentence(write: Write, name: str, sentence: str) -> None:
    write(KEPT)
    with pytest.raises(InputError, match=f"^mechanism {name}: {sentence}"):
        check_mechanism(name)


def test_the_state_of_a_mechanism_is_dumped_under_its_name(write: Write) -> None:
    theirs, again = load(write(KEPT)), load(write(KEPT))
    document = theirs.dump(RunNumbers())
    assert document["kind"] == "theirs.Theirs"
    again.restore(document, [])
    assert again.dump(RunNumbers()) == document
    with pytest.raises(InputError, match=r"belongs to mechanism other\.Name, not to theirs\.Theirs"):
        again.restore(document | {"kind": "other.Name"}, [])
    with pytest.raises(InputError, match=r"KeyError: 'calls'.*while it restored its state"):
        again.restore(document | {"own": {}}, [])


def test_a_state_that_json_cannot_hold_is_refused(write: Write) -> None:
    theirs = load(write(KEPT))
    theirs._mechanism.calls = {(1, 2): 3}  # type: ignore[attr-defined]
    with pytest.raises(GavelError, match=r"mechanism theirs\.Theirs returned a state that JSON cannot hold"):
        theirs.dump(RunNumbers())


def test_a_changed_mechanism_makes_another_point_of_a_sweep(write: Write) -> None:
    theirs = Experiment(cluster="v100=1", jobs=1, mechanism=write(KEPT))
    assert settings_of(theirs)["mechanism_sha256"]
    assert not settings_of(replace(theirs, mechanism="plain"))["mechanism_sha256"]
    before = point_of(settings_of(theirs))
    write("return []")
    digest.cache_clear()  # as in a new process
    assert point_of(settings_of(theirs)) != before


# ---- built-in mechanisms, by name ----


def test_every_name_has_its_mechanism() -> None:
    fair, dated = find_policy("max_min_fairness"), find_policy("min_cost_slo")
    assert isinstance(mechanism_for(fair), Credits)
    for name in ("priorities", "plain"):
        assert isinstance(mechanism_for(fair, name), Priorities)
    for name in ("credits", "priorities", "plain"):
        chosen = mechanism_for(dated, name)
        assert isinstance(chosen, Priorities)  # credits would miss deadlines
        assert chosen.price_aware
    assert not mechanism_for(fair, "credits", agnostic=True).rules.knows_speeds  # type: ignore[attr-defined]
    assert not mechanism_for(find_policy("isolated"), "plain").knows_speeds  # type: ignore[attr-defined]
    with pytest.raises(
        InputError, match="there is no mechanism 'plian'; the mechanisms are: credits, priorities, plain"
    ):
        check_mechanism("plian")


@pytest.mark.parametrize(("mechanism", "at_once"), [("credits", True), ("priorities", True), ("plain", False)])
def test_only_under_plain_a_job_waits_for_the_next_round(mechanism: str, at_once: bool) -> None:
    settings: dict[str, Any] = {"cluster": "v100=4", "jobs": 6, "arrivals_per_hour": 3.0, "seed": 2}
    report = run(Experiment(mechanism=mechanism, **settings))
    waits = [job.first_start - job.arrival for job in report.outcome.jobs.values()]
    assert len(waits) == 6
    assert (max(waits) == 0.0) == at_once


def test_a_job_that_pauses_after_a_failure_is_in_no_plan_of_priorities() -> None:
    """The allocation may be older than the failure."""
    mechanism = Priorities()
    mechanism._combos, mechanism._target = [(0,), (4,)], np.array([[1.0, 0.0], [1.0, 0.0]])
    mechanism._seconds = np.zeros((2, 2))
    assert {slot for run in mechanism.decide(round_input()).started for slot in run.members} == {0, 1}


def test_a_sweep_names_mechanisms_as_variants() -> None:
    contender = Contender.parse("fifo:mechanism=theirs.Theirs+agnostic")
    assert contender.label == "fifo:agnostic+mechanism=theirs.Theirs"
    assert contender.settings() == {"policy": "fifo", "agnostic": True, "mechanism": "theirs.Theirs"}
    assert Contender.parse("fifo:priorities").settings() == {"policy": "fifo", "mechanism": "priorities"}
    with pytest.raises(InputError, match=r"mechanism=theirs\.Theirs and plain are two mechanisms; give one"):
        Contender.parse("fifo:plain+mechanism=theirs.Theirs")
    with pytest.raises(InputError, match=r"no variant 'planless'; the variants are .*, mechanism=module\.NAME"):
        Contender.parse("fifo:planless")


@pytest.mark.parametrize(
    ("name", "mid_round", "weighs"),
    [("credits", True, True), ("priorities", True, False), ("plain", False, False), ("theirs.Theirs", True, True)],
)
def test_every_mechanism_has_the_settings_that_suit_it(name: str, mid_round: bool, weighs: bool) -> None:
    settings = suited(Settings(round_seconds=7.0), find_policy("max_min_fairness"), name)
    assert settings == Settings(round_seconds=7.0, start_mid_round=mid_round, weigh_restarts=weighs)


def test_a_policy_with_deadlines_does_not_weigh_restarts() -> None:
    assert not suited(Settings(), find_policy("min_cost_slo"), "credits").weigh_restarts


def test_mechanisms_are_made_in_one_place() -> None:
    root = Path(__file__).parents[2]
    made = {
        path.relative_to(root).as_posix()
        for folder in ("src/gavel", "tools", "examples")
        for path in (root / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in {"Credits", "Priorities"}
    }
    assert made == {"src/gavel/policies/mechanisms.py"}
