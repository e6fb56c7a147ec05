"""Connections between the ranks of a gang: JSON lines over TCP, and how they find and recognise each other."""

from __future__ import annotations

import hmac
import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from gavel.client.errors import GangError

Message = dict[str, Any]
MEETING_SECONDS = 600.0
"""How long the ranks of a gang may take to come together: servers start them when they can."""
PAUSE_SECONDS = 0.1
FAREWELL_SECONDS = 2.0
_LONGEST_LINE = 1 << 26


class Peer:
    """One other rank."""

    def __init__(self, connection: socket.socket, rank: int) -> None:
        self.rank = rank
        self._socket = connection
        self._received = b""
        self._messages: list[Message] = []
        connection.setblocking(True)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, message: Message) -> None:
        try:
            self._socket.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            raise self._gone() from error

    def receive(self) -> Message:
        """Return the next message, waiting for it as long as it takes."""
        while not self._messages:
            self._read()
        return self._messages.pop(0)

    def waiting(self) -> list[Message]:
        """Return what has come, without waiting; GangError if the other is gone."""
        while _readable(self._socket, 0.0):
            self._read()
        found, self._messages = self._messages, []
        return found

    def close(self) -> None:
        """Hang up so that what was sent last is still heard."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            until = time.monotonic() + FAREWELL_SECONDS
            while _readable(self._socket, until - time.monotonic()) and self._socket.recv(1 << 16):
                pass
        self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except OSError as error:
            raise self._gone() from error
        if not data or len(self._received) > _LONGEST_LINE:
            raise self._gone()
        *lines, self._received = (self._received + data).split(b"\n")
        self._messages += [json.loads(line) for line in lines]

    def _gone(self) -> GangError:
        return GangError(f"rank {self.rank} of the gang is gone")


def gather(address: tuple[str, int], token: str, ranks: int, may_wait: Callable[[], None]) -> Iterator[Peer]:
    """As rank 0: wait for all others. `may_wait` is asked again and again, and raises to give up."""
    missing = set(range(1, ranks))
    until = time.monotonic() + MEETING_SECONDS
    with _listening(address) as listener:
        while missing:
            may_wait()
            _check_patience(until, missing)
            if _readable(listener, PAUSE_SECONDS):
                peer = _welcomed(listener, token, missing)
                if peer is not None:
                    missing.remove(peer.rank)
                    yield peer


def _check_patience(until: float, missing: set[int]) -> None:
    if time.monotonic() > until:
        raise GangError(f"ranks {sorted(missing)} of the gang did not come within {MEETING_SECONDS:.0f} s")


def _listening(address: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            listener.bind(address)
        except OSError:
            listener.bind(("", address[1]))  # others know this host by an address that it does not know itself
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise GangError(f"rank 0 cannot listen at {address[0]}:{address[1]}: {error.strerror}") from error
    return listener


def _welcomed(listener: socket.socket, token: str, expected: set[int]) -> Peer | None:
    """Take in whoever knows the token and is expected; hang up on anybody else."""
    connection, _ = listener.accept()
    connection.settimeout(5.0)
    try:
        hello = json.loads(_line(connection))
        rank = int(hello["rank"])
        if hmac.compare_digest(str(hello["token"]).encode(), token.encode()) and rank in expected:
            return Peer(connection, rank)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    connection.close()
    return None


def _line(connection: socket.socket) -> bytes:
    """Read a first line, and nothing after it."""
    line = b""
    while not line.endswith(b"\n") and len(line) < 4096:
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line


def join(address: tuple[str, int], token: str, rank: int, may_wait: Callable[[], None]) -> Peer:
    """As another rank: find rank 0."""
    until = time.monotonic() + MEETING_SECONDS
    while True:
        may_wait()
        try:
            connection = socket.create_connection(address, timeout=5.0)
        except OSError as error:
            if time.monotonic() > until:
                raise GangError(f"rank 0 cannot be reached at {address[0]}:{address[1]}: {error}") from error
            time.sleep(PAUSE_SECONDS)
        else:
            if connection.getsockname() == connection.getpeername():
                connection.close()  # where nobody listens yet, TCP can connect a port of this host to itself
                continue
            leader = Peer(connection, 0)
            leader.send({"rank": rank, "token": token})
            return leader


def _readable(connection: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))
