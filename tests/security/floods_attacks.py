"""Floods and slow peers: more of everything than one caller may have, while others are served."""

from __future__ import annotations

import queue
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any
from uuid import uuid4

import grpc
from agents_attacks import prompt, status, submitted, view_of
from attack_tools import elsewhere, returns_to_normal
from attacked_cluster import Stream, Target, eventually, hello_of, refusal
from attacks import attack

from gavel.client.access import SchedulerAccess
from gavel.client.channel import session_token
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

EXHAUSTED, INVALID = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, HEADERS, RESET, CONTINUATION = 4, 6, 1, 3, 9


# ---- tools ----


def connected(target: Target, count: int, *, agents: bool = False) -> list[socket.socket]:
    host, _, port = (target.agents_address if agents else target.address).rpartition(":")
    return [socket.create_connection((host, int(port)), timeout=30) for _ in range(count)]


@contextmanager
def raw(target: Target, count: int = 1) -> Iterator[list[ssl.SSLSocket]]:
    """Connections after TLS, on which a test writes HTTP/2 itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=target.authority.decode())
    context.set_alpn_protocols(["h2"])
    with ExitStack() as stack:
        plain = [stack.enter_context(found) for found in connected(target, count)]
        yield [stack.enter_context(context.wrap_socket(each, server_hostname=target.server_name)) for each in plain]


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header without compression; both parts are short."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def call_headers(method: bytes = b"WhoAmI") -> bytes:
    path = literal(b":path", b"/gavel.v1.Gavel/" + method)
    rest = [(b":authority", b"x"), (b"content-type", b"application/grpc"), (b"te", b"trailers")]
    return b"\x83\x87" + path + b"".join(literal(*header) for header in rest)


def is_closed(connection: socket.socket, seconds: float = 30.0) -> bool:
    """Whether the other side closes a connection within this time."""
    connection.settimeout(seconds)
    with suppress(ConnectionError, ssl.SSLError):
        try:
            while connection.recv(65_536):
                pass
        except TimeoutError:
            return False
    return True


@contextmanager
def calls(target: Target, user: str) -> Iterator[tuple[Any, list[tuple[str, str]]]]:
    """A stub on a connection of its own, and a user's metadata."""
    with target.channel() as channel:
        yield GavelStub(channel), [("authorization", f"Bearer {target.tokens[user]}")]  # type: ignore[no-untyped-call]


@contextmanager
def fresh_user(target: Target) -> Iterator[str]:
    """A user of whom no call was counted yet."""
    name = f"eve-{uuid4().hex[:8]}"
    target.call("AddUser", pb.User(name=name, role="user", teams=["nlp"]), "root")
    target.tokens[name] = target.call("CreateToken", pb.CreateTokenRequest(user=name), "root").token
    yield name
    target.call("ChangeUser", pb.ChangeUserRequest(user=pb.User(name=name, disabled=True), fields=["disabled"]), "root")


@contextmanager
def limited(target: Target, user: str, **limits: Any) -> Iterator[None]:
    target.call("SetLimits", pb.LimitsOf(kind="user", name=user, limits=pb.Limits(**limits)), "root")
    try:
        yield
    finally:
        target.call("SetLimits", pb.LimitsOf(kind="user", name=user, limits=pb.Limits()), "root")


# ---- connections ----


@attack("floods")
def half_open_handshakes(target: Target) -> None:
    """340 connections that say nothing, half of a greeting or half of HTTP/2, until the scheduler closes them"""
    with returns_to_normal(target), raw(target, 40) as slow:
        silent = connected(target, 100) + connected(target, 100, agents=True)
        greeting = connected(target, 50) + connected(target, 50, agents=True)
        for each in greeting:
            each.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # the first bytes of a ClientHello
        for number, connection in enumerate(slow):
            connection.sendall(PREFACE[: number % len(PREFACE)])
        prompt(target)
        with ThreadPoolExecutor(340) as threads:
            assert all(threads.map(is_closed, [*silent, *greeting, *slow]))
        for each in silent + greeting:
            each.close()


@attack("floods")
def garbage_connections(target: Target) -> None:
    """Connections that speak HTTP/1.1, plaintext HTTP/2 or nothing known"""
    with returns_to_normal(target):
        for text in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", PREFACE + frame(SETTINGS), b"\0" * 5000, b"\xff" * 5000):
            for each in connected(target, 20):
                with each:
                    each.sendall(text)
                    assert is_closed(each)
        prompt(target)


