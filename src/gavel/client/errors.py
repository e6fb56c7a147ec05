"""What may go wrong in a conversation with the scheduler, and inside a training program because of Gavel."""

# ruff: noqa: N818 - they are named for what happened, as users read it

from __future__ import annotations

import errno
from collections.abc import Sequence

from gavel.errors import GavelError, InputError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""What a disk answers that takes no more data: not the fault of a job that saves to it."""


class NotReachable(GavelError, ConnectionError):
    """Nobody answers there."""

    def __init__(self, address: str, reason: str = "") -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"no scheduler answers at {address}{why}; start one with `gavel serve`, "
            "or name another with --scheduler HOST:PORT or GAVEL_SCHEDULER"
        )
        self.address = address


class Refused(InputError):
    """The scheduler understood what was asked and does not do it; its own sentence says why."""

    submitted: Sequence[str] = ()
    """Of jobs that were submitted in several parts: those that were accepted before this refusal."""


class NoSuchJob(Refused):
    """The scheduler knows no job of that id."""


class TimedOut(GavelError, TimeoutError):
    """What was waited for did not happen in the time given."""


class SchedulerFailed(GavelError, RuntimeError):
    """The scheduler, or whatever answers at its address, failed at what was asked."""


class TrainingError(GavelError, RuntimeError):
    """The training cannot go on."""


class CheckpointError(TrainingError):
    """A checkpoint could not be written, or none could be read."""

    def __init__(self, message: str, *, blameless: bool = False) -> None:
        super().__init__(message)
        self.blameless = blameless
        """Whether the disk is at fault, full or read-only, so that the failure costs the job no retry."""


def from_full_disk(error: BaseException | None) -> bool:
    """Whether a disk that takes no more data is behind an error, however often it was raised again as another."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


class GangError(TrainingError):
    """The workers of a distributed job have lost each other, or do not agree."""
