"""What an append returned from survives a scheduler that is killed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from journal_places import Place

WRITER = """
import sys
from gavel.journal import Journal
journal = Journal.open(sys.argv[1], holder="killed")
while True:
    facts = [{"kind": "tick", "time": float(journal.last + k), "job": str(k), "noise": "x" * 2000} for k in (1, 2, 3)]
    journal.append(facts)
    if journal.last % 30 == 0:
        journal.keep({"after": journal.last}, journal.last)
    print(journal.last, flush=True)
"""


@pytest.mark.parametrize("appends", [1, 11, 40])
def test_what_append_returned_from_survives_a_kill(place: Place, appends: int) -> None:
    command = [sys.executable, "-c", WRITER, place.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(appends)]
        writer.kill()
        said += [int(line) for line in writer.stdout]
    with place.open(wait_seconds=20.0) as journal:
        assert journal.term == 2
        assert said[-1] <= journal.last <= said[-1] + 3
        assert journal.last % 3 == 0
        assert [entry.number for entry in journal.facts()] == list(range(1, journal.last + 1))
        assert journal.check().problems == ()
        journal.append([{"kind": "tick", "time": 1e6}])
