"""The stream to the scheduler: refusals, reconnections, and what an agent says when it comes and goes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from agent_stage import (
    LEAVES_WHEN_ASKED,
    LINK,
    Scheduler,
    attached,
    play,
    python,
    running,
    settings_for,
    shell,
    start,
    until,
)

from gavel.errors import InputError
from gavel.runtime.agent import Agent, AgentRefusedError
from gavel.version import __version__
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb


def test_an_agent_introduces_itself(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path, "v100=2,k80=1") as (_, session):
            hello = session.hello
            assert (hello.protocol, hello.version, hello.name) == (PROTOCOL, __version__, "here")
            assert [(kind.type, kind.count) for kind in hello.accelerators] == [("v100", 2), ("k80", 1)]
            assert (hello.address, hello.draining, list(hello.tasks)) == ("127.0.0.1", False, [])
            assert hello.incarnation

    play(scene())


def test_a_refused_agent_ends_with_the_reason(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            scheduler.refusal = pb.Refused(reason="it speaks protocol 1 and the scheduler 2: install the same version")
            agent = Agent(settings_for(scheduler, tmp_path))
            with pytest.raises(AgentRefusedError, match="speaks protocol 1 and the scheduler 2"):
                await agent.run()
            assert scheduler.refusals == 1

    play(scene())


def test_a_name_in_use_is_waited_for(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            scheduler.refusal = pb.Refused(reason="'here' is attached already", retry=True)
            async with running(settings_for(scheduler, tmp_path, first_pause_seconds=0.01)) as (_, said):
                await until(lambda: scheduler.refusals >= 3)
                scheduler.refusal = None
                assert (await scheduler.session()).hello.name == "here"
                yet = f"the scheduler at {scheduler.address} does not accept this agent yet"
                assert said[0] == f"{yet}: 'here' is attached already; trying again"

    play(scene())


def test_a_name_that_stays_in_use_is_an_error_in_the_end(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            scheduler.refusal = pb.Refused(reason="agent 'here' is attached already", retry=True)
            agent = Agent(settings_for(scheduler, tmp_path, patience_seconds=0.1))
            with pytest.raises(AgentRefusedError, match="attached already"):
                await agent.run()
            assert scheduler.refusals > 1

    play(scene())


def test_jobs_of_a_refused_agent_leave_at_a_checkpoint(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            agent = Agent(settings_for(scheduler, tmp_path))
            run = asyncio.create_task(agent.run())
            session = await scheduler.session()
            saved = tmp_path / "saved"
            session.send(start("1", python(LINK + f'print("running"); hear("stop"); open({str(saved)!r}, "w")')))
            await session.logged("1", "running")
            scheduler.refusal = pb.Refused(reason="you are not wanted")
            session.hang_up()
            with pytest.raises(AgentRefusedError, match="not wanted"):
                await run
            assert saved.exists()

    play(scene())


def test_an_agent_comes_back_with_what_runs_there(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (scheduler, session):
            session.send(start("1", python(LINK + 'tell("progress", steps=4, saved=2); print("ok"); hear("stop")')))
            await session.status("1", lambda status: status.steps == 4)
            await scheduler.vanish()
            await scheduler.appear()
            again = await scheduler.session()
            assert again.hello.incarnation == session.hello.incarnation
            assert [(task.job, task.attempt, task.steps, task.saved_steps) for task in again.hello.tasks] == [
                ("1", 1, 4, 2)
            ]
            assert (await again.started("1")).rank == 0

    play(scene())


def test_an_unacknowledged_end_is_repeated_with_its_number(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            scheduler.acknowledges = False
            async with running(settings_for(scheduler, tmp_path, farewell_seconds=0.1)):
                first = await scheduler.session()
                first.send(start("1", shell("exit 3")))
                await first.ended("1")
                first.hang_up()
                second = await scheduler.session()
                assert (await second.ended("1")).reason == "exit code 3"
                numbers = {m.number for s in (first, second) for m in s.received if m.HasField("ended")}
                assert len(numbers) == 1
                second.send(pb.ToAgent(ack=pb.Ack(number=numbers.pop())))
                await second.heartbeat()
                await second.heartbeat()
                second.hang_up()
                third = await scheduler.session()
                await third.heartbeat()
                assert third.endings("1") == []

    play(scene())


def test_what_ended_while_the_scheduler_was_away_is_said_when_it_is_back(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (scheduler, session):
            go, gone = tmp_path / "go", tmp_path / "gone"
            session.send(
                start("1", shell(f"echo running; while [ ! -e {go} ]; do sleep 0.01; done; echo more; touch {gone}"))
            )
            await session.logged("1", "running")
            await scheduler.vanish()
            go.touch()
            await until(gone.exists)
            await scheduler.appear()
            again = await scheduler.session()
            end = await again.ended("1")
            assert (end.how, end.log_tail) == (pb.TaskEnded.DONE, b"running\nmore\n")
            assert await again.logged("1", "more") == "running\nmore\n"  # it had not been acknowledged

    play(scene())


def test_jobs_continue_without_a_scheduler_and_leave_at_the_end_of_their_lease(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (scheduler, session):
            script = (
                LINK
                + """
