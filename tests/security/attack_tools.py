"""Tools that several modules of attacks share: other addresses, what must stay the same, and what a process uses."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from attacked_cluster import Target, eventually

from gavel.wire import gavel_pb2 as pb

_HOSTS = itertools.count(2)


@contextmanager
def elsewhere(target: Target, *, agents: bool = False) -> Iterator[str]:
    """An address at which calls reach the scheduler from a host of their own: failed logins are counted by host."""
    there, _, port = (target.agents_address if agents else target.address).rpartition(":")
    host, open_sockets = f"127.0.7.{next(_HOSTS)}", []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        open_sockets.append(listener)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    here, _ = listener.accept()
                    on = socket.create_connection((there, int(port)), source_address=(host, 0))
                    open_sockets.extend((here, on))
                    for pair in ((here, on), (on, here)):
                        threading.Thread(target=_copy, args=pair, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for each in open_sockets:
                _hang_up(each)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    _hang_up(sink)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def untouched(target: Target) -> Iterator[None]:
    """Nothing may happen to the job beside the attacks: no event names it, and its log stays as it is."""
    before = _story(target)
    yield
    assert _story(target) == before


def _story(target: Target) -> tuple[list[str], bytes]:
    events = target.call("Events", pb.EventsRequest(job=target.job), "root")
    return [line.text for line in events], log_of(target, target.job)


def log_of(target: Target, job: str, rank: int = 0) -> bytes:
    """What anyone may ever read of a job's log."""
    return b"".join(chunk.data for chunk in target.call("Logs", pb.LogsRequest(id=job, rank=rank), "root"))


def events_after(target: Target, number: int) -> list[pb.EventLine]:
    return list(target.call("Events", pb.EventsRequest(after=number, routine=True), "root"))


def last_event(target: Target) -> int:
    lines = target.call("Events", pb.EventsRequest(limit=1, routine=True), "root")
    return int(lines[-1].number)


@dataclass(frozen=True)
class Footprint:
    """What a process uses."""

    descriptors: int
    megabytes: float

    @classmethod
    def of(cls, process: int) -> Footprint:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        return cls(len(list(Path(f"/proc/{process}/fd").iterdir())), pages * 4096 / 2**20)


@contextmanager
def returns_to_normal(target: Target, *, descriptors: int = 20, megabytes: float = 80.0) -> Iterator[None]:
    """The scheduler's open files and memory must return to near where they were."""
    process = target.processes["scheduler"].pid
    before = Footprint.of(process)
    yield
    eventually(
        lambda: Footprint.of(process).descriptors <= before.descriptors + descriptors,
        f"the scheduler has at most {before.descriptors + descriptors} files open",
    )
    after = Footprint.of(process)
    assert after.megabytes <= before.megabytes + megabytes, f"memory grew from {before} to {after}"
