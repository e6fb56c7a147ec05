"""One connection to the scheduler: repeats calls while it restarts, and turns failures into our own errors."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from gavel.client.errors import NoSuchJob, NotReachable, Refused, SchedulerFailed, TimedOut
from gavel.errors import GavelError, InputError
from gavel.wire import CHANNEL_OPTIONS, DEFAULT_ADDRESS, DEFAULT_PORT
from gavel.wire.gavel_pb2_grpc import GavelStub

ADDRESS_VARIABLE = "GAVEL_SCHEDULER"

_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.max_receive_message_length", -1),  # a list of all jobs may be long
    ("grpc.max_send_message_length", -1),
    # The library's own pauses grow to two minutes: too long for a scheduler that restarts in a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 10_000),  # how long an attempt may take when the other end is busy
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.enable_http_proxy", 0),  # schedulers are on the local network; proxies are not
)
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_NEVER_THERE = re.compile("failed to connect|resolv", re.IGNORECASE)
"""Matches library messages that mean there was no connection that could have broken."""
_GIVEN_UP = re.compile("locally cancelled", re.IGNORECASE)
"""Matches library messages for calls that we ended ourselves."""
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
)


@dataclass(frozen=True, slots=True)
class Away:
    """The scheduler is unreachable for now; we keep trying."""

    reason: str


def scheduler_address(given: str | None = None) -> str:
    """The scheduler's address: as given, else from the environment, else on this machine.

    >>> scheduler_address("gpu-head"), scheduler_address("[::1]:9000")
    ('gpu-head:7077', '[::1]:9000')
    """
    address = (given if given is not None else os.environ.get(ADDRESS_VARIABLE, "")).strip() or DEFAULT_ADDRESS
    if address.startswith("unix:"):
        return address
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+)(?::(\d{1,5}))?", address)
    port = int(match[2] or DEFAULT_PORT) if match else 0
    if not match or not 0 < port < 65536:
        raise InputError(f"{address!r} is not a scheduler address; write HOST:PORT, for example {DEFAULT_ADDRESS}")
    return f"{match[1]}:{port}"


class Connection:
    """Calls to one scheduler. Threads may share it."""

    def __init__(self, address: str, timeout: float, patience: float) -> None:
        self.address = address
        self._timeout = timeout
        self._patience = patience
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._stub = GavelStub(self._channel)  # type: ignore[no-untyped-call]
        self._reached = False
        """Whether this scheduler has ever answered. If not, the address may be wrong, and we fail at once."""

    def close(self) -> None:
        self._channel.close()

    def ask(self, method: str, request: Any) -> Any:
        """Call, and repeat while the scheduler is away. The request must be safe to repeat."""
        for pause in self._pauses():
            try:
                reply = getattr(self._stub, method)(request, timeout=self._timeout)
            except grpc.RpcError as error:
                if pause is None or not self._may_return(error):
                    raise self._translated(error) from None
                time.sleep(pause)
            else:
                self._reached = True
                return reply
        raise AssertionError("the last pause is None")

    def listen(
        self, method: str, request: Any, *, until: float | None = None, again: Callable[[], bool]
    ) -> Iterator[Any]:
        """Yield what the scheduler sends. If the stream breaks, yield an Away, then what it sends when asked again.

        A stream that the scheduler ends normally is reopened if `again` is set. `until` is a monotonic time.
        """
        pauses = self._pauses()
        while True:
            call = getattr(self._stub, method)(request, timeout=_remaining(until))
            try:
                self._await_answer(call)
                self._reached |= call.is_active()
                for message in call:
                    self._reached = True
                    pauses = self._pauses()
                    yield message
                if not again():
                    return
                reason = "it closed the connection"
            except grpc.RpcError as error:
                if until is not None and time.monotonic() >= until:
                    raise TimedOut("the time limit for waiting has passed") from None
                if not self._may_return(error):
                    raise self._translated(error) from None
                details = _details(error)
                reason = "it does not respond" if _GIVEN_UP.search(details) else _cause(details)
            finally:
                call.cancel()
            pause = next(pauses)
            if pause is None:
                raise NotReachable(self.address, f"for {self._patience:g} s: {reason}")
            yield Away(reason)
            time.sleep(pause)

    def _await_answer(self, call: Any) -> None:
        """Wait until the scheduler accepts a stream, which it does at once; abandon the call if it does not.

        A call that begins while the connection breaks may never get one, and would wait forever.
        """
        timer = threading.Timer(self._timeout, call.cancel)
        timer.daemon = True
        timer.start()
        try:
            call.initial_metadata()
        finally:
            timer.cancel()

    def _pauses(self) -> Iterator[float | None]:
        """Seconds to wait before each further attempt; None when patience runs out."""
        end = time.monotonic() + self._patience
        pause = _SHORTEST_PAUSE
        while time.monotonic() + pause < end:
            yield pause
            pause = min(2 * pause, _LONGEST_PAUSE)
        yield None

    def _may_return(self, error: grpc.RpcError) -> bool:
        """Whether the scheduler was reached before and may come back."""
        if _code(error) not in _AWAY:
            return False
        details = _details(error)
        self._reached |= not (_NEVER_THERE.search(details) or _GIVEN_UP.search(details))
        return self._reached

    def _translated(self, error: grpc.RpcError) -> GavelError:
        code, details = _code(error), _details(error)
        if code in _REFUSALS:
            kind = NoSuchJob if code is grpc.StatusCode.NOT_FOUND else Refused
            return kind(details)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED or _GIVEN_UP.search(details):
            return NotReachable(self.address, f"no answer within {self._timeout:g} s")
        if code in _AWAY:
            return NotReachable(self.address, _cause(details))
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return SchedulerFailed(f"the server at {self.address} is not a scheduler of this version: {details}")
        return SchedulerFailed(f"the scheduler at {self.address} failed: {details or code.name}")


def _remaining(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())


def _code(error: Any) -> grpc.StatusCode:
    code = error.code() if hasattr(error, "code") else None
    return code or grpc.StatusCode.UNKNOWN


def _details(error: Any) -> str:
    said = error.details() if hasattr(error, "details") else str(error)
    return " ".join((said or "").split())


def _cause(details: str) -> str:
    """The part of the library's long message that is useful to people.

    >>> _cause("failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: connect: Connection refused")
    'connection refused'
    """
    return re.split(r": |:(?=[A-Z])", details)[-1].partition(" (")[0].strip(" ]").lower()