print("running")
saved = time.monotonic()
hear("stop")
print("ran on for", time.monotonic() - saved)
tell("stopped", steps=5)
"""
            )
            session.send(start("1", python(script), lease_seconds=1.0))
            await session.logged("1", "running")
            await scheduler.vanish()
            ended = tmp_path / "state" / "logs" / "1.1.0.log"
            await until(lambda: b"ran on" in ended.read_bytes())
            await scheduler.appear()
            again = await scheduler.session()
            end = await again.ended("1")
            assert (end.how, end.reason, end.status.saved_steps) == (pb.TaskEnded.LEFT, "its lease ended", 5)
            assert float(end.log_tail.split()[-1]) > 0.2

    play(scene())


def test_an_agent_that_stops_lets_jobs_save_and_says_so(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            agent = Agent(settings_for(scheduler, tmp_path))
            run = asyncio.create_task(agent.run())
            session = await scheduler.session()
            session.send(start("1", python(LEAVES_WHEN_ASKED)))
            await session.logged("1", "running")
            await agent.stop()
            await run
            end = await session.ended("1")
            assert (end.how, end.reason) == (pb.TaskEnded.LEFT, "its server is leaving the cluster")
            assert end.status.saved_steps == 7
            assert any(message.HasField("draining") for message in session.received)
            assert list((tmp_path / "state" / "guards").iterdir()) == []

    play(scene())


def test_a_draining_agent_says_so_now_and_when_it_comes_back(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler, running(settings_for(scheduler, tmp_path)) as (agent, _):
            session = await scheduler.session()
            agent.drain()
            await session.until(lambda: True if any(m.HasField("draining") for m in session.received) else None)
            session.hang_up()
            assert (await scheduler.session()).hello.draining

    play(scene())


def test_an_order_that_is_repeated_starts_nothing_twice(tmp_path: Path) -> None:
    async def scene() -> None:
        async with attached(tmp_path) as (_, session):
            order = start("1", python(LINK + 'print("running"); hear("stop")'))
            session.send(order)
            await session.logged("1", "running")
            session.send(order)
            seen = await session.until(
                lambda: s if len(s := [m for m in session.received if m.HasField("started")]) == 2 else None
            )
            assert seen[0].started == seen[1].started
            await session.heartbeat()
            assert session.log("1") == "running\n"

    play(scene())


def test_an_agent_that_is_cancelled_leaves_nothing_running(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            agent = Agent(settings_for(scheduler, tmp_path))
            run = asyncio.create_task(agent.run())
            session = await scheduler.session()
            session.send(
                start("1", shell(f"trap 'touch {tmp_path}/gone; exit' TERM; echo $$; while :; do sleep 0.01; done"))
            )
            await session.logged("1", "\n")
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            await until((tmp_path / "gone").exists)

    play(scene())


def test_several_agents_live_in_one_process_but_not_in_one_directory(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler, running(settings_for(scheduler, tmp_path / "a", name="a")):
            async with running(settings_for(scheduler, tmp_path / "b", name="b")):
                names = {(await scheduler.session()).hello.name for _ in range(2)}
                assert names == {"a", "b"}
            with pytest.raises(InputError, match="in use by another agent"):
                await Agent(settings_for(scheduler, tmp_path / "a", name="c")).run()

    play(scene())


def test_an_agent_without_a_scheduler_says_so_once_and_keeps_trying(tmp_path: Path) -> None:
    async def scene() -> None:
        dialled: list[int] = []

        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            dialled.append(1)
            writer.close()

        scheduler = Scheduler()
        other = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        scheduler.port = other.sockets[0].getsockname()[1]
        settings = settings_for(scheduler, tmp_path, first_pause_seconds=0.01, longest_pause_seconds=0.02)
        async with running(settings) as (_, said):
            await until(lambda: len(dialled) >= 5)
            assert len(said) == 1
            assert said[0].startswith(f"no scheduler answers at {scheduler.address} (")
            other.close()
            await other.wait_closed()
            async with scheduler:
                await until(lambda: len(said) == 2)
                assert said[1] == f"attached to {scheduler.address} as here"

    play(scene())


def test_a_scheduler_that_waits_only_briefly_is_looked_for_often(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            settings = settings_for(scheduler, tmp_path, first_pause_seconds=0.01, longest_pause_seconds=1e6)
            async with running(settings):
                (await scheduler.session()).hang_up()
                scheduler.refusal = pb.Refused(reason="not yet", retry=True)
                # Pauses that double from 0.01 s without a bound would add up to minutes.
                await until(lambda: scheduler.refusals >= 14)

    play(scene())
