"""Simulations: the same seed gives the same events, figures add up, and flaws known from prototypes do not occur."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from gavel.core.cluster import parse_cluster
from gavel.core.errors import InputError
from gavel.core.events import Event, JobFinished, JobsProgressed
from gavel.core.throughputs import builtin_table
from gavel.policies.registry import allocate
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Settings, check_invariants
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.settled import Settled
from gavel.sim.experiment import Experiment, run
from gavel.sim.outcome import Outcome
from gavel.sim.report import Report
from gavel.sim.simulate import simulate
from gavel.sim.view import View
from gavel.workload.formats import write_trace
from gavel.workload.generate import generate
from gavel.workload.trace import Trace, TraceJob

SMALL = Experiment(cluster="v100=4,p100=4,k80=4", jobs=40, arrivals_per_hour=0.6, restart_seconds=30.0)


class Watcher:
    """Checks the invariants after every event, and records the events."""

    def __init__(self) -> None:
        self.stream: list[tuple[float, str]] = []
        self.steps: dict[str, float] = {}

    def after(self, event: Event, view: View) -> None:
        check_invariants(view._scheduler)
        self.stream.append((event.time, type(event).__name__))
        if isinstance(event, JobsProgressed):
            for job, steps in zip(event.jobs, event.steps.tolist(), strict=True):
                self.steps[job] = self.steps.get(job, 0.0) + steps
        if isinstance(event, JobFinished):
            self.stream.append((event.time, event.job))


def watched(experiment: Experiment) -> tuple[Report, Watcher]:
    watcher = Watcher()
    return run(experiment, observers=[watcher]), watcher


def one_job(steps: float, workers: int = 1, template: str = "A3C") -> Trace:
    return Trace((TraceJob("j", template, workers, steps, 0.0),))


def alone(trace: Trace, cluster: str = "v100=4", **options: float) -> Outcome:
    return simulate(trace, parse_cluster(cluster), builtin_table(), allocate, Credits(), Settings(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("mechanism", ["credits", "plain"])
@pytest.mark.parametrize("variant", [{}, {"space_sharing": True}, {"multi_worker": True}, {"agnostic": True}])
def test_every_job_is_done_and_the_invariants_hold_after_every_event(mechanism: str, variant: dict[str, bool]) -> None:
    load: Any = {"cluster": "v100=8,p100=8,k80=8", "jobs": 40, "arrivals_per_hour": 1.2, "mechanism": mechanism}
    report, _ = watched(Experiment(**load | variant))
    assert report.document()["jobs_completed"] == 40


def test_the_same_seed_gives_the_same_stream_of_events() -> None:
    (one, first), (two, second) = watched(SMALL), watched(SMALL)
    assert first.stream == second.stream
    assert one.completion_seconds() == two.completion_seconds()


def test_accelerator_time_adds_up() -> None:
    report, watcher = watched(SMALL)
    outcome = report.outcome
    received = sum(job.workers * float(job.received.sum()) for job in outcome.jobs.values())
    assert outcome.given_seconds == pytest.approx(received, rel=1e-9)
    assert outcome.given_seconds <= 12 * outcome.end * (1 + 1e-9)
    restarts = sum(job.restarts * job.workers for job in outcome.jobs.values())
    assert outcome.restart_seconds == pytest.approx(restarts * SMALL.restart_seconds)
    assert watcher.steps  # no job made more steps than it has: the last ones are counted by JobFinished


def test_a_job_alone_takes_its_steps_over_its_rate() -> None:
    rate = builtin_table().rates([("A3C", 1)], ["v100"])[0, 0, 0]
    outcome = alone(one_job(steps=600.0 * rate))
    assert outcome.jobs["j"].seconds == pytest.approx(600.0)


def test_restarts_cost_time_and_credits_avoid_them() -> None:
    load = {"cluster": "v100=3,p100=3,k80=3", "jobs": 60, "arrivals_per_hour": 0.5, "restart_seconds": 60.0}
    plain = run(Experiment(mechanism="plain", **load)).document()  # type: ignore[arg-type]
    credit = run(Experiment(mechanism="credits", **load)).document()  # type: ignore[arg-type]
    assert credit["restarts_per_job"] * 4 < plain["restarts_per_job"]
    assert credit["average_jct_seconds"] < plain["average_jct_seconds"]


def test_a_window_counts_only_its_jobs_and_stops_when_they_have_finished() -> None:
    whole = run(SMALL)
    part = run(Experiment(cluster=SMALL.cluster, jobs=40, arrivals_per_hour=0.6, restart_seconds=30.0, window=(5, 15)))
    assert part.document()["jobs_completed"] == 10
    assert part.completion_seconds() == whole.completion_seconds()[5:15]
    assert part.outcome.rounds < whole.outcome.rounds


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(InputError, match="no accelerators"):
        run(Experiment(cluster="v100=0", jobs=1))
    with pytest.raises(InputError, match="window 5:50 does not lie within the 10 jobs"):
        run(Experiment(cluster="v100=1", jobs=10, window=(5, 50)))
    with pytest.raises(InputError, match="nothing to run"):
        run(Experiment(cluster="v100=1"))


def test_entities_of_a_trace_share_equally_unless_described(tmp_path: Path) -> None:
    table = builtin_table()
    trace = generate(jobs=10, arrivals_per_hour=None, multi_worker=False, table=table, seed=0, entities=["a", "b/c"])
    write_trace(trace, tmp_path / "trace.csv")
    report = run(Experiment(cluster="v100=2,k80=2", trace=str(tmp_path / "trace.csv"), policy="hierarchical"))
    assert report.document()["jobs_completed"] == 10


def test_an_unknown_accelerator_type_is_refused() -> None:
    with pytest.raises(
        InputError, match="no throughput is known for 'v10', a type of the cluster; did you mean 'v100'"
    ):
        run(Experiment(cluster="v10=4", jobs=1))


def test_an_overloaded_cluster_stops_at_the_limit_and_says_so() -> None:
    report = run(Experiment(cluster="k80=1", jobs=50, arrivals_per_hour=10.0, limit_days=2.0))
    assert not report.outcome.drained
    assert "raise --limit-days" in report.document()["notes"][-1]


def test_plain_and_credits_agree_on_what_an_uncontended_job_gets() -> None:
    for mechanism in (Priorities(), Credits()):
        rate = builtin_table().rates([("A3C", 1)], ["v100"])[0, 0, 0]
        outcome = simulate(
            one_job(10_000.0 * rate), parse_cluster("v100=1,k80=1"), builtin_table(), allocate, mechanism, Settings()
        )
        assert outcome.jobs["j"].seconds == pytest.approx(10_000.0, rel=0.01)
        assert np.argmax(outcome.jobs["j"].received) == builtin_table().types.index("v100")


@pytest.mark.parametrize("agnostic", [False, True], ids=["aware", "agnostic"])
def test_settled_plans_are_those_that_the_rules_give(agnostic: bool) -> None:
    experiment = Experiment(
        cluster="v100=3,p100=3,k80=3",
        policy="max_min_fairness",
        agnostic=agnostic,
        jobs=60,
        arrivals_per_hour=0.5,
    )
    ours = run(experiment).document()
    with patch.object(Settled, "holds", return_value=False) as asked:
        looking = run(experiment).document()
    assert asked.called
    timed = {"solver_seconds", "wall_seconds"}
    assert {k: v for k, v in ours.items() if k not in timed} == {k: v for k, v in looking.items() if k not in timed}
