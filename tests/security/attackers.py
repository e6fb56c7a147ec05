"""Tools of attackers: calls from other addresses, bytes on the wire, servers in the middle."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from attacked_cluster import PATIENCE_SECONDS, Target, refusal

from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

Metadata = Sequence[tuple[str, str | bytes]]
PATH = "/gavel.v1.Gavel/"
_sources = (f"127.66.{high}.{low}" for high in range(256) for low in range(1, 255))
"""Loopback addresses, one for each attacker: failed logins are counted by address, and the audit names it."""


@dataclass
class Relay:
    """Passes bytes between clients and a server, and keeps what clients sent."""

    server: str
    source: str = "127.0.0.1"
    """The address that the server sees."""
    sent: list[bytes] = field(default_factory=list)
    """By connection: what the client sent."""
    connections: int = 0
    _listening: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                server = socket.create_connection(place(self.server), PATIENCE_SECONDS, (self.source, 0))
                number, self.connections = self.connections, self.connections + 1
                self.sent.append(b"")
                threading.Thread(target=self._pass, args=(client, server, number), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, None), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, number: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if number is not None:
                    data = self.passed(number, data)
                    self.sent[number] += data
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()

    def passed(self, number: int, data: bytes) -> bytes:  # noqa: ARG002
        """What the server gets instead of these bytes of a client."""
        return data


@contextmanager
def relayed(server: str, source: str = "127.0.0.1") -> Iterator[Relay]:
    """A relay before a server, for as long as it is needed."""
    relay = Relay(server, source)
    relay.start()
    try:
        yield relay
    finally:
        relay.close()


@dataclass(frozen=True)
class Elsewhere:
    """A caller at an address of its own."""

    target: Target
    channel: grpc.Channel
    source: str

    def call(self, method: str, request: Any, metadata: Metadata = ()) -> Any:
        call = getattr(GavelStub(self.channel), method)  # type: ignore[no-untyped-call]
        reply = call(request, metadata=metadata, timeout=PATIENCE_SECONDS)
        return list(reply) if isinstance(reply, Iterator) else reply

    def refused(self, code: grpc.StatusCode, method: str, request: Any, metadata: Metadata = ()) -> str:
        """Assert that a call is refused, and that the audit says so; returns the sentence."""
        sentence = refusal(code, lambda: self.call(method, request, metadata))
        lines = self.audited()
        assert any(line.method == method and line.outcome.startswith("refused") for line in lines), lines
        return sentence

    def audited(self) -> list[pb.AuditLine]:
        """What the audit says about calls from this address."""
        lines = self.target.call("Audit", pb.AuditQuery(), "root")
        return [line for line in lines if line.address == self.source]


@contextmanager
def elsewhere(target: Target) -> Iterator[Elsewhere]:
    """A caller with correct TLS at an address that no other attack uses."""
    source = next(_sources)
    with relayed(target.address, source) as relay, target.channel(relay.address) as channel:
        yield Elsewhere(target, channel, source)


def bearer(token: str) -> Metadata:
    return [("authorization", f"Bearer {token}")]


def refused_and_audited(
    target: Target, code: grpc.StatusCode, method: str, request: Any, user: str, acting_for: str = ""
) -> str:
    """Assert that a user's call is refused with this status and that the audit names the user; returns the sentence."""
    with elsewhere(target) as caller:
        acting = [("x-gavel-as", acting_for)] if acting_for else []
        sentence = caller.refused(code, method, request, [*bearer(target.tokens[user]), *acting])
        lines = [line for line in caller.audited() if line.method == method]
        assert [line.user for line in lines] == [user], lines
    return sentence


# ---- bytes ----


def place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def answer_to(address: str, data: bytes) -> bytes:
    """What a server answers to bytes that are not of its protocol, until it closes the connection."""
    with socket.create_connection(place(address), PATIENCE_SECONDS) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        return everything(connection)


