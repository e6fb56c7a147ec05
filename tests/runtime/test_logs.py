"""What jobs print: the newest part is kept, offsets never lie."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gavel.runtime.logs import Logs


def test_ranks_and_jobs_do_not_mix(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.append("1", 0, b"one")
    logs.append("1", 1, b"two")
    logs.append("11", 0, b"three")
    assert logs.read("1", 0) == (0, b"one")
    assert logs.read("1", 1) == (0, b"two")
    assert logs.read("11", 0) == (0, b"three")
    assert logs.read("2", 0) == (0, b"")


def test_the_tail_is_the_end(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.append("1", 0, b"0123456789")
    assert logs.read("1", 0, tail=3) == (7, b"789")
    assert logs.read("1", 0, offset=4, tail=100) == (4, b"456789")


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=30), st.integers(0, 300))
def test_what_is_kept_is_the_newest_part_of_what_was_printed(chunks: list[bytes], offset: int) -> None:
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - a fixture would be shared by all examples

    with TemporaryDirectory() as folder:
        logs = Logs(Path(folder), limit=64)
        for chunk in chunks:
            logs.append("1", 0, chunk)
        everything = b"".join(chunks)
        begin, data = logs.read("1", 0)
        assert everything[begin:] == data
        assert len(data) >= min(len(everything), 32)
        assert len(data) <= 64 + 30
        start, part = logs.read("1", 0, offset=offset)
        assert part == everything[start:]
        assert start == max(begin, offset)
        assert logs.end("1", 0) == len(everything)
