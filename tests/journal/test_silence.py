"""A PostgreSQL leader whose process is suspended is replaced after a while; one that is merely idle is not."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sql

from gavel.journal import JournalInUseError
from gavel.journal import leader as leading
from journal_places import Place, server_place

LEADER = """
import sys
from gavel.journal import Journal, JournalError
journal = Journal.open(sys.argv[1], holder="the first")
print("leads", flush=True)
for _ in sys.stdin:
    try:
        journal.append([{"kind": "tick", "time": 1.0}])
        print("written", flush=True)
    except JournalError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
"""


@pytest.fixture
def server(postgres: str) -> Place:
    return server_place(postgres)


class Process:
    """A leader in a separate process, which writes a fact for each line it reads."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-c", LEADER, url]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.said() == "leads"

    def said(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().strip()

    def writes(self) -> str:
        assert self.child.stdin is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return self.said()


@pytest.fixture
def first(server: Place) -> Iterator[Process]:
    process = Process(server.url)
    yield process
    process.child.send_signal(signal.SIGCONT)
    process.child.communicate(timeout=30)


def test_a_suspended_leader_is_replaced_and_writes_nothing_when_it_wakes_up(server: Place, first: Process) -> None:
    assert first.writes() == "written"
    first.child.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    with server.open(holder="the second", wait_seconds=60.0, silence_seconds=3.0) as second:
        assert time.monotonic() - began > 1.0, "it is given some time"
        second.append([{"kind": "tick", "time": 2.0}])
        first.child.send_signal(signal.SIGCONT)
        said = [first.writes() for _ in range(2)]  # the first attempt may find only that its connection is gone
        assert "LeadershipLostError: another scheduler took over" in said[-1]
        assert "the second leads" in said[-1]
        assert [entry.number for entry in second.facts()] == [1, 2]


def test_a_leader_that_has_nothing_to_write_stays_the_leader(server: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives signs of life more often than others lose patience."""
    monkeypatch.setattr(leading, "PULSE_SECONDS", 0.1)
    with server.open() as first:
        with pytest.raises(JournalInUseError):
            server.open(wait_seconds=3.0, silence_seconds=1.0)
        first.append([{"kind": "tick", "time": 1.0}])


def test_a_leader_whose_transaction_takes_long_stays_the_leader(server: Place) -> None:
    """A session that works is not silent, however long its statement takes."""
    with server.open() as first:
        began, done = threading.Event(), list[bool]()

        def work() -> None:
            with first._writer.transaction() as connection:
                began.set()
                connection.execute(sql.text("SELECT pg_sleep(3)"))
                done.append(True)

        thread = threading.Thread(target=work)
        thread.start()
        began.wait()
        with pytest.raises(JournalInUseError):
            server.open(wait_seconds=2.0, silence_seconds=0.5)
        thread.join()
        assert done
