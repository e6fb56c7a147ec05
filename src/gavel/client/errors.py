"""Errors of talking to the scheduler, and errors that Gavel raises inside a training program."""

# ruff: noqa: N818 - the names say what happened, as users read them

from __future__ import annotations

import errno
from collections.abc import Sequence

from gavel.errors import GavelError, InputError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Error numbers of a full or read-only disk: not the fault of a job that saves to it."""


class NotReachable(GavelError, ConnectionError):
    """No scheduler answers at the address."""

    def __init__(self, address: str, reason: str = "") -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"no scheduler answers at {address}{why}; start one with `gavel serve`, "
            "or name another with --scheduler HOST:PORT or GAVEL_SCHEDULER"
        )
        self.address = address
        self.reason = reason


class Refused(InputError):
    """The scheduler understood the request and declined it; the message is the scheduler's own."""

    submitted: Sequence[str] = ()
    """For jobs submitted in several requests: the ids accepted before this refusal."""


class NoSuchJob(Refused):
    """The scheduler knows no job with that id."""


class NotLoggedIn(Refused):
    """The scheduler does not know who calls: there is no token, or it counts no longer."""


class NotAllowed(Refused):
    """The scheduler knows who calls, and this needs more rights."""


class NotSecured(InputError):
    """The connection would not be safe: plaintext beyond this machine, or a server that is not the one we know."""


class TimedOut(GavelError, TimeoutError):
    """The expected event did not happen within the time limit."""


class SchedulerFailed(GavelError, RuntimeError):
    """The scheduler, or another server at its address, failed to handle the request."""


class TrainingError(GavelError, RuntimeError):
    """The training cannot continue."""


class CheckpointError(TrainingError):
    """A checkpoint could not be written, or none could be read."""

    def __init__(self, message: str, *, blameless: bool = False) -> None:
        super().__init__(message)
        self.blameless = blameless
        """Whether a full or read-only disk is to blame, so that the failure uses up no retry."""


def from_full_disk(error: BaseException | None) -> bool:
    """Whether a full or read-only disk caused an error, directly or through the chain of exceptions."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


class GangError(TrainingError):
    """The workers of a distributed job lost contact or disagree."""


class Preempted(SystemExit):
    """The training was asked to leave and has saved its checkpoint: the program ends here, with exit code 0."""

    def __init__(self) -> None:
        super().__init__(0)
