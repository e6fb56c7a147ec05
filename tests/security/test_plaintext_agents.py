"""During an upgrade, agents may attach without TLS at a port of their own: they get work, but no secrets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
from secured_site import SecuredSite, play, secured_site

from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb

SECRET = "hunter2"  # noqa: S105 - that is the point


async def attached(site: SecuredSite, name: str, address: str) -> Any:
    """An agent without a certificate, after its welcome."""
    call = site.plain(address).Attach()
    kinds = [pb.Accelerators(type="v100", count=1)]
    hello = pb.Hello(protocol=PROTOCOL, name=name, agent=uuid4().hex, incarnation="1", accelerators=kinds)
    await call.write(pb.FromAgent(number=1, hello=hello))
    answer = await call.read()
    assert answer.WhichOneof("message") == "welcome", answer
    return call


async def starts(call: Any, seconds: float) -> list[pb.Start]:
    """What an agent is told to start within a time."""
    found: list[pb.Start] = []
    try:
        async with asyncio.timeout(seconds):
            while isinstance(message := await call.read(), pb.ToAgent):
                if message.WhichOneof("message") == "start":
                    found.append(message.start)
    except TimeoutError:
        pass
    return found


def test_an_agent_without_tls_gets_jobs_but_none_with_secrets(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path, insecure_listen="127.0.0.1:0") as site:
            call = await attached(site, "old", site.running.bound.insecure)
            plain = await site.submit("ann", types=["v100"])
            assert [start.job for start in await starts(call, 3.0)] == [plain]

        async with secured_site(tmp_path / "second", insecure_listen="127.0.0.1:0") as site:
            call = await attached(site, "old", site.running.bound.insecure)
            job = pb.JobRequest(command=["train"], workers=1, weight=1.0, steps=10.0, secrets=["KEY"])
            request = pb.SubmitRequest(jobs=[job], secrets=[pb.Secrets(values={"KEY": SECRET})])
            [made] = (await site.call("Submit", request, "ann")).ids
            assert await starts(call, 3.0) == []
            view = (await site.call("Describe", pb.DescribeRequest(id=made), "ann")).job
            assert "agent old is connected without TLS" in view.reason
            assert view.failures == 0

    play(scene())


def test_the_port_without_tls_opens_nothing_else(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path, insecure_listen="127.0.0.1:0") as site:
            stub = site.plain(site.running.bound.insecure)
            for method, request in (
                ("List", pb.JobQuery()),
                ("Submit", pb.SubmitRequest()),
                ("Cluster", pb.ClusterRequest()),
            ):
                try:
                    await getattr(stub, method)(request, metadata=site.metadata("max"))
                    raise AssertionError(method)
                except grpc.aio.AioRpcError as error:
                    assert error.code() in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}  # noqa: PT017

    play(scene())
