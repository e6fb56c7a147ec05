"""A job in words: its state, time, progress and place, as every command prints them. Tables are drawn elsewhere."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from gavel.client.request_rules import SHELL
from gavel.client.requests import JobRequest
from gavel.client.views import JobState, JobView

STYLES = {
    JobState.RUNNING: "green",
    JobState.PREEMPTED: "yellow",
    JobState.FAILED: "red",
    JobState.CANCELLED: "dim",
    JobState.COMPLETED: "dim",
}


_PLAIN_WORD = re.compile(r"[\w@%+=:,./{}-]+")
"""Words that a shell leaves alone; braces included, for the placeholders of arrays."""


def span(seconds: float) -> str:
    """A length of time in its two largest units.

    >>> [span(s) for s in (0.4, 59, 61, 3700, 90000, 1e6)]
    ['0s', '59s', '1m01s', '1h01m', '1d01h', '11d13h']
    """
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    for size, unit, part in ((86400, "d", "h"), (3600, "h", "m"), (60, "m", "s")):
        if whole >= size:
            smaller = {"h": 3600, "m": 60, "s": 1}[part]
            return f"{whole // size}{unit}{whole % size // smaller:02d}{part}"
    raise AssertionError(seconds)


def clock(seconds: float) -> str:
    """Local date and time."""
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


def printable(text: str) -> str:
    r"""Replace control characters, which could move the cursor or colour the terminal: job names are arbitrary.

    >>> printable("a\x1b[31mb"), printable("first\nsecond")
    ('a?[31mb', 'first\nsecond')
    """
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)


def said_command(request: JobRequest) -> str:
    """A command as a person would type it, without the shell that runs it."""
    if tuple(request.command[:2]) == SHELL and len(request.command) == 3:
        return " ".join(request.command[2].split())
    return " ".join(word if _PLAIN_WORD.fullmatch(word) else shlex.quote(word) for word in request.command)


def template(request: JobRequest) -> str:
    """Its template, unless that was derived from the command."""
    command = " ".join(request.command)
    program = request.command[0].rpartition("/")[0] if request.command else ""
    derived = command.startswith(request.template) or command.removeprefix(f"{program}/").startswith(request.template)
    return "" if derived else request.template


def label(job: JobView) -> str:
    """The job's name for people."""
    return job.request.name or said_command(job.request)


def done(job: JobView) -> str:
    """The fraction of a job that is done, if known."""
    if job.request.steps:
        return f"{min(1.0, job.steps_done / job.request.steps):.0%}"
    return "100%" if job.state is JobState.COMPLETED else ""


def steps(job: JobView) -> str:
    """Steps done, and the total if known."""
    total = f"/{job.request.steps:,.0f}" if job.request.steps else ""
    return f"{job.steps_done:,.0f}{total}" if total or job.steps_done else ""


def lasted(job: JobView, now: float) -> float:
    """Seconds that a job has been in its state; for a finished job, from submission to end."""
    return now - job.changed if job.ended is None else job.ended - job.submitted


def where(job: JobView) -> str:
    """Type and servers, with numbers of accelerators if there are several servers."""
    names = {place: place.server.removesuffix(f":{job.type}") for place in job.places}  # an agent of several types
    several = len(names) > 1
    servers = "+".join(f"{name}:{place.accelerators}" if several else name for place, name in names.items())
    return f"{job.type} {servers}".strip()


def tags(request: JobRequest) -> str:
    """Its tags, as they are written on a command line."""
    return " ".join(f"{name}={value}" for name, value in sorted(request.tags.items()))


def place(job: JobView) -> str:
    """Where it runs, or why it does not; what its user should know first."""
    told = where(job) if job.state is JobState.RUNNING else job.reason
    return " ".join("; ".join(filter(None, [job.warning, told])).split())


def summary(jobs: Sequence[JobView], order: Iterable[JobState] = JobState) -> str:
    """How many jobs are in which state.

    >>> summary([])
    'no jobs'
    """
    counts = Counter(job.state for job in jobs)
    return ", ".join(f"{counts[state]:,} {state}" for state in order if counts[state]) or "no jobs"
