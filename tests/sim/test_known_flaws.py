"""Where the authors' prototype goes wrong, in whole simulations: crashes, endless loops, lost jobs, idle waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from gavel.core.errors import InputError
from gavel.core.throughputs import builtin_table
from gavel.policies.mechanisms import MechanismName
from gavel.policies.registry import POLICIES
from gavel.sim.experiment import Experiment, run
from gavel.sim.report import Report
from gavel.workload.formats import write_trace
from gavel.workload.trace import Trace, TraceJob

MECHANISMS: tuple[MechanismName, ...] = ("credits", "plain")
GANGS = "LM (batch size 5)"
"""A template that runs with 1, 2, 4 and 8 workers."""


def rate(template: str, workers: int = 1, kind: str = "v100") -> float:
    return float(builtin_table().rates([(template, workers)], [kind])[0, 0, 0])


def ran(tmp_path: Path, jobs: list[TraceJob], **settings: object) -> Report:
    file = tmp_path / "trace.csv"
    write_trace(Trace.of(jobs), file)
    return run(Experiment.of({"cluster": "v100=4,k80=4", "trace": str(file), **settings}))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("policy", POLICIES)
def test_on_an_idle_cluster_ten_minutes_of_work_take_ten_minutes(
    policy: str, mechanism: MechanismName, tmp_path: Path
) -> None:
    """This holds for any arrival: on an empty cluster, and long after the last job."""
    jobs = [TraceJob(f"j{n}", "A3C", 1, 600.0 * rate("A3C"), 50_000.0 * n + 123.0) for n in range(3)]
    report = ran(tmp_path, jobs, cluster="v100=4", policy=policy, mechanism=mechanism)
    assert report.completion_seconds() == pytest.approx([600.0] * 3, rel=0.01)


@pytest.mark.parametrize("ideal", [False, True])
@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "allox"])
def test_a_job_larger_than_every_type_is_reported_and_does_not_end_the_run(
    policy: str, ideal: bool, tmp_path: Path
) -> None:
    jobs = [TraceJob("huge", GANGS, 8, 1e4, 0.0), TraceJob("small", "A3C", 1, 1e4, 0.0)]
    report = ran(tmp_path, jobs, policy=policy, ideal=ideal)
    assert set(report.outcome.jobs) == {"small"}
    assert not report.outcome.drained
    assert report.outcome.stopped < 86_400.0  # it does not wait for the limit
    assert report.notes == ("no type of the cluster can run huge (8 workers); the simulation does not wait for them",)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_jobs_with_fewer_steps_than_workers_finish_and_are_not_dropped(
    mechanism: MechanismName, tmp_path: Path
) -> None:
    jobs = [TraceJob(f"j{steps}", GANGS, 4, steps, 0.0) for steps in (0.5, 1.0, 3.0)]
    report = ran(tmp_path, jobs, mechanism=mechanism)
    assert set(report.outcome.jobs) == {job.id for job in jobs}


@pytest.mark.parametrize("ideal", [False, True])
@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "allox"])
def test_every_policy_packs_jobs_of_mixed_worker_counts_without_deadlines_or_entities(policy: str, ideal: bool) -> None:
    load = {"cluster": "v100=8,k80=8", "jobs": 12, "arrivals_per_hour": 4.0, "durations": [3600.0]}
    settings = load | {"multi_worker": True, "space_sharing": True, "policy": policy, "ideal": ideal}
    assert run(Experiment.of(settings)).document()["jobs_completed"] == 12


def test_allox_refuses_jobs_of_several_workers_instead_of_crashing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="single-worker jobs only"):
        ran(tmp_path, [TraceJob("gang", GANGS, 4, 1e4, 0.0)], policy="allox")


def test_agnostic_fifo_uses_every_type_and_not_only_the_first(tmp_path: Path) -> None:
    jobs = [TraceJob(f"j{n}", "A3C", 1, 36_000.0 * rate("A3C"), 0.0) for n in range(8)]
    report = ran(tmp_path, jobs, policy="fifo", agnostic=True)
    given = report.outcome.given_by_type
    assert given["v100"] > 0.0
    assert given["k80"] > 0.0
    assert all(given[kind] <= 4 * report.outcome.end * (1 + 1e-9) for kind in ("v100", "k80"))


@pytest.mark.parametrize("policy", ["max_min_fairness", "max_min_fairness_water_filling", "hierarchical"])
def test_the_ideal_of_a_fair_policy_leaves_no_accelerator_idle_that_a_job_could_use(
    policy: str, tmp_path: Path
) -> None:
    """Filling does not stop early: as long as there are enough jobs, everything is in use."""
    jobs = [TraceJob(f"j{n}", template, 1, 1e12, 0.0) for n, template in enumerate(["A3C", GANGS] * 6)]
    report = ran(tmp_path, jobs, policy=policy, ideal=True, limit_days=1.0)
    assert report.document()["utilization"] == pytest.approx(1.0, rel=1e-6)
