"""Checkpoints of finished jobs are removed by age or on request, by every agent, once and never of another job."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_fixtures import Folders
from live_cluster import PATIENCE_SECONDS, LiveCluster, eventually, state_of
from virtual_fleet import VirtualFleet

from gavel.cli.app import run
from gavel.client.errors import Refused
from gavel.client.requests import Submission
from gavel.core.errors import InputError
from gavel.runtime.agent.ownership import Owner, claim
from gavel.runtime.clearing import REMIND_SECONDS
from gavel.runtime.events import JobsSubmitted, RemovalAsked
from gavel.runtime.expiry import Posting, expire_checkpoints
from gavel.runtime.facts import CheckpointsRemoved, CheckpointsUnwanted
from gavel.runtime.housekeeping import DAY, Keep, forgettable, keep_house, tidy
from gavel.runtime.local import EMULATED_PROGRAM, local_cluster
from gavel.runtime.logs import Logs
from gavel.runtime.removals import Removals
from gavel.runtime.server import Running, ServeSettings


@pytest.fixture
def cluster(fresh_folder: Folders) -> VirtualFleet:
    world = VirtualFleet(fresh_folder(), 1, round_seconds=4.0)
    world.boot()
    world.add_agent("a", "v100", 1)
    world.add_agent("b", "v100", 1)
    return world


def finished_jobs(world: VirtualFleet, count: int) -> list[str]:
    """Jobs that end one after the other."""
    jobs = []
    for number in range(count):
        jobs.append(world.submit(steps=20.0 + number))
        world.run_until_over()
    return jobs


def ask(world: VirtualFleet, *jobs: str) -> InputError | None:
    assert world.engine is not None
    told: list[InputError | None] = []
    world.engine.post(RemovalAsked(0.0, jobs, "operator"), told.append)
    world.engine.take_in()
    return told[0]


def expire(world: VirtualFleet, older_than: float) -> None:
    engine = world.engine
    assert engine is not None

    async def post(event: RemovalAsked) -> None:
        engine.post(event)
        engine.take_in()

    asyncio.run(expire_checkpoints(engine, post, older_than=older_than))


def asked_for(world: VirtualFleet) -> list[str]:
    return [job for fact in world.story if isinstance(fact, CheckpointsUnwanted) for job in fact.jobs]


# ---- on request ----


def test_an_agent_that_is_away_is_asked_when_it_comes_back(cluster: VirtualFleet) -> None:
    (job,) = finished_jobs(cluster, 1)
    away, here = cluster.agents["id-b"], cluster.agents["id-a"]
    away.lose_connection(20.0)
    cluster.run(6.0)  # it counts as lost now
    assert ask(cluster, job) is None
    cluster.run(3.0)
    assert (here.removals, away.removals) == ([job], [])
    assert job not in cluster.disk
    cluster.kill_scheduler(1.0)
    cluster.run(15.0)
    assert (here.removals, away.removals) == ([job], [job])
    assert cluster.engine is not None
    assert not cluster.engine.state.removals.jobs
    cluster.finish()


def test_an_order_that_was_lost_with_its_connection_is_given_again_at_once(cluster: VirtualFleet) -> None:
    (job,) = finished_jobs(cluster, 1)
    agent = cluster.agents["id-b"]
    agent.late_orders = 2.0
    assert ask(cluster, job) is None
    cluster.run(0.5)
    agent.lose_connection(0.5)
    agent.late_orders = 0.0
    cluster.run(3.0)
    assert agent.removals == [job]
    cluster.finish()


def test_an_agent_that_cannot_follow_yet_is_reminded(cluster: VirtualFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order within a connection arrives; one that is not answered is one that could not be followed."""
    (job,) = finished_jobs(cluster, 1)
    agent = cluster.agents["id-b"]
    real = agent.remove
    monkeypatch.setattr(agent, "remove", lambda _: None)
    assert ask(cluster, job) is None
    cluster.run(3.0)
    monkeypatch.setattr(agent, "remove", real)
    cluster.run(REMIND_SECONDS)
    assert agent.removals == [job]
    cluster.finish()


def test_an_agent_that_was_removed_from_the_list_is_not_waited_for(cluster: VirtualFleet) -> None:
    (job,) = finished_jobs(cluster, 1)
    cluster.agents["id-b"].vanish()
    cluster.run(6.0)
    assert ask(cluster, job) is None
    cluster.run(3.0)
    assert cluster.engine is not None
    assert list(cluster.engine.state.removals.jobs.values()) == [job]
    cluster.operator_removes("b")
    cluster.run(2.0)
    assert not cluster.engine.state.removals.jobs
    cluster.finish()


