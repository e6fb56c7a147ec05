"""The commands that talk to a scheduler, as a user runs them, against a fake one."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fake_scheduler import START, FakeScheduler
from gavel.cli.app import run
from gavel.wire import gavel_pb2 as pb

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeScheduler]:
    scheduler = FakeScheduler()
    monkeypatch.setenv("GAVEL_SCHEDULER", scheduler.address)
    yield scheduler
    scheduler.stop()


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(list(arguments)) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(printed(capsys, *arguments, "--json", code=code))
    return result


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    assert run(list(arguments)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gavel: ")
    assert captured.err.count("\n") == 1
    return captured.err


def add(fake: FakeScheduler, state: pb.JobState = pb.QUEUED, reason: str = "waiting", **request: Any) -> str:
    fields = {"command": ["python", "train.py"], "workers": 1, "weight": 1.0, "retries": 3, **request}
    name = fake._add(pb.JobRequest(**fields))
    fake.move(name, state, reason)
    return name


# ---- submit ----


def test_submit_takes_files_in_order(fake: FakeScheduler, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    one, many = tmp_path / "one.yaml", tmp_path / "many.json"
    one.write_text("name: one\ncommand: [a]\n")
    many.write_text('[{"name": "two", "command": "b"}, {"name": "three", "command": ["c"], "count": 2}]')
    assert printed(capsys, "submit", str(one), str(many)) == "submitted 4 jobs: 1 2 3 4\n"
    assert [job.request.name for job in fake.jobs.values()] == ["one", "two", "three", "three"]
    assert printed(capsys, "submit", str(one)) == "submitted job 5\n"
    assert document(capsys, "submit", str(one)) == {"ids": ["6"]}


def test_submit_reads_standard_input(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("command: [a, b]\ncount: 50\n"))
    assert printed(capsys, "submit", "-") == "submitted 50 jobs: 1 to 50\n"
    assert list(fake.jobs["50"].request.command) == ["a", "b"]


def test_submit_takes_a_job_from_flags(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = "--template X --steps 1e3 --workers 2 --weight 3 --entity E --deadline-hours 2 --types v100,k80"
    more = "--env A=B --env C=d=e --retries 0 --name N --directory sub --json"
    assert run(["submit", *flags.split(), *more.split(), "--", "python", "train.py", "--lr", "0.1", "--", "x"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ids": ["1"]}
    assert fake.jobs["1"].request == pb.JobRequest(
        name="N",
        template="X",
        command=["python", "train.py", "--lr", "0.1", "--", "x"],
        steps=1000,
        workers=2,
        weight=3,
        entity="E",
        deadline_seconds=7200,
        types=["v100", "k80"],
        environment={"A": "B", "C": "d=e"},
        retries=0,
        working_directory=str(tmp_path / "sub"),
    )


def test_a_job_of_flags_has_the_defaults_of_a_job_file(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("command: [a, b]")
    printed(capsys, "submit", "job.yaml")
    printed(capsys, "submit", "--", "a", "b")
    assert fake.jobs["1"].request == fake.jobs["2"].request
    assert fake.jobs["1"].request.working_directory == str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["submit"], "say what to run"),
        (["submit", "--steps", "3"], "a command after --"),
        (["submit", "--"], "say what to run"),
        (["submit", "nowhere.yaml"], "cannot read nowhere.yaml: no such file"),
        (["submit", "good.yaml", "bad.yaml"], "bad.yaml, line 2: steps must be greater than 0, not -1"),
        (["submit", "good.yaml", "--steps", "-3"], "--steps: steps must be greater than 0, not -3"),
        (["submit", "--workers", "0", "--", "x"], "--workers: workers must be at least 1, not 0"),
        (["submit", "--steps", "-3", "--", "x"], "--steps: steps must be greater than 0, not -3"),
        (["submit", "--steps", "many", "--", "x"], "--steps"),
        (["submit", "--deadline-hours", "nan", "--", "x"], "--deadline-hours: deadline_hours must be a finite number"),
        (["submit", "--types", "v100,,k80", "--", "x"], "--types: types contains an empty name"),
        (["submit", "--env", "A", "--", "x"], "--env A: write NAME=VALUE"),
        (["submit", "--env", "=b", "--", "x"], "--env: '' cannot be the name of a variable"),
        (["submit", "--env", "A=1", "--env", "A=2", "--", "x"], "--env A is given twice"),
        (["submit", "--name", "a\nb", "--", "x"], "--name: name contains a character that cannot be printed"),
        (["submit", "--", "x", "\udcff"], "command contains invalid Unicode"),
        (["submit", "--", ""], "command is missing"),
        (["submit", "--stps", "3", "--", "x"], "--steps"),
        (["submit", "--scheduler", "http://x", "--", "x"], "HOST:PORT"),
        (["jobs", "--state", "slow"], "--state slow: there is no state 'slow'; there are: queued, running"),
        (["jobs", "--state", "runing"], "did you mean 'running'?"),
        (["jobs", "--limit", "-1"], "--limit"),
        (["job", "77"], "there is no job '77'"),
        (["job"], "ID"),
        (["logs", "77"], "there is no job '77'"),
        (["logs", "1", "-f", "--json"], "leave one of them out"),
        (["cancel", "77"], "there is no job '77'"),
        (["cancel"], "say which jobs to cancel: write ids (38)"),
        (["cluster", "--scheduler", "a:b"], "'a:b' is not a scheduler address"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_changes_nothing(
    arguments: list[str],
    said: str,
    fake: FakeScheduler,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text("command: a")
    (tmp_path / "bad.yaml").write_text("command: a\nsteps: -1")
    assert said in refusal(capsys, *arguments)
    assert not fake.jobs


def test_what_the_scheduler_refuses_is_said_in_its_words(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.refuses = "there is no entity 'x'"
    assert refusal(capsys, "submit", "--", "a") == "gavel: there is no entity 'x'\n"


@pytest.mark.parametrize("arguments", [["jobs"], ["jobs", "--watch"], ["job", "1"], ["cluster"], ["cancel", "1"]])
def test_a_scheduler_that_is_not_there_is_exit_code_1(
    arguments: list[str], fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.stop()
    sentence = refusal(capsys, *arguments, code=1)
    assert f"no scheduler answers at {fake.address} (connection refused)" in sentence


@pytest.mark.parametrize(("state", "code"), [(pb.COMPLETED, 0), (pb.FAILED, 1), (pb.CANCELLED, 1)])
def test_submit_wait_succeeds_only_if_all_jobs_complete(
    state: pb.JobState, code: int, fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        fake.await_streams(1)
        fake.move("1", pb.RUNNING)
        fake.restart()
        fake.move("1", pb.COMPLETED, "all steps done")
        fake.move("2", state, "so it went")

    worker = threading.Thread(target=work)
    worker.start()
    result = json.loads(printed(capsys, "submit", "--wait", "--count", "2", "--json", "--", "a", code=code))
    worker.join()
    assert result["ids"] == ["1", "2"]
    assert [job["reason"] for job in result["jobs"]] == ["all steps done", "so it went"]


def test_a_scheduler_that_stays_away_does_not_lose_the_ids(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        fake.await_streams(1)
        fake.stop()

    worker = threading.Thread(target=work)
    worker.start()
    assert run(["submit", "--wait", "--patience", "0.1", "--", "a"]) == 1
    worker.join()
    captured = capsys.readouterr()
    assert captured.out == "submitted job 1\n"
    assert "the jobs continue: `gavel jobs` shows them, `gavel cancel 1` ends them" in captured.err


# ---- jobs, job, logs, cancel, cluster ----


def test_jobs_shows_a_line_for_each_job(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    one = add(fake, pb.RUNNING, "on v100 (gpu1)", name="resnet", steps=1000)
    fake.move(one, pb.RUNNING, type="v100", steps_done=250.0, beside="2", restarts=3)
    fake.jobs[one].places.add(server="gpu1", accelerators=1)
    fake.jobs[one].places.add(server="gpu2", accelerators=1)
    add(fake, pb.FAILED, "exit code 3\nTraceback", name="[bold]broken")
    lines = printed(capsys, "jobs", "--all").splitlines()
    assert lines[0].split() == [
        *("id", "name", "state", "time", "workers", "done", "steps", "beside", "restarts", "where", "or", "why")
    ]
    assert lines[1].split()[:3] == ["1", "resnet", "running"]
    assert lines[1].split()[4:] == ["1", "25%", "250/1,000", "2", "3", "v100", "gpu1:1+gpu2:1"]
    assert lines[2].split()[:3] == ["2", "[bold]broken", "failed"]
    assert lines[2].rstrip().endswith("exit code 3 Traceback")
    assert lines[3] == "1 running, 1 failed"


def test_control_characters_in_job_names_do_not_reach_the_terminal(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    add(fake, pb.FAILED, "\x1b[2Jreason\r", name="\x1b]0;title\x07", environment={"A": "\x1b[31m"})
    assert not set(printed(capsys, "jobs", "--all") + printed(capsys, "job", "1")) & set("\x1b\x07\r")


def test_jobs_that_ended_long_ago_are_left_out_unless_asked_for(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    add(fake, pb.COMPLETED)
    add(fake, pb.QUEUED)
    fresh = add(fake, pb.CANCELLED)
    fake.jobs[fresh].ended = time.time() - 60

    def ids(*arguments: str) -> list[str]:
        return [job["id"] for job in document(capsys, "jobs", *arguments)["jobs"]]

    assert ids() == ["2", "3"]
    assert ids("--all") == ["1", "2", "3"]
    assert ids("--all", "--limit", "1") == ["3"]
    assert ids("--state", "completed, queued") == ["1", "2"]
    assert "no jobs" in printed(capsys, "jobs", "--state", "failed")


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_tables_fit_their_terminal(
    width: int, fake: FakeScheduler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for number in range(12):
        name = add(fake, pb.RUNNING, "on v100", name=f"実験-{number} with a long name", template="T" * 40, steps=1e9)
        fake.move(name, pb.RUNNING, type="v100", beside="7", restarts=number, steps_done=1e8)
        fake.jobs[name].places.add(server="a-server-with-a-name", accelerators=4)
        add(fake, pb.FAILED, "a very long reason " * 9)
    shown = printed(capsys, "jobs", "--all")
    assert len(shown.splitlines()) == 27, "one line for each job"
    assert shown.splitlines()[-2] == "… is cut; see --wide or `gavel job ID`"
    assert all(sum(2 if ord(c) > 0x2E80 and c != "…" else 1 for c in line) <= width for line in shown.splitlines())
    assert ("steps" in shown.splitlines()[0]) == (width == 200)


def test_job_shows_everything_that_is_known(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    name = _full(fake)
    fake.detail = pb.JobDetail(
        history=[
            pb.Transition(time=START, state=pb.QUEUED, reason="waiting for accelerators"),
            pb.Transition(time=START + 5, state=pb.RUNNING, reason="on v100 (gpu1)"),
        ],
        shares={"v100": 0.75},
        limit="limited by v100",
        rates={"v100": 4.0, "k80": 1.25},
    )
    text = printed(capsys, "job", name)
    for part in (
        *("job 1", "resnet", "running", "python train.py | tee out", "/data", "environment  A", "research"),
        "limited by v100",
        *("0.750", "1.25", "1h01m", "250/1,000", "waiting for accelerators", "failures 1 of 5 allowed"),
    ):
        assert part in text
    assert "secret" not in text
    assert document(capsys, "job", name)["shares"] == {"v100": 0.75}


def _full(fake: FakeScheduler) -> str:
    name = add(
        fake,
        pb.RUNNING,
        "on v100 (gpu1)",
        name="resnet",
        command=["/bin/sh", "-c", "python train.py | tee out"],
        steps=1000,
        types=["v100"],
        weight=2.0,
        retries=5,
        entity="research",
        deadline_seconds=3600.0,
        environment={"A": "secret"},
        working_directory="/data",
    )
    fake.move(name, pb.RUNNING, "on v100 (gpu1)", type="v100", steps_done=250.0, failures=1)
    fake.jobs[name].received["v100"] = 3700.0
    return name


def test_for_a_failed_job_the_end_of_the_log_is_shown(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    name = add(fake, pb.FAILED, "exit code 1")
    fake.prints(name, b"".join(b"line %d\n" % n for n in range(100)) + b"[red]ValueError\n")
    text = printed(capsys, "job", name)
    assert "[red]ValueError" in text
    assert "line 91\n" in text
    assert "line 90\n" not in text
    assert document(capsys, "job", name)["log_tail"].endswith("line 99\n[red]ValueError\n")


def test_logs_are_printed_as_they_are(fake: FakeScheduler, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    add(fake)
    fake.prints("1", b"one\ntw\xffo\nthree")
    fake.prints("1", b"other", rank=1)
    for arguments, expected in (
        (["logs", "1"], b"one\ntw\xffo\nthree"),
        (["logs", "1", "--rank", "1"], b"other"),
        (["logs", "1", "--tail", "2"], b"tw\xffo\nthree"),
    ):
        assert run(arguments) == 0
        assert capfdbinary.readouterr().out == expected
    assert run(["logs", "1", "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["log"] == "one\ntw\ufffdo\nthree"


def test_logs_are_followed_until_the_job_finishes(fake: FakeScheduler) -> None:
    add(fake)
    fake.prints("1", b"one\n")
    with gavel("logs", "1", "-f", fake=fake, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        fake.prints("1", b"two\n")
        fake.restart()
        assert process.stdout.readline() == b"two\n"
        fake.prints("1", b"three\n")
        fake.move("1", pb.COMPLETED)
        assert process.stdout.read() == b"three\n"
        assert process.wait() == 0


def test_cancel_says_what_it_did(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        add(fake)
    fake.move("2", pb.COMPLETED)
    assert printed(capsys, "cancel", "1") == "job 1 is cancelled\n"
    assert refusal(capsys, "cancel", "1", "3") == "gavel: job 1 has already finished: cancelled\n"
    assert "no job '77'" in refusal(capsys, "cancel", "3", "77")
    assert fake.jobs["3"].state == pb.QUEUED, "all or none"
    result = document(capsys, "cancel", "1-3")
    assert [(job["id"], job["state"]) for job in result["jobs"]] == [("3", "cancelled")]


def test_cluster_shows_servers_types_policy_and_round(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no servers yet" in printed(capsys, "cluster")
    view = fake.view
    view.objective, view.round_seconds, view.round_ends, view.running, view.queued = 0.7273, 360, START + 90, 3, 12
    view.servers.add(name="gpu1", agent="gpu1", type="v100", accelerators=4, free=1, state="connected", jobs=["1", "2"])
    view.servers.add(name="gpu2", agent="gpu2", type="k80", accelerators=8, free=8, state="away", last_heard=START - 70)
    view.types.add(name="v100", accelerators=4, busy=3, price=0.4364, given_seconds=7200)
    view.trouble = "no solver agrees"
    text = printed(capsys, "cluster")
    for part in (
        *("max_min_fairness", "0.7273", "3 jobs running, 12 waiting", "rounds of 360 s", "in 1m30s", "up for 1h00m"),
        *("gpu1", "3/4", "1 2", "away", "last heard 1m10s ago", "0.4364", "2.0 h", "no solver agrees"),
    ):
        assert part in text
    assert document(capsys, "cluster")["servers"][0]["jobs"] == ["1", "2"]


def test_cluster_shows_alarms_first_and_servers_that_take_no_work(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    view = fake.view
    view.cluster, view.term = "c0ffee", 7
    view.alarms.append("the journal cannot be written, trying again: disk full")
    for name, state, reason in (
        ("gpu1", "drained", "drained by operator"),
        ("gpu2", "lost", "not heard of"),
        ("gpu3", "draining", "\x1b[2J"),
    ):
        busy = ["5"] if state == "draining" else []
        view.servers.add(
            name=name,
            agent=name,
            type="v100",
            accelerators=2,
            free=2 - len(busy),
            state=state,
            since=START - 60,
            reason=reason,
            jobs=busy,
        )
    lines = printed(capsys, "cluster").splitlines()
    assert lines[0] == "ALARM: the journal cannot be written, trying again: disk full"
    assert "cluster c0ffee, term 7" in lines[3]
    rows = [line.split() for line in lines[-3:]]
    assert rows[0] == ["gpu1", "v100", "0/2", "drained", "1m00s", "drained", "by", "operator"]
    assert rows[1][:5] == ["gpu2", "v100", "?/2", "lost", "1m00s"]
    assert rows[2] == ["gpu3", "v100", "1/2", "draining", "1m00s", "5;", "?[2J"]
    told = document(capsys, "cluster")
    assert (told["cluster"], told["term"], told["alarms"]) == ("c0ffee", 7, list(view.alarms))
    assert told["servers"][1] == {
        "name": "gpu2",
        "agent": "gpu2",
        "type": "v100",
        "accelerators": 2,
        "free": 2,
        "state": "lost",
        "jobs": [],
        "last_heard": 0.0,
        "since": START - 60,
        "reason": "not heard of",
        "cpus": 0.0,
        "free_cpus": 0.0,
        "memory_bytes": 0,
        "free_memory_bytes": 0,
        "accelerator_memory_bytes": 0,
    }


def test_servers_are_lines_in_the_format_that_is_wanted(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("gpu1", "gpu2"):
        fake.view.servers.add(name=name, agent=name, type="v100", accelerators=2, free=1, state="connected", jobs=["3"])
    assert printed(capsys, "cluster", "--format", "{server}:{free}/{accelerators}:{jobs}") == "gpu1:1/2:3\ngpu2:1/2:3\n"
    told = refusal(capsys, "cluster", "--format", "server,nam")
    assert "there is no column 'nam'" in told
    assert "free_cpus" in told


def test_draining_says_what_happens_to_which_jobs_and_when(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.view.round_ends = START + 42
    fake.view.servers.add(name="gpu1", agent="gpu1", type="v100", accelerators=2, state="connected", jobs=["3", "5"])
    fake.view.servers.add(name="gpu2", agent="gpu2", type="v100", accelerators=2, state="connected")
    fake.view.servers.add(name="gpu3", agent="gpu3", type="v100", accelerators=2, state="lost")
    said = printed(capsys, "worker", "drain", "gpu1")
    assert "jobs 3, 5 run until the round ends in 42s, then save, leave and wait for room elsewhere" in said
    assert "jobs 3, 5 are asked to save and leave now" in printed(capsys, "worker", "drain", "gpu1", "--now")
    assert document(capsys, "worker", "drain", "gpu1") == {
        "agent": "gpu1",
        "state": "draining",
        "jobs": ["3", "5"],
        "now": False,
        "seconds_left": 42.0,
    }
    assert "none is left there: it is drained" in printed(capsys, "worker", "drain", "gpu2")
    assert "gpu3 is lost" in printed(capsys, "worker", "drain", "gpu3")
    assert printed(capsys, "worker", "undrain", "gpu2") == "gpu2 takes work again\n"
    assert "when it comes back; it is lost" in printed(capsys, "worker", "undrain", "gpu3")
    assert "neither lost nor drained" in refusal(capsys, "worker", "remove", "gpu2")
    assert "gpu3 is removed" in printed(capsys, "worker", "remove", "gpu3")
    for verb in ("drain", "undrain", "remove"):
        assert "there is no agent 'gpu3'" in refusal(capsys, "worker", verb, "gpu3")


def test_jobs_transfers_only_what_it_prints(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2500):
        fake.jobs[add(fake, pb.COMPLETED)].ended = time.time()
    add(fake, pb.QUEUED, name="mine")
    found = document(capsys, "jobs")
    assert fake.lists == [1, 201]
    assert len(found["jobs"]) == 201
    assert found["more"]
    assert "only the 200 that finished last are shown" in printed(capsys, "jobs")
    fake.lists.clear()
    assert [job["id"] for job in document(capsys, "jobs", "--name", "mine")["jobs"]] == ["2501"]
    assert fake.lists == [1, 0]
    fake.lists.clear()
    assert len(document(capsys, "jobs", "--limit", "7")["jobs"]) == 7
    assert fake.lists == [1, 7]
    fake.lists.clear()
    assert len(document(capsys, "jobs", "--all")["jobs"]) == 2501
    assert fake.lists == [1, 1000, 1000, 500]


def test_tables_are_complete_if_the_output_is_not_a_terminal(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    reason = "a reason that continues " * 20
    add(fake, pb.FAILED, reason, template="T")
    assert reason.strip() in printed(capsys, "jobs", "--all")


def test_a_type_that_no_server_has_is_warned_of_and_the_job_is_submitted(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["submit", "--types", "v10", "--", "x"]) == 0
    assert capsys.readouterr().err == "gavel: no server has accelerators of type 'v10'; no server has joined yet\n"
    fake.view.servers.add(name="gpu1", agent="gpu1", type="v100", accelerators=2, state="lost")
    assert run(["submit", "--types", "v10,v100", "--json", "--", "x"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "gavel: no server has accelerators of type 'v10'; did you mean 'v100'?\n"
    assert json.loads(captured.out) == {"ids": ["2"]}
    assert printed(capsys, "submit", "--types", "v100", "--", "x") == "submitted job 3\n"


# ---- events ----


def test_events_are_a_timeline_for_people_and_a_document_for_machines(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.happens("job 1 was submitted", "job_queued", '{"kind": "job_queued", "jobs": ["1"], "fact": {"key": "k"}}')
    fake.happens("agent gpu1 was lost: \x1b[2J", "agent_lost", '{"server": "gpu1", "fact": {}}')
    first, second = printed(capsys, "events").splitlines()
    assert first.endswith("  job 1 was submitted")
    assert second.endswith("agent gpu1 was lost: ?[2J")
    one, two = document(capsys, "events")["events"]
    assert one == {
        "number": 1,
        "time": START + 1,
        "kind": "job_queued",
        "text": "job 1 was submitted",
        "jobs": ["1"],
        "server": "",
        "fact": {"key": "k"},
    }
    assert two["server"] == "gpu1"
    fake.asked_events.clear()
    printed(capsys, "events", "--job", "1", "--server", "gpu1", "--since", "2023-11-14T22:13:20+00:00", "--all")
    assert fake.asked_events == [pb.EventsRequest(job="1", server="gpu1", since=START, routine=True)]


def test_a_shortened_history_says_so(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(150):
        fake.happens(f"event {number}")
    assert run(["events"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 100
    assert captured.out.splitlines()[-1].endswith("event 149")
    assert captured.err == "only the newest 100 are shown; --limit 0 prints all\n"
    assert len(printed(capsys, "events", "--limit", "0").splitlines()) == 150


@pytest.mark.parametrize("when", ["yesterday", "10x", "-3m", "1e9h", "25:00", "2026-13-01"])
def test_an_unreadable_time_is_refused_with_one_sentence(
    when: str, fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"--since {when}: write how long ago" in refusal(capsys, "events", f"--since={when}")
    assert not fake.asked_events


def test_followed_events_neither_repeat_nor_miss_one_when_the_connection_breaks(fake: FakeScheduler) -> None:
    for number in range(3):
        fake.happens(f"event {number}")
    with gavel("events", "-f", "--json", "--limit", "2", fake=fake, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline())["number"] for _ in range(2)]
        fake.stop()
        for number in range(3, 6):
            fake.happens(f"event {number}")
        fake.start()
        seen += [json.loads(process.stdout.readline())["number"] for _ in range(3)]
        fake.happens("event 6")
        seen.append(json.loads(process.stdout.readline())["number"])
        assert seen == [2, 3, 4, 5, 6, 7]
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b""
        assert process.wait() == 0


# ---- watching ----


@contextmanager
def gavel(*arguments: str, fake: FakeScheduler, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a separate process, which can be interrupted and does not outlive the test."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "GAVEL_SCHEDULER": fake.address, "COLUMNS": "120"}
    code = "from gavel.cli.app import main; main()"
    with subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(descriptor: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        piece = os.read(descriptor, 4096)
        assert piece, seen.decode()
        seen += piece
    return seen


@pytest.mark.parametrize("arguments", [["jobs", "--all"], ["jobs", "--all", "--json"], ["logs", "1"]])
def test_closing_the_output_pipe_early_is_no_error(arguments: list[str], fake: FakeScheduler) -> None:
    for _ in range(2000):
        add(fake)
    fake.prints("1", b"a line of a log\n" * 20_000)
    with gavel(*arguments, fake=fake, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_watch_prints_a_line_for_each_change_if_the_output_is_not_a_terminal(fake: FakeScheduler) -> None:
    add(fake, pb.QUEUED, "waiting for accelerators")
    with gavel("jobs", "--watch", fake=fake, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split()[1:] == b"1 queued waiting for accelerators".split()
        fake.move("1", pb.RUNNING, "on v100", steps_done=1.0)
        assert process.stdout.readline().split()[1:3] == [b"1", b"running"]
        fake.restart()
        fake.move("1", pb.RUNNING, "on v100", steps_done=2.0)
        fake.move("1", pb.FAILED, "exit code 3", ended=time.time())
        assert process.stdout.readline().split()[1:3] == [b"1", b"failed"]
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b""
        assert process.wait() == 0


def test_watch_as_json_is_one_document_for_each_change(fake: FakeScheduler) -> None:
    add(fake)
    with gavel("jobs", "--watch", "--json", "--state", "running", fake=fake, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        fake.await_streams(1)
        for steps in (1.0, 2.0):
            fake.move("1", pb.RUNNING, steps_done=steps)
            assert json.loads(process.stdout.readline())["steps_done"] == steps
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Our end of a terminal, and that of a process."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def test_watch_draws_a_live_table_that_survives_a_restart(fake: FakeScheduler, terminal: tuple[int, int]) -> None:
    add(fake, name="resnet")
    with gavel("jobs", "--watch", fake=fake, stdout=terminal[1]) as process:
        assert b"resnet" in read_until(terminal[0], b"queued")
        fake.move("1", pb.RUNNING)
        read_until(terminal[0], b"running")
        fake.stop()
        read_until(terminal[0], b"the scheduler is away")
        fake.start()
        fake.move("1", pb.PREEMPTED, "others are owed more time")
        read_until(terminal[0], b"preempted")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0


def test_watch_gives_up_with_a_sentence(fake: FakeScheduler, terminal: tuple[int, int]) -> None:
    patience = ["--patience", "0.1"]
    with gavel("jobs", "--watch", *patience, fake=fake, stdout=terminal[1], stderr=subprocess.PIPE) as process:
        read_until(terminal[0], b"no jobs")
        fake.stop()
        assert process.stderr is not None
        complaint = process.stderr.read()
        assert complaint.startswith(b"gavel: no scheduler answers at ")
        assert complaint.count(b"\n") == 1
        assert process.wait() == 1


def test_interrupting_a_wait_leaves_the_jobs_and_says_so(fake: FakeScheduler, terminal: tuple[int, int]) -> None:
    with gavel("submit", "--wait", "--", "a", fake=fake, stdout=subprocess.PIPE, stderr=terminal[1]) as process:
        read_until(terminal[0], b"0 of 1 finished: 1 queued")
        process.send_signal(signal.SIGINT)
        read_until(terminal[0], b"interrupted; the jobs continue")
        assert process.stdout is not None
        assert process.stdout.read() == b"submitted job 1\n"
        assert process.wait() == 130
    assert fake.jobs["1"].state == pb.QUEUED


def test_retention_is_a_table_of_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "gavel.toml"
    config.write_text("[retention]\njournal-days = 0\n")
    assert run(["serve", "--config", str(config)]) == 2
    assert "keep-journal-days" in capsys.readouterr().err
    config.write_text("retention = 30\n")
    assert run(["serve", "--config", str(config)]) == 2
    assert "retention must be a table" in capsys.readouterr().err
    config.write_text("[retention]\nlog-days = 3\n")
    assert run(["serve", "--config", str(config)]) == 2
    assert "keep-log-days" in capsys.readouterr().err


# ---- checkpoints ----


def test_checkpoints_remove_reports_the_result_for_each_job(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [add(fake, pb.COMPLETED) for _ in range(3)]
    fake.checkpoints["2"] = pb.CheckpointsView(state="kept", reason="gpu1: nothing says whose it is")
    fake.checkpoints["3"] = pb.CheckpointsView(state="waiting", reason="gpu2")
    assert printed(capsys, "checkpoints", "remove", *ids).splitlines() == [
        "the checkpoints of job 1 are removed",
        "the checkpoints of job 2 are kept: gpu1: nothing says whose it is",
        "the checkpoints of job 3 will be removed when these agents answer: gpu2",
    ]
    told = document(capsys, "checkpoints", "remove", *ids)["jobs"]
    assert [(job["job"], job["state"]) for job in told] == [("1", "removed"), ("2", "kept"), ("3", "waiting")]


def test_checkpoints_of_a_job_that_runs_are_refused_with_a_sentence(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    job = add(fake, pb.RUNNING)
    assert "job 1 is running" in refusal(capsys, "checkpoints", "remove", job)
    assert "there is no job" in refusal(capsys, "checkpoints", "remove", "77")