@attack("floods")
def garbage_frames(target: Target) -> None:
    """HTTP/2 frames of impossible kinds and sizes, after a valid greeting"""
    wrong = [
        frame(SETTINGS, b"\x00\x04\xff\xff\xff\xff"),
        b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
        frame(HEADERS, b"\xff" * 200, flags=5, stream=1),
        frame(CONTINUATION, b"x", stream=1),
    ]
    with raw(target, len(wrong)) as connections:
        for each, part in zip(connections, wrong, strict=True):
            each.sendall(PREFACE + frame(SETTINGS) + part)
        assert all(is_closed(each, 20) for each in connections[:2])
        prompt(target)


@attack("floods")
def pings(target: Target) -> None:
    """Thousands of pings on one connection"""
    with raw(target) as (connection,):
        connection.sendall(PREFACE + frame(SETTINGS))
        with suppress(OSError):
            for _ in range(200):
                connection.sendall(frame(PING, bytes(8)) * 50)
        assert is_closed(connection)
        prompt(target)


@attack("floods")
def rapid_resets(target: Target) -> None:
    """Thousands of calls that are reset as soon as they are sent"""
    with returns_to_normal(target), raw(target) as (connection,):
        connection.sendall(PREFACE + frame(SETTINGS))
        with suppress(OSError):
            for number in range(1, 6001, 2):
                call = frame(HEADERS, call_headers(), flags=4, stream=number)
                connection.sendall(call + frame(RESET, struct.pack(">I", 8), stream=number))
        prompt(target)


@attack("floods")
def endless_headers(target: Target) -> None:
    """A call whose headers never end"""
    with returns_to_normal(target), raw(target) as (connection,):
        connection.sendall(PREFACE + frame(SETTINGS) + frame(HEADERS, call_headers(), stream=1))
        part = frame(CONTINUATION, literal(b"x", b"y" * 100) * 100, stream=1)
        with suppress(OSError):
            for _ in range(2000):
                connection.sendall(part)
        prompt(target)


@attack("floods")
def huge_metadata(target: Target) -> None:
    """A call with 100 kilobytes of metadata beside a valid token"""
    with calls(target, "bob") as (stub, metadata):
        for extra in ([("x-large", "y" * 100_000)], [(f"x-{number}", "y" * 100) for number in range(1000)]):
            refusal(EXHAUSTED, partial(stub.WhoAmI, pb.WhoAmIRequest(), metadata=metadata + extra, timeout=20))
        assert stub.WhoAmI(pb.WhoAmIRequest(), metadata=metadata, timeout=20).user == "bob"


@attack("floods")
def login_socket(target: Target) -> None:
    """Thousands of logins at the UNIX socket that do not read the answer, while another login waits its turn"""
    access = SchedulerAccess(address=f"unix:{target.socket}")
    with returns_to_normal(target):
        first = session_token(access)
        for _ in range(5):
            with ExitStack() as stack:
                for _ in range(600):
                    each = stack.enter_context(socket.socket(socket.AF_UNIX))
                    each.setblocking(False)
                    with suppress(BlockingIOError):
                        each.connect(f"{target.socket}.login")
                assert session_token(access)
        with target.plain(f"unix:{target.socket}") as channel:
            assert target.call_on(channel, "WhoAmI", pb.WhoAmIRequest(), token=first).user


# ---- calls and streams ----


@attack("floods")
def calls_with_one_token(target: Target) -> None:
    """Two thousand calls at once with one token"""
    with fresh_user(target) as eve, calls(target, eve) as (stub, metadata):
        sent = [stub.WhoAmI.future(pb.WhoAmIRequest(), metadata=metadata, timeout=60) for _ in range(2000)]
        prompt(target)
        codes = Counter(call.code() for call in sent)
        assert codes[EXHAUSTED] > 500 > codes[grpc.StatusCode.OK], codes
        # The rest were more streams than a connection may have.
        assert set(codes) <= {EXHAUSTED, grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}, codes
        told = next(call.details() for call in sent if call.code() is EXHAUSTED)
        assert "too many calls" in told


@attack("floods")
def failed_logins(target: Target) -> None:
    """Hundreds of wrong tokens from one address, from which a right token still works"""
    with elsewhere(target) as address, target.channel(address) as channel:
        tolds = [_failed(target, channel) for _ in range(200)]
        assert "too many failed logins" in tolds[-1]
        assert target.call_on(channel, "WhoAmI", pb.WhoAmIRequest(), "ann").user == "ann"


def _failed(target: Target, channel: grpc.Channel) -> str:
    wrong = f"gvl_{uuid4().hex}{uuid4().hex[:11]}"
    codes = [grpc.StatusCode.UNAUTHENTICATED, EXHAUSTED]
    return refusal(codes, lambda: target.call_on(channel, "WhoAmI", pb.WhoAmIRequest(), token=wrong))


