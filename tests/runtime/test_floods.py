"""Floods: connections that never finish their handshake, streams that are not read, more streams than allowed."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from raw_peers import Site, play, site

from gavel.runtime import following, watching
from gavel.runtime.event_lines import Wanted
from gavel.runtime.facts import SchedulerStarted
from gavel.runtime.following import Follower
from gavel.runtime.logs import Logs
from gavel.runtime.service import CHUNK
from gavel.runtime.streams import CONNECTION_OPTIONS, Streams, TooManyStreamsError
from gavel.security.roles import Caller, Role
from gavel.wire import gavel_pb2 as pb
from gavel.wire import gavel_pb2_grpc as stubs

CONNECTIONS = 500
HANDSHAKE_MS = 1_500
"""Shorter than in real life, so that a test need not wait."""
MIB = 2**20


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that happens soon; a test that hangs here is ended by `play`."""
    while not holds():  # noqa: ASYNC110 - of the operating system or another process
        await asyncio.sleep(0.02)


# ---- connections ----


class Echo(stubs.GavelServicer):
    """Answers one call."""

    async def Cluster(self, request: pb.ClusterRequest, context: Any) -> pb.ClusterView:  # noqa: ARG002
        return pb.ClusterView(policy="here")


def certificate() -> tuple[bytes, bytes]:
    """A key and a certificate for localhost."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return encoded, made.public_bytes(serialization.Encoding.PEM)


@asynccontextmanager
async def tls_port() -> AsyncIterator[tuple[int, Callable[[], grpc.aio.Channel]]]:
    """A server with the scheduler's options on a TLS port, and a way to connect to it."""
    key, made = certificate()
    options = {**dict(CONNECTION_OPTIONS), "grpc.server_handshake_timeout_ms": HANDSHAKE_MS}
    server = grpc.aio.server(options=list(options.items()))
    stubs.add_GavelServicer_to_server(Echo(), server)  # type: ignore[no-untyped-call]
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, made)]))
    await server.start()

    def connect() -> grpc.aio.Channel:
        local = [("grpc.ssl_target_name_override", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.aio.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(made), options=local)

    try:
        yield port, connect
    finally:
        await server.stop(grace=None)


async def answers(connect: Callable[[], grpc.aio.Channel]) -> bool:
    async with connect() as channel:
        view = await stubs.GavelStub(channel).Cluster(pb.ClusterRequest(), timeout=20.0)  # type: ignore[no-untyped-call]
        return bool(view.policy == "here")


def hello_of_tls() -> bytes:
    """The first message of a handshake."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


BEGINNINGS: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "half a hello": lambda: hello_of_tls()[:50],
    "a hello and nothing more": hello_of_tls,
    "plain HTTP": lambda: b"GET / HTTP/1.1\r\n",
}


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_half_open_handshakes_delay_no_client_and_are_closed(beginning: str) -> None:
    first = BEGINNINGS[beginning]()

    def opened(port: int) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(first)
        return connection

    async def scene() -> None:
        async with tls_port() as (port, connect):
            assert await answers(connect)
            before = files()
            held = [await asyncio.to_thread(opened, port) for _ in range(CONNECTIONS)]
            try:
                assert await answers(connect)
                # Our own ends stay open, so everything beyond them belongs to the server.
                await until(lambda: files() <= before + CONNECTIONS + 20)
                assert await answers(connect)
            finally:
                for connection in held:
                    connection.close()

    play(scene())


def files() -> int:
    """Open file descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("size", [20_000, 1_000_000])
def test_large_metadata_is_refused_and_the_connection_stays_usable(tmp_path: Path, size: int) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await here.stub.Cluster(pb.ClusterRequest(), metadata=(("x-large", "x" * size),))
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await here.stub.Cluster(pb.ClusterRequest())).policy

    play(scene())


# ---- streams ----


def user(name: str) -> Caller:
    return Caller(user=name, role=Role.USER)


def test_a_caller_has_a_bounded_number_of_streams_and_others_are_not_affected() -> None:
    streams = Streams(most_of_a_caller=2)
    with streams.one(user("ann")), streams.one(user("ann")):
        with pytest.raises(TooManyStreamsError, match="ann has 2 streams open, the most at once"):
            streams.one(user("ann")).__enter__()
        with streams.one(user("bob")):
            assert streams.total == 3
    assert streams.total == 0
    with streams.one(user("ann")):
        assert streams.total == 1


def test_an_operator_who_acts_for_others_counts_as_one_caller() -> None:
    streams = Streams(most_of_a_caller=1)
    ann, bob = (Caller(user=name, by="root", role=Role.USER) for name in ("ann", "bob"))
    with streams.one(ann), pytest.raises(TooManyStreamsError, match="root has 1"):
        streams.one(bob).__enter__()


