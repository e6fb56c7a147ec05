"""Terminals as the scheduler sees them: typed at, shown at once, and ended with a word."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from agent_stage import LINK, attached, play, python, shell, start, stop

from gavel.runtime.agent import terminal
from gavel.wire import gavel_pb2 as pb

DONE, LEFT, CRASHED = pb.TaskEnded.DONE, pb.TaskEnded.LEFT, pb.TaskEnded.CRASHED
TERMINAL = {"terminal": True, "environment": {"PS1": "% ", "TERM": "dumb", "ENV": ""}}
SHELL = ["/bin/sh", "-i"]


def typed(keys: str, **fields: object) -> pb.ToAgent:
    return pb.ToAgent(input=pb.Input(job="1", attempt=1, data=keys.encode(), **fields))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "CHECK_SECONDS", 0.05)


def test_what_a_user_types_is_run_and_the_session_ends_well_whatever_its_last_code(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", SHELL, request=TERMINAL))
            session.send(typed("stty size; echo $((6*7))\n", rows=50, columns=132))  # before it has started
            await session.logged("1", "50 132\r\n")
            await session.logged("1", "42\r\n")
            session.send(typed("exit 3\n"))
            end = await session.ended("1")
            assert (end.how, end.reason) == (DONE, "its terminal session ended: exit code 3")

    play(scene())


def test_an_echo_does_not_wait_for_the_next_look_at_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gavel.runtime.agent.stream.LOG_SECONDS", 1000.0)

    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", ["cat"], request=TERMINAL))
            session.send(typed("now\n"))
            await session.logged("1", "now\r\nnow\r\n")

    play(scene())


def test_the_first_rank_has_the_terminal_and_the_others_have_none(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            script = shell("test -t 0 && echo terminal || echo none; read line; echo got $line")
            session.send(start("1", script, request=TERMINAL, ranks=2, workers=2))
            await session.logged("1", "none\ngot", rank=1)
            await session.logged("1", "terminal\r\n")
            session.send(typed("it\n"))
            await session.logged("1", "got it")

    play(scene())


def test_a_preempted_terminal_says_so_and_gives_time_to_leave(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", SHELL, request=TERMINAL))
            await session.logged("1", "% ")
            session.send(stop("1"))
            await session.logged("1", "[gavel: this terminal ends in 30 s: preempted; save your work and leave]")
            session.send(typed("echo $((40+2)); exit\n"))
            await session.logged("1", "42\r\n")
            assert (await session.ended("1")).how == DONE  # its user left: there is nothing to start again

    play(scene())


def test_a_preempted_terminal_is_hung_up_after_the_grace(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, checkpoint_grace=0.3) as (_, session):
            session.send(start("1", SHELL, request=TERMINAL))
            await session.logged("1", "% ")
            session.send(stop("1"))
            end = await session.ended("1")
            assert (end.how, end.reason) == (LEFT, "preempted (killed by signal SIGHUP)")

    play(scene())


def test_a_terminal_whose_user_is_gone_ends_for_good(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", SHELL, request=TERMINAL))
            session.send(typed("", linger_seconds=0.3))
            await session.logged("1", "this terminal ends now")
            end = await session.ended("1")
            assert (end.how, end.hopeless) == (CRASHED, True)
            assert end.reason == "no one was connected to its terminal for 0.3 s"

    play(scene())


def test_a_terminal_stays_while_its_user_is_connected(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", SHELL, request=TERMINAL))
            for _ in range(10):
                session.send(typed("", linger_seconds=0.5))
                await asyncio.sleep(0.1)
            assert not session.endings("1")

    play(scene())


def test_the_time_without_a_scheduler_does_not_count(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (scheduler, session):
            session.send(start("1", SHELL, request=TERMINAL))
            session.send(typed("", linger_seconds=0.4))
            await session.logged("1", "% ")
            await scheduler.vanish()
            await asyncio.sleep(0.8)
            await scheduler.appear()
            back = await scheduler.session()
            back.send(typed("echo $((40+2))\n"))
            await back.logged("1", "42\r\n")

    play(scene())


def test_what_is_no_size_is_ignored(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", SHELL, request=TERMINAL))
            for rows, columns in ((2**32 - 1, 80), (24, 0), (0, 5000)):
                session.send(typed("echo never\n", rows=rows, columns=columns))
            session.send(typed("stty size\n", rows=30, columns=90))
            assert "never" not in await session.logged("1", "30 90\r\n")

    play(scene())


def test_keys_for_a_job_without_a_terminal_and_for_no_job_are_dropped(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", shell("cat; echo the end")))
            for job in ("1", "2"):
                session.send(pb.ToAgent(input=pb.Input(job=job, attempt=1, data=b"keys\n")))
            assert (await session.ended("1")).log_tail == b"the end\n"

    play(scene())


def test_more_than_a_job_will_ever_read_is_dropped_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "MOST_TYPED_BYTES", 200_000)

    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(
                start(
                    "1",
                    shell("stty raw; echo raw; while ! test -e go; do sleep 0.02; done; cat"),
                    request={**TERMINAL, "working_directory": str(tmp_path)},
                )
            )
            await session.logged("1", "raw")
            for _ in range(30):
                session.send(typed("x" * 16_000))
            await session.heartbeat()
            (tmp_path / "go").touch()
            await session.logged("1", "bytes were not typed: the job did not read]")

    play(scene())


def test_a_script_with_the_link_leaves_its_terminal_as_others_do(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            script = LINK + 'print("running")\nhear("stop")\ntell("stopped", steps=7)\n'
            session.send(start("1", python(script), request=TERMINAL))
            await session.logged("1", "running")
            session.send(stop("1"))
            assert (await session.ended("1")).how == LEFT

    play(scene())
