"""`gavel cancel`, `hold`, `release`, `requeue`, `edit`, `resubmit` and `wait`, by ids and by selectors."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fake_scheduler import FakeScheduler
from gavel.cli.app import run
from gavel.wire import gavel_pb2 as pb

VERBS = ("cancel", "hold", "release", "requeue", "edit", "resubmit", "wait")
CHANGE = {"edit": ["--weight", "2"]}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeScheduler]:
    scheduler = FakeScheduler()
    monkeypatch.setenv("GAVEL_SCHEDULER", scheduler.address)
    yield scheduler
    scheduler.stop()


def add(fake: FakeScheduler, state: pb.JobState = pb.QUEUED, **request: Any) -> str:
    fields = {"command": ["train"], "workers": 1, "weight": 1.0, "retries": 3, **request}
    job = fake._add(pb.JobRequest(**fields))
    fake.move(job, state, "so it is")
    return job


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(list(arguments)) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    assert run(list(arguments)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gavel: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize("verb", VERBS)
def test_a_wrong_call_is_one_sentence_and_changes_nothing(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    change = CHANGE.get(verb, [])
    for _ in range(3):
        add(fake)
    done = add(fake, pb.COMPLETED)
    before = {job: view.SerializeToString() for job, view in fake.jobs.items()}
    wait_for = "wait for" if verb == "wait" else verb
    named = "--named" if verb in ("edit", "resubmit") else "--name"
    cases = [
        ([], f"say which jobs to {wait_for}: write ids (38)"),
        (["77"], "there is no job '77'"),
        (["1", "77"], "there is no job '77'"),
        (["a9"], "there is no array a9"),
        (["x"], "there is no job 'x'; write ids (38)"),
        ([named, "none*"], f"nothing to {wait_for}"),
        (["--all", "1"], "leave one of them out"),
        (["--mine", "--user", "ada"], "give either --mine or --user, not both"),
        (["--state", "slow"], "there is no state 'slow'"),
    ]
    if verb not in ("wait", "resubmit"):
        cases.append((["1", done], f"job {done} has already finished: completed"))
    for arguments, said in cases:
        assert said in refusal(capsys, verb, *arguments, *change)
    assert {job: view.SerializeToString() for job, view in fake.jobs.items()} == before
    assert not fake.resubmitted


def test_selectors_are_combined_and_leave_out_what_the_verb_does_not_concern(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        add(fake, name=f"resnet-{number}", tags={"half": str(number % 2)}, user="you")
    add(fake, pb.COMPLETED, name="resnet-4", tags={"half": "0"})
    add(fake, name="bert", tags={"half": "0"})
    assert printed(capsys, "hold", "--name", "resnet*", "--tag", "half=0", "--mine") == (
        "job 1 is on hold\njob 3 is on hold\n"
    )
    assert "no job that can be held matches" in refusal(capsys, "hold", "--name", "resnet*", "--tag", "half=0", "2-6")
    assert printed(capsys, "release", "--all") == "job 1 is released\njob 3 is released\n"
    assert "no job that can be released matches" in refusal(capsys, "release", "--all")
    assert printed(capsys, "requeue", "2-9", "--state", "queued").count("waits again") == 4
    assert printed(capsys, "cancel", "1-6", "--name", "*-[01]") == "job 1 is cancelled\njob 2 is cancelled\n"
    assert [fake.jobs[job].state for job in "123456"] == [pb.CANCELLED] * 2 + [pb.QUEUED] * 2 + [
        pb.COMPLETED,
        pb.QUEUED,
    ]


def test_arrays_and_their_members_are_selected(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["submit", "--array", "0-9", "--", "train"]) == 0
    capsys.readouterr()
    assert printed(capsys, "cancel", "a1.7") == "job 8 is cancelled\n"
    assert refusal(capsys, "cancel", "a1.7") == "gavel: job 8 has already finished: cancelled\n"
    assert "array a1 has no job a1.10" in refusal(capsys, "cancel", "a1.10")
    assert printed(capsys, "hold", "a1.2-3") == "job 3 is on hold\njob 4 is on hold\n"
    assert len(json.loads(printed(capsys, "cancel", "a1", "--json"))["jobs"]) == 9
    assert {job.state for job in fake.jobs.values()} == {pb.CANCELLED}


def test_many_jobs_are_ended_only_after_a_confirmation(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(40):
        add(fake)
    assert "this would cancel 40 jobs (40 queued); add --yes to do so" in refusal(capsys, "cancel", "--all")
    assert all(job.state == pb.QUEUED for job in fake.jobs.values())
    lines = printed(capsys, "cancel", "1-30", "--yes").splitlines()
    assert (len(lines), lines[-1]) == (21, "and 10 more: 30 jobs are cancelled")
    assert len(printed(capsys, "cancel", "31-40").splitlines()) == 10


@pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"\n", 2), (b"n\n", 2)])
def test_on_a_terminal_the_user_is_asked(fake: FakeScheduler, typed: bytes, code: int) -> None:
    for _ in range(11):
        add(fake, name="\x1b[2Jevil")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from gavel.cli.app import main; main()", "cancel", "--all"]
    with subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE) as process:
        seen = b""
        while b"[y/N] " not in seen:
            seen += os.read(ours, 1024)
        assert b"cancel 11 jobs (11 queued), from 1 to 11?" in seen
        os.write(ours, typed)
        assert process.wait() == code
    os.close(ours)
    os.close(theirs)
    assert {job.state for job in fake.jobs.values()} == ({pb.CANCELLED} if code == 0 else {pb.QUEUED})


def test_edit_sends_what_is_changed_and_none_clears(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    add(fake, name="a", types=["v100"], tags={"old": "1"}, time_limit_seconds=5.0)
    changes = "--weight 2.5 --types k80,v100 --prefer k80 --steps 1e4 --name new --time-limit 12h --tag x=y --retries 0"
    assert printed(capsys, "edit", "1", *changes.split(), "--deadline-hours", "2") == "job 1 is changed\n"
    request = fake.jobs["1"].request
    assert (request.weight, list(request.types), list(request.prefer), request.steps) == (
        2.5,
        ["k80", "v100"],
        ["k80"],
        1e4,
    )
    assert (request.name, request.time_limit_seconds, dict(request.tags)) == ("new", 43200.0, {"x": "y"})
    assert (request.retries, request.deadline_seconds) == (0, 7200.0)
    cleared = "--types none --prefer none --steps none --name none --time-limit none --tag none --deadline-hours none"
    printed(capsys, "edit", "--named", "new", "--tagged", "x=y", *cleared.split())
    request = fake.jobs["1"].request
    assert not (request.types)
    assert not (request.prefer)
    assert not (request.steps)
    assert not (request.name)
    assert not (request.tags)
    assert (request.time_limit_seconds, request.deadline_seconds, request.weight) == (0.0, 0.0, 2.5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([], "say what to change, for example --weight 2"),
        (["--weight", "none"], "--weight cannot be none"),
        (["--weight", "-1"], "--weight: weight must be greater than 0, not -1"),
        (["--weight", "1e99"], "--weight: weight must be at most"),
        (["--weight", "heavy"], "--weight 'heavy': give a number"),
        (["--steps", "nan"], "--steps: steps must be a finite number"),
        (["--retries", "1.5"], "--retries: retries must be a whole number"),
        (["--types", ""], "--types is empty; write none to clear it"),
        (["--types", "a,,b"], "--types: types contains an empty name"),
        (["--time-limit", "soon"], "--time-limit: 'soon' is not a duration"),
        (["--tag", "a"], "--tag 'a': write NAME=VALUE"),
        (["--notify", "x"], "--notify: 'x' is not a URL"),
    ],
)
def test_a_wrong_change_is_one_sentence(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], changes: list[str], said: str
) -> None:
    add(fake)
    assert said in refusal(capsys, "edit", "1", *changes)
    assert not fake.edits


@pytest.mark.parametrize("verb", [["edit", "--weight", "2"], ["resubmit"]])
def test_a_new_name_selects_nothing_and_the_refusal_names_the_selectors(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    add(fake)
    assert "--named, --tagged, --state" in refusal(capsys, *verb, "--name", "x")


def test_resubmit_takes_finished_jobs_and_asks_for_their_secrets_again(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    add(fake, pb.FAILED, name="x", secrets=["TOKEN"])
    add(fake, pb.COMPLETED, name="x")
    add(fake, name="x")
    assert printed(capsys, "resubmit", "--state", "failed", "--retries", "9") == "job 1 is submitted again as job 4\n"
    assert dict(fake.resubmitted[0].secrets) == {"TOKEN": "hunter2"}
    assert fake.jobs["4"].request.retries == 9
    assert json.loads(printed(capsys, "resubmit", "--named", "x", "--json")) == {"ids": ["5", "6"]}
    assert printed(capsys, "resubmit", "3") == "job 3 is submitted again as job 7\n", (
        "a named one need not have finished"
    )
    monkeypatch.delenv("TOKEN")
    assert "the secret TOKEN has no value" in refusal(capsys, "resubmit", "1")


@pytest.mark.parametrize(("state", "code"), [(pb.COMPLETED, 0), (pb.CANCELLED, 1)])
def test_wait_ends_when_all_have_finished_also_through_a_restart(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], state: pb.JobState, code: int
) -> None:
    for _ in range(3):
        add(fake, name="x")
    add(fake)

    def work() -> None:
        fake.await_streams(1)
        fake.move("1", pb.COMPLETED)
        fake.restart()
        fake.move("2", pb.COMPLETED)
        fake.move("3", state)

    worker = threading.Thread(target=work)
    worker.start()
    shown = printed(capsys, "wait", "--name", "x", code=code)
    worker.join()
    assert shown.splitlines()[-1] == ("3 completed" if code == 0 else "2 completed, 1 cancelled")


def test_wait_gives_up_after_its_timeout_and_says_what_goes_on(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    add(fake)
    began = time.monotonic()
    said = refusal(capsys, "wait", "1", "--timeout", "0.2s", code=1)
    assert time.monotonic() - began < 20
    assert "the jobs continue" in said
    assert "--timeout: 'later' is not a duration" in refusal(capsys, "wait", "1", "--timeout", "later")
    assert "--timeout must be at most" in refusal(capsys, "wait", "1", "--timeout", "1e300")
    fake.move("1", pb.COMPLETED)
    assert "1 completed" in printed(capsys, "wait", "1"), "a named one may have finished"
    assert "1 completed" in printed(capsys, "wait", "1", "--timeout", "1e10")
    assert "1 completed" in printed(capsys, "jobs", "--all", "--limit", "9" * 20)


def test_one_job_is_named_by_its_array_and_index(
    fake: FakeScheduler,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    assert run(["submit", "--array", "5-7", "--", "train"]) == 0
    fake.prints("2", b"of six\n")
    capsysbinary.readouterr()
    assert run(["logs", "a1.6"]) == 0
    assert capsysbinary.readouterr().out == b"of six\n"
    assert run(["logs", "a1"]) == 2
    assert b"a1 names several jobs" in capsysbinary.readouterr().err
    assert run(["job", "a1.6", "--json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["job"]["id"] == "2"
