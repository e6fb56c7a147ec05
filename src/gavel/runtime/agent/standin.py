"""A guard for one job process, until gavel.client.guard is there: ends with its agent, and takes the job with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Run `standin PIPE GRACE COMMAND...`; ends with the job's exit code, 128 + n for signal n."""
    pipe, grace, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakes, woken = os.pipe()
    for end in (wakes, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        job = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - this is what guards are for
    except OSError as error:
        sys.exit(f"gavel: {error}")
    _watch(job, pipe, wakes, grace)
    _kill_group(job.pid, signal.SIGKILL)
    while children := _children():
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
    sys.exit(job.returncode if job.returncode >= 0 else 128 - job.returncode)


def _watch(job: subprocess.Popen[bytes], pipe: int, wakes: int, grace: float) -> None:
    deadline: float | None = None
    watched = [wakes, pipe]
    while job.poll() is None:
        wait = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select(watched, [], [], wait)
        if wakes in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wakes, 100)
        if pipe in ready:
            watched = [wakes]
            deadline = time.monotonic() + grace
            _kill_group(job.pid, signal.SIGTERM)
        if deadline is not None and time.monotonic() >= deadline:
            deadline = None
            _kill_group(job.pid, signal.SIGKILL)


def _kill_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _children() -> list[int]:
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            fields = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if path.name.isdecimal() and int(fields[1]) == os.getpid():
                found.append(int(path.name))
    return found


if __name__ == "__main__":
    main()