@attack("floods")
def audit_of_refusals(target: Target) -> None:
    """Hundreds of refused calls, to fill the audit"""
    with fresh_user(target) as eve, elsewhere(target) as address, target.channel(address) as channel:
        for _ in range(150):
            refusal(
                [grpc.StatusCode.PERMISSION_DENIED, EXHAUSTED],
                lambda: target.call_on(channel, "ListUsers", pb.ListUsersRequest(), eve),
            )
        lines = target.call("Audit", pb.AuditQuery(user=eve), "root")
        assert 0 < len(lines) <= 125  # 60 a minute, and the minute may change meanwhile


@attack("floods")
def streams_of_one_user(target: Target) -> None:
    """More streams of one user than it may have: watches, events and logs"""
    with fresh_user(target) as eve, returns_to_normal(target), calls(target, eve) as (stub, metadata):
        opened = [stub.Watch(pb.JobQuery(), metadata=metadata, timeout=60) for _ in range(50)]
        opened += [stub.Events(pb.EventsRequest(follow=True), metadata=metadata, timeout=60) for _ in range(50)]
        for each in opened:
            each.initial_metadata()
        for one_more in (
            stub.Watch(pb.JobQuery(), metadata=metadata),
            stub.Events(pb.EventsRequest(follow=True), metadata=metadata),
        ):
            assert "100 streams open" in refusal(EXHAUSTED, lambda call=one_more: next(call))  # type: ignore[misc]
        with calls(target, "vic") as (other, theirs):
            assert _opens(other, theirs)
        for each in opened:
            each.cancel()
        eventually(lambda: _opens(stub, metadata), "streams that ended no longer count")


def _opens(stub: Any, metadata: Any) -> bool:
    watch = stub.Watch(pb.JobQuery(), metadata=metadata, timeout=20)
    try:
        next(watch)
    except grpc.RpcError:
        return False
    watch.cancel()
    return True


@attack("floods")
def unread_streams(target: Target) -> None:
    """Streams that are never read, while there is much to tell"""
    with fresh_user(target) as eve, returns_to_normal(target), calls(target, eve) as (stub, metadata):
        unread = [stub.Watch(pb.JobQuery(), metadata=metadata, timeout=60) for _ in range(30)]
        unread += [
            stub.Events(pb.EventsRequest(follow=True, routine=True), metadata=metadata, timeout=60) for _ in range(30)
        ]
        for each in unread:
            each.initial_metadata()
        jobs = [pb.JobRequest(command=["true"], workers=1, weight=1.0, types=["nowhere"], name="x" * 200)] * 300
        for _ in range(5):
            ids = target.call("Submit", pb.SubmitRequest(jobs=jobs), "oda").ids
            target.call("Cancel", pb.CancelRequest(ids=ids), "oda")
        prompt(target)
        for each in unread:
            each.cancel()


# ---- submissions ----


def _jobs(count: int, **fields: Any) -> pb.SubmitRequest:
    given = {"command": ["true"], "workers": 1, "weight": 1.0, "types": ["nowhere"], **fields}
    return pb.SubmitRequest(jobs=[pb.JobRequest(**given)] * count)


@attack("floods")
def unfinished_jobs(target: Target) -> None:
    """More unfinished jobs than a user may have, in one call and one by one"""
    with fresh_user(target) as eve, limited(target, eve, unfinished_jobs=3):
        target.refused(EXHAUSTED, "Submit", _jobs(4), eve)
        assert not target.call("List", pb.JobQuery(user=eve), "root").jobs
        ids = target.call("Submit", _jobs(3), eve).ids
        target.refused(EXHAUSTED, "Submit", _jobs(1), eve)
        target.refused(grpc.StatusCode.PERMISSION_DENIED, "SetLimits", pb.LimitsOf(kind="user", name=eve), eve)
        target.call("Submit", _jobs(1), "bob")
        target.call("Cancel", pb.CancelRequest(ids=ids), "root")


@attack("floods")
def submissions_per_minute(target: Target) -> None:
    """More submissions a minute than a user may make, each cancelled at once"""
    with fresh_user(target) as eve, limited(target, eve, submissions_per_minute=5.0):
        for _ in range(5):
            ids = target.call("Submit", _jobs(1), eve).ids
            target.call("Cancel", pb.CancelRequest(ids=ids), eve)
        assert "minute" in target.refused(EXHAUSTED, "Submit", _jobs(1), eve)
        assert len(target.call("List", pb.JobQuery(user=eve), "root").jobs) == 5


