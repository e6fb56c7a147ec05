"""What jobs state is enforced by control groups where there are any: RAM for certain, CPU time as a quota."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from agent_stage import attached, play, python, start

from gavel.client.requests import Submission
from gavel.runtime.agent.confinement import Confinement, TaskLimits
from gavel.runtime.agent.containers import Containers, offered
from gavel.runtime.agent.server_figures import usable_cores, usable_memory
from gavel.runtime.agent.settings import AgentSettings
from gavel.wire import gavel_pb2 as pb
from needs import NEEDS_GROUPS

MIB = 2**20
HUNGRY = "import sys; held = bytearray(400 * 2**20); print('survived'); sys.exit(0)"
BUSY = """
import time
end = time.monotonic() + 1.0
while time.monotonic() < end: pass
print("used", time.process_time())
"""


@pytest.fixture
def containers() -> Iterator[Containers]:
    made = offered(uuid4().hex)
    if made is None or made.confinement is None or made.confinement.missing:
        pytest.skip(NEEDS_GROUPS)
    yield made
    made.clean_up()
    made.remove()


def test_a_job_that_uses_more_memory_than_it_states_is_killed_and_told_why(
    tmp_path: Path, containers: Containers
) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", python(HUNGRY), request={"memory_bytes": 100 * MIB}))
            end = await session.ended("1")
            assert end.how == pb.TaskEnded.CRASHED
            assert end.reason == "killed: it used more than its 100M of memory"
            session.send(start("2", python(HUNGRY)))
            assert (await session.ended("2")).how == pb.TaskEnded.DONE

    del containers
    play(scene())


def test_a_job_gets_the_cpu_time_that_it_states(tmp_path: Path, containers: Containers) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", python(BUSY), request={"cpus": 0.25}))
            await session.logged("1", "used")
            await session.ended("1")
            assert float(session.log("1").split()[-1]) < 0.6

    del containers
    play(scene())


def test_groups_that_limit_a_task_are_removed_with_it(containers: Containers) -> None:
    made = containers.make("x", TaskLimits(memory=50 * MIB, cores=1.5))
    assert made.confined is not None
    assert made.confined.limits == TaskLimits(50 * MIB, 1.5)
    assert not made.confined.out_of_memory()
    groups = made.groups
    made.end()
    assert not any(group.exists() for group in groups)


def unified(directory: Path, *, others: bool) -> Path:
    """Files as cgroup v2 has them: our own group, with one of ours in it."""
    for group in (directory, directory / "gavel-x", directory / "gavel-x" / "task-1"):
        group.mkdir(exist_ok=True)
        for name in ("cgroup.controllers", "cgroup.subtree_control", "cpu.max", "memory.max", "memory.swap.max"):
            (group / name).touch()
        (group / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    (directory / "cgroup.procs").write_text(f"{os.getpid()}\n" + ("1\n" if others else ""))
    return directory / "gavel-x"


def test_with_cgroup_v2_limits_are_set_in_the_group_of_the_task_itself(tmp_path: Path) -> None:
    tasks = unified(tmp_path, others=False)
    (tasks / "cgroup.subtree_control").write_text("cpu memory")
    confinement = Confinement(unified=frozenset({"cpu", "memory"}))
    confined = confinement.confine(tasks / "task-1", TaskLimits(memory=4 * MIB, cores=1.5))
    assert confined.groups == ()
    assert (tasks / "task-1" / "memory.max").read_text() == str(4 * MIB)
    assert (tasks / "task-1" / "memory.swap.max").read_text() == "0"
    assert (tasks / "task-1" / "cpu.max").read_text() == "150000 100000"
    assert confined.out_of_memory()


def test_what_cannot_be_limited_is_named() -> None:
    assert Confinement(unified=frozenset({"cpu"})).missing == ("memory",)
    assert Confinement().missing == ("memory", "cpu")


def test_without_a_statement_only_an_agent_that_enforces_shares_limits_jobs(tmp_path: Path) -> None:
    def limits(*, enforce: bool, **stated: float) -> TaskLimits:
        settings = AgentSettings(
            accelerators={"v100": (0, 1), "k80": (2, 3)},
            state=tmp_path,
            checkpoints=tmp_path,
            cpus=16.0,
            memory_bytes=64,
            enforce_shares=enforce,
        )
        return settings.limits(Submission(command=("train",), **stated), 2)  # type: ignore[arg-type]

    assert limits(enforce=False) == TaskLimits()
    assert limits(enforce=True) == TaskLimits(32, 8.0)
    assert limits(enforce=True, cpus=1.0) == TaskLimits(32, 2.0)
    assert limits(enforce=False, memory_bytes=5) == TaskLimits(10, 0.0)


def test_this_server_has_cores_and_memory() -> None:
    assert 0 < usable_cores() <= (os.cpu_count() or 1)
    assert usable_memory() % 2**40 > 0
    assert usable_memory() % (64 * MIB) == 0
