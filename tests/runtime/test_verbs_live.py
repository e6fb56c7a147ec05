"""The verbs for jobs with real processes, and a scheduler that is killed in the middle of what they began."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from live_cluster import GAVEL, LiveCluster, eventually, state_of

from gavel.cli.app import run

SLEEP = ["--", sys.executable, "-c", "import time; print('up {index}', flush=True); time.sleep(99)"]


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveCluster]:
    monkeypatch.chdir(tmp_path)
    with LiveCluster(tmp_path) as cluster:
        monkeypatch.setenv("GAVEL_SCHEDULER", cluster.address)
        cluster.start_agent("a", "v100=2")
        yield cluster
        print(cluster.everything())  # shown if the test fails


def done(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run([arguments[0], "--json", *arguments[1:]]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def watch(terminal: int, wanted: bytes, seen: threading.Event) -> None:
    """Read a terminal to its end, so that what writes to it continues; say when something has come."""
    text = b""
    with suppress(OSError), open(terminal, "rb", buffering=0) as screen:
        while piece := screen.read(1024):
            text += piece
            if wanted in text:
                seen.set()


def test_verbs_hold_through_the_end_of_the_scheduler(live: LiveCluster, capsys: pytest.CaptureFixture[str]) -> None:
    array = done(capsys, "submit", "--array", "0-3%1", "--name", "part-{index}", "--tag", "a=b", *SLEEP)["ids"]
    assert array == ["1", "2", "3", "4"]
    done(capsys, "submit", "--name", "next", "--after", "a1:any", "--", "true")
    ours, theirs = pty.openpty()
    waiting = subprocess.Popen([*GAVEL, "wait", "--name", "next", "--json"], stdout=subprocess.PIPE, stderr=theirs)
    with live.client() as client:
        begun = threading.Event()
        threading.Thread(target=watch, args=(ours, b"0 of 1 finished", begun), daemon=True).start()
        assert begun.wait(60), "it has reached the scheduler before that is killed"
        eventually(lambda: state_of(client, "1") == "running", "the first of the array runs")
        assert [job["id"] for job in done(capsys, "hold", "--tag", "a=b", "--state", "queued")["jobs"]] == [
            "2",
            "3",
            "4",
        ]
        done(capsys, "edit", "a1.3", "--weight", "7", "--time-limit", "1h", "--name", "last")
        live.kill_scheduler()
        live.start_scheduler()
        assert [job.code for job in client.jobs(ids=["2", "3", "4"])] == ["held"] * 3
        job = client.job("4").job.request
        assert (job.weight, job.time_limit, job.name, dict(job.tags)) == (7.0, 3600.0, "last", {"a": "b"})
        assert [job["id"] for job in done(capsys, "release", "--name", "last")["jobs"]] == ["4"]
        assert run(["release", "2-3", "1"]) == 2, "one that is not on hold"
        assert "job 1" in capsys.readouterr().err
        assert [job.code for job in client.jobs(ids=["2", "3"])] == ["held"] * 2, "all or none"
        done(capsys, "cancel", "1")
        eventually(lambda: state_of(client, "4") == "running", "the released one has its place")
        done(capsys, "requeue", "a1.3")
        eventually(lambda: client.job("4").job.attempts >= 2, "it has had another turn")
        assert [job["id"] for job in done(capsys, "cancel", "a1")["jobs"]] == ["2", "3", "4"]
        assert done(capsys, "resubmit", "a1.0", "--name", "again", "--steps", "5")["ids"] == ["6"]
        assert client.job("6").job.request.name == "again"
        output = json.loads(waiting.communicate(timeout=60)[0])
    os.close(theirs)
    assert waiting.returncode == 0
    assert [job["state"] for job in output["jobs"]] == ["completed"]
