"""Receivers of notifications on loopback, which answer as a test wants, and keep what they were sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE_SECONDS = 30.0


@dataclass
class Receiver:
    """What arrived, and how it is answered."""

    port: int = 0
    status: int = 204
    location: str = ""
    """Where answers redirect to."""
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    open: threading.Event = field(default_factory=threading.Event)
    """Requests are answered only while it is set."""
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def host(self) -> str:
        """As an operator lists it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.host}/hook?room=1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in list(self.requests)]

    @property
    def events(self) -> list[str]:
        return [body["event"] for body in self.bodies]

    def wait(self, count: int) -> list[dict[str, Any]]:
        """The bodies of this many requests, once they have arrived."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.requests) >= count, PATIENCE_SECONDS), self.events
        return self.bodies


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """Serve until the end of the test."""
    receiver = Receiver()
    receiver.open.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with receiver.changed:
                receiver.requests.append((self.path, dict(self.headers.items()), body))
                receiver.changed.notify_all()
            receiver.open.wait(PATIENCE_SECONDS)
            self.send_response(receiver.status)
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.end_headers()

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # type: ignore[method-assign] # callers that have gone
        receiver.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.open.set()
            server.shutdown()
            thread.join()
