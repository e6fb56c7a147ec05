"""The log of one process of a job: a file that its guard writes, kept small, and read for the scheduler as it grows.

The guard appends what the process prints, and drops what the disk does not take. The beginning and the newest part
stay; the space of the middle is freed.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from gavel.runtime.logs import left_out

HEAD_BYTES = 64 * 1024
"""How much of the beginning is kept."""
TAIL_BYTES = 4 * 1024
"""How much of its end is reported for a task that has ended."""
CHUNK_BYTES = 64 * 1024
"""How much is sent at a time."""
BACKLOG_BYTES = 4 * 2**20
"""Most that is sent late, after the scheduler was away or when the job writes faster than we send."""

_PUNCH_HOLE_AND_KEEP_SIZE = 3


@dataclass
class LogFile:
    """One file."""

    path: Path
    limit: int
    sent: int = 0
    """How much was sent; counts every byte ever printed, as `sure` does."""
    sure: int = 0
    """How much the scheduler is known to have."""
    resumes: int = HEAD_BYTES
    """Where the newest part begins; what lies between the beginning and here is gone."""
    lost: int = 0
    """How many bytes are gone."""
    cut: int = 0
    """How many of those bytes the file is shorter by: not every file system can free the middle of a file."""

    def open(self) -> int:
        """Create the file and return a descriptor to append to it; if the disk refuses, only the log is lost."""
        try:
            return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        except OSError:
            return os.open(os.devnull, os.O_WRONLY)

    def news(self) -> tuple[int, bytes]:
        """The next chunk for the scheduler, and how much was printed before it; empty if it has everything."""
        size = self._size()
        if self._printed(size) <= self.sent:
            return self.sent, b""
        place = self.sent if self.sent < HEAD_BYTES else max(HEAD_BYTES, self.sent - self.cut)
        start = max(place, size - BACKLOG_BYTES)
        if HEAD_BYTES <= start < self.resumes:
            start = self.resumes
        end = min(size, start + CHUNK_BYTES)
        data = self._read(start, min(end, HEAD_BYTES) if start < HEAD_BYTES else end)
        begin = self._printed(start)
        self.sent = begin + len(data)
        return begin, data

    def _printed(self, place: int) -> int:
        """How much was printed before an offset in the file."""
        return place if place < HEAD_BYTES else place + self.cut

    @property
    def is_sent(self) -> bool:
        """Whether all of it was sent."""
        return self._printed(self._size()) <= self.sent

    @property
    def is_sure(self) -> bool:
        """Whether the scheduler is known to have all of it."""
        return self._printed(self._size()) <= self.sure

    def rewind(self) -> None:
        """Send again what the scheduler may have missed."""
        self.sent = self.sure

    def tail(self) -> bytes:
        """Read the end of the log."""
        size = self._size()
        start = size - TAIL_BYTES
        return self._read(max(0, self.resumes if HEAD_BYTES <= start < self.resumes else start), size)

    def trim(self) -> None:
        """Free the space of the middle if the file has grown too large."""
        size = self._size()
        if HEAD_BYTES + size - self.resumes <= self.limit:
            return
        # Half of the newest part goes with it, so that this is rare.
        end = size - max(0, self.limit - HEAD_BYTES) // 2
        try:
            if _punch_hole(self.path, HEAD_BYTES, end):
                self.lost, self.resumes = self.lost + end - self.resumes, end
            else:  # this file system cannot free a hole, so only the beginning is kept
                os.truncate(self.path, HEAD_BYTES)
                self.lost, self.cut = self.lost + size - self.resumes, self.cut + size - HEAD_BYTES
        except OSError:  # the file was removed from outside; the job continues
            return

    def tidy(self) -> None:
        """Rewrite the file with a line in place of the hole, once nothing appends to it any more."""
        self.trim()
        if not self.lost:
            return
        whole = self.path.with_suffix(".whole")
        try:
            whole.write_bytes(self._read(0, HEAD_BYTES) + left_out(self.lost) + self._read(self.resumes, self._size()))
            whole.replace(self.path)
        except OSError:  # a full disk: the file with the hole stays
            whole.unlink(missing_ok=True)
        self.lost = 0

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def _read(self, start: int, end: int) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                return file.read(end - start)
        except OSError:
            return b""


def _punch_hole(path: Path, start: int, end: int) -> bool:
    """Free the space of a part of a file; False if the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    offset, length = ctypes.c_longlong(start), ctypes.c_longlong(end - start)
    descriptor = os.open(path, os.O_WRONLY)
    try:
        return bool(libc.fallocate(descriptor, _PUNCH_HOLE_AND_KEEP_SIZE, offset, length) == 0)
    finally:
        os.close(descriptor)
