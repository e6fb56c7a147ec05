"""An interactive terminal on the server that runs a job: keys go there as they are typed, what it shows comes here."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gavel.cli.running import INTERRUPTED, Narrator, exit_code, how_it_ended, say
from gavel.cli.selecting import already_finished
from gavel.cli.words import printable
from gavel.client.errors import TimedOut
from gavel.client.views import JobState, JobView
from gavel.errors import GavelError, InputError
from gavel.limits import MOST_LINES_OF_A_TERMINAL

if TYPE_CHECKING:
    from gavel.client.api import Client
    from gavel.client.terminal import Terminal

LEAVING = "~."
SHOWN_AGAIN = 4096
"""Bytes of earlier output that a user who returns sees."""
PAUSE_SECONDS = 0.3
"""Between two connections to the same attempt, for a scheduler that shuts down."""
_READ = 16 * 1024
_STDIN, _STDOUT = 0, 1


class Escapes:
    """Finds what the user types for us rather than for the job: at the beginning of a line, ~. leaves and ~~ is a ~."""

    def __init__(self) -> None:
        self._begins = True
        self._tilde = False

    def sort(self, keys: bytes) -> tuple[bytes, bool]:
        r"""What is for the job, and whether the user leaves.

        >>> Escapes().sort(b"ls ~.\r~~x\r~."), Escapes().sort(b"~a")
        ((b'ls ~.\r~x\r', True), (b'~a', False))
        """
        passed = bytearray()
        for key in keys:
            if self._tilde:
                self._tilde = False
                if key == ord("."):
                    return bytes(passed), True
                if key != ord("~"):
                    passed += b"~"
            elif self._begins and key == ord("~"):
                self._tilde = True
                continue
            passed.append(key)
            self._begins = key in b"\r\n"
        return bytes(passed), False


def use_terminal(
    client: Client, job: str, *, linger_seconds: float, start_within: float | None, returning: bool = False
) -> int:
    """Connect this terminal to that of a job until it has ended, or the user leaves; return the exit code."""
    offset, tail = 0, SHOWN_AGAIN if returning else 0
    narrator = Narrator(say)
    if returning:
        _check_return(client, job)
    while True:
        try:
            view = _running(client, job, narrator, start_within)
        except TimedOut:
            client.cancel(job)
            raise GavelError(f"job {job} did not start in time, and was cancelled") from None
        except KeyboardInterrupt:
            return _given_up(client, job, returning=returning)
        if view.finished:
            break
        start_within = None
        terminal = client.terminal(job, *window_size(), linger_seconds=linger_seconds, offset=offset, tail=tail)
        if not Connected(terminal).talk():
            say(
                f"you left the terminal of job {job}, which ends {_later(linger_seconds)} unless you return with "
                f"`gavel run --attach {job}`"
            )
            return 0
        offset, tail = terminal.offset, 0
        if terminal.ended:
            view = client.wait(job)[0]
            break
        time.sleep(PAUSE_SECONDS)
    if view.state is not JobState.COMPLETED:
        say(how_it_ended(view))
    return exit_code(view)


def _check_return(client: Client, job: str) -> None:
    """Refuse a job without a terminal to return to; warn before another user's output reaches this terminal."""
    view, identity = client.job(job).job, client.whoami()
    if fault := already_finished(view):
        raise InputError(f"{fault}; `gavel logs {job}` prints what it wrote")
    if not view.request.terminal:
        raise InputError(f"job {job} has no terminal; `gavel logs -f {job}` follows its output")
    owner = view.request.user
    if owner not in ("", identity.user) or identity.by:
        say(f"job {job} is {owner}'s: its output may do anything to this terminal, and {owner} sees that you are there")


def _later(linger_seconds: float) -> str:
    return f"in {linger_seconds:g} s" if linger_seconds else "in a minute"


def _running(client: Client, job: str, narrator: Narrator, timeout: float | None) -> JobView:
    """Wait until a job runs, or has ended; TimedOut if it does not start in time."""
    for update in client.watch(ids=[job], timeout=timeout):
        if update.away:
            narrator.away(update.away)
        if update.job is not None:
            narrator.hear(update.job)
            if update.job.finished or update.job.state is JobState.RUNNING:
                return update.job
    raise AssertionError  # a watch ends only with an error


def _given_up(client: Client, job: str, *, returning: bool) -> int:
    if returning:
        say(f"interrupted; job {job} still waits, `gavel cancel {job}` ends it")
    else:
        client.cancel(job)
        say(f"interrupted; job {job} is cancelled")
    return INTERRUPTED


def window_size() -> tuple[int, int]:
    """Rows and columns of the user's window."""
    try:
        size = os.get_terminal_size(_STDIN)
    except OSError:
        return 24, 80
    rows, columns = (min(max(count, 1), MOST_LINES_OF_A_TERMINAL) for count in (size.lines, size.columns))
    return rows, columns


class Connected:
    """This terminal in raw mode, connected to that of a job."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._escapes = Escapes()
        self._over = False
        self._error: GavelError | None = None
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def talk(self) -> bool:
        """Pass on keys until no more is shown; False if the user left."""
        reader = threading.Thread(target=self._show, daemon=True)
        try:
            with _raw(), self._size_changes():
                reader.start()
                stayed = self._type()
        finally:
            self._terminal.close()
        if self._error is not None:
            raise self._error
        return stayed

    def _type(self) -> bool:
        while not self._over:
            ready, _, _ = select.select([_STDIN, self._woken], [], [])
            if self._woken in ready:
                if b"w" in os.read(self._woken, _READ):
                    self._terminal.resize(*window_size())
                continue
            keys = os.read(_STDIN, _READ)
            passed, leaves = self._escapes.sort(keys)
            if passed and not self._terminal.type(passed):
                _write(b"\a")
            if leaves or not keys:
                return False
        return True

    def _show(self) -> None:
        try:
            for shown in self._terminal.shown():
                if shown.away:
                    _notice(
                        f"the scheduler cannot be reached: {shown.away}; what you type is not sent; {LEAVING} leaves"
                    )
                elif shown.back:
                    _notice("connected again")
                _write(shown.data)
        except GavelError as error:
            self._error = error
        finally:
            self._over = True
            self._wake_up(b"o")

    def _wake_up(self, why: bytes) -> None:
        try:
            os.write(self._wake, why)
        except BlockingIOError:  # enough is there to wake
            return

    @contextmanager
    def _size_changes(self) -> Iterator[None]:
        before: Any = signal.signal(signal.SIGWINCH, lambda *_: self._wake_up(b"w"))
        try:
            yield
        finally:
            signal.signal(signal.SIGWINCH, before)


@contextmanager
def _raw() -> Iterator[None]:
    """Have every key go to the job; the terminal is as before afterwards, also if we are told to end."""
    before = termios.tcgetattr(_STDIN)

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    handlers: dict[int, Any] = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    tty.setraw(_STDIN, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _notice(sentence: str) -> None:
    _write(f"\r\n[gavel: {printable(sentence)}]\r\n".encode())


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(_STDOUT, data) :]
