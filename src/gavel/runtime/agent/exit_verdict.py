"""Judges the end of a task: by its last messages, its exit code, and the order in which things happened.

The order decides. The job's own last words count most. Without them, a process that ended before the order to leave
reached it ended by itself: exit code 0 is DONE and anything else a crash, whatever was ordered meanwhile. The order
has reached a process once it was written to a link that obeys it, or once the guard sent SIGTERM to a process that
was running and not already exiting. After that the job has LEFT, even with exit code 0: it may have saved in its
signal handler, and starting it again is safe where calling it done would not be. The exception is a program that ended
with exit code 0 and says that it never looked at the order on its link: it was done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gavel.client.quantities import size
from gavel.runtime.agent.logs import LogFile
from gavel.runtime.agent.processes import in_words
from gavel.runtime.messages import Ending, TaskEnded, TaskStatus

GUARD_SAYS = "gavel: "
"""The prefix of a guard's own lines."""
LEASE_OVER = "its lease ended"


@dataclass
class LastWords:
    """What a process said about its end over the link."""

    done: bool = False
    stopped: bool = False
    why_stopped: str = ""
    """Why it left, if the agent did not ask."""
    unaware: bool = False
    """Whether its program never looked at the order that its link had received."""
    failed: str | None = None
    blameless: bool = False
    """Whether it failed because of a full disk."""

    @property
    def spoken(self) -> bool:
        """Whether it announced its end."""
        return self.done or self.stopped or self.failed is not None


@dataclass(frozen=True, slots=True)
class ExitVerdict:
    """The verdict that the scheduler gets."""

    ending: Ending
    reason: str
    hopeless: bool = False
    blameless: bool = False
    exit_code: int | None = None
    """Of the process; None: it had none."""


def judge(code: int, words: LastWords, asked: str | None, *, reached: bool) -> ExitVerdict:
    """Judge an end; `reached`: the order to leave reached the process before it ended."""
    if words.failed is not None:
        return ExitVerdict(Ending.CRASHED, words.failed, blameless=words.blameless)
    if words.done:
        return ExitVerdict(Ending.DONE, "it has done all of its steps")
    if words.stopped or reached:
        # A job may leave by itself when its lease ends, a moment before the agent asks it to.
        reason = asked or words.why_stopped or LEASE_OVER
        return ExitVerdict(Ending.LEFT, reason if code == 0 else f"{reason} ({in_words(code)})")
    if code == 0:
        return ExitVerdict(Ending.DONE, "it ended with exit code 0")
    return ExitVerdict(Ending.CRASHED, in_words(code))


def for_memory(verdict: ExitVerdict, limit: int) -> ExitVerdict:
    """The verdict on a task of which the kernel has killed a process for using more than this; 0: it has not.

    >>> for_memory(ExitVerdict(Ending.CRASHED, "killed by signal SIGKILL"), 4 * 2**30).reason
    'killed: it used more than its 4G of memory'
    """
    if not limit or verdict.ending is not Ending.CRASHED:
        return verdict
    return replace(verdict, reason=f"killed: it used more than its {size(limit)} of memory")


def never_began(code: int, log: bytes) -> ExitVerdict | None:
    """The verdict on a command that its guard could not execute: the guard's message is all that is in the log.

    >>> never_began(127, b"gavel: command not found: x\\n").reason
    'command not found: x'
    """
    line = log.decode(errors="replace").strip()
    if code in {126, 127} and line.startswith(GUARD_SAYS) and "\n" not in line:
        return ExitVerdict(Ending.CRASHED, line.removeprefix(GUARD_SAYS), hopeless=True)
    return None


def ended(status: TaskStatus, verdict: ExitVerdict, log: LogFile | None = None) -> TaskEnded:
    """The end as a protocol message."""
    return TaskEnded(
        status=status,
        ending=verdict.ending,
        reason=verdict.reason,
        log_tail=b"" if log is None else log.tail(),
        hopeless=verdict.hopeless,
        blameless=verdict.blameless,
        exit_code=verdict.exit_code,
    )
