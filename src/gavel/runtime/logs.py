"""The output of jobs, stored by the scheduler: one stream of bytes per rank, of which the newest part is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gavel.runtime.ids import is_job_id

logger = logging.getLogger(__name__)

SEGMENTS = 2
"""Each file holds at most one part in this many of the kept size."""
MOST_FILES = 500
"""Files of one rank: each attempt and each gap begins one, and all are looked at for every message."""


@dataclass(frozen=True, slots=True, order=True)
class _Segment:
    """A file: a contiguous part of one attempt's output. Its name holds all its metadata."""

    start: int
    """Offset of its first byte in the job's log."""
    attempt: int
    origin: int
    """Bytes the attempt had printed when the file was created, less the length of a note at its beginning."""
    path: Path
    size: int

    @classmethod
    def of(cls, path: Path) -> _Segment:
        _, start, attempt, origin, _ = path.name.split(".")
        return cls(int(start), int(attempt), int(origin), path, path.stat().st_size)

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def position(self) -> int:
        """How many bytes of its attempt's output precede the end of this file."""
        return self.origin + self.size


class Logs:
    """Logs in a folder, by job and rank. Offsets count from the job's first byte, whatever is still kept.

    The files alone determine where an attempt's next byte belongs, so output that is sent twice, or again after a
    crash, is written once.
    """

    def __init__(self, folder: Path, *, limit: int = 16 * 2**20) -> None:
        self._folder = folder
        self._segment = max(limit // SEGMENTS, 1)
        self.trouble = ""
        """Why the last output could not be written; empty if it could."""
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, job: str, rank: int, attempt: int, begin: int, data: bytes) -> None:
        """Add output of a rank; `begin` counts the bytes that this attempt printed before it.

        What cannot be written is dropped, and the log says so once it can be written again: a full disk must not keep
        jobs from ending.
        """
        if not is_job_id(job):
            return
        try:
            self._write(job, rank, attempt, begin, data)
        except OSError as error:
            if not self.trouble:
                logger.warning("job output is not kept: %s", error)
            self.trouble = str(error)
        else:
            if self.trouble:
                logger.warning("job output is kept again")
            self.trouble = ""

    def _write(self, job: str, rank: int, attempt: int, begin: int, data: bytes) -> None:
        segments = self._segments(job, rank)
        last = segments[-1] if segments else None
        if last is not None and attempt < last.attempt:
            return  # from an attempt that has ended
        taken = last.position if last is not None and last.attempt == attempt else 0
        data = data[max(taken - begin, 0) :]
        if not data:
            return
        note = left_out(begin - taken) if begin > taken else b""
        path = last.path if last is not None else None
        if path is None or last is None or attempt > last.attempt or note or last.size + len(data) > self._segment:
            start = last.end if last is not None else 0
            path = self._path(job, rank, start, attempt, max(begin, taken) - len(note))
            self._forget(segments)
        with path.open("ab") as file:
            file.write(note + data)

    def read(
        self, job: str, rank: int, *, offset: int = 0, tail: int = 0, most: int | None = None
    ) -> tuple[int, bytes]:
        """Kept output from an offset, at most the last `tail` bytes if given, and the offset of its first byte.

        Of that, the first bytes, at most `most`.
        """
        segments = self._segments(job, rank)
        end = segments[-1].end if segments else 0
        begin = max(segments[0].start if segments else 0, offset, end - tail if tail else 0)
        found = bytearray()
        for segment in segments:
            if segment.end > begin and (most is None or len(found) < most):
                with segment.path.open("rb") as file:
                    file.seek(max(begin - segment.start, 0))
                    found += file.read(-1 if most is None else most - len(found))
        return begin, bytes(found)

    def end(self, job: str, rank: int) -> int:
        """The total number of bytes printed so far."""
        segments = self._segments(job, rank)
        return segments[-1].end if segments else 0

    def last_written(self, jobs: Iterable[str]) -> dict[str, float]:
        """When each of these jobs last printed something, by the clock of the files; without those that never did."""
        found: dict[str, float] = {}
        for job in jobs:
            if is_job_id(job):
                times = [file.stat().st_mtime for file in (self._folder / job).glob("*.log")]
                found |= {job: max(times)} if times else {}
        return found

    def prune(self, before: float) -> int:
        """Remove the logs of jobs that have printed nothing since that time; returns the number of jobs."""
        removed = 0
        for folder in list(self._folder.iterdir()):
            files = list(folder.glob("*.log")) if folder.is_dir() and folder.name.isdecimal() else []
            if files and all(file.stat().st_mtime < before for file in files):
                for file in files:
                    file.unlink(missing_ok=True)
                folder.rmdir()
                removed += 1
        return removed

    def _forget(self, segments: list[_Segment]) -> None:
        """Remove the oldest files while enough is left, or there are too many: a log with many gaps has many."""
        kept = sum(segment.size for segment in segments)
        for left, oldest in zip(range(len(segments) - 1, -1, -1), segments, strict=True):
            kept -= oldest.size
            if kept < self._segment and left < MOST_FILES:
                return
            oldest.path.unlink()

    def _segments(self, job: str, rank: int) -> list[_Segment]:
        """Oldest first."""
        if not is_job_id(job):
            return []
        return sorted(map(_Segment.of, (self._folder / job).glob(f"{rank}.*.log")))

    def _path(self, job: str, rank: int, start: int, attempt: int, origin: int) -> Path:
        (self._folder / job).mkdir(exist_ok=True)
        return self._folder / job / f"{rank}.{start}.{attempt}.{origin}.log"


def left_out(count: int) -> bytes:
    """The note in place of missing bytes."""
    return f"\n[... {count:,} bytes left out ...]\n".encode()