def test_all_callers_together_have_a_bounded_number_of_streams() -> None:
    streams = Streams(most=1)
    with streams.one(user("ann")), pytest.raises(TooManyStreamsError, match="try again later"):
        streams.one(user("bob")).__enter__()


def test_a_stream_too_many_is_refused_with_a_sentence_and_ended_ones_are_forgotten(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            service = here.running.service
            service._streams = Streams(most=2)
            calls = [here.stub.Watch(pb.JobQuery()), here.stub.Events(pb.EventsRequest(follow=True))]
            for call in calls:
                await call.initial_metadata()
            job = await here.submit()
            for refused in (here.stub.Watch(pb.JobQuery()), here.stub.Logs(pb.LogsRequest(id=job))):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await refused.read()
                assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                assert error.value.details() == "2 streams are open, the most at once; try again later"
            for call in calls:
                call.cancel()
            await until(lambda: service._streams.total == 0)

    play(scene())


def test_a_reader_of_events_that_falls_behind_misses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MOST_WAITING", 3)

    async def scene() -> None:
        async with site(tmp_path) as here:
            call = here.stub.Events(pb.EventsRequest(follow=True, routine=True))
            await call.initial_metadata()
            for _ in range(30):
                await here.submit(command=["train", "x" * 20_000])  # more than a connection takes unread
            last = here.running.engine.journal.last
            numbers: list[int] = []
            while not numbers or numbers[-1] < last:
                numbers.append((await call.read()).number)
            assert numbers == list(range(1, last + 1))

    play(scene())


def test_lines_that_wait_for_a_reader_are_bounded() -> None:
    async def scene() -> None:
        follower = Follower(Wanted(routine=True))
        follower.begin(0)
        fact = SchedulerStarted(0.0, "1", 1, "me")
        for number in range(1, following.MOST_WAITING + 2):
            follower.offer(number, fact, lambda: pb.EventLine(number=1))
        assert follower.behind
        assert not follower._lines
        assert await follower.next() is None

    play(scene())


def test_a_log_is_read_in_parts_and_arrives_whole(tmp_path: Path) -> None:
    data = os.urandom(3 * CHUNK + 17)

    async def scene() -> None:
        async with site(tmp_path) as here:
            job = await here.submit()
            kept = Logs(tmp_path / "state" / "logs", limit=64 * MIB)
            kept.append(job, 0, 1, 0, data)
            chunks = [chunk async for chunk in here.stub.Logs(pb.LogsRequest(id=job))]
            assert b"".join(chunk.data for chunk in chunks) == data
            assert [chunk.offset for chunk in chunks] == [CHUNK * number for number in range(4)]
            tail = [chunk async for chunk in here.stub.Logs(pb.LogsRequest(id=job, tail=CHUNK + 5))]
            assert b"".join(chunk.data for chunk in tail) == data[-CHUNK - 5 :]
            assert kept.read(job, 0, offset=5, most=7) == (5, data[5:12])

    play(scene())


def test_the_first_answer_to_a_watcher_is_packed_once_while_shared_and_then_one_message_at_a_time() -> None:
    packed: list[int] = []

    def pack(records: Any) -> pb.JobUpdate:
        packed.append(len(records))
        return pb.JobUpdate()

    answer = watching._Answer([None] * (2 * watching.BATCH + 1), pack, set())  # type: ignore[list-item]
    assert answer.batches == 3
    assert answer.batch(2) is answer.batch(2)
    assert packed == [1]
    answer.unshare()
    assert answer.batch(2) is not answer.batch(2)
    assert answer._packed is None
    assert [answer.batches, *packed] == [3, 1, 1, 1]


def test_watchers_that_do_not_read_delay_no_other_client_and_are_forgotten_when_they_leave(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            await fill(here, 1_000)
            calls = [here.stub.Watch(pb.JobQuery(ended_after=float(number))) for number in range(200)]
            for call in calls:
                await call.initial_metadata()
            await fill(here, 1_000)
            assert (await here.stub.Cluster(pb.ClusterRequest())).queued == 2_000
            await until(lambda: len(here.running.engine.listeners) == len(calls))  # first answers are no longer shared
            for call in calls:
                call.cancel()
            await until(lambda: not here.running.engine.listeners)

    play(scene())


async def fill(here: Site, jobs: int) -> None:
    job = pb.JobRequest(command=["train", "x" * 100], template="mine", steps=1e6, workers=1)
    await here.stub.Submit(pb.SubmitRequest(jobs=[job] * jobs))