def everything(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(OSError):
        while data := connection.recv(65536):
            found += data
    return found


def handshake(address: str, change: Callable[[ssl.SSLContext], object] = id) -> str:
    """The version of a TLS connection that checks nothing; ssl.SSLError or OSError if it is refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    change(context)
    with (
        socket.create_connection(place(address), PATIENCE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="x") as secured,
    ):
        if not secured.recv(1):  # a server may refuse a client's certificate after the client's part is done
            raise ConnectionError("the server closed the connection")
        return str(secured.version())


# ---- HTTP/2 by hand: gRPC's own client sends no metadata that breaks its rules ----

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _AWAY = 0, 1, 3, 4, 7
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1


def handmade_call(target: Target, method: str, request: Any, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Call with any bytes in any header over TLS; returns the answer's body, which is empty for a refused call."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=target.authority.decode())
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(place(target.address), PATIENCE_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=target.server_name) as secured,
    ):
        usual = [
            (b":method", b"POST"),
            (b":scheme", b"https"),
            (b":path", (PATH + method).encode()),
            (b":authority", b"gavel"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
        ]
        packed = b"".join(_literal(name, value) for name, value in [*usual, *headers])
        body = request.SerializeToString()
        secured.sendall(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, b"")
            + _frame(_HEADERS, _END_HEADERS, 1, packed)
            + _frame(_DATA, _END_STREAM, 1, struct.pack(">BI", 0, len(body)) + body)
        )
        return _body(secured)


def _body(secured: ssl.SSLSocket) -> bytes:
    found = b""
    while (head := _exactly(secured, 9)) and len(head) == 9:
        size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        payload = _exactly(secured, size)
        if kind == _SETTINGS and not flags & _ACK:
            secured.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        found += payload if kind == _DATA else b""
        if kind in {_RESET, _AWAY} or (kind in {_DATA, _HEADERS} and flags & _END_STREAM):
            break
    return found


def _exactly(secured: ssl.SSLSocket, size: int) -> bytes:
    found = b""
    with contextlib.suppress(OSError):
        while len(found) < size and (data := secured.recv(size - len(found))):
            found += data
    return found


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """A header field of HPACK, neither indexed nor compressed."""
    return b"\0" + _sized(name) + _sized(value)


def _sized(text: bytes) -> bytes:
    if len(text) < 127:
        return bytes([len(text)]) + text
    rest, size = len(text) - 127, b"\x7f"
    while rest >= 128:
        size += bytes([rest % 128 + 128])
        rest //= 128
    return size + bytes([rest]) + text


# ---- servers in the middle ----


@dataclass
class Impostor:
    """A server that shows a certificate (or none) and keeps everything that clients say to it."""

    key: bytes = b""
    chain: bytes = b""
    port: int = 0
    heard: bytes = b""
    """Of all connections, after TLS."""
    connections: int = 0

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self._context = _server_context(self.key, self.chain) if self.key else None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                self.connections += 1
                threading.Thread(target=self._listen, args=(client,), daemon=True).start()

    def _listen(self, plain: socket.socket) -> None:
        plain.settimeout(PATIENCE_SECONDS)
        with contextlib.suppress(OSError), plain, self._secured(plain) as client:
            client.sendall(_frame(_SETTINGS, 0, 0, b""))  # gRPC's client calls only after it
            while data := client.recv(65536):
                self.heard += data

    def _secured(self, plain: socket.socket) -> socket.socket:
        return plain if self._context is None else self._context.wrap_socket(plain, server_side=True)


@contextmanager
def impostor(key: bytes = b"", chain: bytes = b"", port: int = 0) -> Iterator[Impostor]:
    """A server in the place of the scheduler; without a key it speaks plaintext."""
    found = Impostor(key, chain, port)
    found.start()
    try:
        yield found
    finally:
        found.close()


def _server_context(key: bytes, chain: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    with tempfile.NamedTemporaryFile() as file:
        file.write(key + chain)
        file.flush()
        context.load_cert_chain(file.name)
    return context
