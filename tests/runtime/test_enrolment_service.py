"""Agents enrol, connect, renew and are revoked, over real TLS; each attack is refused and changes nothing."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import grpc
import pytest

from gavel.client.errors import NotReachable
from gavel.client.trust import TrustError, fetch_chain, fingerprint, pinned_authority, verified_name
from gavel.errors import InputError
from gavel.runtime.agent import Agent, AgentRefusedError, AgentSettings, emulated
from gavel.runtime.agent.credentials import FILE, OwnCredentials, StoredCredentials, enrol
from gavel.runtime.agent.identity import AgentIdentity
from gavel.security.authority import Authority
from gavel.security.certificates import DAY_SECONDS, key_pem, new_key, signing_request
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub
from secure_stage import CLUSTER, TOKEN, SecureScheduler

LONGEST = 60.0


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, LONGEST))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


async def enrolled(
    scheduler: SecureScheduler, state: Path, name: str = "lab1", token: str = TOKEN, shown: str = ""
) -> StoredCredentials:
    """Enrol as `gavel worker --join` does."""
    return await asyncio.to_thread(
        enrol,
        state,
        agent=AgentIdentity.of(state).agent,
        name=name,
        join=scheduler.address,
        token=token,
        fingerprint=shown or scheduler.authority.fingerprint,
    )


def settings(state: Path, credentials: StoredCredentials | OwnCredentials, **fields: Any) -> AgentSettings:
    accelerators, emulation = emulated("v100=1")
    told: dict[str, Any] = {
        "accelerators": accelerators,
        "state": state,
        "checkpoints": state / "checkpoints",
        "scheduler": credentials.address,
        "credentials": credentials,
        "name": "lab1",
        "emulation": emulation,
        "longest_pause_seconds": 0.1,
        "patience_seconds": 0.0,
        "farewell_seconds": 0.1,
        "contain": False,
    }
    return AgentSettings(**{**told, **fields})


async def run_until_refused(given: AgentSettings) -> str:
    with pytest.raises(AgentRefusedError) as refused:
        await Agent(given).run()
    return str(refused.value)


class Running:
    """An agent in the background."""

    def __init__(self, given: AgentSettings) -> None:
        self.said: list[str] = []
        self.agent = Agent(given, self.said.append)

    async def __aenter__(self) -> Self:
        self._run = asyncio.create_task(self.agent.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.agent.stop(at_once=True)
        await asyncio.gather(self._run, return_exceptions=True)

    async def says(self, text: str) -> str:
        while True:
            for sentence in self.said:
                if text in sentence:
                    return sentence
            await asyncio.sleep(0.01)


# ---- enrolment ----


def test_an_agent_enrols_and_attaches_with_its_certificate(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            credentials = await enrolled(scheduler, state)
            assert credentials.address == f"127.0.0.1:{scheduler.agents_port}"
            assert (state / FILE).stat().st_mode & 0o777 == 0o600
            async with Running(settings(state, credentials)):
                hello, shown = await scheduler.welcomed.get()
            assert (hello.agent, hello.name) == (AgentIdentity.of(state).agent, "lab1")
            assert scheduler.enrolment.check(shown) == (hello.agent, "lab1")
            assert scheduler.audited == [("Enrol", hello.agent, "as lab1, with a join token of alice")]
            assert list(scheduler.journal.documents("agent")) == [hello.agent]

    play(scene())


def test_stored_credentials_are_enough_for_later_starts(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            await enrolled(scheduler, state)
            loaded = StoredCredentials.load(state)
            assert loaded is not None
            assert loaded.name == "lab1"
            async with Running(settings(state, loaded)):
                assert (await scheduler.welcomed.get())[0].name == "lab1"

    play(scene())


def test_a_join_token_works_once(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            await enrolled(scheduler, state)
            (tmp_path / "other").mkdir()
            with pytest.raises(InputError, match="does not enrol this agent: the join token is unknown or used up"):
                await enrolled(scheduler, tmp_path / "other", name="lab2")
            assert not (tmp_path / "other" / FILE).exists()
            assert len(scheduler.enrolment.records()) == 1

    play(scene())


def test_two_agents_at_the_same_moment_cannot_share_one_use(tmp_path: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            states = [tmp_path / f"state{number}" for number in range(6)]
            for each in states:
                each.mkdir()
            outcomes = await asyncio.gather(
                *(enrolled(scheduler, each, name=each.name) for each in states), return_exceptions=True
            )
            assert sum(isinstance(outcome, StoredCredentials) for outcome in outcomes) == 1
            assert len(scheduler.journal.documents("agent")) == 1

    play(scene())


def test_a_refused_enrolment_does_not_use_up_the_token(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            stub = GavelStub(_people(scheduler))  # type: ignore[no-untyped-call]
            bad = pb.EnrolRequest(join_token=TOKEN, agent="a1", name="lab1", signing_request="none")
            with pytest.raises(grpc.RpcError, match="cannot be read"):
                await asyncio.to_thread(stub.Enrol, bad)
            assert (await enrolled(scheduler, state)).name == "lab1"

    play(scene())


def test_an_expired_join_token_is_refused_with_its_sentence(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            scheduler.tokens.until = time.time() - 1
            with pytest.raises(InputError, match="the join token has expired"):
                await enrolled(scheduler, state)

    play(scene())


def test_a_name_that_no_certificate_can_have_is_refused_before_anything_is_sent(state: Path) -> None:
    with pytest.raises(InputError, match="at most 64 bytes"):
        enrol(state, agent="a1", name="x" * 65, join="127.0.0.1:1", token=TOKEN, fingerprint="sha256:" + "0" * 64)


def test_a_scheduler_that_is_not_there_is_named(state: Path) -> None:
    with pytest.raises(NotReachable, match=r"no scheduler answers at 127\.0\.0\.1:1"):
        enrol(state, agent="a1", name="lab1", join="127.0.0.1:1", token=TOKEN, fingerprint="sha256:" + "0" * 64)


def test_a_plaintext_server_is_not_sent_the_token(state: Path) -> None:
    async def scene() -> None:
        received = bytearray()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.extend(await reader.read(10_000))
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TrustError, match="does not answer with TLS"):
            await asyncio.to_thread(
                enrol,
                state,
                agent="a1",
                name="lab1",
                join=f"127.0.0.1:{port}",
                token=TOKEN,
                fingerprint="sha256:" + "0" * 64,
            )
        assert received
        assert TOKEN.encode() not in received
        server.close()

    play(scene())


# ---- a man in the middle ----


def test_another_authority_is_refused_with_both_fingerprints_and_gets_no_token(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        (tmp_path / "mallory").mkdir()
        other = Authority.create(tmp_path / "mallory" / "ca", CLUSTER, ["127.0.0.1"])
        async with SecureScheduler(tmp_path, source=other.shown) as between:
            with pytest.raises(TrustError, match="someone may be in between") as refused:
                await enrolled(between, state, shown=between.authority.fingerprint)
            assert between.authority.fingerprint in str(refused.value)
            assert other.fingerprint in str(refused.value)
            assert between.tokens.left == {TOKEN: 1}
            assert not between.audited

    play(scene())


def test_showing_the_real_authority_beside_another_certificate_does_not_help(tmp_path: Path, state: Path) -> None:
    """The chain's last certificate is the right one, but it did not sign the first."""

    async def scene() -> None:
        (tmp_path / "mallory").mkdir()
        other = Authority.create(tmp_path / "mallory" / "ca", CLUSTER, ["127.0.0.1"])
        async with SecureScheduler(tmp_path) as real:
            shown = other.shown()
            forged = type(shown)(shown.key, shown.chain.split(b"-----END")[0] + b"-----END CERTIFICATE-----\n"
                                 + real.authority.authority_pem)  # fmt: skip
        (tmp_path / "between").mkdir()
        async with SecureScheduler(tmp_path / "between", source=lambda: forged) as between:
            assert pinned_authority(between.address, real.authority.fingerprint)
            with pytest.raises(TrustError, match="is not from the authority"):
                await enrolled(between, state, shown=real.authority.fingerprint)
            assert not between.audited

    play(scene())


