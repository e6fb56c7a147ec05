"""One job in the foreground: its output comes here, interruptions go there, and its exit code is ours."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gavel.cli.words import printable, where
from gavel.client.views import JobState, JobView
from gavel.errors import GavelError

if TYPE_CHECKING:
    from gavel.client.api import Client

INTERRUPTED = 130
READER_GONE = 141
"""The exit code of a program whose output no one reads any more."""
LAST_OUTPUT_SECONDS = 30.0
"""How long the output of a job that has ended may take to arrive."""
Say = Callable[[str], None]


def say(sentence: str) -> None:
    """Tell the user."""
    print(printable(f"gavel: {sentence}"), file=sys.stderr, flush=True)


class Narrator:
    """Tells the user about each change of a job, once."""

    def __init__(self, tell: Say) -> None:
        self._tell = tell
        self._last: tuple[JobState, str, int] | None = None

    def hear(self, job: JobView) -> None:
        """Say what is new."""
        changed = job.state, job.reason, job.attempts
        if changed != self._last and not job.finished:
            self._last = changed
            self._tell(change(job))

    def away(self, reason: str) -> None:
        """Say that the scheduler cannot be reached; once, until it is."""
        if self._last is not None:
            self._last = None
            self._tell(f"the scheduler cannot be reached: {reason}; still trying")


def change(job: JobView) -> str:
    """What a job that has not finished does now, in a few words."""
    reason = f": {job.reason}" if job.reason else ""
    if job.state is JobState.RUNNING:
        again = f" again (attempt {job.attempts})" if job.attempts > 1 else ""
        return f"job {job.id} runs{again} on {where(job)}"
    what = "was preempted and waits" if job.state is JobState.PREEMPTED else "waits"
    return f"job {job.id} {what}{reason}"


def exit_code(job: JobView) -> int:
    """The exit code of a finished job as a shell shows it; 1 if it failed without one.

    >>> from gavel.client.requests import JobRequest
    >>> job = JobView("1", JobRequest(["train"]), JobState.FAILED, exit_code=-9)
    >>> exit_code(job)
    137
    """
    code = job.exit_code or 0
    if job.state is not JobState.COMPLETED and code == 0:
        return 1
    return 128 - code if code < 0 else code


def how_it_ended(job: JobView) -> str:
    """A sentence about a job that did not complete."""
    reason = f": {job.reason}" if job.reason not in ("", job.state.value) else ""
    return f"job {job.id} {'was ' if job.state is JobState.CANCELLED else ''}{job.state}{reason}"


class _Terminated(BaseException):  # not an error: it ends what we do, as KeyboardInterrupt does
    """SIGTERM or SIGHUP."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Raise _Terminated for signals that ask to end."""

    def end(number: int, _: object) -> None:
        raise _Terminated(number)

    before: dict[int, Any] = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class ForegroundJob:
    """Prints the output of a job until it finishes. Threads read; the main thread waits, and is interrupted."""

    def __init__(self, client: Client, job: str, ranks: Sequence[int], output: int, tell: Say) -> None:
        self._client = client
        self._job = job
        self._ranks = ranks
        self._output = output
        """The descriptor that gets the job's bytes."""
        self._narrator = Narrator(tell)
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._finished: JobView | None = None
        self._reader_gone = False
        self._error: GavelError | None = None
        self._readers: list[threading.Thread] = []

    def follow(self, *, keep: bool) -> tuple[JobView | None, int]:
        """Wait for the end; return the job, if it has ended, and the exit code for it."""
        prefixes = [b"[%d] " % rank if len(self._ranks) > 1 else b"" for rank in self._ranks]
        self._readers = [self._thread(self._print, rank, own) for rank, own in zip(self._ranks, prefixes, strict=True)]
        self._thread(self._watch)
        try:
            with _signals_raise():
                job = self._wait()
        except (KeyboardInterrupt, _Terminated) as interruption:
            code = 128 + interruption.number if isinstance(interruption, _Terminated) else INTERRUPTED
            return self._interrupted(keep=keep), code
        if job is None:
            return self._interrupted(keep=keep), READER_GONE
        return job, exit_code(job)

    def _interrupted(self, *, keep: bool) -> JobView | None:
        """End the job, and let it say its last words; a second interruption leaves at once."""
        if keep:
            say(
                f"job {self._job} continues: `gavel logs {self._job} --follow` shows it, "
                f"`gavel cancel {self._job}` ends it"
            )
            return None
        try:
            self._client.cancel(self._job)
            say(f"job {self._job} is told to end; Ctrl-C again leaves without waiting for it")
            with _signals_raise():
                return self._wait()
        except (KeyboardInterrupt, _Terminated):
            return None

    def _wait(self) -> JobView | None:
        """Wait until the job has finished and its output is printed; None if no one reads that any more."""
        while self._finished is None:
            self._news.wait()
            self._news.clear()
            if self._error is not None:
                raise self._error
            if self._reader_gone:
                self._reader_gone = False
                return None
        for reader in self._readers:
            reader.join(LAST_OUTPUT_SECONDS)
        return self._finished

    def _thread(self, target: Callable[..., None], *arguments: object) -> threading.Thread:
        def run() -> None:
            try:
                target(*arguments)
            except GavelError as error:
                self._error = error
            finally:
                self._news.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _watch(self) -> None:
        for update in self._client.watch(ids=[self._job]):
            if update.away:
                self._narrator.away(update.away)
            if update.job is not None:
                self._narrator.hear(update.job)
                if update.job.finished:
                    self._finished = update.job
                    return

    def _print(self, rank: int, prefix: bytes) -> None:
        begins = True
        for piece in self._client.logs(self._job, follow=True, rank=rank):
            try:
                self._write(with_prefix(piece, prefix, begins=begins) if prefix else piece)
            except BrokenPipeError:
                self._reader_gone = True
                return
            begins = piece.endswith(b"\n")

    def _write(self, data: bytes) -> None:
        with self._lock:
            while data:
                data = data[os.write(self._output, data) :]


def with_prefix(piece: bytes, prefix: bytes, *, begins: bool) -> bytes:
    r"""A piece of output with a prefix before each line; `begins`: the piece begins one.

    >>> with_prefix(b"a\nb", b"[0] ", begins=True), with_prefix(b"c\n", b"[0] ", begins=False)
    (b'[0] a\n[0] b', b'c\n')
    """
    lines = piece.splitlines(keepends=True)
    return b"".join(prefix + line if begins or at else line for at, line in enumerate(lines))
