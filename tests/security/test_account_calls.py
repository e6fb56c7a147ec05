"""Calls about users and tokens, with a real secured scheduler: what one may create, and what ends with a revocation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from secured_site import SecuredSite, play, secured_site

from gavel.wire import gavel_pb2 as pb

DENIED = grpc.StatusCode.PERMISSION_DENIED


async def code_of(call: Any) -> grpc.StatusCode:
    """How a call ended."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("caller", "wanted"),
    [
        ("ann", {"role": "operator"}),
        ("ann", {"user": "amy"}),
        ("ann", {"user": "max"}),
        ("ann", {"role": "agent"}),
        ("ann", {"role": "metrics"}),
        ("oda", {"user": "ann"}),
        ("oda", {"role": "admin"}),
        ("oda", {"role": "metrics"}),
        ("vic", {"role": "user"}),
        ("max", {"user": "ann", "role": "admin"}),
    ],
    ids=str,
)
def test_no_one_creates_a_token_beyond_their_rights(tmp_path: Path, caller: str, wanted: dict[str, Any]) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            assert await code_of(site.call("CreateToken", pb.CreateTokenRequest(**wanted), caller)) is DENIED

    play(scene())


def test_a_token_with_few_rights_creates_none_with_more(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            weak = (await site.call("CreateToken", pb.CreateTokenRequest(role="viewer"), "max")).token
            assert await code_of(site.call("CreateToken", pb.CreateTokenRequest(role="admin"), token=weak)) is DENIED
            assert await code_of(site.call("CreateToken", pb.CreateTokenRequest(), token=weak)) is DENIED
            own = pb.CreateTokenRequest(role="viewer")
            assert await code_of(site.call("CreateToken", own, token=weak)) is grpc.StatusCode.OK

    play(scene())


def test_tokens_of_others_are_neither_listed_nor_revoked(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            [of_ann] = (await site.call("ListTokens", pb.ListTokensRequest(), "ann")).tokens
            for user in ("ann", "*"):
                assert await code_of(site.call("ListTokens", pb.ListTokensRequest(user=user), "bob")) is DENIED
            assert await code_of(site.call("RevokeToken", pb.RevokeTokenRequest(id=of_ann.id), "bob")) is DENIED
            assert await code_of(site.call("RevokeToken", pb.RevokeTokenRequest(id=of_ann.id), "oda")) is DENIED
            assert await code_of(site.call("WhoAmI", pb.WhoAmIRequest(), "ann")) is grpc.StatusCode.OK

    play(scene())


def test_a_revocation_takes_the_tokens_along_that_were_made_with_it_and_no_others(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            [stolen] = (await site.call("ListTokens", pb.ListTokensRequest(), "ann")).tokens
            child = (await site.call("CreateToken", pb.CreateTokenRequest(), "ann")).token
            grandchild = (await site.call("CreateToken", pb.CreateTokenRequest(), token=child)).token
            own = (await site.call("CreateToken", pb.CreateTokenRequest(user="ann"), "max")).token
            await site.call("RevokeToken", pb.RevokeTokenRequest(id=stolen.id), "max")
            for token in (child, grandchild):
                code = await code_of(site.call("WhoAmI", pb.WhoAmIRequest(), token=token))
                assert code is grpc.StatusCode.UNAUTHENTICATED
            assert await code_of(site.call("WhoAmI", pb.WhoAmIRequest(), token=own)) is grpc.StatusCode.OK

    play(scene())


def test_a_user_has_a_bounded_number_of_valid_tokens(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            codes = [await code_of(site.call("CreateToken", pb.CreateTokenRequest(), "ann")) for _ in range(100)]
            assert codes == [grpc.StatusCode.OK] * 99 + [grpc.StatusCode.INVALID_ARGUMENT]

    play(scene())


async def watching(site: SecuredSite, user: str) -> Any:
    """A stream that is open and has caught up."""
    stream = site.stub().Watch(pb.JobQuery(), metadata=site.metadata(user))
    async for update in stream:
        if update.caught_up:
            break
    return stream


async def ends(stream: Any) -> bool:
    """Whether a stream is ended by the scheduler, soon."""

    async def read() -> None:
        async for _ in stream:
            pass

    try:
        await asyncio.wait_for(read(), 10.0)
    except TimeoutError:
        return False
    except grpc.aio.AioRpcError:
        pass
    return True


def test_a_revocation_ends_the_streams_of_that_token_and_of_no_other(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            gone, stays = await watching(site, "ann"), await watching(site, "bob")
            [token] = (await site.call("ListTokens", pb.ListTokensRequest(), "ann")).tokens
            await site.call("RevokeToken", pb.RevokeTokenRequest(id=token.id), "ann")
            assert await ends(gone)
            assert await code_of(site.call("WhoAmI", pb.WhoAmIRequest(), "ann")) is grpc.StatusCode.UNAUTHENTICATED
            await site.submit("bob")
            assert [update.job.request.user async for update in first(stays)] == ["bob"]

    play(scene())


async def first(stream: Any) -> Any:
    """The next update with a job."""
    async for update in stream:
        if update.HasField("job") or update.jobs:
            yield update if update.HasField("job") else pb.JobUpdate(job=update.jobs[0])
            return


@pytest.mark.parametrize(
    "change", [pb.User(name="ann", disabled=True), pb.User(name="ann", role="viewer")], ids=["disabled", "viewer"]
)
def test_a_change_of_a_user_ends_the_users_streams(tmp_path: Path, change: pb.User) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            stream = await watching(site, "ann")
            fields = ["disabled"] if change.disabled else ["role"]
            await site.call("ChangeUser", pb.ChangeUserRequest(user=change, fields=fields), "max")
            assert await ends(stream)

    play(scene())


def test_users_and_tokens_survive_a_restart(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            token = site.tokens["ann"]
        async with secured_site(tmp_path, users=False) as site:
            reply = await site.call("WhoAmI", pb.WhoAmIRequest(), token=token)
            assert (reply.user, reply.role, list(reply.teams)) == ("ann", "user", ["nlp"])

    play(scene())


def test_an_open_scheduler_says_that_it_has_no_users(tmp_path: Path) -> None:
    from gavel.runtime.server import ServeSettings, serving  # noqa: PLC0415 - only here
    from gavel.wire.gavel_pb2_grpc import GavelStub  # noqa: PLC0415

    async def scene() -> None:
        settings = ServeSettings(listen="127.0.0.1:0", folder=tmp_path)
        async with serving(settings) as running, grpc.aio.insecure_channel(running.address) as channel:
            stub: Any = GavelStub(channel)  # type: ignore[no-untyped-call]
            assert (await stub.WhoAmI(pb.WhoAmIRequest())).user == "you"
            assert await code_of(stub.ListUsers(pb.ListUsersRequest())) is grpc.StatusCode.FAILED_PRECONDITION
            assert await code_of(stub.Enrol(pb.EnrolRequest())) is grpc.StatusCode.FAILED_PRECONDITION

    play(scene())
