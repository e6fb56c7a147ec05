"""`gavel worker` as a process: killed, stopped, interrupted, refused; it leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_stage import (
    ESCAPES,
    LEAVES_WHEN_ASKED,
    LINK,
    Scheduler,
    lease,
    play,
    python,
    runs,
    shell,
    start,
    until,
    worker,
)

from gavel.cli.app import run
from gavel.runtime.agent.state import Mark, StateDirectory, boot_id, end_marked, start_time
from gavel.wire import gavel_pb2 as pb
from needs import NEEDS_GROUPS


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Clean up after killed agents, as the next agent would."""
    yield
    if (tmp_path / "state").is_dir():
        with StateDirectory(tmp_path / "state"):
            pass


def marker() -> tuple[str, dict[str, dict[str, str]]]:
    """Something in the environment of a job, by which all of its processes are found."""
    value = os.urandom(8).hex()
    return f"MARKER={value}", {"environment": {"MARKER": value}}


def alive(mark: str) -> list[int]:
    """Processes with this in their environment."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and mark.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


async def no_process(mark: str) -> None:
    """Wait until no such process is left."""
    await until(lambda: not alive(mark))


FORKS = "(setsid sleep 1000 &) & sleep 1000 & echo running; wait"


def test_jobs_of_an_agent_that_is_killed_end_with_all_their_children(tmp_path: Path) -> None:
    async def scene() -> None:
        mark, request = marker()
        async with Scheduler() as scheduler, worker(scheduler, tmp_path) as agent:
            session = await scheduler.session()
            session.send(start("1", shell(FORKS), request=request))
            session.send(start("2", python(LINK + 'print("running"); hear("stop")'), request=request))
            for job in "12":
                await session.logged(job, "running")
            assert len(alive(mark)) >= 5
            agent.process.kill()
            await no_process(mark)

    play(scene())


def test_an_agent_that_is_started_again_ends_what_the_last_one_left(tmp_path: Path) -> None:
    async def scene() -> None:
        mark, request = marker()
        async with Scheduler() as scheduler:
            async with worker(scheduler, tmp_path) as agent:
                session = await scheduler.session()
                session.send(start("1", shell(FORKS), request=request))
                await session.logged("1", "running")
                # With its guard stopped, no process is left to end the job when the agent dies.
                [guard] = [int(path.name) for path in (tmp_path / "state" / "guards").iterdir()]
                os.kill(guard, signal.SIGSTOP)
                agent.process.kill()
                await agent.rest()
            assert alive(mark)
            async with worker(scheduler, tmp_path) as agent:
                assert "ended 1 tasks" in await agent.says("earlier agent")
                again = await scheduler.session()
                assert list(again.hello.tasks) == []
                assert again.hello.incarnation != session.hello.incarnation
                await no_process(mark)

    play(scene())


def test_an_agent_that_is_started_again_ends_a_daemon_that_has_nothing_in_common_with_its_job(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            async with worker(scheduler, tmp_path) as agent:
                session = await scheduler.session()
                session.send(start("1", [*python(ESCAPES), str(tmp_path / "pid")]))
                await session.logged("1", "running")
                [guard] = [int(path.name) for path in (tmp_path / "state" / "guards").iterdir()]
                agent.process.send_signal(signal.SIGSTOP)
                os.kill(guard, signal.SIGKILL)
                agent.process.kill()
                await agent.rest()
            daemon = int((tmp_path / "pid").read_text())
            assert runs(daemon)
            async with worker(scheduler, tmp_path) as agent:
                assert "ended 1 tasks" in await agent.says("earlier agent")
                assert not runs(daemon)

    with StateDirectory(tmp_path / "state") as state:
        if state.containers is None:
            pytest.skip(NEEDS_GROUPS)
    play(scene())


def test_a_worker_says_its_name_and_its_id(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler, worker(scheduler, tmp_path) as agent:
            said = await agent.says("has id")
            session = await scheduler.session()
            assert said.split(" ", 1)[1].strip() == f"agent here has id {session.hello.agent}"

    play(scene())


def test_a_second_worker_on_one_state_directory_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler, worker(scheduler, tmp_path) as first:
            session = await scheduler.session()
            async with worker(scheduler, tmp_path, "--name", "there") as second:
                said = await second.rest()
                assert second.process.returncode == 2
                expected = f"{tmp_path / 'state'} is in use by another agent (process {first.process.pid})"
                assert expected in said.splitlines()[-1]
            await session.heartbeat()

    play(scene())


def test_a_process_that_took_over_a_number_is_left_alone() -> None:
    async def scene() -> None:
        other = await asyncio.create_subprocess_exec("sleep", "1000")
        born = start_time(other.pid)
        assert born is not None
        for mark in (Mark(other.pid, born - 1, boot_id(), "/x"), Mark(other.pid, born, "another boot", "/x")):
            assert not end_marked(mark)
            assert start_time(other.pid) == born
        assert end_marked(Mark(other.pid, born, boot_id(), "/x"))
        assert await other.wait() == -signal.SIGKILL

    play(scene())


def test_an_agent_suspended_beyond_its_lease_gives_no_more_time(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler, worker(scheduler, tmp_path) as agent:
            session = await scheduler.session()
            saved = tmp_path / "saved.txt"
            own_lease = (
                LINK
                + f"""
