"""The journal: what was written is there, once, in order, whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sql

from gavel.runtime.journal import Journal, JournalError, sqlite_url


def entry(number: int) -> dict[str, object]:
    return {"kind": "round_due", "time": float(number)}


def test_events_come_back_in_order_after_reopening(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "journal.sqlite")
    with Journal(url) as journal:
        journal.append([entry(1), entry(2)])
        journal.append([entry(3)])
    with Journal(url) as journal:
        assert journal.last == 3
        assert [document["time"] for document in journal.events(after=1)] == [2.0, 3.0]


def test_the_latest_state_and_the_jobs_that_are_over_are_kept_together(tmp_path: Path) -> None:
    with Journal(sqlite_url(tmp_path / "journal.sqlite")) as journal:
        assert journal.latest() is None
        journal.append([entry(1)])
        journal.keep({"a": 1}, [(7, 4, 1.0, {"id": "7"})])
        journal.append([entry(2)])
        journal.keep({"a": 2}, [(7, 5, 2.0, {"id": "7", "again": True}), (8, 4, 2.0, {"id": "8"})])
        assert journal.latest() == (2, {"a": 2})
        assert journal.find(7) == {"id": "7", "again": True}
        assert journal.find(9) is None
        assert [document["id"] for document in journal.over()] == ["8", "7"]
        assert [document["id"] for document in journal.over(states=[4])] == ["8"]
        assert [document["id"] for document in journal.over(limit=1)] == ["8"]


def test_a_second_scheduler_cannot_use_the_same_journal(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "journal.sqlite")
    with Journal(url), pytest.raises(JournalError, match="another scheduler is using"):
        Journal(url)
    Journal(url).close()


def test_a_journal_of_another_format_is_refused(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "journal.sqlite")
    Journal(url).close()
    engine = sql.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sql.text("UPDATE about SET format = 99"))
    engine.dispose()
    with pytest.raises(JournalError, match="format 99"):
        Journal(url)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be written"):
        Journal(sqlite_url(tmp_path / "file" / "journal.sqlite"))


def test_what_append_returned_from_survives_a_kill(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "journal.sqlite")
    program = (
        "import sys\nfrom gavel.runtime.journal import Journal\n"
        f"journal = Journal({url!r})\nnumber = 0\n"
        "while True:\n"
        "    number += 1\n"
        "    journal.append([{'kind': 'round_due', 'time': float(number)}])\n"
        "    print(number, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        written = 0
        while written < 50:
            written = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        written = int((writer.stdout.read() or f"{written}\n").split()[-1])
    with Journal(url) as journal:
        assert journal.last in (written, written + 1)
        assert [document["time"] for document in journal.events()] == [float(n + 1) for n in range(journal.last)]
