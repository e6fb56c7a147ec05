"""Stand-in for the guard until it is there."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time


def main():
    fd, grace, command = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    r, w = os.pipe()
    os.set_blocking(w, False)
    os.set_blocking(r, False)
    signal.set_wakeup_fd(w)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        job = subprocess.Popen(command, start_new_session=True)
    except OSError as error:
        print(f"gavel: {error}", file=sys.stderr)
        sys.exit(127)
    deadline = None
    eof = False
    while job.poll() is None:
        wait = None if deadline is None else max(0, deadline - time.monotonic())
        ready, _, _ = select.select([r] if eof else [r, fd], [], [], wait)
        if r in ready:
            try:
                os.read(r, 100)
            except BlockingIOError:
                pass
        if fd in ready:
            eof = True
            deadline = time.monotonic() + grace
            os.killpg(job.pid, signal.SIGTERM)
        if deadline is not None and time.monotonic() >= deadline:
            os.killpg(job.pid, signal.SIGKILL)
            deadline = None
    try:
        os.killpg(job.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    me = os.getpid()
    while True:
        kids = []
        for p in os.listdir("/proc"):
            if p.isdigit():
                try:
                    s = open(f"/proc/{p}/stat").read().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(s[1]) == me:
                    kids.append(int(p))
        if not kids:
            break
        for k in kids:
            try:
                os.kill(k, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    code = job.returncode
    sys.exit(code if code >= 0 else 128 - code)


main()
