"""Gangs over TLS: what a relay between ranks sees, whom rank 0 lets in, and whom the others believe."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from gavel.client import gang_wire
from gavel.client.errors import GangError
from gavel.client.gang_wire import MOST_CALLERS, Peer, Watch, gather, join, part
from gavel.runtime.agent.gang_certificate import GangCertificate, make_certificate

PATIENCE = 60.0
TOKEN = "0123456789abcdef" * 2
Address = tuple[str, int]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> GangFiles:
    return GangFiles(tmp_path_factory.mktemp("gang"), make_certificate())


class GangFiles:
    """The files that rank 0 and the others find in their environment."""

    def __init__(self, directory: Path, made: GangCertificate) -> None:
        self.leader, self.follower = directory / "leader.pem", directory / "follower.pem"
        made.write(self.leader)
        made.public.write(self.follower)


class Leader:
    """Rank 0 in a thread of its own: it gathers the others, and may be stopped."""

    def __init__(self, certificate: Path | None, ranks: int = 2) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address: Address = ("127.0.0.1", probe.getsockname()[1])
        self.peers: list[Peer] = []
        self.failure: BaseException | None = None
        self._stopped = threading.Event()
        self._certificate, self._ranks = certificate, ranks
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.peers += gather(self.address, TOKEN, self._ranks, self._may_wait, self._certificate)
        except GangError as error:
            self.failure = error

    def _may_wait(self) -> None:
        if self._stopped.is_set():
            raise GangError("stopped")

    def met(self) -> list[Peer]:
        """Wait until all ranks are there."""
        self.thread.join(PATIENCE)
        assert self.failure is None
        assert not self.thread.is_alive()
        return self.peers

    def part(self, *followers: Peer) -> None:
        """Part in good order, on both sides."""
        part([*followers, *self.peers], orderly=True)
        self.peers.clear()

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.thread.join(PATIENCE)
        part(self.peers, orderly=False)


class Relay:
    """A man in the middle who passes everything on, and notes it."""

    def __init__(self, target: Address) -> None:
        self.seen = bytearray()
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listener.getsockname()
        self._ends: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                self._ends.append(here)
                there = connected(self._target)
                self._ends.append(there)
                for source, sink in ((here, there), (there, here)):
                    copying = threading.Thread(target=self._copy, args=(source, sink))
                    self._threads.append(copying)
                    copying.start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.seen += data
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        for end in self._ends:
            end.close()


class GaveUpError(Exception):
    """A rank that must not be let in has tried often enough."""


def tries(count: int) -> Callable[[], None]:
    left = iter(range(count))

    def may_wait() -> None:
        if next(left, None) is None:
            raise GaveUpError

    return may_wait


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_wire, "PAUSE_SECONDS", 0.01)


def joined(leader: Leader, certificate: Path | None, rank: int = 1) -> Peer:
    return join(leader.address, TOKEN, rank, lambda: None, certificate)


@pytest.mark.parametrize("encrypted", [True, False], ids=["with a certificate", "without"])
def test_a_relay_sees_the_token_and_the_messages_only_without_a_certificate(
    certificate: GangFiles, encrypted: bool
) -> None:
    ours, theirs = (certificate.leader, certificate.follower) if encrypted else (None, None)
    with Leader(ours) as leader, Relay(leader.address) as relay:
        follower = join(relay.address, TOKEN, 1, lambda: None, theirs)
        (peer,) = leader.met()
        peer.send({"limit": 12345})
        assert follower.receive() == {"limit": 12345}
        follower.send({"why": "because"})
        assert peer.receive() == {"why": "because"}
        leader.part(follower)
        for text in (TOKEN, "12345", "because"):
            assert (text.encode() in relay.seen) is not encrypted
        assert relay.seen


def test_large_messages_pass_in_both_directions_in_their_order(certificate: GangFiles) -> None:
    with Leader(certificate.leader) as leader:
        follower = joined(leader, certificate.follower)
        (peer,) = leader.met()
        large = {"text": "x" * 3_000_000}
        sending = threading.Thread(target=send_all, args=(peer, [large, {"last": 1}]))
        sending.start()
        assert (follower.receive(), follower.receive()) == (large, {"last": 1})
        sending.join()
        for number in range(1000):
            follower.send({"number": number})
        found: list[dict[str, int]] = []
        while len(found) < 1000:
            found += peer.waiting()
        assert found == [{"number": number} for number in range(1000)]
        leader.part(follower)


def send_all(peer: Peer, messages: list[dict[str, object]]) -> None:
    for message in messages:
        peer.send(message)


@pytest.mark.parametrize("orderly", [True, False])
def test_a_rank_that_says_goodbye_over_tls_is_not_reported_as_lost(certificate: GangFiles, orderly: bool) -> None:
    with Leader(certificate.leader) as leader:
        follower = joined(leader, certificate.follower)
        (peer,) = leader.met()
        ends: list[str] = []
        watch = Watch([follower], ends.append, 0.01)
        peer.send({"limit": 5})
        peer.hang_up(orderly=orderly)
        watch.thread.join(PATIENCE)
        assert ends == ([] if orderly else ["rank 0 of the gang is gone"])
        assert follower.receive() == {"limit": 5}
        with pytest.raises(GangError, match="has left" if orderly else "is gone"):
            follower.receive()
        leader.part(follower)


@contextlib.contextmanager
def a_gang_that_meets(certificate: GangFiles) -> Iterator[Leader]:
    """Whatever happens inside, a rank with certificate and token joins after it."""
    with Leader(certificate.leader) as leader:
        yield leader
        assert not leader.peers
        follower = joined(leader, certificate.follower)
        (peer,) = leader.met()
        assert peer.rank == 1
        leader.part(follower)


@pytest.mark.usefixtures("hurried")
def test_a_caller_without_tls_is_refused_even_with_the_token(certificate: GangFiles) -> None:
    with a_gang_that_meets(certificate) as leader, connected(leader.address) as stranger:
        stranger.sendall(json.dumps({"rank": 1, "token": TOKEN}).encode() + b"\n")
        assert b"welcome" not in everything(stranger)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("said", [b'{"rank": Infinity, "token": ""}', b"[" * 4000, b'{"rank": 1e999}', b"\xff", b"{}"])
def test_a_caller_that_talks_nonsense_is_refused_and_does_not_end_the_meeting(said: bytes) -> None:
    with Leader(None) as leader:
        with connected(leader.address) as stranger:
            stranger.sendall(said + b"\n")
            assert b"welcome" not in everything(stranger)
        follower = joined(leader, None)
        (peer,) = leader.met()
        assert peer.rank == 1
        leader.part(follower)


@pytest.mark.usefixtures("hurried")
def test_a_caller_with_tls_and_another_token_is_refused(certificate: GangFiles) -> None:
    with a_gang_that_meets(certificate) as leader:
        connected(leader.address).close()
        with pytest.raises(GaveUpError):
            join(leader.address, TOKEN[::-1], 1, tries(5), certificate.follower)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("rank", [0, 2, -1])
def test_a_caller_with_the_token_and_a_rank_that_is_not_missing_is_refused(certificate: GangFiles, rank: int) -> None:
    with a_gang_that_meets(certificate) as leader:
        connected(leader.address).close()
        with pytest.raises(GaveUpError):
            join(leader.address, TOKEN, rank, tries(3), certificate.follower)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("disguise", ["another certificate", "no encryption"])
def test_a_rank_shows_its_token_to_no_other_listener(certificate: GangFiles, tmp_path: Path, disguise: str) -> None:
    other = GangFiles(tmp_path, make_certificate())
    with Leader(other.leader if disguise == "another certificate" else None) as impostor:
        connected(impostor.address).close()
        with Relay(impostor.address) as relay, pytest.raises(GaveUpError):
            join(relay.address, TOKEN, 1, tries(5), certificate.follower)
        assert TOKEN.encode() not in relay.seen
        assert not impostor.peers


def test_a_certificate_of_rank_0_has_no_key_in_the_files_of_others(certificate: GangFiles) -> None:
    assert "PRIVATE KEY" in certificate.leader.read_text()
    assert "PRIVATE KEY" not in certificate.follower.read_text()
    assert {path.stat().st_mode & 0o777 for path in (certificate.leader, certificate.follower)} == {0o600}
    with pytest.raises(GangError, match="cannot be used"):
        next(gather(("127.0.0.1", 0), TOKEN, 2, lambda: None, certificate.follower))


@pytest.mark.parametrize("encrypted", [True, False], ids=["with a certificate", "without"])
@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01", b'{"rank": 1'], ids=["nothing", "a hello cut short", "a line"])
def test_a_flood_of_half_open_connections_keeps_no_rank_out(
    certificate: GangFiles, encrypted: bool, said: bytes
) -> None:
    ours, theirs = (certificate.leader, certificate.follower) if encrypted else (None, None)
    with Leader(ours, ranks=4) as leader, contextlib.ExitStack() as stack:
        for _ in range(MOST_CALLERS + 100):
            stranger = stack.enter_context(connected(leader.address))
            with contextlib.suppress(OSError):  # it may be refused already
                stranger.sendall(said)
        followers = [joined(leader, theirs, rank) for rank in (1, 2, 3)]
        assert {peer.rank for peer in leader.met()} == {1, 2, 3}
        leader.part(*followers)


def connected(address: Address) -> socket.socket:
    """Connect as soon as there is a listener."""
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            found = socket.create_connection(address, PATIENCE)
            if found.getsockname() != found.getpeername():
                return found
            found.close()


def everything(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLError):
        while data := connection.recv(1 << 16):
            found += data
    return found
