"""Jobs that may run on some types only, gangs larger than the table lists, and clusters from a list of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gavel.core.errors import InputError
from gavel.core.throughputs import builtin_table
from gavel.policies.registry import POLICIES
from gavel.sim.experiment import Experiment, prepare, run
from gavel.sim.report import Report
from gavel.workload.formats import write_trace
from gavel.workload.trace import Trace, TraceJob

TABLE = builtin_table()
LM = "LM (batch size 5)"


def rate(template: str, kind: str) -> float:
    return float(TABLE.rates([(template, 1)], [kind])[0, 0, 0])


def ran(tmp_path: Path, jobs: list[TraceJob], **settings: object) -> Report:
    file = tmp_path / "trace.csv"
    write_trace(Trace.of(jobs), file)
    return run(Experiment.of({"cluster": "v100=2,k80=2", "trace": str(file), **settings}))


def received(report: Report, job: str) -> dict[str, float]:
    (record,) = (record for record in report.jobs() if record.id == job)
    return {kind: round(seconds, 3) for kind, seconds in record.seconds_by_type.items()}


@pytest.mark.parametrize("settings", [{}, {"ideal": True}, {"mechanism": "plain"}, {"throughputs_known": 0.5}])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_runs_on_its_types_only(policy: str, settings: dict[str, object], tmp_path: Path) -> None:
    jobs = [
        TraceJob("slow", "A3C", 1, 7200.0 * rate("A3C", "k80"), 0.0, types=("k80",)),
        TraceJob("free", "A3C", 1, 7200.0 * rate("A3C", "v100"), 0.0),
    ]
    report = ran(tmp_path, jobs, policy=policy, **settings)
    found = received(report, "slow")
    assert found["v100"] == 0.0
    assert found["k80"] >= 7199.0
    assert "free" in report.outcome.jobs


@pytest.mark.parametrize("ideal", [False, True])
def test_a_job_whose_types_the_cluster_lacks_is_reported_and_does_not_end_the_run(ideal: bool, tmp_path: Path) -> None:
    jobs = [TraceJob("bound", "A3C", 1, 1e4, 0.0, types=("p100",)), TraceJob("free", "A3C", 1, 1e4, 0.0)]
    report = ran(tmp_path, jobs, ideal=ideal)
    assert set(report.outcome.jobs) == {"free"}
    assert report.notes == ("no type of the cluster can run bound (1 worker); the simulation does not wait for them",)


def test_the_types_of_a_submission_are_those_that_both_sides_name() -> None:
    job = TraceJob("j", "A3C", 1, 1.0, 0.0, types=("v100", "k80"))
    assert job.spec().types == ("v100", "k80")
    assert job.spec(("k80", "p100")).types == ("k80",)
    assert TraceJob("j", "A3C", 1, 1.0, 0.0).spec(("k80",)).types == ("k80",)


@pytest.mark.parametrize(
    "settings",
    [{}, {"ideal": True}, {"throughputs_known": 0.5, "profiling_share": 0.0}, {"space_sharing": True}],
)
def test_a_gang_larger_than_the_table_lists_runs_at_the_scaled_rate(
    settings: dict[str, object], tmp_path: Path
) -> None:
    [[speed]] = TABLE.scaled([(LM, 16)]).rates([(LM, 16)], ["v100"])[:, :, 0].tolist()
    jobs = [TraceJob("gang", LM, 16, 7200.0 * speed, 0.0), TraceJob("late", "A3C", 1, 1e3, 50_000.0)]
    report = ran(tmp_path, jobs, cluster="v100=2x8", **settings)
    assert report.outcome.jobs["gang"].seconds == pytest.approx(7200.0, rel=0.01)
    assert "does not list 16 workers" in report.notes[0]


NODES = "sn,gpu,model\nrack1-a,1,V100M32\nrack1-b,2,K80\nrack2,8,T4\n"


def nodes(tmp_path: Path, text: str = NODES) -> str:
    file = tmp_path / "nodes.csv"
    file.write_text(text)
    return str(file)


def test_a_list_of_nodes_is_a_cluster_whose_servers_fail_by_name(tmp_path: Path) -> None:
    failures = tmp_path / "failures.csv"
    failures.write_text("seconds,event,server\n100,lost,rack1-a\n")
    jobs = [TraceJob("j", "A3C", 1, 3600.0 * rate("A3C", "v100"), 0.0)]
    report = ran(tmp_path, jobs, cluster=nodes(tmp_path), failures=str(failures))
    assert received(report, "j")["k80"] > 3600.0
    assert report.notes[0].startswith("left out 1 node with 8 GPUs of models that are not in the throughput table")


def test_the_content_of_a_list_of_nodes_is_part_of_the_experiment(tmp_path: Path) -> None:
    file = nodes(tmp_path)
    experiment = Experiment(cluster=file, jobs=1)
    assert experiment.files() == {"cluster": file}
    assert [server.name for server in prepare(experiment).cluster.servers] == ["rack1-a", "rack1-b"]
    assert Experiment(cluster="v100=4", jobs=1).files() == {}


def test_a_bad_list_of_nodes_is_refused_before_any_time_is_spent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nodes\.csv, line 2, column 'gpu': 'x' is not a number of GPUs"):
        prepare(Experiment(cluster=nodes(tmp_path, "sn,gpu,model\na,x,V100\n"), jobs=1))
    with pytest.raises(InputError, match=r"cannot read nowhere\.csv: no such file"):
        prepare(Experiment(cluster="nowhere.csv", jobs=1))
