"""A damaged journal is noticed when it is opened, says what is intact, and can be salvaged."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from gavel.core.errors import InputError
from gavel.journal import (
    CorruptJournalError,
    FinishedJobRow,
    Journal,
    JournalError,
    TemporaryJournalError,
    open_read_only,
    salvage,
)
from journal_places import Place, file_place


def job(number: int) -> FinishedJobRow:
    return FinishedJobRow(number, "completed", "n", "t", "e", "u", 0.0, float(number), {"id": str(number)})


def fill(place: Place, *, last: int = 10, kept: tuple[int, ...] = (3, 6)) -> str:
    with place.open() as journal:
        for number in range(1, last + 1):
            journal.append([{"kind": "tick", "time": 100.0 + number, "job": str(number), "server": "s"}])
        for number in kept:
            journal.keep({"after": number}, number, [job(number)], {"a": {"rate": 1}})
        return journal.cluster


AT_OPEN = {
    "a missing fact after the kept state": ("DELETE FROM facts WHERE number = 8", "holds 9 facts"),
    "a missing fact before the kept state": ("DELETE FROM facts WHERE number = 2", "holds 9 facts"),
    "the first fact missing": ("DELETE FROM facts WHERE number = 1", "facts 1 to 1 are missing"),
    "the last facts missing": ("DELETE FROM facts WHERE number > 8", "holds 8 facts"),
    "no facts at all": ("DELETE FROM facts", "holds 0 facts"),
    "a gap in the numbers": ("UPDATE facts SET number = 12 WHERE number = 10", "fact 10 is missing"),
    "another document": (
        "UPDATE facts SET document = (SELECT document FROM facts WHERE number = 9) WHERE number = 8",
        "fact 8 does not match its checksum",
    ),
    "another time": ("UPDATE facts SET time = 1.0 WHERE number = 9", "fact 9 does not match its checksum"),
    "another kind": ("UPDATE facts SET kind = 'x' WHERE number = 9", "fact 9 does not match its checksum"),
    "another server": ("UPDATE facts SET server = NULL WHERE number = 9", "fact 9 does not match its checksum"),
    "another term": ("UPDATE facts SET term = 0 WHERE number = 9", "fact 9 does not match its checksum"),
    "facts in another order": (
        "UPDATE facts SET number = number - 15 WHERE number IN (7, 8); UPDATE facts SET number = abs(number)",
        "fact 7 does not match its checksum",
    ),
    "another kept state": ("UPDATE kept SET time = 5.0 WHERE number = 6", "state kept after fact 6 is damaged"),
    "an older end": ("UPDATE leader SET last = 9", "holds 10 facts"),
    "another end": ("UPDATE leader SET last_checksum = base_checksum", "fact 10 is not the last one"),
    "an older term": ("UPDATE leader SET term = 0", "fact 7 has term 1"),
    "no leader": ("DELETE FROM leader", "leader's row"),
    "another cluster": ("UPDATE about SET cluster = 'x'", "table about"),
    "another format": ("UPDATE about SET format = 99", "format 99"),
    "no format": ("DELETE FROM about", "no row that gives its format"),
}


@pytest.mark.parametrize("what", AT_OPEN)
def test_damage_is_noticed_when_the_journal_is_opened(place: Place, what: str) -> None:
    fill(place)
    statements, reason = AT_OPEN[what]
    for statement in statements.split(";"):
        place.execute(statement)
    before = place.execute("SELECT term FROM leader")
    for _ in range(2):
        with pytest.raises(JournalError, match=reason) as found:
            place.open()
        assert not isinstance(found.value, TemporaryJournalError)
    assert place.execute("SELECT term FROM leader") == before


IN_A_CHECK = {
    "a flipped byte in an old fact": ("UPDATE facts SET document = checksum WHERE number = 2", "fact 2 does not match"),
    "a job that cannot be found": ("DELETE FROM fact_jobs WHERE number = 9", "fact 9 is indexed under the wrong jobs"),
    "a job with another's facts": (
        "UPDATE fact_jobs SET job = 'x' WHERE number = 4",
        "fact 4 is indexed under the wrong jobs",
    ),
    "an old kept state": ("UPDATE kept SET time = 5.0 WHERE number = 3", "state kept after fact 3 is damaged"),
    "a missing finished job": ("DELETE FROM finished WHERE id = 3", "holds 1 finished jobs, but 2"),
    "a finished job in another state": (
        "UPDATE finished SET state = 'failed' WHERE id = 3",
        "finished job 3 does not match",
    ),
    "something else learned": ("UPDATE learned SET document = checksum", "learned about a"),
}


@pytest.mark.parametrize("what", IN_A_CHECK)
def test_a_complete_check_finds_what_opening_does_not_read(place: Place, what: str) -> None:
    fill(place)
    with open_read_only(place.url) as reader:
        assert reader.check().whole
    statement, reason = IN_A_CHECK[what]
    place.execute(statement)
    with open_read_only(place.url) as reader:
        report = reader.check()
    assert any(reason in problem for problem in report.problems), report.problems


def test_the_message_says_what_is_intact_and_what_to_do(place: Place) -> None:
    fill(place)
    place.execute("UPDATE facts SET time = 1.0 WHERE number = 8")
    with pytest.raises(CorruptJournalError) as found:
        place.open()
    assert re.search(
        r"facts 1 to 7 \(until 1970-01-01 00:01:47 UTC\) are intact, the 3 facts after them are lost or damaged,"
        r" the newest intact state is the one after fact 6; save what can be read with: gavel journal salvage",
        str(found.value),
    )


@pytest.mark.parametrize("kept", [(), (3, 6)])
def test_salvage_saves_what_is_before_the_damage(place: Place, kept: tuple[int, ...]) -> None:
    cluster = fill(place, kept=kept)
    place.execute("UPDATE facts SET time = 1.0 WHERE number = 8")
    to = place.another()
    report = salvage(place.url, to)
    assert (report.first, report.last, report.lost, report.states) == (1, 7, 3, len(kept))
    assert (report.finished, report.finished_lost, report.learned) == (len(kept), 0, min(len(kept), 1))
    with Journal.open(to, holder="here") as journal:
        assert (journal.last, journal.cluster, journal.term, journal.lost) == (7, cluster, 2, 3)
        assert journal.check().problems == ()
        assert (journal.latest() or (0,))[0] == max(kept, default=0)
        journal.append([{"kind": "tick", "time": 200.0}])


def test_salvage_starts_from_a_later_state_if_that_reaches_further(place: Place) -> None:
    fill(place)
    place.execute("DELETE FROM facts WHERE number = 5")
    to = place.another()
    report = salvage(place.url, to)
    assert (report.first, report.last, report.lost, report.states) == (7, 10, 0, 1)
    with Journal.open(to, holder="here") as journal:
        assert journal.latest() == (6, {"after": 6})
        assert [entry.number for entry in journal.facts()] == [7, 8, 9, 10]
        assert journal.check().problems == ()


def test_salvage_leaves_damaged_states_and_jobs_out(place: Place) -> None:
    fill(place)
    place.execute("UPDATE kept SET time = 1.0 WHERE number = 6")
    place.execute("UPDATE finished SET state = 'x' WHERE id = 6")
    to = place.another()
    report = salvage(place.url, to)
    assert (report.last, report.states, report.finished, report.finished_lost) == (10, 1, 1, 1)
    with Journal.open(to, holder="here") as journal:
        assert journal.latest() == (3, {"after": 3})


def test_salvage_overwrites_no_journal(place: Place) -> None:
    fill(place)
    to = place.another()
    Journal.open(to, holder="here").close()
    with pytest.raises(InputError, match="already"):
        salvage(place.url, to)


def test_salvage_says_when_there_is_nothing_to_start_from(place: Place) -> None:
    fill(place)
    with place.open() as journal:
        journal.compact(facts_before=106.5)
    place.execute("UPDATE kept SET time = 1.0")
    with pytest.raises(JournalError, match="nothing intact that a scheduler could start from"):
        salvage(place.url, place.another())


# ---- files ----


def test_an_emptied_or_replaced_file_is_noticed(tmp_path: Path) -> None:
    place, path = file_place(tmp_path), tmp_path / "journal.sqlite"
    fill(place, last=4, kept=())
    shutil.copy(path, tmp_path / "older")
    fill_more = place.open()
    fill_more.append([{"kind": "tick", "time": 200.0}])
    fill_more.close()
    shutil.copy(tmp_path / "older", path)
    with pytest.raises(CorruptJournalError, match=r"ends at fact 4, but the journal here .* had 5 facts"):
        place.open()
    path.unlink()
    with pytest.raises(CorruptJournalError, match=r"is empty, but the journal here .* had 5 facts"):
        place.open()
    Journal.open(place.another(), holder="here").close()
    (tmp_path / "journal.sqlite.lock").unlink()
    with place.open() as journal:
        assert journal.last == 0


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_noticed(tmp_path: Path, share: float) -> None:
    place, path = file_place(tmp_path), tmp_path / "journal.sqlite"
    fill(place, last=300)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(CorruptJournalError, match="gavel journal salvage"):
        place.open()


def test_no_flipped_byte_is_read_as_a_fact(tmp_path: Path) -> None:
    place, path = file_place(tmp_path), tmp_path / "journal.sqlite"
    fill(place, last=30)
    with open_read_only(place.url) as reader:
        written = [entry.document for entry in reader.facts()]
    whole = path.read_bytes()
    for position in range(97, len(whole), 997):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            with place.open() as journal:
                if not journal.check().whole:
                    continue
                assert [entry.document for entry in journal.facts()] == written
        except (JournalError, InputError):
            continue


def test_a_file_that_is_no_database_is_noticed(tmp_path: Path) -> None:
    place, path = file_place(tmp_path), tmp_path / "journal.sqlite"
    path.write_bytes(b"something else entirely\n" * 100)
    with pytest.raises(CorruptJournalError, match="not a database"):
        place.open()
