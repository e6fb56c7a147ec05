"""What jobs print, kept by the scheduler: one stream of bytes for each rank, of which the newest part is kept."""

from __future__ import annotations

from pathlib import Path

SEGMENTS = 2
"""A log is kept in so many files; the oldest goes when the newest is full."""


class Logs:
    """Logs in a folder, by job and rank. Offsets count from the job's first byte, whatever is still kept."""

    def __init__(self, folder: Path, *, limit: int = 16 * 2**20) -> None:
        self._folder = folder
        self._segment = max(limit // SEGMENTS, 1)
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, job: str, rank: int, data: bytes) -> None:
        """Add what a rank has printed."""
        segments = self._segments(job, rank)
        start = max(segments, default=0)
        size = segments[start].stat().st_size if segments else 0
        if not segments or size + len(data) > self._segment:
            start += size
            for old in sorted(segments)[: max(len(segments) - SEGMENTS + 1, 0)]:
                segments[old].unlink()
        with self._path(job, rank, start).open("ab") as file:
            file.write(data)

    def read(self, job: str, rank: int, *, offset: int = 0, tail: int = 0) -> tuple[int, bytes]:
        """What is kept from an offset on, at most the last `tail` bytes if given, and the offset of its first byte."""
        segments = self._segments(job, rank)
        end = self.end(job, rank)
        begin = max(min(segments, default=0), offset, end - tail if tail else 0)
        found = bytearray()
        for start in sorted(segments):
            with segments[start].open("rb") as file:
                file.seek(max(begin - start, 0))
                found += file.read()
        return begin, bytes(found)

    def end(self, job: str, rank: int) -> int:
        """How many bytes there have been."""
        segments = self._segments(job, rank)
        return max((start + path.stat().st_size for start, path in segments.items()), default=0)

    def _segments(self, job: str, rank: int) -> dict[int, Path]:
        return {int(path.suffixes[-2][1:]): path for path in self._folder.glob(f"{job}.{rank}.*.log")}

    def _path(self, job: str, rank: int, start: int) -> Path:
        return self._folder / f"{job}.{rank}.{start}.log"
