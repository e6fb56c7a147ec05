"""What jobs print, kept by the scheduler: one stream of bytes for each rank, of which the newest part is kept."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from gavel.runtime.ids import is_job_id

logger = logging.getLogger(__name__)

SEGMENTS = 2
"""A log is cut into files of at most one in so many parts of what is kept."""


@dataclass(frozen=True, slots=True, order=True)
class _Segment:
    """A file: a part of what one attempt printed, without gaps. Its name says all of it."""

    start: int
    """Of its first byte in the job's log."""
    attempt: int
    origin: int
    """How far the attempt was when the file was empty; less than that if it begins with a note."""
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
        """How much of what its attempt printed is here."""
        return self.origin + self.size


class Logs:
    """Logs in a folder, by job and rank. Offsets count from the job's first byte, whatever is still kept.

    Where an attempt's next byte belongs follows from the files alone, so what is said twice, or again after a crash, is
    written once.
    """

    def __init__(self, folder: Path, *, limit: int = 16 * 2**20) -> None:
        self._folder = folder
        self._segment = max(limit // SEGMENTS, 1)
        self.trouble = ""
        """Why the last that was printed could not be written; empty if it could."""
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, job: str, rank: int, attempt: int, begin: int, data: bytes) -> None:
        """Add what a rank has printed; `begin` counts the bytes that this attempt had printed before.

        What cannot be written is left out, and the log says so once it can be written again: a full disk must not keep
        jobs from ending.
        """
        if not is_job_id(job):
            return
        try:
            self._write(job, rank, attempt, begin, data)
        except OSError as error:
            if not self.trouble:
                logger.warning("what jobs print is not kept: %s", error)
            self.trouble = str(error)
        else:
            if self.trouble:
                logger.warning("what jobs print is kept again")
            self.trouble = ""

    def _write(self, job: str, rank: int, attempt: int, begin: int, data: bytes) -> None:
        segments = self._segments(job, rank)
        last = segments[-1] if segments else None
        if last is not None and attempt < last.attempt:
            return  # of an attempt that is over
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

    def read(self, job: str, rank: int, *, offset: int = 0, tail: int = 0) -> tuple[int, bytes]:
        """What is kept from an offset on, at most the last `tail` bytes if given, and the offset of its first byte."""
        segments = self._segments(job, rank)
        end = segments[-1].end if segments else 0
        begin = max(segments[0].start if segments else 0, offset, end - tail if tail else 0)
        found = bytearray()
        for segment in segments:
            if segment.end > begin:
                with segment.path.open("rb") as file:
                    file.seek(max(begin - segment.start, 0))
                    found += file.read()
        return begin, bytes(found)

    def end(self, job: str, rank: int) -> int:
        """How many bytes there have been."""
        segments = self._segments(job, rank)
        return segments[-1].end if segments else 0

    def prune(self, before: float) -> int:
        """Remove the logs of jobs that have printed nothing since that time; returns of how many jobs."""
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
        """Remove the oldest files while enough is left."""
        kept = sum(segment.size for segment in segments)
        for oldest in segments:
            kept -= oldest.size
            if kept < self._segment:
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
    """What stands in place of bytes that are gone."""
    return f"\n[... {count:,} bytes left out ...]\n".encode()
