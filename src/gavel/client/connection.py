"""One connection to the scheduler: repeats calls while it restarts, and turns failures into our own errors."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from gavel.client.access import ADDRESS_VARIABLE, SchedulerAccess, scheduler_address
from gavel.client.channel import completed, open_channel, session_token, why_not
from gavel.client.errors import (
    NoSuchJob,
    NotAllowed,
    NotLoggedIn,
    NotReachable,
    Refused,
    SchedulerFailed,
    TimedOut,
)
from gavel.errors import GavelError
from gavel.wire.gavel_pb2_grpc import GavelStub

__all__ = ["ADDRESS_VARIABLE", "Away", "Connection", "scheduler_address"]

AUTHORIZATION, ACTING_FOR = "authorization", "x-gavel-as"
"""The metadata of a call that say who calls, and for whom."""
Metadata = tuple[tuple[str, str], ...]

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_NEVER_THERE = re.compile("failed to connect|resolv", re.IGNORECASE)
"""Matches library messages that mean there was no connection that could have broken."""
_GIVEN_UP = re.compile("locally cancelled", re.IGNORECASE)
"""Matches library messages for calls that we ended ourselves."""
_NO_LISTENER = re.compile("refused|resolv|no route|timed out|timeout|no such file", re.IGNORECASE)
"""Matches library messages for addresses at which no server accepted a connection."""
_NOT_THE_ONE = re.compile("CERTIFICATE_VERIFY_FAILED|Verification Check failed|WRONG_VERSION_NUMBER", re.IGNORECASE)
"""Matches library messages for servers that did not prove to be the scheduler; waiting does not help."""
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT: Refused,
    grpc.StatusCode.FAILED_PRECONDITION: Refused,
    grpc.StatusCode.ALREADY_EXISTS: Refused,
    grpc.StatusCode.NOT_FOUND: NoSuchJob,
    grpc.StatusCode.OUT_OF_RANGE: Refused,
    grpc.StatusCode.PERMISSION_DENIED: NotAllowed,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Refused,
}


@dataclass(frozen=True, slots=True)
class Away:
    """The scheduler is unreachable for now; we keep trying."""

    reason: str


class Connection:
    """Calls to one scheduler. Threads may share it."""

    def __init__(self, access: SchedulerAccess, timeout: float, patience: float) -> None:
        self._access = access
        self._timeout = timeout
        self._patience = patience
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        """Opened by the first call, because a fingerprint is compared before."""
        self._stub: Any = None
        self._metadata: Metadata | None = None
        """Of every call; None until a session has a token."""
        self._reached = False
        """Whether this scheduler has ever answered. If not, the address may be wrong, and we fail at once."""

    @property
    def address(self) -> str:
        return self._access.address

    @property
    def access(self) -> SchedulerAccess:
        """How the scheduler is reached, with all that was found out at the first call."""
        return self._access

    def close(self) -> None:
        with self._lock:
            if self._channel is not None:
                self._channel.close()

    def ask(self, method: str, request: Any, *, repeat: bool = True) -> Any:
        """Call, and repeat while the scheduler is away, unless the request is not safe to repeat."""
        pauses = self._pauses()
        renewed = False
        while True:
            try:
                stub, metadata = self._opened()
                reply = getattr(stub, method)(request, timeout=self._timeout, metadata=metadata)
            except (grpc.RpcError, NotReachable) as error:
                if not renewed and self._forgets_session(error):
                    renewed = True
                    continue
                pause = next(pauses) if repeat else None
                if pause is None or not self._may_return(error):
                    raise self._translated(error) from None
                time.sleep(pause)
            else:
                self._reached = True
                return reply

    def listen(
        self, method: str, request: Any, *, until: float | None = None, again: Callable[[], bool]
    ) -> Iterator[Any]:
        """Yield what the scheduler sends. If the stream breaks, yield an Away, then what it sends when asked again.

        A stream that the scheduler ends normally is reopened if `again` is set. `until` is a monotonic time. A
        call that takes a stream of requests gets a function that begins one each time.
        """
        pauses = self._pauses()
        renewed = False
        while True:
            call = None
            try:
                stub, metadata = self._opened()
                sent = request() if callable(request) else request
                call = getattr(stub, method)(sent, timeout=_remaining(until), metadata=metadata)
                self._await_answer(call)
                self._reached |= call.is_active()
                for message in call:
                    self._reached = True
                    pauses, renewed = self._pauses(), False
                    yield message
                if not again():
                    return
                reason = "it closed the connection"
            except (grpc.RpcError, NotReachable) as error:
                if until is not None and time.monotonic() >= until:
                    raise TimedOut("the time limit for waiting has passed") from None
                if not renewed and self._forgets_session(error):
                    renewed = True
                    continue
                if not self._may_return(error):
                    raise self._translated(error) from None
                reason = _told(error)
            finally:
                if call is not None:
                    call.cancel()
            pause = next(pauses)
            if pause is None:
                raise NotReachable(self.address, f"for {self._patience:g} s: {reason}")
            yield Away(reason)
            time.sleep(pause)

    def _opened(self) -> tuple[Any, Metadata]:
        """What calls need. Everything is found out once: later calls cost nothing extra."""
        stub, metadata = self._stub, self._metadata
        if stub is not None and metadata is not None:
            return stub, metadata
        with self._lock:
            if self._stub is None:
                self._access = completed(self._access)
                self._channel = open_channel(self._access)
                self._stub = GavelStub(self._channel)  # type: ignore[no-untyped-call]
            if self._metadata is None:
                self._metadata = self._credentials()
            return self._stub, self._metadata

    def _credentials(self) -> Metadata:
        access = self._access
        token = access.token if access.token or not access.local else session_token(access)
        # A token in plaintext is refused where the access is decided; this is the last place to keep it back.
        bearer = ((AUTHORIZATION, f"Bearer {token}"),) if token and (access.encrypted or access.local) else ()
        return (*bearer, *(((ACTING_FOR, access.acting_for),) if access.acting_for else ()))

    def _forgets_session(self, error: Exception) -> bool:
        """Whether only the token of a session was refused, for example after a restart; the next call gets another."""
        ended = isinstance(error, grpc.RpcError) and _code(error) is grpc.StatusCode.UNAUTHENTICATED
        if not ended or not self._access.local or self._access.token:
            return False
        with self._lock:
            self._metadata = None
        return True

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

    def _may_return(self, error: Exception) -> bool:
        """Whether the scheduler was reached before and may come back."""
        if isinstance(error, NotReachable):
            return self._reached
        details = _details(error)
        if _code(error) not in _AWAY or _NOT_THE_ONE.search(details):
            return False
        self._reached |= not (_NEVER_THERE.search(details) or _GIVEN_UP.search(details))
        return self._reached

    def _translated(self, error: Exception) -> GavelError:
        if isinstance(error, NotReachable):
            return error
        code, details = _code(error), self._discreet(_details(error))
        if code in _REFUSALS:
            return _REFUSALS[code](details)
        if code is grpc.StatusCode.UNAUTHENTICATED:
            return NotLoggedIn(self._advice(details or "the scheduler does not know who you are"))
        if code is grpc.StatusCode.DEADLINE_EXCEEDED or code in _AWAY:
            return self._unreachable(code, details)
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return SchedulerFailed(f"the server at {self.address} is not a scheduler of this version: {details}")
        return SchedulerFailed(f"the scheduler at {self.address} failed: {details or code.name}")

    def _unreachable(self, code: grpc.StatusCode, details: str) -> GavelError:
        if code is grpc.StatusCode.DEADLINE_EXCEEDED or _GIVEN_UP.search(details):
            return NotReachable(self.address, f"no answer within {self._timeout:g} s")
        explained = None if _NO_LISTENER.search(details) else why_not(self._access)
        return explained or NotReachable(self.address, _cause(details))

    def _advice(self, details: str) -> str:
        """What to do about a token that does not count."""
        if self._access.local or "gavel login" in details:
            return details
        if not self._access.token:
            return f"{details}; run `gavel login {self.address}`"
        ask = "" if "ask for" in details else "; ask for a new token"
        return f"{details}{ask}, then run `gavel login {self.address}`"

    def _discreet(self, details: str) -> str:
        """Without the token, should a server repeat it."""
        return details.replace(self._access.token, "(token)") if self._access.token else details


_LONGEST_CALL = 1e9
"""In seconds; the network library counts nanoseconds since 1970 in 64 bits."""


def _remaining(until: float | None) -> float | None:
    return None if until is None else min(max(0.0, until - time.monotonic()), _LONGEST_CALL)


def _code(error: Any) -> grpc.StatusCode:
    code = error.code() if hasattr(error, "code") else None
    return code or grpc.StatusCode.UNKNOWN


def _details(error: Any) -> str:
    said = error.details() if hasattr(error, "details") else str(error)
    return " ".join((said or "").split())


def _told(error: Exception) -> str:
    """Why a stream broke, in a few words."""
    if isinstance(error, NotReachable):
        return error.reason
    details = _details(error)
    return "it does not respond" if _GIVEN_UP.search(details) else _cause(details)


def _cause(details: str) -> str:
    """The part of the library's long message that is useful to people.

    >>> _cause("failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: connect: Connection refused")
    'connection refused'
    """
    return re.split(r": |:(?=[A-Z])", details)[-1].partition(" (")[0].strip(" ]").lower()
