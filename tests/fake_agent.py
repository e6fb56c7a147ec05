"""An agent as the job's side of the link sees it: it receives what jobs send, and sends what a test wants."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Message = dict[str, Any]
PATIENCE = 60.0
"""Seconds until a test gives up on an event: long, because only a broken test waits this long."""

LONG_LEASE = {"op": "lease", "seconds": 1000.0}


class FakeAgent:
    """Listens on a UNIX socket; answers every hello with `greeting`, and a long lease if that has none."""

    def __init__(self, *greeting: Message) -> None:
        # Not the test's own directory: socket paths may have 107 characters.
        self._directory = Path(tempfile.mkdtemp(prefix="gavel-"))
        self.path = str(self._directory / "agent")
        self.greeting = greeting
        self.silent = False
        """Whether it answers no hello at all."""
        self._changed = threading.Condition()
        self._heard: list[Message] = []
        self._connections: dict[int, socket.socket] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def expect(self, op: str, **fields: Any) -> Message:
        """Wait for the next message of this kind with these fields, in the order in which they came; use it up."""
        wanted = {"op": op, **fields}
        with self._changed:
            assert self._changed.wait_for(lambda: self._find(wanted) is not None, PATIENCE), (
                f"no {wanted} among {self._heard}"
            )
            found = self._find(wanted)
            assert found is not None
            self._heard.remove(found)
            return found

    def heard(self, op: str) -> list[Message]:
        with self._changed:
            return [message for message in self._heard if message["op"] == op]

    def send(self, rank: int = 0, **message: Any) -> None:
        self._connections[rank].sendall(json.dumps(message).encode() + b"\n")

    def hang_up(self, rank: int = 0) -> None:
        self._connections[rank].shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for connection in (self._listener, *self._connections.values()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        self._listener.close()
        shutil.rmtree(self._directory)

    def _find(self, wanted: Message) -> Message | None:
        return next((message for message in self._heard if wanted.items() <= message.items()), None)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._listen, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _listen(self, connection: socket.socket) -> None:
        rank = 0
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                if message["op"] == "hello":
                    rank = message["rank"]
                    self._connections[rank] = connection
                    leases = [greeting for greeting in self.greeting if greeting["op"] == "lease"]
                    with contextlib.suppress(OSError):  # a job that has left may still have messages to read
                        for greeting in () if self.silent else (*self.greeting, *(() if leases else [LONG_LEASE])):
                            self.send(rank, **greeting)
                self._hear({**message, "from": rank})
        self._hear({"op": "gone", "from": rank})

    def _hear(self, message: Message) -> None:
        with self._changed:
            self._heard.append(message)
            self._changed.notify_all()


@contextlib.contextmanager
def agent(*greeting: Message) -> Iterator[FakeAgent]:
    server = FakeAgent(*greeting)
    try:
        yield server
    finally:
        server.close()
