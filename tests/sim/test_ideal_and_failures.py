"""The ideal baseline, and clusters whose servers fail and return."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gavel.core.cluster import parse_cluster
from gavel.core.errors import InputError
from gavel.core.events import Event, ServerJoined, ServerLost
from gavel.sim.experiment import Experiment, run
from gavel.sim.failures import random_failures, read_failures, together

LOAD = Experiment(cluster="v100=6,p100=6,k80=6", jobs=120, arrivals_per_hour=0.8, restart_seconds=0.0, window=(20, 100))


def test_the_mechanism_comes_close_to_granting_shares_exactly() -> None:
    ideal = run(replace(LOAD, ideal=True)).document()
    rounds = run(LOAD).document()
    assert ideal["rounds"] == 0
    assert rounds["average_jct_seconds"] == pytest.approx(ideal["average_jct_seconds"], rel=0.06)


@pytest.mark.parametrize("variant", [{"space_sharing": True}, {"multi_worker": True}, {"policy": "makespan"}])
def test_the_ideal_works_for_every_kind_of_workload(variant: dict[str, object]) -> None:
    experiment = replace(LOAD, ideal=True, jobs=30, window=None, cluster="v100=8,k80=8", **variant)  # type: ignore[arg-type]
    assert run(experiment).document()["jobs_completed"] == 30


def test_all_jobs_survive_servers_that_fail_and_come_back() -> None:
    report = run(replace(LOAD, jobs=40, window=None, failures_per_server_day=2.0, repair_hours=2.0))
    calm = run(replace(LOAD, jobs=40, window=None))
    assert report.document()["jobs_completed"] == 40
    assert report.document()["average_jct_seconds"] > calm.document()["average_jct_seconds"]


def test_random_failures_alternate_and_repeat_by_seed() -> None:
    cluster = parse_cluster("v100=8")

    def drawn(seed: int) -> list[tuple[float, str]]:
        events = random_failures(cluster, per_server_day=1.0, repair_hours=4.0, until_seconds=1e6, seed=seed)
        return [(event.time, type(event).__name__) for event in events]

    assert drawn(1) == drawn(1) != drawn(2)
    assert [kind for _, kind in drawn(1)][:4] == ["ServerLost", "ServerJoined"] * 2


def test_a_server_with_two_causes_of_failure_returns_when_both_have_ended(tmp_path: Path) -> None:
    [one, other] = parse_cluster("v100=8").servers
    listed: list[Event] = [ServerLost(10.0, one.name), ServerJoined(30.0, one)]
    drawn: list[Event] = [ServerLost(20.0, one.name), ServerLost(25.0, other.name), ServerJoined(40.0, one)]
    assert together(listed, drawn) == [listed[0], drawn[1], drawn[2]]
    file = tmp_path / "failures.csv"
    file.write_text("seconds,event,server\n" + "".join(f"{n}000,lost,k80-0\n{n}500,joined,k80-0\n" for n in range(50)))
    experiment = replace(LOAD, jobs=10, window=None, failures=str(file), failures_per_server_day=5.0, repair_hours=1.0)
    assert run(experiment).document()["jobs_completed"] == 10


def test_a_failure_file_is_read_and_its_mistakes_are_named(tmp_path: Path) -> None:
    cluster, file = parse_cluster("v100=8"), tmp_path / "failures.csv"
    file.write_text("seconds,event,server\n100,lost,v100-0\n200,joined,v100-0\n")
    assert read_failures(file, cluster) == [ServerLost(100.0, "v100-0"), ServerJoined(200.0, cluster.servers[0])]
    for line, said in (
        ("x,lost,v100-0", "line 2, column 'seconds': 'x' is not a time"),
        ("-1,lost,v100-0", "'-1' is not a time"),
        ("1,lost", "line 2: 2 columns, but the first line has 3"),
        ("1,joined,v100-0", "line 2: server 'v100-0' cannot be joined at 1 s; it is already up"),
        ("2,lost,v100-0\n1,lost,v100-0", "line 2: server 'v100-0' cannot be lost at 2 s; it is already lost"),
        ("1,gone,v100-0", "line 2: event must be lost or joined, not 'gone'"),
        ("1,lost,t4-0", "line 2: there is no server 't4-0'"),
    ):
        file.write_text(f"seconds,event,server\n{line}\n")
        with pytest.raises(InputError, match=said):
            read_failures(file, cluster)
    file.write_text("when,what\n")
    with pytest.raises(
        InputError, match="column 'seconds' is missing; a list of failures has at least: seconds, event"
    ):
        read_failures(file, cluster)
