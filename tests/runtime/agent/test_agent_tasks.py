"""Tasks as the scheduler sees them: started, heard, asked to leave, made to leave."""

from __future__ import annotations

from pathlib import Path

from agent_stage import LEAVES_WHEN_ASKED, LINK, attached, play, python, shell, start, stop

from gavel.wire import gavel_pb2 as pb


def test_a_job_that_ends_with_0_is_done(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", shell("echo hello")))
            end = await session.ended("1")
            assert (end.how, end.log_tail) == (pb.TaskEnded.DONE, b"hello\n")
            assert session.log("1") == "hello\n"

    play(scene())


def test_a_job_that_is_asked_saves_and_leaves(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            session.send(start("1", python(LEAVES_WHEN_ASKED)))
            await session.logged("1", "running")
            session.send(stop("1"))
            end = await session.ended("1")
            assert (end.how, end.reason) == (pb.TaskEnded.LEFT, "preempted")
            assert (end.status.steps, end.status.saved_steps) == (7, 7)

    play(scene())