def test_a_removal_waits_for_the_first_agent_where_there_is_none(fresh_folder: Folders) -> None:
    world = VirtualFleet(fresh_folder(), 1)
    world.boot()
    agent = world.add_agent("a", "v100", 1)
    (job,) = finished_jobs(world, 1)
    agent.vanish()
    world.run(6.0)
    world.operator_removes("a")
    world.run(2.0)
    assert ask(world, job) is None
    world.run(2.0)
    assert job in world.disk
    world.add_agent("new", "v100", 1)
    world.run(4.0)
    assert job not in world.disk
    world.finish()


def test_jobs_that_have_not_finished_are_refused_and_nothing_is_removed(cluster: VirtualFleet) -> None:
    (done,) = finished_jobs(cluster, 1)
    going = cluster.submit(steps=1e6)
    cluster.run(3.0)
    error = ask(cluster, done, going)
    assert str(error) == f"job {going} is running; only checkpoints of finished jobs are removed"
    assert "there is no job '99'" in str(ask(cluster, "99"))
    assert "there is no job '../1'" in str(ask(cluster, "../1"))
    cluster.run(3.0)
    assert done in cluster.disk
    cluster.finish()


def test_a_cancelled_job_whose_processes_may_still_run_is_refused_for_the_moment(cluster: VirtualFleet) -> None:
    job = cluster.submit(steps=1e6)
    cluster.run(3.0)
    holder = next(agent for agent in cluster.agents.values() if agent.tasks)
    cluster.keys["x"] = job
    holder.hang(30.0)
    cluster.client_cancels("x")
    cluster.run(1.0)
    assert "its last processes may still run" in str(ask(cluster, job))  # the attempt is open
    cluster.run(4.0)
    assert "its last processes may still run" in str(ask(cluster, job))  # its agent is lost, and the job fenced
    cluster.run(10.0)
    assert ask(cluster, job) is None
    cluster.finish()


def test_asking_twice_is_asking_once(cluster: VirtualFleet) -> None:
    (job,) = finished_jobs(cluster, 1)
    cluster.agents["id-b"].lose_connection(30.0)
    assert ask(cluster, job) is None
    assert ask(cluster, job, job) is None
    cluster.run(3.0)
    assert asked_for(cluster) == [job]
    assert cluster.agents["id-a"].removals == [job]
    cluster.finish()


def test_an_answer_that_is_late_or_of_an_unknown_agent_changes_nothing() -> None:
    removals = Removals()
    removals.evolve(CheckpointsUnwanted(1.0, ("1", "2"), "operator"), ["a", "b"])
    removals.evolve(CheckpointsRemoved(2.0, {"a": 2}), ["a", "b"])
    assert removals.outstanding().of("b") == [(1, "1"), (2, "2")]
    removals.evolve(CheckpointsRemoved(3.0, {"b": 1}), ["a", "b"])
    assert removals.jobs == {2: "2"}
    again = Removals.of(json.loads(json.dumps(removals.document())))
    assert again.document() == removals.document()


# ---- by age ----


def test_checkpoints_go_when_they_have_reached_their_age_and_no_earlier(cluster: VirtualFleet) -> None:
    first, second = finished_jobs(cluster, 2)
    engine = cluster.engine
    assert engine is not None
    ended = {job: cluster.record(job).changed for job in (first, second)}
    age = engine.clock() - (ended[first] + ended[second]) / 2
    expire(cluster, age)
    assert asked_for(cluster) == [first]
    cluster.run(2.0)
    assert first not in cluster.disk
    assert second in cluster.disk
    expire(cluster, age - 100.0)
    expire(cluster, age - 100.0)
    assert asked_for(cluster) == [first, second]
    cluster.finish()


