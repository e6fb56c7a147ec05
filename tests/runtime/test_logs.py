"""What jobs print: the newest part is kept, offsets never lie."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.runtime.logs import Logs


def test_ranks_and_jobs_do_not_mix(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.append("1", 0, 1, 0, b"one")
    logs.append("1", 1, 1, 0, b"two")
    logs.append("11", 0, 1, 0, b"three")
    assert logs.read("1", 0) == (0, b"one")
    assert logs.read("1", 1) == (0, b"two")
    assert logs.read("11", 0) == (0, b"three")
    assert logs.read("2", 0) == (0, b"")


def test_the_tail_is_the_end(tmp_path: Path) -> None:
    logs = Logs(tmp_path)
    logs.append("1", 0, 1, 0, b"0123456789")
    assert logs.read("1", 0, tail=3) == (7, b"789")
    assert logs.read("1", 0, offset=4, tail=100) == (4, b"456789")


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=30), st.integers(0, 300))
def test_what_is_kept_is_the_newest_part_of_what_was_printed(chunks: list[bytes], offset: int) -> None:
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - a fixture would be shared by all examples

    with TemporaryDirectory() as folder:
        logs = Logs(Path(folder), limit=64)
        printed = 0
        for chunk in chunks:
            logs.append("1", 0, 1, printed, chunk)
            printed += len(chunk)
        everything = b"".join(chunks)
        begin, data = logs.read("1", 0)
        assert everything[begin:] == data
        assert len(data) >= min(len(everything), 32)
        assert len(data) <= 64 + 30
        start, part = logs.read("1", 0, offset=offset)
        assert part == everything[start:]
        assert start == max(begin, offset)
        assert logs.end("1", 0) == len(everything)


def test_repeated_output_is_written_once_even_after_a_crash(tmp_path: Path) -> None:
    Logs(tmp_path).append("1", 0, 1, 0, b"one two ")
    Logs(tmp_path).append("1", 0, 1, 4, b"two three ")
    Logs(tmp_path).append("1", 0, 1, 0, b"one ")
    Logs(tmp_path).append("1", 0, 2, 0, b"again ")
    Logs(tmp_path).append("1", 0, 1, 14, b"a word that comes too late")
    Logs(tmp_path).append("1", 0, 2, 0, b"again and again")
    assert Logs(tmp_path).read("1", 0) == (0, b"one two three again and again")


def test_what_is_left_out_is_said_once(tmp_path: Path) -> None:
    Logs(tmp_path).append("1", 0, 1, 0, b"one")
    for _ in range(2):
        Logs(tmp_path).append("1", 0, 1, 1003, b"two")
        Logs(tmp_path).append("1", 0, 1, 1004, b"wo three")
    assert Logs(tmp_path).read("1", 0) == (0, b"one\n[... 1,000 bytes left out ...]\ntwo three")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(0, 40)), max_size=30))
def test_however_it_is_repeated_every_attempt_is_written_in_order(said: list[tuple[int, int, int]]) -> None:
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - a fixture would be shared by all examples

    with TemporaryDirectory() as folder:
        position: dict[int, int] = {}
        current, expected = 0, b""
        for attempt, back, count in said:
            reached = position.get(attempt, 0)
            begin, end = max(reached - back, 0), max(reached - back, 0) + count
            Logs(Path(folder)).append("1", 0, attempt, begin, b"%d" % attempt * (end - begin))
            current = max(current, attempt)
            if attempt == current and end > reached:
                expected += b"%d" % attempt * (end - reached)
                position[attempt] = end
        assert Logs(Path(folder)).read("1", 0) == (0, expected)


def test_a_full_disk_loses_only_what_is_printed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error here would end the agent's stream, and with it every completion."""

    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    logs = Logs(tmp_path)
    logs.append("1", 0, 1, 0, b"before ")
    with monkeypatch.context() as disk:
        disk.setattr(Path, "open", full)
        logs.append("1", 0, 1, 7, b"lost")
        assert "No space left" in logs.trouble
    logs.append("1", 0, 1, 11, b"after")
    assert not logs.trouble
    assert logs.read("1", 0)[1] == b"before \n[... 4 bytes left out ...]\nafter"
