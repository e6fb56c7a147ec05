"""Connections between the ranks of a gang: JSON lines over TCP, and how ranks find and recognise each other.

With a certificate, which rank 0's agent makes for one attempt, the connections are encrypted: the other ranks trust
that certificate alone, and show their token only to the process that has its key. Without one they are not, on both
sides: a rank never falls back.
"""

from __future__ import annotations

import hmac
import json
import select
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
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
"""How long a caller may take to introduce itself."""
MOST_CALLERS = 256
"""How many callers may be introducing themselves at the same time."""
_LONGEST_HELLO = 4096
_WELCOME = {"welcome": True}
_BYE = b'{"bye":true}\n'
_LONGEST_LINE = 1 << 26
_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL."""
_HANG_UP = getattr(select, "POLLRDHUP", 0)
"""Linux only; elsewhere lost ranks are not noticed this way."""


class Peer:
    """One other rank."""

    def __init__(self, connection: socket.socket, rank: int, received: bytes = b"") -> None:
        """Talk over a connection, from which the given bytes were read already."""
        self.rank = rank
        self.left = False
        """Whether it said goodbye."""
        self._socket = connection
        self._ended = False
        """Whether nothing more can arrive."""
        self._received = b""
        self._messages: list[Message] = []
        # An encrypted connection has one state for both directions, and the watch reads from another thread.
        self._turn = threading.Lock()
        connection.setblocking(False)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._take(received)

    def send(self, message: Message) -> None:
        try:
            self._send(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            raise self._gone() from error

    def receive(self) -> Message:
        """Return the next message, waiting for it as long as it takes."""
        message = self.receive_within(None)
        assert message is not None  # noqa: S101 - without a limit it waits
        return message

    def receive_within(self, seconds: float | None) -> Message | None:
        """Return the next message; None if it takes longer than this."""
        until = None if seconds is None else time.monotonic() + seconds
        while not self._messages:
            if self._ended:
                raise self._gone()
            if not _readable(self._socket, None if until is None else until - time.monotonic()):
                return None
            self._read()
        return self._messages.pop(0)

    def waiting(self) -> list[Message]:
        """Return the messages that have arrived, without waiting; GangError if the other rank is gone."""
        self._read()
        if self._ended:
            raise self._gone()
        found, self._messages = self._messages, []
        return found

    def hang_up(self, *, orderly: bool) -> None:
        """Send nothing more; if `orderly`, say goodbye first."""
        with suppress(OSError):
            if orderly:
                self._send(_BYE)
            # Not the encrypted socket's own `shutdown`, which would end decryption, too.
            socket.socket.shutdown(self._socket, socket.SHUT_WR)

    def close(self, until: float) -> None:
        """Close once the other side has hung up too: then it has received our last message."""
        with suppress(OSError, ValueError):
            while not self._ended and _readable(self._socket, until - time.monotonic()):
                self._read()
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def said_bye(self) -> bool:
        """Whether it left in good order, judged by everything that has arrived."""
        self._read()
        return self.left

    def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            with self._turn:
                sent, wants = _sent(self._socket, left)
            left = left[sent:]
            if left and not sent:
                _ready(self._socket, wants, None)

    def _read(self) -> None:
        """Take everything that has arrived: decrypted bytes that nothing has taken would not wake a poll."""
        with self._turn:
            while not self._ended and (data := _received(self._socket)) is not None:
                self._take(data)
                self._ended = not data or len(self._received) > _LONGEST_LINE

    def _take(self, data: bytes) -> None:
        *lines, self._received = (self._received + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        self.left |= any("bye" in message for message in messages)
        self._messages += [message for message in messages if "bye" not in message]

    def _gone(self) -> GangError:
        return GangError(f"rank {self.rank} of the gang {'has left' if self.left else 'is gone'}")


def _sent(connection: socket.socket, data: memoryview) -> tuple[int, int]:
    """Send what fits; returns how much that was, and for which event to wait if it was nothing."""
    try:
        return connection.send(data), select.POLLOUT
    except ssl.SSLWantReadError:
        return 0, select.POLLIN
    except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError):
        return 0, select.POLLOUT


def _received(connection: socket.socket) -> bytes | None:
    """Bytes that have arrived; empty: no more will; None: not yet."""
    try:
        return connection.recv(1 << 16)
    except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None
    except OSError:
        return b""


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


def gather(
    address: tuple[str, int], token: str, ranks: int, may_wait: Callable[[], None], certificate: Path | None = None
) -> Iterator[Peer]:
    """As rank 0: wait for all other ranks. `may_wait` is called repeatedly, and raises to give up.

    The file of the certificate also has its key.
    """
    until = time.monotonic() + MEETING_SECONDS
    with _listening(address) as listener:
        door = _Door(listener, token, set(range(1, ranks)), _server_context(certificate))
        try:
            while door.missing:
                may_wait()
                _check_patience(until, door.missing)
                yield from door.admitted(PAUSE_SECONDS)
        finally:
            door.close()


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
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise GangError(f"rank 0 cannot listen at {address[0]}:{address[1]}: {error.strerror}") from error
    return listener


@dataclass(eq=False)
class _Caller:
    """A connection that has not introduced itself yet, and is not trusted."""

    connection: socket.socket
    address: str
    until: float
    encrypts: bool
    """Whether the encryption must still be agreed on."""
    said: bytes = b""
    wants: int = select.POLLIN

    def introduction(self) -> bytes | None:
        """Its first line and what came after it; None: not yet. OSError if it is refused."""
        if self.encrypts and not self._encrypted():
            return None
        while b"\n" not in self.said:
            data = _received(self.connection)
            if data is None:
                return None
            self.said += data
            if not data or len(self.said) > _LONGEST_HELLO:
                raise ConnectionError("it does not introduce itself")
        return self.said

    def _encrypted(self) -> bool:
        assert isinstance(self.connection, ssl.SSLSocket)  # noqa: S101 - as it was accepted
        try:
            self.connection.do_handshake()
        except ssl.SSLWantReadError:
            self.wants = select.POLLIN
            return False
        except ssl.SSLWantWriteError:
            self.wants = select.POLLOUT
            return False
        self.encrypts, self.wants = False, select.POLLIN
        return True


class _Door:
    """Where rank 0 lets the others in: many callers at a time, so that none can keep the others waiting."""

    def __init__(self, listener: socket.socket, token: str, missing: set[int], context: ssl.SSLContext | None) -> None:
        self.missing = missing
        self._listener = listener
        self._token = token.encode()
        self._context = context
        self._callers: list[_Caller] = []
        """In the order in which they came."""
        listener.setblocking(False)

    def admitted(self, seconds: float) -> Iterator[Peer]:
        """Wait this long for callers, and return those that know the token and are expected."""
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        for caller in self._callers:
            poll.register(caller.connection, caller.wants)
        ready = {descriptor for descriptor, _ in poll.poll(1000 * seconds)}
        for caller in list(self._callers):
            if time.monotonic() > caller.until:
                self._refuse(caller)
            elif caller.connection.fileno() in ready:
                yield from self._hear(caller)
        if self._listener.fileno() in ready:
            self._accept()

    def close(self) -> None:
        """Hang up on all callers that were not admitted."""
        for caller in list(self._callers):
            self._refuse(caller)

    def _accept(self) -> None:
        with suppress(OSError):  # none is left, or it has hung up already
            while True:
                connection, address = self._listener.accept()
                self._admit(connection, str(address[0]))

    def _admit(self, connection: socket.socket, address: str) -> None:
        if len(self._callers) >= MOST_CALLERS:
            self._refuse(self._crowding())
        connection.setblocking(False)
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        encrypts = self._context is not None
        self._callers.append(_Caller(connection, address, time.monotonic() + HELLO_SECONDS, encrypts))

    def _crowding(self) -> _Caller:
        """The oldest caller from the address with most of them: ranks introduce themselves at once."""
        counts = Counter(caller.address for caller in self._callers)
        most = max(counts.values())
        return next(caller for caller in self._callers if counts[caller.address] == most)

    def _hear(self, caller: _Caller) -> Iterator[Peer]:
        try:
            said = caller.introduction()
            if said is not None:
                yield self._peer(caller, said)
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, GangError):
            self._refuse(caller)

    def _peer(self, caller: _Caller, said: bytes) -> Peer:
        """The rank that a caller is; ValueError if it is none that is expected."""
        line, _, rest = said.partition(b"\n")
        hello = json.loads(line)
        rank = int(hello["rank"])
        if not hmac.compare_digest(str(hello["token"]).encode(), self._token) or rank not in self.missing:
            raise ValueError("it is not one of the ranks that are missing")
        peer = Peer(caller.connection, rank, rest)
        if self._context is not None:
            peer.send(_WELCOME)
        self._callers.remove(caller)
        self.missing.remove(rank)
        return peer

    def _refuse(self, caller: _Caller) -> None:
        self._callers.remove(caller)
        caller.connection.close()


def join(
    address: tuple[str, int], token: str, rank: int, may_wait: Callable[[], None], certificate: Path | None = None
) -> Peer:
    """As another rank: connect to rank 0, which is known by its certificate."""
    context = _client_context(certificate)
    until = time.monotonic() + MEETING_SECONDS
    while True:
        may_wait()
        try:
            return _introduced(_connected(address, context), token, rank, may_wait, welcomed=context is not None)
        except (OSError, GangError) as error:
            if time.monotonic() > until:
                raise GangError(f"rank 0 cannot be reached at {address[0]}:{address[1]}: {error}") from error
            time.sleep(PAUSE_SECONDS)


def _connected(address: tuple[str, int], context: ssl.SSLContext | None) -> socket.socket:
    connection = socket.create_connection(address, timeout=HELLO_SECONDS)
    try:
        _check_other(connection)
        return connection if context is None else context.wrap_socket(connection)
    except BaseException:
        connection.close()
        raise


def _check_other(connection: socket.socket) -> None:
    """Refuse a connection to itself: TCP can make one to a port of this host at which rank 0 does not listen yet."""
    if connection.getsockname() == connection.getpeername():
        raise ConnectionError("rank 0 does not listen yet")


def _introduced(
    connection: socket.socket, token: str, rank: int, may_wait: Callable[[], None], *, welcomed: bool
) -> Peer:
    """Say which rank this is; where rank 0 answers that (a version without encryption does not), wait for it."""
    leader = Peer(connection, 0)
    try:
        leader.send({"rank": rank, "token": token})
        while welcomed and leader.receive_within(PAUSE_SECONDS) is None:
            may_wait()
    except BaseException:
        leader.close(0.0)
        raise
    return leader


def _server_context(certificate: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    _load(certificate, lambda: context.load_cert_chain(certificate))
    return context


def _client_context(certificate: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # exactly one certificate is trusted, whatever it is called
    # It is valid for one attempt; clocks of servers may differ, and attempts may take weeks.
    context.verify_flags = ssl.VerifyFlags(_NO_CHECK_TIME)
    _load(certificate, lambda: context.load_verify_locations(certificate))
    return context


def _load(certificate: Path, load: Callable[[], None]) -> None:
    try:
        load()
    except OSError as error:
        raise GangError(f"the gang's certificate {certificate} cannot be used: {error}") from error


def _readable(connection: socket.socket, seconds: float | None) -> bool:
    return _ready(connection, select.POLLIN, seconds)


def _ready(connection: socket.socket, event: int, seconds: float | None) -> bool:
    poll = select.poll()
    poll.register(connection, event)
    return bool(poll.poll(None if seconds is None else max(0.0, seconds) * 1000))
