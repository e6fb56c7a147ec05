"""No process of a job escapes, not even a daemon with an empty environment in its own session."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from agent_stage import ESCAPES, Scheduler, attached, play, python, running, runs, settings_for, shell, start

from gavel.runtime.agent import Agent
from gavel.runtime.agent.containers import Container, Containers, _parents, offered
from gavel.runtime.agent.state import Mark, StateDirectory, boot_id
from gavel.wire import gavel_pb2 as pb
from needs import NEEDS_GROUPS


@pytest.fixture
def containers() -> Iterator[Containers]:
    made = offered(uuid4().hex)
    if made is None:
        pytest.skip(NEEDS_GROUPS)
    yield made
    made.clean_up()
    made.remove()


def guard_of(directory: Path) -> int:
    [mark] = (directory / "state" / "guards").iterdir()
    return int(mark.name)


def test_a_daemon_without_environment_does_not_outlive_a_killed_guard(tmp_path: Path, containers: Containers) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", [*python(ESCAPES), str(tmp_path / "pid")]))
            await session.logged("1", "running")
            daemon = int((tmp_path / "pid").read_text())
            assert runs(daemon)
            os.kill(guard_of(tmp_path), signal.SIGKILL)
            end = await session.ended("1")
            assert end.how == pb.TaskEnded.CRASHED
            assert not runs(daemon)

    del containers
    play(scene())


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "found by its group alone"])
def test_what_an_earlier_agent_left_is_ended_with_its_group(
    tmp_path: Path, containers: Containers, noted: bool
) -> None:
    with StateDirectory(tmp_path) as state:
        assert state.containers is not None
        # An agent may be started in another group than the last time: then its notes are all that it has.
        container = (containers if noted else state.containers).make("1.1-0")
        daemon = entering(container, "exec setsid env -i sleep 1000")
        if noted:
            state.remember(Mark(1, 0, boot_id(), "/x", str(container.path)))
    assert daemon.poll() is None
    with StateDirectory(tmp_path) as state:
        assert state.leftovers == 1
        assert daemon.wait() == -signal.SIGKILL
        assert not container.path.exists()


def entering(container: Container, script: str) -> subprocess.Popen[bytes]:
    """Start a script inside a group."""
    process = subprocess.Popen(shell(f'echo 0 > "{container.path}/cgroup.procs"; {script}'))
    while not container.processes():
        pass
    return process


def test_agents_leave_no_control_groups(tmp_path: Path, containers: Containers) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler, running(settings_for(scheduler, tmp_path)):
            session = await scheduler.session()
            session.send(start("a/b", shell("exit 0")))
            await session.ended("a/b")
            assert list(groups(session.hello.agent).glob("task-*")) == []
            session.send(start("2", shell("echo running; sleep 1000")))
            await session.logged("2", "running")
            [task] = groups(session.hello.agent).glob("task-*")
            assert guard_of(tmp_path) in Container(task).processes()
        assert not groups(session.hello.agent).exists()

    def groups(agent: str) -> Path:
        return containers.path.with_name(f"gavel-{agent}")

    play(scene())


def test_without_control_groups_agents_say_so_once_and_work_as_before(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            said: list[str] = []
            agent = Agent(settings_for(scheduler, tmp_path, contain=False), said.append)
            run = asyncio.create_task(agent.run())
            session = await scheduler.session()
            for job in "12":
                session.send(start(job, [*python(ESCAPES), str(tmp_path / job)]))
                await session.logged(job, "running")
            daemon = int((tmp_path / "1").read_text())
            session.send(pb.ToAgent(stop=pb.Stop(job="1", attempt=1, at_once=True)))
            await session.ended("1")
            assert not runs(daemon)
            await agent.stop(at_once=True)
            await run
            assert sum("without control groups" in sentence for sentence in said) == 1

    play(scene())


# ---- every hierarchy that this machine has ----


@pytest.fixture(params=range(max(len(list(_parents())), 1)))
def group(request: pytest.FixtureRequest) -> Iterator[Container]:
    parents = list(_parents())
    if not parents:
        pytest.skip(NEEDS_GROUPS)
    container = Container(parents[request.param] / f"gavel-test-{uuid4().hex}")
    try:
        container.path.mkdir()
    except OSError:
        pytest.skip(NEEDS_GROUPS)
    yield container
    container.end()


def test_a_group_ends_with_everything_that_is_in_it_and_below(group: Container) -> None:
    inner = Container(group.path / "inner")
    inner.path.mkdir()
    job = entering(inner, "(while :; do sleep 1000 & sleep 0.001; done) & sleep 1000")
    pids = group.processes()
    assert job.pid in pids
    assert group.end()
    assert job.wait() == -signal.SIGKILL
    assert not any(runs(pid) for pid in pids)
    assert not group.path.exists()
    assert not group.end()


def test_a_group_of_the_same_name_is_emptied_first(containers: Containers) -> None:
    left = entering(containers.make("1"), "exec sleep 1000")
    assert containers.make("1").processes() == []
    assert left.wait() == -signal.SIGKILL


def test_a_group_of_the_agent_that_was_removed_is_made_again(containers: Containers) -> None:
    containers.path.rmdir()
    assert containers.make("1").path.is_dir()
