"""How many streams a caller may have open at once, and the options that bound one connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gavel.core.errors import InputError
from gavel.limits import MOST_MESSAGE_BYTES
from gavel.security.roles import Caller
from gavel.wire import SERVER_OPTIONS

MOST_STREAMS_OF_A_CALLER = 100
MOST_STREAMS = 10_000
"""Of all callers together."""
MOST_STREAMS_OF_A_CONNECTION = 1_000
"""Calls at once on one connection; a client waits with more."""
MOST_CALLS_AT_ONCE = 100_000
HANDSHAKE_SECONDS = 10
"""How long a new connection may take until TLS and HTTP/2 are established."""
IDLE_SECONDS = 600
"""A connection without a call is closed after this time; a client connects again. An agent's stream is a call."""
AGE_SECONDS = 24 * 3600
"""A connection is closed after about this time, so that certificates and sessions that expired are noticed."""
GRACE_SECONDS = 10
"""How long calls may take to end then; agents and watchers connect again at once."""
MOST_METADATA_BYTES = 16 * 2**10

CONNECTION_OPTIONS = (
    *SERVER_OPTIONS,
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", MOST_STREAMS_OF_A_CONNECTION),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
    ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
    ("grpc.max_connection_age_ms", AGE_SECONDS * 1000),
    ("grpc.max_connection_age_grace_ms", GRACE_SECONDS * 1000),
    ("grpc.max_metadata_size", MOST_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MOST_METADATA_BYTES),
    ("grpc.http2.max_ping_strikes", 2),
    ("grpc.server.max_pending_requests", MOST_CALLS_AT_ONCE),
    ("grpc.server.max_pending_requests_hard_limit", MOST_CALLS_AT_ONCE),
    ("grpc.so_reuseport", 0),
)
"""Options of a server: they apply to every connection to any of its ports."""


class TooManyStreamsError(InputError):
    """A stream more than the caller, or all callers together, may have."""


class Streams:
    """Open streams by caller. The one user of an open scheduler has no such limit."""

    def __init__(self, most_of_a_caller: int = MOST_STREAMS_OF_A_CALLER, most: int = MOST_STREAMS) -> None:
        self._most_of_a_caller = most_of_a_caller
        self._most = most
        self._open: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self._open.total()

    @contextmanager
    def one(self, caller: Caller) -> Iterator[None]:
        """Count a stream while it is open; TooManyStreamsError if it is one too many."""
        who = caller.by or caller.user
        if not caller.open and self._open[who] >= self._most_of_a_caller:
            raise TooManyStreamsError(
                f"{who} has {self._most_of_a_caller:,} streams open, the most at once; end some watches, logs or events"
            )
        if self.total >= self._most:
            raise TooManyStreamsError(f"{self._most:,} streams are open, the most at once; try again later")
        self._open[who] += 1
        try:
            yield
        finally:
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]