@attack("floods")
def running_accelerators(target: Target) -> None:
    """More accelerators at once than a user may use: in one job, and in two"""
    kind = f"x{uuid4().hex[:8]}"
    offered = [pb.Accelerators(type=kind, count=4)]
    with (
        fresh_user(target) as eve,
        limited(target, eve, running_accelerators=1),
        target.attached(target.enrolled(), draining=False, accelerators=offered) as stream,
    ):
        target.refused(EXHAUSTED, "Submit", _jobs(1, workers=2, types=[kind]), eve)
        jobs = target.call("Submit", _jobs(2, types=[kind]), eve).ids
        other = submitted(target, kind)
        started = {stream.hear("start").job, stream.hear("start").job}
        assert started == {jobs[0], other}
        assert view_of(target, jobs[1]).state == pb.QUEUED
        target.call("Cancel", pb.CancelRequest(ids=[*jobs, other]), "root")


@attack("floods")
def ten_thousand_jobs(target: Target) -> None:
    """One call with more jobs than a call may have, and one of more bytes than a message may have"""
    before = target.call("Submit", _jobs(1), "bob").ids[0]
    with returns_to_normal(target):
        assert "at most 10,000" in target.refused(INVALID, "Submit", _jobs(10_001), "bob")
        large = _jobs(1000, environment={f"N{number}": "v" * 50 for number in range(100)})
        assert large.ByteSize() > 4 * 2**20
        target.refused(EXHAUSTED, "Submit", large, "bob")
        prompt(target)
    assert int(target.call("Submit", _jobs(1), "bob").ids[0]) == int(before) + 1


# ---- agents ----


@attack("floods")
def agent_that_comes_and_goes(target: Target) -> None:
    """An agent that connects and disconnects two hundred times, each time with other accelerators"""
    keys = target.enrolled()
    with returns_to_normal(target):
        for number in range(200):
            with target.attached(
                keys, accelerators=[pb.Accelerators(type="k80", count=1 + number % 7)], incarnation="1"
            ):
                pass
        prompt(target)


@attack("floods")
def heartbeats(target: Target) -> None:
    """An agent that sends heartbeats as fast as it can, each with tasks of others"""
    with returns_to_normal(target), target.attached(target.enrolled()) as stream:
        beat = pb.Heartbeat(tasks=[status(target.job), status("1" * 18, 7)])
        for _ in range(5000):
            stream.say(heartbeat=beat)
        prompt(target)
        stream.settle()


@attack("floods")
def agent_that_does_not_read(target: Target) -> None:
    """An agent that provokes answers and reads none of them"""
    keys = target.enrolled()
    with returns_to_normal(target, megabytes=150), target.channel(keys=keys) as channel:
        said: queue.Queue[pb.FromAgent | None] = queue.Queue()
        call = GavelStub(channel).Attach(iter(said.get, None), timeout=60)  # type: ignore[no-untyped-call]
        said.put(pb.FromAgent(number=1, hello=hello_of(keys)))
        next(iter(call))
        tasks = [status("9" * 18, attempt) for attempt in range(10_000)]
        beat = pb.FromAgent(heartbeat=pb.Heartbeat(tasks=tasks))
        for _ in range(12):
            said.put(beat)
        eventually(lambda: "does not read its messages" in target.log("scheduler"), "its connection is closed")
        prompt(target)
        call.cancel()
        said.put(None)


@attack("floods")
def many_agents_of_one_certificate(target: Target) -> None:
    """Two hundred streams at once with the certificate of one agent"""
    keys = target.enrolled()
    with returns_to_normal(target), target.channel(keys=keys) as channel:
        streams = [Stream(GavelStub(channel)) for _ in range(200)]  # type: ignore[no-untyped-call]
        for each in streams:
            each.say(hello=hello_of(keys))
        with ThreadPoolExecutor(200) as threads:
            kinds = Counter(threads.map(_first, streams))
        assert kinds["welcome"] >= 1
        assert kinds["refused"] >= 150, kinds
        for each in streams:
            each.close()
        prompt(target)


def _first(stream: Stream) -> str:
    return str(next(iter(stream._call)).WhichOneof("message"))


@attack("floods")
def hellos_that_never_come(target: Target) -> None:
    """Hundreds of streams of an agent that never say hello"""
    keys, started = target.enrolled(), time.monotonic()
    with returns_to_normal(target), target.channel(keys=keys) as channel:
        streams = [Stream(GavelStub(channel)) for _ in range(300)]  # type: ignore[no-untyped-call]
        prompt(target)
        with target.attached(target.enrolled()) as other:
            other.settle()
        for each in streams:
            each.close()
    assert time.monotonic() - started < 60
