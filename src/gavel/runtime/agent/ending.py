"""How the end of a task is judged, from what it said, how its process ended and whether it had been asked to leave."""

from __future__ import annotations

from dataclasses import dataclass

from gavel.runtime.agent.logs import Log
from gavel.runtime.agent.processes import in_words
from gavel.wire import gavel_pb2 as pb

How = pb.TaskEnded.How
GUARD_SAYS = "gavel: "
"""How lines of a guard begin."""


@dataclass
class LastWords:
    """What a process said of its end over the link."""

    done: bool = False
    stopped: bool = False
    failed: str | None = None

    @property
    def spoken(self) -> bool:
        """Whether it is about to end by itself."""
        return self.done or self.stopped or self.failed is not None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the scheduler is told."""

    how: How
    reason: str
    hopeless: bool = False


def judge(code: int, words: LastWords, asked: str | None) -> Verdict:
    """Judge an end.

    A job may leave by itself when its lease is over, before anybody asked it: it says so, and its exit code 0 does not
    mean that it is done.
    """
    if words.failed is not None:
        return Verdict(pb.TaskEnded.CRASHED, words.failed)
    if words.done:
        return Verdict(pb.TaskEnded.DONE, "it has done all of its steps")
    if asked is not None:
        return Verdict(pb.TaskEnded.LEFT, asked if code == 0 else f"{asked} ({in_words(code)})")
    if words.stopped:
        return Verdict(pb.TaskEnded.LEFT, "its lease was over")
    if code == 0:
        return Verdict(pb.TaskEnded.DONE, "it ended with exit code 0")
    return Verdict(pb.TaskEnded.CRASHED, in_words(code))


def never_began(code: int, log: bytes) -> Verdict | None:
    """Tell a command that its guard could not execute, of which the guard's word is all there is in the log.

    >>> never_began(127, b"gavel: command not found: x\\n").reason
    'command not found: x'
    """
    line = log.decode(errors="replace").strip()
    if code in {126, 127} and line.startswith(GUARD_SAYS) and "\n" not in line:
        return Verdict(pb.TaskEnded.CRASHED, line.removeprefix(GUARD_SAYS), hopeless=True)
    return None


def ended(status: pb.TaskStatus, verdict: Verdict, log: Log | None = None) -> pb.TaskEnded:
    """Put an end in the words of the protocol."""
    tail = b"" if log is None else log.tail()
    return pb.TaskEnded(status=status, how=verdict.how, reason=verdict.reason, log_tail=tail, hopeless=verdict.hopeless)
