"""The scheduler repeats every check of its clients, and bounds what one message can make it do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from raw_peers import RawAgent, Site, play, site

from gavel.client.field_checks import FieldError
from gavel.client.messages import from_request
from gavel.limits import MOST_JOBS_IN_A_CALL, MOST_MESSAGE_BYTES
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb

BAD_JOBS: dict[str, tuple[dict[str, Any], str]] = {
    "no command": ({"command": []}, "has no command"),
    "an empty command": ({"command": ["/bin/sh", "-c", "  "]}, "command is empty"),
    "NUL in the command": ({"command": ["a\0b"]}, "command contains a NUL character"),
    "= in the name of a variable": ({"environment": {"A=B": "x"}}, "'A=B' cannot be the name of a variable"),
    "NUL in the name of a variable": ({"environment": {"A\0": "x"}}, "environment contains a NUL character"),
    "no name of a variable": ({"environment": {"": "x"}}, "'' cannot be the name of a variable"),
    "NUL in a value": ({"environment": {"TOKEN": "secret\0"}}, "the value of 'TOKEN' must be text without NUL"),
    "many variables": ({"environment": {str(n): "" for n in range(5000)}}, "environment has 5,000 variables"),
    "a long name": ({"name": "x" * 201}, "name has 201 characters, at most 200"),
    "a long template": ({"template": "x" * 100_000}, "template has 100,000 characters"),
    "a long entity": ({"entity": "x" * 201}, "entity has 201 characters"),
    "a long directory": ({"working_directory": "/" + "x" * 5000}, "working_directory has 5,001 characters"),
    "escapes in a name": ({"name": "a\x1b[2J"}, "name contains a character that cannot be printed"),
    "many types": ({"types": [f"t{n}" for n in range(100_000)]}, "types names 100,000 types"),
    "a type twice": ({"types": ["v100", "v100"]}, "types names 'v100' twice"),
    "a type without a name": ({"types": [""]}, "types contains an empty name"),
    "many workers": ({"workers": 4_294_967_295}, "workers must be at most 1,000,000"),
    "many retries": ({"retries": 4_294_967_295}, "retries must be at most 1,000,000"),
    "few steps": ({"steps": 1e-300}, "steps must be at least 1e-15"),
    "endless steps": ({"steps": float("inf")}, "steps is inf"),
}


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), refused.value.details() or ""


@pytest.mark.parametrize("what", BAD_JOBS)
def test_the_scheduler_refuses_a_job_that_a_client_would_not_send(tmp_path: Path, what: str) -> None:
    fields, sentence = BAD_JOBS[what]

    async def scene() -> None:
        async with site(tmp_path) as here:
            good: dict[str, Any] = {"command": ["train"], "workers": 1, "weight": 1.0, "steps": 10.0}
            job = pb.JobRequest(**{**good, **fields})
            code, told = await refusal(here.stub.Submit(pb.SubmitRequest(jobs=[pb.JobRequest(**good), job])))
            assert code == grpc.StatusCode.INVALID_ARGUMENT
            assert sentence in told
            assert len(told) < 300
            assert "secret" not in told
            assert not (await here.stub.List(pb.JobQuery())).jobs
            with pytest.raises(FieldError):
                from_request(job).check()  # the client's own check

    play(scene())


def test_a_call_submits_a_bounded_number_of_jobs_and_bytes_under_a_short_key(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            small = pb.JobRequest(command=["t"], workers=1)
            many = pb.SubmitRequest(jobs=[small] * (MOST_JOBS_IN_A_CALL + 1))
            assert await refusal(here.stub.Submit(many)) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                "10,001 jobs in one call; submit at most 10,000 at a time",
            )
            large = pb.JobRequest(command=["t", "x" * MOST_MESSAGE_BYTES], workers=1)
            code, _ = await refusal(here.stub.Submit(pb.SubmitRequest(jobs=[large])))
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
            code, told = await refusal(here.stub.Submit(pb.SubmitRequest(jobs=[small], key="k" * 1000)))
            assert (code, told[:43]) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                "the key of a submission has 1,000 character",
            )
            assert not (await here.stub.List(pb.JobQuery())).jobs

    play(scene())


@pytest.mark.parametrize("method", ["Cancel", "List", "RemoveCheckpoints"])
def test_a_call_names_a_bounded_number_of_jobs(tmp_path: Path, method: str) -> None:
    message = {"Cancel": pb.CancelRequest, "List": pb.JobQuery, "RemoveCheckpoints": pb.RemoveCheckpointsRequest}

    async def scene() -> None:
        async with site(tmp_path) as here:
            job = await here.submit()
            code, told = await refusal(getattr(here.stub, method)(message[method](ids=[job] * 100_001)))
            assert (code, told[:25]) == (grpc.StatusCode.INVALID_ARGUMENT, "100,001 ids in one call; ")

    play(scene())


@pytest.mark.parametrize("method", ["Drain", "Undrain", "RemoveServer"])
@pytest.mark.parametrize("name", ["x" * 100_000, "a\x1b[2J"])
def test_the_name_of_an_agent_is_short_and_printable(tmp_path: Path, method: str, name: str) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            code, told = await refusal(getattr(here.stub, method)(pb.DrainRequest(agent=name)))
            assert code == grpc.StatusCode.INVALID_ARGUMENT
            assert told.startswith("the agent's name ")
            assert len(told) < 200

    play(scene())


def group(type_name: str, count: int) -> pb.Accelerators:
    return pb.Accelerators(type=type_name, count=count)


BAD_HELLOS: dict[str, tuple[dict[str, Any], str]] = {
    "many types": ({"accelerators": [group(f"t{n}", 1) for n in range(20_000)]}, "at most 64 types"),
    "many accelerators": ({"accelerators": [group("v100", 2_000_000)]}, "at most 4,096 accelerators, not 2,000,000"),
    "most accelerators": ({"accelerators": [group("v100", 4_294_967_295)]}, "at most 4,096 accelerators"),
    "many in all": ({"accelerators": [group("v100", 4000), group("k80", 97)]}, "not 4,097"),
    "a type of none": ({"accelerators": [group("v100", 0)]}, "no accelerator of type 'v100'"),
    "a type without a name": ({"accelerators": [group("", 1)]}, "a type of accelerators has no name"),
    "escapes in a type": ({"accelerators": [group("v\x1b[2J", 1)]}, "cannot be printed"),
    "a long type": ({"accelerators": [group("v" * 201, 1)]}, "has 201 characters"),
    "a long name": ({"name": "x" * 201}, "the agent's name has 201 characters"),
    "escapes in the name": ({"name": "x\x1b[2J"}, "the agent's name contains a character that cannot be printed"),
    "a long identity": ({"agent": "x" * 301}, "the agent's identity has 301 characters"),
    "a long incarnation": ({"incarnation": "x" * 201}, "the agent's incarnation has 201 characters"),
    "a long address": ({"address": "x" * 201}, "the agent's address has 201 characters"),
}


@pytest.mark.parametrize("what", BAD_HELLOS)
def test_the_scheduler_refuses_an_agent_beyond_the_limits(tmp_path: Path, what: str) -> None:
    fields, sentence = BAD_HELLOS[what]

    async def scene() -> None:
        async with site(tmp_path) as here:
            refused = await refused_hello(here, **fields)
            assert sentence in refused.reason
            assert not refused.retry
            assert len(refused.reason) < 300
            assert not (await here.stub.Cluster(pb.ClusterRequest())).servers

    play(scene())


async def refused_hello(here: Site, **fields: Any) -> Any:
    agent = RawAgent(here.stub.Attach(), "a")
    known = {"name": "a", "agent": "id", "incarnation": "1", "protocol": PROTOCOL, "accelerators": [group("v100", 1)]}
    await agent.say(hello=pb.Hello(**{**known, **fields}))
    return await agent.hear("refused")


def test_an_agent_at_the_limits_is_accepted(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            await here.agent("x" * 200, agent="", accelerators=[group(f"t{n}", 64) for n in range(64)])
            (member,) = here.running.fleet.members.values()
            assert sum(server.accelerators for server in member.servers.values()) == 4096

    play(scene())


@pytest.mark.parametrize("field", [{"master_port": 65_536}, {"gang_port": 2**32 - 1}, {"master_address": "x" * 201}])
def test_a_rendezvous_that_cannot_be_one_is_refused(tmp_path: Path, field: dict[str, Any]) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            agent = await here.agent("a")
            job = await here.submit()
            await agent.hear("start")
            await agent.say(started=pb.TaskStarted(job=job, attempt=1, **{"master_port": 1, **field}))
            await agent.in_order()
            assert here.running.fleet.attempts[job].ports is None
            assert here.running.fleet.refused.counts["a start"] == 1

    play(scene())


def test_a_long_reason_of_an_agent_is_cut(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            agent = await here.agent("a")
            job = await here.submit(retries=0)
            await agent.hear("start")
            status = pb.TaskStatus(job=job, attempt=1)
            await agent.say(ended=pb.TaskEnded(status=status, how=pb.TaskEnded.CRASHED, reason="x" * 1_000_000))
            await agent.hear("ack")
            view = (await here.stub.Describe(pb.DescribeRequest(id=job))).job
            assert view.state == pb.FAILED
            assert 1000 < len(view.reason) < 2100

    play(scene())
