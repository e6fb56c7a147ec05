"""The commands against a real scheduler, real agents and real jobs, with the scheduler killed under them."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from live_cluster import GAVEL, LiveCluster, eventually, state_of

from gavel.cli.app import run
from gavel.client.errors import NoSuchJob, Refused
from gavel.client.requests import JobRequest
from gavel.client.selection import Selection
from gavel.client.views import JobState
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

LINES = 40
SLEEPER = JobRequest([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(99)"], name="sleeper")


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
    eventually(lambda: len(states(live)) == 2, "its types are known")
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
            assert watcher.stdout.readline()  # only a command that has reached a scheduler waits for it to return
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
        (job,) = client.submit(SLEEPER)
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
        client.submit(SLEEPER)
    for arguments, said in (
        (["cancel", "9"], "there is no job '9'"),
        (["job", "9" * 30], f"there is no job '{'9' * 30}'"),
        (["cancel", "9" * 30], f"there is no job '{'9' * 30}'"),
        (["logs", "1", "--rank", "3"], "job 1 has one worker, rank 0; there is no rank 3"),
        (["worker", "undrain", "gpu7"], "there is no agent 'gpu7'; known: none"),
    ):
        assert run(arguments) == 2
        assert said in capsys.readouterr().err


def states(live: LiveCluster) -> dict[str, str]:
    with live.client() as client:
        return {server.name: server.state for server in client.cluster().servers}


def test_a_drain_is_kept_through_a_restart_until_it_is_undone(
    live: LiveCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    live.start_agent("gpu1", "v100=1")
    with live.client() as client:
        (job,) = client.submit(SLEEPER)
        assert next(client.logs(job, follow=True)) == b"up\n"
        assert f"job {job} " in printed(capsys, "worker", "drain", "gpu1")
        eventually(lambda: states(live) == {"gpu1": "drained"}, "it is empty")
        live.kill_scheduler()
        live.start_scheduler()
        eventually(lambda: client.cluster().term == 2, "the new one answers")
        assert states(live) == {"gpu1": "drained"}
        shown = printed(capsys, "cluster")
        assert "0/1" in shown
        assert "drained by operator" in shown
        assert printed(capsys, "worker", "undrain", "gpu1").startswith("gpu1 takes work again")
        eventually(lambda: state_of(client, job) == "running", "the job is back")
        eventually(lambda: states(live) == {"gpu1": "connected"}, "its agent has found the new scheduler")
        assert "still connected" in refused(capsys, "worker", "remove", "gpu1")
        live.agents["gpu1"].kill()
        eventually(lambda: states(live) == {"gpu1": "lost"}, "the loss is noticed")
        assert "?/1" in printed(capsys, "cluster")
        printed(capsys, "worker", "remove", "gpu1")
        assert states(live) == {}
    text = printed(capsys, "events", "--server", "gpu1")
    for part in ("joined with 1 v100", "takes no new work", "takes work again", "was lost", "removed from the list"):
        assert part in text
    assert f"job {job} (sleeper) was submitted" not in text
    told = json.loads(printed(capsys, "events", "--job", job, "--json"))["events"]
    assert told[0]["kind"] == "job_queued"
    assert {job} == {each for event in told for each in event["jobs"]}
    assert "the scheduler will look again" not in printed(capsys, "events", "--limit", "0")
    log = (live.folder / "scheduler.log").read_text()
    for part in ("agent gpu1 joined", f"job {job} was submitted", "a round begins: 1 started", "agent gpu1 was lost"):
        assert part in log


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 2
    return capsys.readouterr().err


def test_followed_events_live_through_a_kill_of_the_scheduler(live: LiveCluster) -> None:
    with (
        live.client() as client,
        command("events", "-f", "--json", "--all", scheduler=live.address) as follower,
    ):
        assert follower.stdout is not None
        numbers = [json.loads(follower.stdout.readline())["number"]]
        client.submit(SLEEPER)
        live.kill_scheduler()
        live.start_scheduler()
        (last,) = client.submit(SLEEPER)
        kinds, jobs = set(), []
        while last not in jobs:
            event = json.loads(follower.stdout.readline())
            numbers.append(event["number"])
            kinds.add(event["kind"])
            jobs += event["jobs"]
    assert numbers == list(range(1, len(numbers) + 1))
    assert kinds >= {"scheduler_started", "job_queued"}


def test_pages_of_finished_jobs_come_from_the_journal_and_from_memory_alike(live: LiveCluster) -> None:
    with live.client() as client:
        ids = client.submit([SLEEPER] * 30)
        client.cancel(ids[:10])
        assert live.scheduler is not None
        live.scheduler.terminate()  # it keeps its state, and with it what has finished
        live.scheduler.wait(60)
        live.start_scheduler()
        client.cancel(ids[10:20])
        pages, after = [], ""
        with grpc.insecure_channel(live.address) as channel:
            stub = GavelStub(channel)  # type: ignore[no-untyped-call]
            while True:
                query = pb.JobQuery(limit=7, without_unfinished=True, after=after)
                reply = stub.List(query, wait_for_ready=True)
                pages.append([job.id for job in reply.jobs])
                if not (after := reply.next):
                    break
        assert sorted((job for page in pages for job in page), key=int) == ids[:20]
        assert [len(page) for page in pages] == [7, 7, 6]
        assert [job.id for job in client.jobs(states=["cancelled"])] == ids[:20]
        assert [job.id for job in client.jobs()] == ids


def test_selections_are_the_same_in_memory_and_in_the_journal(live: LiveCluster) -> None:
    with live.client() as client:
        jobs = [replace(SLEEPER, name=f"n-{number % 4}", tags={"half": str(number % 2)}) for number in range(24)]
        ids = client.submit(jobs)
        client.cancel(ids[:12])
        assert live.scheduler is not None
        live.scheduler.terminate()  # it keeps its state, and with it what has finished
        live.scheduler.wait(60)
        live.start_scheduler()
        client.cancel(ids[12:18])
        everything = client.jobs()
        for where in ([], ["3-20"], [ids[0], "5-6", ids[-1]]):
            for names in ([], ["n-[12]"]):
                selection = Selection.of(where, names=names, tags=["half=1"])
                expected = [job.id for job in everything if selection.wants(job.id, job.request, job.state)]
                assert [job.id for job in client.select(selection)] == expected
        newest = client.jobs(finished=True, patterns=["n-3"], tags={"half": "1"}, limit=2)
        assert [job.id for job in newest] == [ids[11], ids[15]]
        with pytest.raises(NoSuchJob, match="there is no array a7"):
            client.select(Selection.of(["a7"]))
        with pytest.raises(NoSuchJob, match="there is no job '99'"):
            client.select(Selection.of(["99", "1"]))


def test_a_second_scheduler_waits_and_takes_over(live: LiveCluster) -> None:
    arguments = ["serve", "--folder", str(live.folder / "state"), "--listen", "127.0.0.1:0"]
    refusal = subprocess.run([*GAVEL, *arguments], capture_output=True, check=False, timeout=60)
    assert refusal.returncode == 1
    assert b"another scheduler is using the journal" in refusal.stderr
    assert b"--wait SECONDS" in refusal.stderr
    with subprocess.Popen([*GAVEL, *arguments, "--wait", "60"], stderr=subprocess.PIPE) as second:
        assert second.stderr is not None
        assert b"waiting for it to end, at most 60 s" in second.stderr.readline()
        live.kill_scheduler()
        assert b"unfinished jobs in the journal" in second.stderr.readline()
        second.terminate()
        assert second.wait(60) == 0


def test_a_scheduler_that_another_one_has_replaced_says_so_and_ends(live: LiveCluster) -> None:
    with closing(sqlite3.connect(live.folder / "state" / "journal.sqlite")) as journal, journal:
        journal.execute("update leader set term = term + 1, holder = 'head2 (process 7)'")
    with live.client() as client, grpc.insecure_channel(live.address) as channel:
        assert client.cluster().alarms == ()
        stub = GavelStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError):
            stub.Submit(pb.SubmitRequest(jobs=[pb.JobRequest(command=["true"], workers=1)]), timeout=60)
    assert live.scheduler is not None
    assert live.scheduler.wait(60) == 1
    log = (live.folder / "scheduler.log").read_text()
    assert log.splitlines()[-1].startswith("gavel: another scheduler took over the journal")
    assert "head2 (process 7) leads in term 2" in log


def test_a_port_that_is_taken_is_one_sentence(live: LiveCluster) -> None:
    arguments = ["serve", "--folder", str(live.folder / "other"), "--listen", live.address]
    done = subprocess.run([*GAVEL, *arguments], capture_output=True, check=False, timeout=60)
    assert done.returncode == 2
    refusal = f"gavel: --listen {live.address}: the port is in use or not permitted; choose another\n"
    assert done.stderr.decode() == refusal


def test_the_log_is_one_json_object_in_each_line(live: LiveCluster) -> None:
    live.kill_scheduler()
    (live.folder / "scheduler.log").write_text("")
    live.options = {"log-format": "json", "log-level": "debug"}
    live.start_scheduler()
    with live.client() as client:
        client.submit([SLEEPER] * 3)
        eventually(lambda: client.cluster().queued == 3, "they are queued")
    records = [json.loads(line) for line in (live.folder / "scheduler.log").read_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= record.keys() for record in records)
    (submitted,) = [record for record in records if record.get("kind") == "job_queued"]
    assert (submitted["level"], submitted["count"], submitted["message"]) == ("info", 3, "3 jobs submitted: 1 to 3")