def test_expiry_continues_where_it_was_after_a_restart_and_finds_jobs_in_the_journals_table(
    cluster: VirtualFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gavel.runtime.expiry.PAGE", 2)
    jobs = finished_jobs(cluster, 5)
    assert cluster.engine is not None
    cluster.engine.keep_state()
    assert not cluster.engine.records, "the table has them"
    late = finished_jobs(cluster, 1)
    expire(cluster, 0.0)
    cluster.kill_scheduler(0.5)
    cluster.run(3.0)
    expire(cluster, 0.0)
    assert asked_for(cluster) == [*jobs, *late]
    cluster.run(4.0)
    assert not cluster.disk
    cluster.finish()


def test_jobs_that_run_are_never_expired(cluster: VirtualFleet) -> None:
    going = cluster.submit(steps=1e6)
    cluster.run(10.0)
    expire(cluster, -1e9)
    assert asked_for(cluster) == []
    cluster.run(5.0)
    assert going in cluster.disk
    cluster.finish()


def test_a_finished_job_is_listed_until_its_checkpoints_were_asked_for(cluster: VirtualFleet, tmp_path: Path) -> None:
    (job,) = finished_jobs(cluster, 1)
    engine, keep = cluster.engine, Keep(finished_days=1.0, checkpoints_days=1.0)
    assert engine is not None
    engine.keep_state()
    later, logs = engine.clock() + 2 * DAY, Logs(tmp_path)
    tidy(keep, engine.journal, logs, later, forgettable(keep, engine))
    assert engine.journal.find(job) is not None
    expire(cluster, -1e9)
    finished_jobs(cluster, 1)
    engine.keep_state()
    expire(cluster, -1e9)
    tidy(keep, engine.journal, logs, later, forgettable(keep, engine))
    assert engine.journal.find(job) is None
    assert forgettable(Keep(), engine) == float("inf")
    cluster.finish()


@pytest.mark.parametrize("days", [0.0, -1.0, 366.0])
def test_an_invalid_age_is_refused_with_a_sentence(days: float) -> None:
    with pytest.raises(InputError, match="checkpoints cannot be kept for"):
        Keep(checkpoints_days=days)


def test_checkpoints_are_kept_for_ever_unless_asked() -> None:
    assert Keep().checkpoints_days is None


# ---- real agents ----


async def until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not met():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def posting(live: Running) -> Posting:
    async def post(event: RemovalAsked) -> None:
        written: list[InputError | None] = []
        live.engine.post(event, written.append)
        await until(lambda: bool(written))

    return post


async def run_job(live: Running) -> None:
    request = Submission(command=(sys.executable, "-c", EMULATED_PROGRAM), steps=20.0, template="A3C")
    live.engine.post(JobsSubmitted(live.engine.clock(), (request,), "key"))
    await until(lambda: "1" in live.engine.records and live.engine.records["1"].finished)


def test_checkpoints_of_a_real_job_are_removed_by_age_and_those_of_another_cluster_stay(tmp_path: Path) -> None:
    """A scheduler, an agent over real connections and a real process: what it saved goes, and nothing else."""
    folder, logs = tmp_path / "cluster", Logs(tmp_path / "logs")

    async def play() -> None:
        settings = ServeSettings(round_seconds=1.0)
        async with local_cluster(settings, {"gpu": "v100=1"}, folder, time_scale=50.0) as live:
            await run_job(live)
            checkpoints = next(path for path in folder.rglob("checkpoints") if path.is_dir())
            claim(checkpoints / "2", Owner("another cluster", "2"), 1)
            (checkpoints / "2" / "model").write_text("m")
            assert (checkpoints / "1").is_dir()
            keeping = keep_house(Keep(checkpoints_days=1e-9), live.engine, posting(live), logs, every_seconds=0.05)
            house = asyncio.create_task(keeping)
            await until(lambda: not (checkpoints / "1").exists())
            house.cancel()
            assert (checkpoints / "2" / "model").is_file()

    asyncio.run(play())


def test_the_command_removes_what_a_real_job_saved_and_refuses_a_job_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with LiveCluster(tmp_path) as live, live.client() as client:
        monkeypatch.setenv("GAVEL_SCHEDULER", live.address)
        live.start_agent("gpu1", "v100=1", time_scale=8.0)
        live.start_agent("gpu2", "k80=1", time_scale=8.0)
        eventually(lambda: [server.state for server in client.cluster().servers] == ["connected"] * 2, "both are there")
        (done,) = client.submit(live.counting("short", steps=20))
        client.wait(done, timeout=60)
        (going,) = client.submit(live.counting("long", steps=100_000))
        eventually(lambda: state_of(client, going) == "running", "the second one runs")
        mine = tmp_path / "checkpoints" / done
        assert mine.is_dir()
        with pytest.raises(Refused, match=f"job {going} is running; only checkpoints of finished jobs"):
            client.remove_checkpoints([done, going])
        assert mine.is_dir()
        assert run(["checkpoints", "remove", done]) == 0
        assert capsys.readouterr().out == f"the checkpoints of job {done} are removed\n"
        assert not mine.exists()
        assert (tmp_path / "checkpoints" / going).is_dir()
        assert run(["checkpoints", "remove", done, "--json"]) == 0, "asking again is no error"
        live.kill_scheduler()
        live.start_scheduler()
        lines = [event.text for event in client.events(job=done)]
        assert f"checkpoints of job {done} are to be removed, requested by operator" in lines
        assert f"checkpoints of job {done} were removed" in lines
        client.cancel(going)
