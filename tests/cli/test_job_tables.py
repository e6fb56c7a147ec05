"""What `gavel jobs` and `gavel job` print: arrays in one row, what fits, formats, and everything about one job."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fake_scheduler import FakeScheduler
from gavel.cli.app import run
from gavel.wire import gavel_pb2 as pb

LONG = "it needs 8 workers, but no type that it may use has more than 4 accelerators"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeScheduler]:
    scheduler = FakeScheduler()
    monkeypatch.setenv("GAVEL_SCHEDULER", scheduler.address)
    yield scheduler
    scheduler.stop()


def add(fake: FakeScheduler, state: pb.JobState = pb.QUEUED, reason: str = "waiting", **request: Any) -> str:
    fields = {"command": ["train"], "workers": 1, "weight": 1.0, "retries": 3, **request}
    job = fake._add(pb.JobRequest(**fields))
    fake.move(job, state, reason)
    return job


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


@pytest.fixture
def array(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> FakeScheduler:
    """Array a1 of 100 jobs: 2 completed long ago, 2 failed, 8 run, 88 wait; and job 101."""
    assert run(["submit", "--array", "0-99%8", "--name", "sweep-{index}-x", "--", "train", "{index}"]) == 0
    capsys.readouterr()
    for number in range(1, 13):
        state = pb.COMPLETED if number <= 2 else pb.FAILED if number <= 4 else pb.RUNNING
        fake.move(str(number), state, "exit code 3" if state == pb.FAILED else "")
        if state == pb.FAILED:
            fake.jobs[str(number)].ended = time.time()
        if state == pb.RUNNING:
            fake.jobs[str(number)].type = "v100" if number % 2 else "k80"
    add(fake, reason=LONG, name="alone")
    return fake


def test_an_array_is_one_row_with_all_its_jobs_counted_and_fits_80_columns(
    array: FakeScheduler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.rstrip() for line in printed(capsys, "jobs").splitlines()]
    assert lines[0].split() == ["id", "name", "state", "done", "where", "or", "why"]
    assert lines[1].startswith("a1   sweep-*-x  8 running, 88 queued, 2 failed    2%  4 on k80, 4 on v100; wait…"), (
        lines
    )
    assert lines[2].startswith("101  alone ")
    assert all(len(line) <= 80 for line in lines[:-1])
    assert lines[3] == "… is cut; see --wide or `gavel job ID`"
    wide = printed(capsys, "jobs", "--wide")
    assert "…" not in wide
    assert "".join(wide.split()).count("accelerators") == 1
    monkeypatch.delenv("COLUMNS")
    whole = printed(capsys, "jobs")
    assert LONG in whole
    assert "4 on k80, 4 on v100; waiting" in whole
    assert len(array.jobs) == 101


def test_arrays_unfold_where_jobs_are_named_or_it_is_wanted(
    array: FakeScheduler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")  # nothing is cut
    assert len(printed(capsys, "jobs", "a1").splitlines()) == 102
    assert len(printed(capsys, "jobs", "--unfold", "--all").splitlines()) == 103
    assert len(printed(capsys, "jobs", "a1.3-7", "--state", "failed,running").splitlines()) == 7
    assert printed(capsys, "jobs", "--state", "failed").splitlines()[1].split()[:4] == [
        "a1",
        "sweep-*-x",
        "2",
        "failed",
    ]
    assert len(json.loads(printed(capsys, "jobs", "--all", "--json"))["jobs"]) == len(array.jobs)
    shown = printed(capsys, "job", "a1").splitlines()
    assert shown[0] == "array a1  sweep-*-x  100 jobs, 2% done"
    assert "at most 8" in "\n".join(shown)
    assert len(json.loads(printed(capsys, "job", "a1", "--json"))["jobs"]) == 100


def test_columns_that_are_the_same_everywhere_are_left_out(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    add(fake, user="ada", tags={"team": "vision", "a": "b"})
    add(fake, user="ada", tags={"a": "b", "team": "vision"})
    assert not {"user", "tags"} & set(printed(capsys, "jobs").splitlines()[0].split())
    add(fake, user="bob", tags={"a": "b"})
    lines = printed(capsys, "jobs").splitlines()
    assert {"user", "tags"} <= set(lines[0].split())
    assert "a=b team=vision" in lines[1]


def test_wide_cuts_no_name(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    add(fake, reason=LONG, name="a-name-that-is-much-longer-than-its-column-" * 2)
    wide = printed(capsys, "jobs", "--wide")
    assert "is cut" not in wide
    assert "".join(line[2:24].strip() for line in wide.splitlines()[1:]).count("its-column") == 2


def test_a_command_is_shown_so_that_it_can_be_pasted(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    job = add(fake, command=["sh", "-c", "echo one; exit 4", "{index}"])
    assert "sh -c 'echo one; exit 4' {index}" in printed(capsys, "job", job)


def test_a_format_shows_one_job_too(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    job = add(fake, pb.FAILED, name="x")
    assert printed(capsys, "job", job, "--format", "{id} {name} {state}") == f"{job} x failed\n"
    assert run(["job", job, "--format", "{nope}"]) == 2
    assert "there is no column 'nope'" in capsys.readouterr().err


def test_a_format_is_columns_or_a_template(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    add(fake, name="実験", tags={"a": "b"}, steps=100.0)
    add(fake, pb.FAILED, "line one\nline \x1b[2Jtwo", name="b")
    fake.jobs["2"].exit_code = 3
    assert printed(capsys, "jobs", "--all", "--format", "id,name, state,exit_code,tags").splitlines() == [
        "id  name  state   exit_code  tags",
        "1   実験  queued             a=b",
        "2   b     failed  3",
    ]
    assert printed(capsys, "jobs", "--all", "--format", r"{id:>3}\t{name:<3}|{reason} {{x}}") == (
        "  1\t実験 |waiting {x}\n  2\tb  |line one line ?[2Jtwo {x}\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "id,nam"], "--format: there is no column 'nam'; did you mean 'name'? There are: id, name, user"),
        (["--format", "{id} {x}"], "there is no column 'x'; there are: id, name"),
        (["--format", "{id"], "write for example '{id} {name}'"),
        (["--format", "{}"], "name the columns"),
        (["--format", "{id.__class__}"], "there is no column 'id.__class__'"),
        (["--format", "{id!r}"], "after a colon comes a width"),
        (["--format", "{id:>999999999}"], "after a colon comes a width"),
        (["--format", ""], "there is no column ''"),
        (["--format", "id", "--json"], "--format and --json do not go together"),
        (["--format", "id", "--watch"], "--format and --watch do not go together"),
        (["a7"], "there is no array a7"),
        (["7"], "there is no job '7'"),
    ],
)
def test_a_wrong_call_is_one_sentence(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    add(fake)
    assert run(["jobs", *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_a_selection_without_jobs_is_no_error_for_a_list(
    fake: FakeScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    add(fake)
    assert printed(capsys, "jobs", "--name", "none*").startswith("no jobs")
    assert printed(capsys, "jobs", "5-9") == "no jobs\n"


def test_job_shows_everything_that_was_asked_for(fake: FakeScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    job = add(
        fake,
        pb.RUNNING,
        workers=2,
        array_id="a1",
        index=4,
        at_once=8,
        parameters={"lr": "1e-3"},
        after=["7:any"],
        time_limit_seconds=43200.0,
        idle_timeout_seconds=90.0,
        grace_seconds=300.0,
        tags={"team": "vision"},
        prefer=["v100"],
        gpu_memory_bytes=20 * 2**30,
        cpus=4.0,
        memory_bytes=2**30,
        launcher="per-server",
        venv="/v",
        modules=["cuda/12"],
        container="image:1",
        notify=["https://x.example/hook"],
    )
    fake.jobs[job].warning = "its time limit is near"
    fake.jobs[job].received["v100"] = 3700.0
    shown = " ".join(printed(capsys, "job", job).split())
    for part in (
        *("array a1, index 4, at most 8 at once", "parameters lr=1e-3", "after 7:any", "time limit 12h, 1h01m used"),
        *(
            "idle timeout 1m30s",
            "grace 5m to save and leave",
            "tags team=vision",
            "prefers v100",
            "launcher per-server",
        ),
        "needs 20G of accelerator memory, 4 CPU cores, 1G of RAM, for each worker",
        *("venv /v", "modules cuda/12", "container image:1", "notifies https://x.example/hook"),
        "its time limit is near",
    ):
        assert part in shown
