"""The commands against a real scheduler, real agents and real jobs, with the scheduler killed under them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from live_cluster import GAVEL, LiveCluster, eventually, state_of

from gavel.cli.app import run
from gavel.client.errors import NoSuchJob, Refused
from gavel.client.requests import JobRequest
from gavel.client.views import JobState
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

LINES = 40


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveCluster]:
    monkeypatch.chdir(tmp_path)
    with LiveCluster(tmp_path) as cluster:
        monkeypatch.setenv("GAVEL_SCHEDULER", cluster.address)
        yield cluster
        print(cluster.everything())  # shown if the test fails


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(list(arguments)) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_a_job_file_is_run_to_its_end_and_everything_about_it_is_told(
    live: LiveCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    live.start_agent("gpu1", "v100=1,k80=1", time_scale=8.0)
    counting = live.counting("trail", steps=60)
    jobs = [
        {"name": "shell", "command": 'echo "in $PWD with $GREETING"', "environment": {"GREETING": "hello"}},
        {"name": "python", "command": list(counting.command), "steps": 60, "template": "A3C", "types": ["k80"]},
    ]
    (live.folder / "jobs.yaml").write_text(json.dumps(jobs))
    result = json.loads(printed(capsys, "submit", "jobs.yaml", "--wait", "--json"))
    assert [job["state"] for job in result["jobs"]] == ["completed", "completed"]
    shell, python = result["ids"]
    logged = json.loads(printed(capsys, "logs", shell, "--json"))["log"]
    assert logged == f"in {live.folder} with hello\n"
    detail = json.loads(printed(capsys, "job", python, "--json"))
    assert detail["job"]["steps_done"] == 60
    assert list(detail["job"]["received"]) == ["k80"]
    assert [step["state"] for step in detail["history"]][-2:] == ["running", "completed"]
    assert "python" in printed(capsys, "jobs")
    assert "no job" in printed(capsys, "jobs", "--state", "running")
    cluster = json.loads(printed(capsys, "cluster", "--json"))
    assert {server["type"]: server["agent"] for server in cluster["servers"]} == {"v100": "gpu1", "k80": "gpu1"}
    assert "gpu1:v100" in printed(capsys, "cluster")


def test_a_job_that_fails_is_exit_code_1_with_its_reason(live: LiveCluster, capsys: pytest.CaptureFixture[str]) -> None:
    live.start_agent("gpu1", "v100=1")
    text = printed(capsys, "submit", "--wait", "--retries", "0", "--", "sh", "-c", "exit 3", code=1)
    assert "failed" in text
    assert "exit code 3" in text


@contextmanager
def command(*arguments: str, scheduler: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs until it ends, or until the test does."""
    environment = {**os.environ, "GAVEL_SCHEDULER": scheduler}
    with subprocess.Popen([*GAVEL, *arguments], stdout=subprocess.PIPE, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def test_followers_and_waiters_live_through_a_kill_of_the_scheduler(live: LiveCluster) -> None:
    live.start_agent("gpu1", "v100=1")
    script = f"for i in $(seq {LINES}); do echo line $i; sleep 0.1; done"
    with live.client() as client:
        (job,) = client.submit(JobRequest(script, name="talker"))
        with (
            command("logs", "-f", job, scheduler=live.address) as follower,
            command("jobs", "--watch", scheduler=live.address) as watcher,
        ):
            assert follower.stdout is not None
            assert watcher.stdout is not None
            first = follower.stdout.readline()
            assert watcher.stdout.readline()  # whoever has never reached a scheduler does not wait for one
            live.kill_scheduler()
            live.start_scheduler()
            assert client.wait(job, timeout=60)[0].state is JobState.COMPLETED
            assert first + follower.stdout.read() == b"".join(b"line %d\n" % (n + 1) for n in range(LINES))
            assert follower.wait() == 0
            assert any(b"completed" in line for line in watcher.stdout)
            watcher.send_signal(signal.SIGINT)
            assert watcher.wait() == 0


def test_a_submission_that_is_repeated_after_a_restart_takes_effect_once(live: LiveCluster) -> None:
    request = pb.SubmitRequest(jobs=[pb.JobRequest(command=["true"], workers=1)] * 3, key="once")
    with grpc.insecure_channel(live.address) as channel:
        stub = GavelStub(channel)  # type: ignore[no-untyped-call]
        first = list(stub.Submit(request, wait_for_ready=True).ids)
        live.kill_scheduler()
        live.start_scheduler()
        assert list(stub.Submit(request, wait_for_ready=True).ids) == first
    with live.client() as client:
        assert [job.id for job in client.jobs()] == first


def test_many_jobs_are_submitted_listed_and_cancelled(live: LiveCluster, capsys: pytest.CaptureFixture[str]) -> None:
    (live.folder / "many.yaml").write_text("command: [sleep, 60]\ncount: 2500\n")
    assert printed(capsys, "submit", "many.yaml") == "submitted 2,500 jobs: 1 to 2500\n"
    assert "2,500 queued" in printed(capsys, "jobs")
    assert len(json.loads(printed(capsys, "jobs", "--limit", "10", "--json"))["jobs"]) == 10
    with live.client() as client:
        assert len(client.cancel([job.id for job in client.jobs()])) == 2500
        assert {job.state for job in client.wait([str(n + 1) for n in range(2500)])} == {JobState.CANCELLED}


def test_cancelling_a_running_job_ends_its_process(live: LiveCluster, capsys: pytest.CaptureFixture[str]) -> None:
    live.start_agent("gpu1", "v100=1")
    with live.client() as client:
        (job,) = client.submit(
            JobRequest([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(99)"])
        )
        assert next(client.logs(job, follow=True)) == b"up\n"
        assert printed(capsys, "cancel", job) == f"job {job} is cancelled\n"
        assert state_of(client, job) == "cancelled"
        eventually(lambda: all(server.free for server in client.cluster().servers), "its accelerator is free")


def test_what_the_real_scheduler_refuses_is_said_in_its_words(
    live: LiveCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with live.client() as client:
        with pytest.raises(NoSuchJob, match="there is no job '9'"):
            client.job("9")
        with pytest.raises(NoSuchJob):
            client.wait(["9"])
        with pytest.raises(NoSuchJob):
            list(client.logs("nine"))
        with pytest.raises(Refused, match="no agent 'gpu7'"):
            client.drain("gpu7")
    assert run(["cancel", "9"]) == 2
    assert "there is no job '9'" in capsys.readouterr().err
