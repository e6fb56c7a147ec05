"""Nothing that an agent says reaches beyond what it was given: no other files, attempts or jobs."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import grpc
import pytest
from raw_peers import RawAgent, Site, play, site

from gavel.wire import gavel_pb2 as pb

STRANGE_IDS = ["..", ".", "", "a/b", "../../escaped", "/root/escaped", "1\x002", "9" * 10_000, "٣", "-1", "1 "]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.name.startswith("journal")}


def status(job: str, rank: int = 0, attempt: int = 1, **figures: float) -> pb.TaskStatus:
    return pb.TaskStatus(job=job, attempt=attempt, rank=rank, counts=bool(figures), **figures)


async def running_job(here: Site, agent: RawAgent, **fields: Any) -> str:
    """A job that the agent was told to start."""
    job = await here.submit(**fields)
    await agent.hear("start", lambda start: start.job == job)
    return job


@pytest.mark.parametrize("strange", STRANGE_IDS)
def test_output_for_a_strange_id_makes_no_file(tmp_path: Path, strange: str) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            agent = await here.agent("a")
            before = files(tmp_path)
            await agent.say(log=pb.TaskLog(job=strange, attempt=1, data=b"text"))
            await agent.in_order()
            assert files(tmp_path) == before
            assert not (await here.stub.Cluster(pb.ClusterRequest())).alarms
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await here.stub.Describe(pb.DescribeRequest(id=strange))
            assert refused.value.code() == grpc.StatusCode.NOT_FOUND
            assert len(refused.value.details() or "") < 200

    play(scene())


def test_output_is_taken_only_from_the_agent_that_has_the_rank_also_after_the_end_and_a_restart(tmp_path: Path) -> None:
    async def printed(here: Site, job: str) -> bytes:
        return b"".join([chunk.data async for chunk in here.stub.Logs(pb.LogsRequest(id=job))])

    async def scene() -> None:
        async with site(tmp_path) as here:
            holder, other = await here.agent("a"), await here.agent("b")
            job = await here.submit(workers=1)
            reader = holder if await is_started(here, job, "a") else other
            liar = other if reader is holder else holder
            await reader.hear("start")
            await liar.say(log=pb.TaskLog(job=job, attempt=1, data=b"forged"))
            await liar.in_order()
            await reader.say(log=pb.TaskLog(job=job, attempt=1, rank=7, data=b"forged"))
            await reader.say(log=pb.TaskLog(job=job, attempt=2, data=b"forged"))
            await reader.say(log=pb.TaskLog(job=job, attempt=1, data=b"one"))
            await reader.say(ended=pb.TaskEnded(status=status(job), how=pb.TaskEnded.DONE))
            await reader.hear("ack")
            await reader.say(log=pb.TaskLog(job=job, attempt=1, data=b"two", begin=3))
            await reader.in_order()
            assert await printed(here, job) == b"onetwo"
            assert here.running.fleet.refused.counts["output"] == 3
            names = reader.name, liar.name
        async with site(tmp_path) as here:
            reader, liar = [await here.agent(name, incarnation="2") for name in names]
            await liar.say(log=pb.TaskLog(job=job, attempt=1, data=b"forged", begin=6))
            await liar.in_order()
            await reader.say(log=pb.TaskLog(job=job, attempt=1, data=b"three", begin=6))
            await reader.in_order()
            assert await printed(here, job) == b"onetwothree"

    play(scene())


def test_after_a_restart_a_holder_still_has_only_ranks_that_its_job_has(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            holder = await here.agent("a")
            job = await here.submit(workers=1)
            await holder.hear("start")
            await holder.say(ended=pb.TaskEnded(status=status(job), how=pb.TaskEnded.CRASHED, reason="out of memory"))
            await holder.hear("ack")
        async with site(tmp_path) as here:
            holder = await here.agent("a", incarnation="2")
            for rank in (1, 7, 2**32 - 1):
                await holder.say(log=pb.TaskLog(job=job, attempt=1, rank=rank, data=b"forged"))
            await holder.in_order()
            assert here.running.fleet.refused.counts["output"] == 3

    play(scene())


async def is_started(here: Site, job: str, server: str) -> bool:
    """Wait until a job runs; whether it does on this server."""
    async for update in here.stub.Watch(pb.JobQuery(ids=[job])):
        for view in update.jobs:
            if view.state == pb.RUNNING:
                return [place.server for place in view.places] == [server]
    raise AssertionError


def test_progress_and_ends_count_only_from_the_agent_that_has_the_rank(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            holder = await here.agent("a")
            job = await running_job(here, holder)
            liar = await here.agent("b")
            await liar.say(heartbeat=pb.Heartbeat(tasks=[status(job, steps=900.0, measured_steps=9.0)]))
            await liar.say(ended=pb.TaskEnded(status=status(job), how=pb.TaskEnded.DONE))
            await liar.in_order()
            await holder.say(heartbeat=pb.Heartbeat(tasks=[status(job, rank=5, steps=900.0)]))
            await holder.say(ended=pb.TaskEnded(status=status(job, rank=5), how=pb.TaskEnded.DONE))
            await holder.say(heartbeat=pb.Heartbeat(tasks=[status(job, steps=5.0)]))
            await holder.in_order()
            view = (await here.stub.Describe(pb.DescribeRequest(id=job))).job
            assert (view.state, view.steps_done) == (pb.RUNNING, 5.0)
            assert here.running.fleet.refused.counts == {"a stray": 1, "an end": 4, "progress": 1}
            assert not here.running.fleet.strays

    play(scene())


@pytest.mark.parametrize("figure", [math.nan, math.inf, -1.0, 1e300])
@pytest.mark.parametrize("name", ["steps", "saved_steps", "measured_steps", "measured_seconds"])
def test_figures_that_no_job_can_reach_are_not_counted(tmp_path: Path, name: str, figure: float) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            agent = await here.agent("a")
            job = await running_job(here, agent, retries=0)
            bad: dict[str, Any] = {name: figure}
            await agent.say(heartbeat=pb.Heartbeat(tasks=[status(job, **{"steps": 4.0, **bad})]))
            await agent.say(ended=pb.TaskEnded(status=status(job, **{"steps": 5.0, **bad}), how=pb.TaskEnded.CRASHED))
            await agent.hear("ack")
            view = (await here.stub.Describe(pb.DescribeRequest(id=job))).job
            assert (view.state, view.steps_done) == (pb.FAILED, 0.0)
            assert here.running.fleet.refused.counts["progress"] == 2

    play(scene())


def test_only_the_agent_with_rank_0_says_where_a_gang_meets(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            agents = [await here.agent(name) for name in "ab"]
            job = await here.submit(workers=2)
            first = agents[0] if await has_rank_0(here, job, agents[0]) else agents[1]
            second = agents[1] if first is agents[0] else agents[0]
            stranger = await here.agent("c")
            await first.hear("start")
            there: dict[str, Any] = {"master_address": "10.9.9.9", "master_port": 9, "gang_port": 9}
            await stranger.say(started=pb.TaskStarted(job=job, attempt=1, rank=0, **there))
            await stranger.in_order()
            await second.say(started=pb.TaskStarted(job=job, attempt=1, rank=0, **there))
            await second.in_order()
            assert here.running.fleet.refused.counts["a start"] == 2
            meeting: dict[str, Any] = {
                "master_address": "10.0.0.1",
                "master_port": 1001,
                "gang_port": 1002,
                "gang_token": "drawn",
                "gang_certificate": "made",
            }
            too_long = {**meeting, "gang_certificate": "x" * 5000}
            await first.say(started=pb.TaskStarted(job=job, attempt=1, rank=0, **too_long))
            await first.in_order()
            assert here.running.fleet.refused.counts["a start"] == 3
            await first.say(started=pb.TaskStarted(job=job, attempt=1, rank=0, **meeting))
            start = await second.hear("start")
            assert (start.master_address, start.master_port, start.gang_port) == ("10.0.0.1", 1001, 1002)
            assert (start.gang_token, start.gang_certificate) == ("drawn", "made")
            assert b"drawn" not in b"".join(path.read_bytes() for path in here.folder.rglob("journal*"))

    play(scene())


@pytest.mark.parametrize("encrypting", [0, 1, 2])
def test_rank_0_encrypts_only_if_all_agents_of_its_gang_can(tmp_path: Path, encrypting: int) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            agents = [await here.agent(name, encrypts_gangs=n < encrypting) for n, name in enumerate("ab")]
            job = await here.submit(workers=2)
            first = agents[0] if await has_rank_0(here, job, agents[0]) else agents[1]
            assert (await first.hear("start")).plain_gang == (encrypting < 2)

    play(scene())


async def has_rank_0(here: Site, job: str, agent: RawAgent) -> bool:
    await is_started(here, job, "")
    return here.running.fleet.attempts[job].parts[0].agent == f"id-{agent.name}"


def test_an_agent_cannot_hold_up_jobs_by_listing_tasks_that_it_was_not_given(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            liar = await here.agent("z", draining=True, tasks=[status(str(job)) for job in range(1, 20)])
            await liar.say(heartbeat=pb.Heartbeat(tasks=[status(str(job), attempt=9) for job in range(1, 20)]))
            await liar.in_order()
            holder = await here.agent("a", 2)
            assert await running_job(here, holder) == "1"
            assert await running_job(here, holder) == "2"
            await liar.say(heartbeat=pb.Heartbeat(tasks=[status("1"), status("2")]))
            await liar.in_order()
            assert not here.running.fleet.strays
            assert here.running.fleet.refused.counts["a stray"] == 40

    play(scene())


def test_refused_words_are_logged_once_in_a_while(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            agent = await here.agent("a")
            for _ in range(50):
                await agent.say(log=pb.TaskLog(job="5", attempt=1, data=b"forged"))
            await agent.in_order()
            assert here.running.fleet.refused.counts["output"] == 50

    with caplog.at_level(logging.WARNING, logger="gavel.runtime.holding"):
        play(scene())
    lines = [record.getMessage() for record in caplog.records if record.name == "gavel.runtime.holding"]
    assert len(lines) < 5
    assert "agent a sent output for job 5, attempt 1" in lines[0]