print("running")
deadline = time.monotonic() + hear("lease")["seconds"]
time.sleep(max(0, deadline - time.monotonic()))
open({str(saved)!r}, "w").close()
tell("stopped", steps=3)
"""
            )
            session.send(start("counts", python(own_lease), lease_seconds=1.0))
            session.send(start("waits", python(LEAVES_WHEN_ASKED), lease_seconds=1.0))
            for job in ("counts", "waits"):
                await session.logged(job, "running")
            agent.process.send_signal(signal.SIGSTOP)
            session.send(lease(1.0))
            await until(saved.exists)  # the job leaves by its own clock
            session.send(start("late", shell("echo began"), lease_seconds=0.01))
            agent.process.send_signal(signal.SIGCONT)
            ends = {job: await session.ended(job) for job in ("counts", "waits", "late")}
            assert {end.how for end in ends.values()} == {pb.TaskEnded.LEFT}
            assert (ends["counts"].status.saved_steps, ends["waits"].status.saved_steps) == (3, 7)
            assert ends["late"].reason == "its lease ended, before it began"

    play(scene())


def test_sigterm_lets_jobs_save_and_a_second_one_does_not(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler, worker(scheduler, tmp_path) as agent:
            session = await scheduler.session()
            session.send(start("1", python(LEAVES_WHEN_ASKED)))
            session.send(start("2", python(LINK + 'print("running"); hear("stop"); print("saving"); time.sleep(1000)')))
            for job in "12":
                await session.logged(job, "running")
            agent.process.send_signal(signal.SIGTERM)
            assert (await session.ended("1")).status.saved_steps == 7
            await session.logged("2", "saving")
            agent.process.send_signal(signal.SIGTERM)
            assert (await session.ended("2")).reason.startswith("its server is leaving the cluster")
            said = await agent.rest()
            assert agent.process.returncode == 0
            for words in ("attached to", "started job 1 on v100 0", "ended job 2", "left the cluster"):
                assert words in said

    play(scene())


def test_a_refused_worker_ends_with_2_and_one_sentence(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            scheduler.refusal = pb.Refused(reason="the agent speaks protocol 1 and the scheduler 2")
            async with worker(scheduler, tmp_path) as agent:
                said = await agent.rest()
                assert agent.process.returncode == 2
                expected = f"gavel: the scheduler at {scheduler.address} refuses this agent: {scheduler.refusal.reason}"
                assert said.splitlines()[-1] == expected

    play(scene())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "either --accelerators v100=4 (or auto), or --emulate"),
        (["--emulate", "v100=1", "--accelerators", "v100=1"], "either --accelerators"),
        (["--emulate", "v100=0"], "v100 must be 1 to 4096, not 0"),
        (["--emulate", "h100=1"], "emulated type 'h100' has no throughputs; use one of v100, p100, k80"),
        (["--emulate", "v100=1", "--time-scale", "0"], "--time-scale must be greater than 0"),
        (["--emulate", "v100=1", "--state", "/proc/x"], "cannot create the directory /proc/x"),
        (["--emulate", "v100=1", "--throughputs", "/none"], "/none cannot be read"),
        (["--emulate", "v100=1", "--scheduler", "a b"], "'a b' is not a scheduler address"),
        (["--accelerators", "auto"], "nvidia-smi and rocm-smi are not installed here"),
    ],
)
def test_invalid_worker_options_are_refused_in_one_sentence(
    options: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["worker", *options]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
