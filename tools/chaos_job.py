"""The job program of a `tools/chaos.py` campaign: records every step, and holds locks while it runs.

The kernel holds the locks, so a job that runs twice, or a device with two jobs, is detected without our own code.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path

from gavel.client.iterator import GavelIterator

BATCHES = 25
SAVE_SECONDS = 1.0
WHOLE_FILE = (0, 0, 0, 0)
_FLOCK = "hhqqi4x"


class Evidence:
    """The files of one job process, and what it finds wrong when it starts."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.job, self.attempt, self.rank = (os.environ[f"GAVEL_{what}"] for what in ("JOB_ID", "ATTEMPT", "RANK"))
        self.device = "-".join(os.environ[what] for what in ("CHAOS_AGENT", "GAVEL_ACCELERATOR_TYPE", "GAVEL_DEVICES"))
        self._ledger = self._appending(folder / "ledgers" / f"{name}.{self.rank}")
        self._held: list[int] = []

    def write(self, kind: str, *values: object) -> None:
        """Add a line to the ledger, in one write."""
        os.write(self._ledger, f"{kind} {self.attempt} {' '.join(map(str, values))}\n".encode())

    def lock(self, sharing: int) -> None:
        """Lock this rank of this attempt and its device, and check that no other attempt of the job has processes."""
        locks = self.folder / "locks"
        if not self._exclusive(locks / f"job-{self.name}.rank-{self.rank}"):
            self._complain("another process has the same job and rank")
        if not any(self._exclusive(locks / f"device-{self.device}.{slot}") for slot in range(sharing)):
            self._complain(f"the device {self.device} is in use")
        own = locks / f"job-{self.name}.attempt-{self.attempt}"
        self._held.append(_open(own))
        fcntl.fcntl(self._held[-1], fcntl.F_OFD_SETLK, struct.pack(_FLOCK, fcntl.F_RDLCK, *WHOLE_FILE))
        for other in locks.glob(f"job-{self.name}.attempt-*"):
            if other != own and _is_locked(other):
                self._complain(f"{other.name} still runs")

    def _exclusive(self, path: Path) -> bool:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, self._me().encode(), 0)
        self._held.append(descriptor)
        return True

    def _me(self) -> str:
        return (
            f"job {self.job} ({self.name}) attempt {self.attempt} rank {self.rank} pid {os.getpid()} at {self.device}"
        )

    def _complain(self, what: str) -> None:
        holders = (path for path in (self.folder / "locks").glob("*") if path.name.endswith((self.name, self.device)))
        known = "; ".join(f"{path.name}: {path.read_text()}" for path in holders)
        os.write(self._appending(self.folder / "violations"), f"{self._me()}: {what} [{known}]\n".encode())

    @staticmethod
    def _appending(path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _is_locked(path: Path) -> bool:
    """Whether another process holds a lock on a file, without taking one."""
    descriptor = _open(path)
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, *WHOLE_FILE))
    finally:
        os.close(descriptor)
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


def main() -> None:
    """Count steps."""
    evidence = Evidence(Path(sys.argv[1]), sys.argv[2])
    evidence.lock(sharing=int(sys.argv[3]))
    total = {"steps": 0}

    def load(folder: Path) -> None:
        total["steps"] = int((folder / "total").read_text())

    def save(folder: Path) -> None:
        evidence.write("saving", total["steps"])
        (folder / "total").write_text(str(total["steps"]))

    steps = GavelIterator(
        range(BATCHES), load_checkpoint=load, save_checkpoint=save, checkpoint_every_seconds=SAVE_SECONDS
    )
    evidence.write("begin", total["steps"], steps.step)
    while not steps.done:
        for _ in steps:
            total["steps"] += 1
            evidence.write("step", total["steps"])
    evidence.write("end", total["steps"], int(steps.preempted))


if __name__ == "__main__":
    main()
