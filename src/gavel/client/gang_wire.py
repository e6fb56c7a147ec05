"""Connections between the ranks of a gang: JSON lines over TCP, and how ranks find and recognise each other."""

from __future__ import annotations

import hmac
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any

from gavel.client.errors import GangError

Message = dict[str, Any]
MEETING_SECONDS = 600.0
"""How long the ranks of a gang may take to connect: servers start them at different times."""
PAUSE_SECONDS = 0.1
FAREWELL_SECONDS = 2.0
NOTICE_SECONDS = 5.0
"""How long a rank may run, perhaps blocked in a collective operation with a dead one, before it is ended."""
HELLO_SECONDS = 5.0
_BYE = b'{"bye":true}\n'
_LONGEST_LINE = 1 << 26
_HANG_UP = getattr(select, "POLLRDHUP", 0)
"""Linux only; elsewhere lost ranks are not noticed this way."""


class Peer:
    """One other rank."""

    def __init__(self, connection: socket.socket, rank: int) -> None:
        self.rank = rank
        self.left = False
        """Whether it said goodbye."""
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
        """Return the messages that have arrived, without waiting; GangError if the other rank is gone."""
        while _readable(self._socket, 0.0):
            self._read()
        found, self._messages = self._messages, []
        return found

    def hang_up(self, *, orderly: bool) -> None:
        """Send nothing more; if `orderly`, say goodbye first."""
        with suppress(OSError):
            if orderly:
                self._socket.sendall(_BYE)
            self._socket.shutdown(socket.SHUT_WR)

    def close(self, until: float) -> None:
        """Close once the other side has hung up too: then it has received our last message."""
        with suppress(OSError):
            while _readable(self._socket, until - time.monotonic()) and self._socket.recv(1 << 16):
                pass
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def said_bye(self) -> bool:
        """Whether it left in good order, judged by messages read and still unread."""
        with suppress(OSError):
            return self.left or _BYE in self._socket.recv(1 << 20, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return self.left

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 16)
        except OSError as error:
            raise self._gone() from error
        if not data or len(self._received) > _LONGEST_LINE:
            raise self._gone()
        *lines, self._received = (self._received + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        self.left |= any("bye" in message for message in messages)
        self._messages += [message for message in messages if "bye" not in message]

    def _gone(self) -> GangError:
        return GangError(f"rank {self.rank} of the gang {'has left' if self.left else 'is gone'}")


class Watch:
    """Notices that a rank is gone while the training thread may be blocked in a collective operation with it."""

    def __init__(self, peers: Iterable[Peer], end: Callable[[str], None], seconds: float = NOTICE_SECONDS) -> None:
        """Call `end` from another thread if a rank disappeared this long ago and no other code has noticed."""
        self._peers = {peer.fileno(): peer for peer in peers}
        self._end, self._seconds = end, seconds
        self._over = threading.Event()
        self.thread = threading.Thread(target=self._run, name="gavel-gang", daemon=True)
        if _HANG_UP:
            self.thread.start()

    def over(self) -> None:
        """Stop watching: the gang is parting, or the loss was noticed."""
        self._over.set()

    def _run(self) -> None:
        poll = select.poll()
        for descriptor in self._peers:
            poll.register(descriptor, _HANG_UP)  # reads nothing: messages are for the training thread
        while self._peers and not self._over.is_set():
            for descriptor, _ in poll.poll(1000 * PAUSE_SECONDS):
                poll.unregister(descriptor)
                peer = self._peers.pop(descriptor)
                if not self._over.is_set() and not peer.said_bye() and not self._over.wait(self._seconds):
                    self._end(f"rank {peer.rank} of the gang is gone")


def part(peers: Collection[Peer], *, orderly: bool) -> None:
    """Part from all of these."""
    until = time.monotonic() + FAREWELL_SECONDS
    for peer in peers:
        peer.hang_up(orderly=orderly)
    for peer in peers:
        peer.close(until)


def gather(address: tuple[str, int], token: str, ranks: int, may_wait: Callable[[], None]) -> Iterator[Peer]:
    """As rank 0: wait for all other ranks. `may_wait` is called repeatedly, and raises to give up."""
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
        raise GangError(f"ranks {sorted(missing)} of the gang did not connect within {MEETING_SECONDS:.0f} s")


def _listening(address: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            listener.bind(address)
        except OSError:
            listener.bind(("", address[1]))  # other ranks may know this host by an address that it does not know itself
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise GangError(f"rank 0 cannot listen at {address[0]}:{address[1]}: {error.strerror}") from error
    return listener


def _welcomed(listener: socket.socket, token: str, expected: set[int]) -> Peer | None:
    """Accept a rank that knows the token and is expected; hang up on any other caller."""
    connection, _ = listener.accept()
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
    """Read a first line and nothing after it, with a time limit, because the caller is not trusted yet."""
    line = b""
    until = time.monotonic() + HELLO_SECONDS
    while not line.endswith(b"\n") and len(line) < 4096 and time.monotonic() < until:
        connection.settimeout(HELLO_SECONDS)
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line


def join(address: tuple[str, int], token: str, rank: int, may_wait: Callable[[], None]) -> Peer:
    """As another rank: connect to rank 0."""
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
                connection.close()  # while rank 0 is not listening yet, TCP can connect a port of this host to itself
                continue
            leader = Peer(connection, 0)
            leader.send({"rank": rank, "token": token})
            return leader


def _readable(connection: socket.socket, seconds: float) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))
