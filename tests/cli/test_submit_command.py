"""`gavel submit`: options and files together, arrays and grids, dry runs, and following the one job."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fake_scheduler import FakeScheduler
from gavel.cli.app import run
from gavel.client.job_file import parse_jobs
from gavel.wire import gavel_pb2 as pb

OPTIONS = (
    "--prefer v100 --launcher per-server --gpu-memory 20G --cpus 4 --memory 64G --venv /v --module a --module b "
    "--grid lr=1e-3,1e-4 --grid seed=0..2 --at-once 2 --after 7 --after 8:any --hold --time-limit 12h "
    "--idle-timeout 30m --grace 5m --tag team=vision --notify https://x.example/hook --types v100,k80"
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeScheduler]:
    monkeypatch.chdir(tmp_path)
    scheduler = FakeScheduler()
    monkeypatch.setenv("GAVEL_SCHEDULER", scheduler.address)
    for name in ("v100", "k80"):
        scheduler.view.servers.add(name=name, agent=name, type=name, accelerators=1)
    yield scheduler
    scheduler.stop()


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(list(arguments)) == code
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_every_option_reaches_the_request(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, "submit", *OPTIONS.split(), "--name", "{lr}/{seed}", "--", "train", "--lr", "{lr}")
    assert said == "submitted array a1 of 6 jobs: 1 to 6\n"
    request = fake.jobs["6"].request
    assert (request.name, list(request.command), request.index) == ("1e-4/2", ["train", "--lr", "1e-4"], 5)
    assert request.array_id == "a1"
    assert request.at_once == 2
    assert dict(request.parameters) == {"lr": "1e-4", "seed": "2"}
    assert (list(request.prefer), request.launcher) == (["v100"], "per-server")
    assert (request.gpu_memory_bytes, request.cpus, request.memory_bytes) == (20 * 2**30, 4.0, 64 * 2**30)
    assert (request.venv, list(request.modules)) == ("/v", ["a", "b"])
    assert (list(request.after), request.hold) == (["7", "8:any"], True)
    assert (request.time_limit_seconds, request.idle_timeout_seconds, request.grace_seconds) == (43200, 1800, 300)
    assert (dict(request.tags), list(request.notify)) == ({"team": "vision"}, ["https://x.example/hook"])
    printed(capsys, "submit", "--array", "3,5%1", "--container", "image:1", "--", "train", "{index}")
    assert [list(fake.jobs[job].request.command) for job in ("7", "8")] == [["train", "3"], ["train", "5"]]
    assert fake.jobs["8"].request.container == "image:1"


def test_options_win_over_every_job_of_the_files(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.yaml").write_text(
        "- {command: a, name: one, steps: 5, environment: {A: 1}}\n- {command: b, working_directory: sub}\n"
    )
    printed(capsys, "submit", "jobs.yaml", "--name", "x", "--env", "B=2", "--tag", "t=u", "--", "c", "d")
    for job in fake.jobs.values():
        assert (job.request.name, list(job.request.command), dict(job.request.tags)) == ("x", ["c", "d"], {"t": "u"})
    one, two = (job.request for job in fake.jobs.values())
    assert (one.steps, dict(one.environment)) == (5, {"A": "1", "B": "2"})
    assert two.working_directory.endswith("/sub")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--grid", "lr"], "--grid lr: write NAME=VALUE,VALUE or NAME=0..4"),
        (["--grid", "a=1", "--grid", "a=2"], "--grid a is given twice"),
        (["--grid", "a=5..1"], "--grid a: '5..1': a range goes up"),
        (["--grid", "index=1,2"], "--grid: 'index' is the index of an array"),
        (["--array", "9-1"], "--array: 9-1: an index range goes up"),
        (["--array", "0-99999"], "--array: it has more than 10,000 jobs"),
        (["--at-once", "2"], "--at-once: at_once limits the jobs of an array or a grid"),
        (["--after", "7:never"], "--after: '7:never' ends with the condition 'never'"),
        (["--time-limit", "soon"], "--time-limit: 'soon' is not a duration"),
        (["--time-limit", "-3h"], "'-3h' is not a duration"),
        (["--grid", "lr="], "--grid lr has no values; write for example --grid lr=1,2"),
        (["--array", ""], "--array is empty; give a value or leave it out"),
        (["--venv", ""], "--venv is empty"),
        (["--container", ""], "--container is empty"),
        (["--memory", "64"], "--memory: memory is only 64 bytes; give it with a unit, for example 20G"),
        (["--count", "0"], "--count': it must be greater than or equal to 1"),
        (["--gpu-memory", "20X"], "--gpu-memory: '20X' is not a size"),
        (["--cpus", "0"], "--cpus: cpus must be greater than 0, not 0"),
        (["--launcher", "mpi"], "--launcher: launcher must be per-device or per-server, not 'mpi'"),
        (["--types", "k80", "--prefer", "v100"], "--prefer: prefer names 'v100', which is not one of its types"),
        (["--tag", "a"], "--tag 'a': write NAME=VALUE"),
        (["--tag", "a=1", "--tag", "a=2"], "--tag a is given twice"),
        (["--notify", "ftp://x"], "--notify: 'ftp://x' is not a URL"),
        (["--venv", "/v", "--container", "c"], "--container: give a container or a virtual environment"),
        (["--follow", "--array", "0-3"], "--follow prints the output of one job, and these are 4"),
        (["--follow", "--json"], "leave one of them out"),
        (
            ["--dry-run", "--after", "nobody:ok"],
            "after: 'nobody' is no id, and no job of this submission has that name",
        ),
    ],
)
def test_a_wrong_option_is_one_sentence_and_sends_nothing(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert said in refusal(capsys, "submit", *arguments, "--", "train")
    assert not fake.jobs


def test_an_array_of_one_job_says_so(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "submit", "--grid", "lr=7", "--", "train") == "submitted array a1 of one job: 1\n"
    assert len(fake.jobs) == 1


def test_a_dry_run_is_a_job_file_of_what_would_be_sent(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    options = [*OPTIONS.split(), "--secret", "TOKEN", "--name", "{lr}", "--count", "2"]
    command = ["--", "t", "{lr}"]
    shown = printed(capsys, "submit", "--dry-run", *options, *command)
    assert not fake.jobs
    assert fake.streams == 0
    assert shown.startswith("# 12 jobs would be submitted; nothing was sent\n")
    assert "# 6 jobs, at most 2 at once:\n#   0  1e-3  t 1e-3\n" in shown
    assert "#   and 1 more" in shown
    assert "hunter2" not in shown
    assert "time_limit: 12h" in shown
    assert "gpu_memory: 20G" in shown
    again, _ = parse_jobs(shown)
    assert again.submission().time_limit_seconds == 43200
    assert {**yaml.safe_load(shown)[0]}["count"] == 2
    document = json.loads(printed(capsys, "submit", "--dry-run", "--json", *options, *command))
    assert (document["count"], document["sent"], len(document["jobs"])) == (12, False, 2)
    assert document["jobs"][0]["stands_for"] == 6
    assert document["jobs"][0]["first"][1]["parameters"] == {"lr": "1e-3", "seed": "1"}


def test_a_dry_run_refuses_jobs_that_wait_for_each_other_and_takes_those_that_do_not(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("good.yaml").write_text(
        "- {name: 'p-{index}', array: 0-2, command: a}\n- {name: b, after: [p-1, 7], command: b}\n"
        "- {after: b, command: c}\n"
    )
    printed(capsys, "submit", "good.yaml", "--dry-run")
    Path("bad.yaml").write_text("- {name: x, after: y, command: a}\n- {name: y, after: 'x:any', command: b}\n")
    assert "none could ever start: 'x' → 'y' → 'x'" in refusal(capsys, "submit", "bad.yaml", "--dry-run")
    assert not fake.jobs


def test_a_dry_run_needs_no_scheduler(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAVEL_SCHEDULER", "127.0.0.1:1")
    monkeypatch.chdir(tmp_path)
    Path("base.yaml").write_text("command: a\nretries: 7\n")
    Path("job.yaml").write_text("extends: base.yaml\nname: x\n")
    shown: Any = yaml.safe_load(printed(capsys, "submit", "job.yaml", "--steps", "5", "--dry-run"))
    assert shown[0]["retries"] == 7
    assert shown[0]["steps"] == 5.0
    assert "job.yaml, line 2" not in shown


@pytest.mark.parametrize(("state", "code"), [(pb.COMPLETED, 0), (pb.FAILED, 1)])
def test_follow_prints_the_log_and_succeeds_only_if_the_job_completes(
    fake: FakeScheduler, capfdbinary: pytest.CaptureFixture[bytes], state: pb.JobState, code: int
) -> None:
    def work() -> None:
        fake.await_streams(1)
        fake.prints("1", b"one\ntwo\n")
        fake.restart()
        fake.prints("1", b"three\n")
        fake.move("1", state, "so it ended")

    worker = threading.Thread(target=work)
    worker.start()
    assert run(["submit", "--follow", "--", "train"]) == code
    worker.join()
    captured = capfdbinary.readouterr()
    assert captured.out == b"one\ntwo\nthree\n"
    assert captured.err.decode().splitlines()[0] == "submitted job 1"
    assert captured.err.decode().splitlines()[-1].endswith("so it ended")


def test_help_says_whose_environment_jobs_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Jobs run with the environment of the agent" in " ".join(printed(capsys, "submit", "--help").split())