def test_an_enrolled_agent_does_not_talk_to_another_authority(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as real:
            credentials = await enrolled(real, state)
        (tmp_path / "mallory").mkdir()
        between = SecureScheduler(tmp_path / "mallory", client_authority=real.authority.authority_pem)
        async with between, Running(settings(state, credentials.at(between.address))) as agent:
            elsewhere = f"127.0.0.1:{between.port + credentials.enrolled.agents_port - real.port}"
            assert agent.agent.settings.scheduler == elsewhere
        moved = StoredCredentials(state / FILE, credentials.enrolled, moved_to=f"127.0.0.1:{between.agents_port}")
        async with between_again(tmp_path, between), Running(settings(state, moved)) as agent:
            assert "someone may be in between" in await agent.says("no scheduler answers")
            assert between.welcomed.empty()

    play(scene())


def between_again(folder: Path, before: SecureScheduler) -> SecureScheduler:
    (folder / "again").mkdir()
    again = SecureScheduler(folder / "again", client_authority=before.client_authority)
    again.agents_port = before.agents_port
    return again


def test_the_fixed_name_is_what_counts_not_the_address(tmp_path: Path, state: Path) -> None:
    """A certificate of the right authority for the right cluster, at an address that it does not name."""

    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            scheduler.authority.issue_server(["elsewhere"])
            credentials = await enrolled(scheduler, state)
            assert credentials.enrolled.server_name == f"scheduler.{CLUSTER}.gavel.internal"

    play(scene())


def test_a_clock_that_is_far_off_is_reported(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        ahead = SecureScheduler(tmp_path, server_clock=lambda: time.time() + DAY_SECONDS)
        async with ahead as scheduler:
            with pytest.raises(TrustError, match="the clocks of the two machines are too far apart"):
                await enrolled(scheduler, state)

    play(scene())


# ---- a certificate speaks for one agent ----


def test_a_certificate_of_another_agent_is_refused_without_a_retry(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            credentials = await enrolled(scheduler, state)
            stolen = tmp_path / "stolen"
            stolen.mkdir()
            own = AgentIdentity.of(stolen).agent
            refusal = await run_until_refused(settings(stolen, credentials, patience_seconds=LONGEST))
            assert f"but the agent says that it is '{own}'" in refusal
            refusal = await run_until_refused(settings(state, credentials, name="lab2", patience_seconds=LONGEST))
            assert "the certificate is for the name 'lab1'" in refusal
            assert scheduler.welcomed.empty()

    play(scene())


def test_the_agents_port_needs_a_certificate(tmp_path: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            address = f"127.0.0.1:{scheduler.agents_port}"
            trusted = grpc.ssl_channel_credentials(scheduler.authority.authority_pem)
            with closing(_channel(address, trusted, scheduler)) as channel:
                stub = GavelStub(channel)  # type: ignore[no-untyped-call]
                with pytest.raises(grpc.RpcError) as refused:
                    await asyncio.to_thread(stub.RenewCertificate, pb.RenewRequest(), timeout=10)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    play(scene())


def test_renewal_without_a_certificate_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            with closing(_people(scheduler)) as channel:
                stub = GavelStub(channel)  # type: ignore[no-untyped-call]
                with pytest.raises(grpc.RpcError, match="connect to the agents' port"):
                    await asyncio.to_thread(stub.RenewCertificate, pb.RenewRequest(), timeout=10)

    play(scene())


def test_a_certificate_of_another_cluster_is_refused(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        (tmp_path / "mallory").mkdir()
        other = Authority.create(tmp_path / "mallory" / "ca", CLUSTER, [])
        async with SecureScheduler(tmp_path) as scheduler:
            real = await enrolled(scheduler, state)
            key = new_key()
            forged = other.sign(signing_request(key), AgentIdentity.of(state).agent, "lab1").pem
            mutual = grpc.ssl_channel_credentials(scheduler.authority.authority_pem, key_pem(key), forged.encode())
            with closing(_channel(real.address, mutual, scheduler)) as channel:
                stub = GavelStub(channel)  # type: ignore[no-untyped-call]
                with pytest.raises(grpc.RpcError) as refused:
                    await asyncio.to_thread(stub.RenewCertificate, pb.RenewRequest(), timeout=10)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert [method for method, _, _ in scheduler.audited] == ["Enrol"]

    play(scene())


# ---- renewal ----


def test_an_agent_renews_its_certificate_by_itself_and_keeps_its_connection(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        ahead = [0.0]
        async with SecureScheduler(tmp_path, lifetime_seconds=60.0) as scheduler:
            first = (await enrolled(scheduler, state)).enrolled
            credentials = StoredCredentials(state / FILE, first, clock=lambda: time.time() + ahead[0])
            async with Running(settings(state, credentials)) as agent:
                hello, _ = await scheduler.welcomed.get()
                ahead[0] = 45.0
                await agent.says("this agent has a new certificate")
                ahead[0] = 0.0
                assert credentials.enrolled.own.key != first.own.key
                assert scheduler.welcomed.empty(), "the connection was kept"
                assert scheduler.agent_state(hello.agent) == "connected"
                scheduler.disconnect(hello.agent)
                _, shown = await scheduler.welcomed.get()
                assert shown == credentials.enrolled.own.certificate
                while credentials.enrolled.previous is not None:  # noqa: ASYNC110 - until the agent was welcomed
                    await asyncio.sleep(0.01)
            loaded = StoredCredentials.load(state)
            assert loaded is not None
            assert loaded.enrolled == credentials.enrolled, "the file is never behind"

    play(scene())


def test_a_job_continues_through_a_renewal_and_the_next_connection(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        trail = tmp_path / "pid"
        script = f"echo $$ > {trail}.new; mv {trail}.new {trail}; sleep 1000"
        request = pb.JobRequest(name="1", command=["/bin/sh", "-c", script])
        order = pb.Start(job="1", attempt=1, ranks=1, workers=1, type="v100", lease_seconds=LONGEST, request=request)
        async with SecureScheduler(tmp_path) as scheduler:
            credentials = await enrolled(scheduler, state)
            scheduler.orders.append(pb.ToAgent(start=order, term=1))
            async with Running(settings(state, credentials)):
                hello, first = await scheduler.welcomed.get()
                while not await asyncio.to_thread(trail.exists):  # noqa: ASYNC110 - another process writes it
                    await asyncio.sleep(0.01)
                await credentials.renew()
                scheduler.disconnect(hello.agent)
                again, second = await scheduler.welcomed.get()
                assert second != first
                assert [(task.job, task.attempt) for task in again.tasks] == [("1", 1)]
                os.kill(int(trail.read_text()), 0)  # it is still the same process

    play(scene())


def test_a_renewal_that_fails_is_repeated(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path, lifetime_seconds=30.0) as scheduler:
            credentials = await enrolled(scheduler, state)
            early = StoredCredentials(state / FILE, credentials.enrolled, clock=lambda: time.time() + 25.0)
            await scheduler.vanish()
            async with Running(settings(state, early)) as agent:
                assert "trying again" in await agent.says("does not renew the certificate of this agent")
                scheduler.enrolment._lifetime = 3600.0
                await scheduler.appear()
                await agent.says("this agent has a new certificate")

    play(scene())


def test_a_new_certificate_that_is_not_accepted_gives_way_to_the_one_before(tmp_path: Path, state: Path) -> None:
    """The scheduler was restored from a backup that does not know the renewal."""

    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            credentials = await enrolled(scheduler, state)
            (before,) = scheduler.enrolment.records()
            await credentials.renew()
            scheduler.enrolment._records[before.agent] = before
            async with Running(settings(state, credentials)) as agent:
                _, shown = await scheduler.welcomed.get()
                await agent.says("does not accept the new certificate")
            assert scheduler.enrolment.check(shown) == (before.agent, "lab1")

    play(scene())


def test_renewal_signs_only_the_same_identity(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            credentials = await enrolled(scheduler, state)
            await credentials.renew()
            assert scheduler.enrolment.check(credentials.enrolled.own.certificate) == (
                AgentIdentity.of(state).agent,
                "lab1",
            )
            assert [method for method, _, _ in scheduler.audited] == ["Enrol", "RenewCertificate"]

    play(scene())


def test_the_schedulers_own_certificate_is_replaced_while_it_runs(tmp_path: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            before = await asyncio.to_thread(fetch_chain, scheduler.address)
            scheduler.authority.issue_server(["127.0.0.1", "another-name"])
            after = await asyncio.to_thread(fetch_chain, scheduler.address)
            assert after[0] != before[0]
            assert fingerprint(after[-1]) == fingerprint(before[-1]) == scheduler.authority.fingerprint
            assert await asyncio.to_thread(verified_name, scheduler.address, _pem(after[-1]))

    play(scene())


# ---- revocation and expiry ----


def test_a_revoked_agent_is_disconnected_and_not_accepted_again(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            credentials = await enrolled(scheduler, state)
            ended = asyncio.create_task(run_until_refused(settings(state, credentials)))
            hello, _ = await scheduler.welcomed.get()
            with closing(_people(scheduler)) as channel:
                stub = GavelStub(channel)  # type: ignore[no-untyped-call]
                reply = await asyncio.to_thread(stub.RevokeAgent, pb.RevokeAgentRequest(agent="lab1"))
                listed = await asyncio.to_thread(stub.ListAgents, pb.ListAgentsRequest())
            assert "the certificate of agent 'lab1' was revoked" in await ended
            assert [(each.agent, each.revoked, each.by) for each in reply.agents] == [(hello.agent, True, "alice")]
            assert list(listed.agents) == list(reply.agents)
            assert scheduler.journal.documents("agent")[hello.agent]["revoked"] is True
            with pytest.raises(InputError, match="was revoked"):
                await credentials.renew()

    play(scene())


def test_revoking_an_unknown_agent_says_so(tmp_path: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            with closing(_people(scheduler)) as channel:
                stub = GavelStub(channel)  # type: ignore[no-untyped-call]
                with pytest.raises(grpc.RpcError, match="no agent 'lab9' is enrolled"):
                    await asyncio.to_thread(stub.RevokeAgent, pb.RevokeAgentRequest(agent="lab9"))

    play(scene())


def test_an_expired_certificate_ends_in_a_sentence_of_the_agent(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            credentials = await enrolled(scheduler, state)
            late = StoredCredentials(state / FILE, credentials.enrolled, clock=lambda: time.time() + 31 * DAY_SECONDS)
            async with Running(settings(state, late)) as agent:
                assert "enrol it again" in await agent.says("the certificate of this agent expired on")
            assert scheduler.welcomed.empty()

    play(scene())


def test_an_expired_certificate_does_not_pass_the_handshake(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        async with SecureScheduler(tmp_path) as scheduler:
            await enrolled(scheduler, state)
            key = new_key()
            old = scheduler.authority.sign(signing_request(key), AgentIdentity.of(state).agent, "lab1", -60.0)
            mutual = grpc.ssl_channel_credentials(scheduler.authority.authority_pem, key_pem(key), old.pem.encode())
            with closing(_channel(f"127.0.0.1:{scheduler.agents_port}", mutual, scheduler)) as channel:
                stub = GavelStub(channel)  # type: ignore[no-untyped-call]
                with pytest.raises(grpc.RpcError) as refused:
                    await asyncio.to_thread(stub.RenewCertificate, pb.RenewRequest(), timeout=10)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    play(scene())


# ---- certificates of the operator's own authority ----


def test_an_agent_with_the_operators_certificate_attaches_under_its_common_name(tmp_path: Path, state: Path) -> None:
    async def scene() -> None:
        operator = Authority.create(tmp_path / "operator", "operator", [])
        key = new_key()
        files = {"key": key_pem(key), "crt": operator.sign(signing_request(key), "any", "lab1").pem.encode()}
        for name, data in files.items():
            (tmp_path / f"own.{name}").write_bytes(data)
            (tmp_path / f"own.{name}").chmod(0o600)
        scheduler = SecureScheduler(tmp_path, client_authority=operator.authority_pem)
        async with scheduler:
            (tmp_path / "ca").write_bytes(scheduler.authority.authority_pem)
            address = f"127.0.0.1:{scheduler.agents_port}"
            own = OwnCredentials(address, tmp_path / "own.crt", tmp_path / "own.key", tmp_path / "ca")
            assert own.fault() is None
            async with Running(settings(state, own)):
                assert (await scheduler.welcomed.get())[0].name == "lab1"
            refusal = await run_until_refused(settings(state, own, name="lab2"))
            assert "the certificate is for the name 'lab1'" in refusal
            (tmp_path / "own.key").chmod(0o644)
            assert "can be read by other users" in (own.fault() or "")

    play(scene())


def _pem(der: bytes) -> str:
    return ssl.DER_cert_to_PEM_cert(der)


def _people(scheduler: SecureScheduler) -> grpc.Channel:
    trusted = grpc.ssl_channel_credentials(scheduler.authority.authority_pem)
    return _channel(scheduler.address, trusted, scheduler)


def _channel(address: str, credentials: grpc.ChannelCredentials, scheduler: SecureScheduler) -> grpc.Channel:
    name = scheduler.authority.server_name
    return grpc.secure_channel(address, credentials, options=[("grpc.ssl_target_name_override", name)])
