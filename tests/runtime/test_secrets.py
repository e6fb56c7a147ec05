"""Secrets of jobs in the live system: they reach the job's processes, and nothing else ever shows them."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from live_cluster import GAVEL, LiveCluster, eventually, state_of
from silent_notifier import silent
from test_safety_driver import SECONDS, FailingJournal, Live, journal

from gavel.client.messages import to_request
from gavel.client.requests import JobRequest
from gavel.client.secret_values import SecretValues
from gavel.core.errors import InputError
from gavel.journal.accounts import write_secrets
from gavel.journal.database import sqlite_url
from gavel.journal.errors import TemporaryJournalError
from gavel.journal.queries import open_read_only
from gavel.journal.store import Write
from gavel.policies.registry import find_policy
from gavel.runtime import driver as driving
from gavel.runtime.access import Access
from gavel.runtime.agent_wire import pack_to_agent, unpack_to_agent
from gavel.runtime.events import DrainAsked, StepsCounted
from gavel.runtime.facts import Fact
from gavel.runtime.logs import Logs
from gavel.runtime.messages import StartAttempt, ToAgentFrame
from gavel.runtime.server import secrets_for
from gavel.runtime.service import Service
from gavel.security.gate import Identities
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

__all__ = ["journal"]

VALUE = "s3cret-Zażółć-" + "0123456789abcdef" * 4
JOB = """
import hashlib, os, pathlib, time
print("hash", hashlib.sha256(os.environ["TOKEN"].encode()).hexdigest(), flush=True)
while not pathlib.Path(os.environ["FINISH"]).exists():
    time.sleep(0.05)
"""
HASH = hashlib.sha256(VALUE.encode()).hexdigest()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveCluster]:
    patient: dict[str, object] = {"lease-slack-seconds": 40.0, "agent-timeout-seconds": 20.0, "log-level": "debug"}
    with LiveCluster(tmp_path, patient) as cluster:
        (tmp_path / "job.py").write_text(JOB)
        yield cluster
        print(cluster.everything())  # shown if the test fails


def request_of(live: LiveCluster) -> JobRequest:
    environment = {"FINISH": str(live.folder / "finish"), "TOKEN": "the secret wins"}
    command = (sys.executable, str(live.folder / "job.py"))
    return JobRequest(command, name="secretive", environment=environment, secrets={"TOKEN": VALUE}, private=True)


def files_with(folder: Path, value: bytes) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 2
    return [str(path) for path in files if value in path.read_bytes()]


def answers(address: str, job: str) -> list[bytes]:
    """Everything that a caller can be told about a job."""
    with grpc.insecure_channel(address) as channel:
        stub = GavelStub(channel)  # type: ignore[no-untyped-call]
        query = pb.JobQuery(ids=[job])
        watched: list[Any] = []
        for update in (watch := stub.Watch(query)):
            watched.append(update)
            if update.caught_up:
                break
        watch.cancel()
        told = [
            stub.List(query),
            stub.Describe(pb.DescribeRequest(id=job)),
            stub.Cluster(pb.ClusterRequest()),
            *watched,
            *stub.Events(pb.EventsRequest(routine=True)),
            *stub.Logs(pb.LogsRequest(id=job)),
        ]
    return [message.SerializeToString() for message in told]


def commands(live: LiveCluster, job: str) -> bytes:
    """What the commands print about a job."""
    address = ("--scheduler", live.address)
    asked = [
        ("job", job, *address),
        ("job", job, "--json", *address),
        ("events", "--json", *address),
        ("journal", "show", str(live.folder / "state"), "--json"),
    ]
    done = [subprocess.run([*GAVEL, *each], capture_output=True, timeout=60, check=False) for each in asked]
    assert [each.returncode for each in done] == [0, 0, 0, 0], [each.stderr for each in done]
    return b"".join(each.stdout + each.stderr for each in done)


def assert_hidden(live: LiveCluster, job: str) -> None:
    assert files_with(live.folder, VALUE.encode()) == []
    told = answers(live.address, job)
    assert not any(VALUE.encode() in message for message in told)
    assert any(b"TOKEN" in message for message in told)
    assert VALUE.encode() not in commands(live, job)


def sealed_rows(folder: Path) -> dict[str, dict[str, bytes]]:
    with open_read_only(sqlite_url(folder / "journal.sqlite")) as reader:
        return reader.all_secrets()


def test_a_secret_arrives_after_a_restart_and_is_in_no_file_and_no_answer(live: LiveCluster) -> None:
    with live.client() as client:
        (job,) = client.submit(request_of(live))
        sealed = sealed_rows(live.folder / "state")[job]["TOKEN"]
        assert VALUE.encode() not in sealed
        live.kill_scheduler()
        live.start_scheduler()
        live.start_agent("fast", "v100=1")
        eventually(lambda: HASH.encode() in b"".join(client.logs(job)), "the job has printed the hash of its secret")
        assert_hidden(live, job)
        (live.folder / "finish").touch()
        client.wait(job, timeout=60)
        assert state_of(client, job) == "completed"
        assert_hidden(live, job)
        assert sealed_rows(live.folder / "state") == {}
        assert b"TOKEN (hidden)" in commands(live, job)
    assert live.scheduler is not None
    live.scheduler.terminate()
    live.scheduler.wait(30)
    # The database has been checkpointed: not even the encrypted value is left in it.
    assert files_with(live.folder / "state", sealed) == []


def test_without_the_key_only_jobs_with_secrets_fail_and_say_why(live: LiveCluster) -> None:
    with live.client() as client:
        (job,) = client.submit(request_of(live))
        live.kill_scheduler()
        (live.folder / "state" / "security" / "secrets.key").unlink()
        live.start_scheduler()
        live.start_agent("fast", "v100=1")
        (other,) = client.submit(JobRequest(["true"]))
        lost, fine = client.wait([job, other], timeout=60)
        assert (lost.state.value, fine.state.value) == ("failed", "completed")
        assert "secrets.key, is missing; restore it and restart the scheduler, or submit the job again" in lost.reason
        (live.folder / "finish").touch()
        (again,) = client.submit(request_of(live))
        client.wait(again, timeout=60)
        assert HASH.encode() in b"".join(client.logs(again))
        assert sealed_rows(live.folder / "state") == {}


def test_the_command_line_reads_a_secret_from_the_environment_and_from_a_file(live: LiveCluster) -> None:
    live.start_agent("fast", "v100=1")
    (live.folder / "finish").touch()
    (live.folder / "token").write_text(VALUE + "\n")
    run = (*("--env", f"FINISH={live.folder / 'finish'}"), "--", sys.executable, str(live.folder / "job.py"))
    for secret in ("TOKEN", f"TOKEN=@{live.folder / 'token'}"):
        submitted = subprocess.run(
            [*GAVEL, "submit", "--scheduler", live.address, "--wait", "--private", "--secret", secret, *run],
            capture_output=True,
            timeout=90,
            check=False,
            env={**os.environ, "TOKEN": VALUE},
        )
        assert submitted.returncode == 0, submitted
        assert VALUE.encode() not in submitted.stdout + submitted.stderr
    with live.client() as client:
        for job in client.jobs():
            assert HASH.encode() in b"".join(client.logs(job.id))
            assert job.request.private
            assert job.request.secrets == ("TOKEN",)


# ---- the transactions ----


class RefusalError(Exception):
    """A refused call, with its status and sentence."""


class Context:
    """A call whose refusal is an error, as in gRPC."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise RefusalError(code.name, details)


def vaulted(live: Live, folder: Path) -> Service:
    live.fleet.secrets = secrets_for(live.engine, folder)
    access = Access(Identities(), live.engine.journal, live.engine.clock, live.driver.write)
    logs = Logs(folder / "logs", limit=1000)
    notifier = silent(live.driver, folder, logs)
    return Service(live.driver, live.fleet, logs, find_policy("max_min_fairness"), access, notifier=notifier)


def submission(secrets: Sequence[dict[str, str]], key: str = "key", **changed: Any) -> pb.SubmitRequest:
    jobs = [to_request(JobRequest(["true"], secrets=each, **changed)) for each in secrets]
    return pb.SubmitRequest(jobs=jobs, key=key, secrets=[pb.Secrets(values=each) for each in secrets])


def test_secrets_are_written_with_the_job_and_removed_with_its_end_however_often_writing_fails(
    journal: FailingJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving, "RETRY_SECONDS", (0.01, 0.01))
    context: Any = Context()

    async def failing(live: Live, call: Any) -> Any:
        live.attempts = 0
        live.tried.clear()
        before = journal.all_secrets()
        live.journal.error = TemporaryJournalError("the disk is full")
        calling = asyncio.ensure_future(call)
        await asyncio.wait_for(live.tried.wait(), SECONDS)
        assert journal.all_secrets() == before
        live.journal.error = None
        return await asyncio.wait_for(calling, SECONDS)

    async def story() -> None:
        live = Live(journal, tmp_path)
        service = vaulted(live, tmp_path)
        request = submission([{"A": VALUE, "B": "2"}, {}, {"A": "3"}])
        reply = await failing(live, service.Submit(request, context))
        rows = journal.all_secrets()
        assert {job: set(names) for job, names in rows.items()} == {"1": {"A", "B"}, "3": {"A"}}
        assert (await service.Submit(request, context)).ids == reply.ids == ["1", "2", "3"]
        assert journal.all_secrets() == rows
        assert live.fleet.secrets.of("1", ("A", "B")) == {"A": VALUE, "B": "2"}
        await failing(live, service.Cancel(pb.CancelRequest(ids=["1", "2"]), context))
        assert set(journal.all_secrets()) == {"3"}
        live.driver.stop()
        await live.work

    asyncio.run(story())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"secrets": []}, "values of secrets were sent for 0 jobs, but 1 were submitted"),
        ({"secrets": [pb.Secrets(), pb.Secrets()]}, "for 2 jobs, but 1 were submitted"),
        ({"secrets": [pb.Secrets(values={"A": VALUE})]}, "the secret B was sent without a value"),
        ({"secrets": [pb.Secrets(values={"A": VALUE, "B": VALUE, "C": VALUE})]}, "a value was sent for 'C'"),
        ({"secrets": [pb.Secrets(values={"A": VALUE, "B": VALUE + "\0"})]}, "the value of B must be text without NUL"),
        ({"secrets": [pb.Secrets(values={"A": VALUE, "B": VALUE * 1000})]}, "bytes, at most 65,536 are allowed"),
        ({"jobs": [pb.JobRequest(command=["a"], secrets=["GAVEL_A"])]}, "which is reserved"),
        ({"jobs": [pb.JobRequest(command=["a"], secrets=["A=B"])]}, "cannot be the name of a variable"),
        ({"jobs": [pb.JobRequest(command=["a"], secrets=["A", "A"])]}, "secrets names A twice"),
        ({"jobs": [pb.JobRequest(command=["a"], secrets=[f"A{n}" for n in range(65)])]}, "at most 64"),
    ],
)
def test_the_scheduler_repeats_every_check_and_quotes_no_value(
    journal: FailingJournal, tmp_path: Path, changed: dict[str, Any], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    good = submission([{"A": VALUE, "B": VALUE}])
    request = pb.SubmitRequest(**{"jobs": good.jobs, "secrets": good.secrets, **changed})
    context: Any = Context()

    async def story() -> None:
        live = Live(journal, tmp_path)
        with pytest.raises(RefusalError) as refusal:
            await vaulted(live, tmp_path).Submit(request, context)
        assert refusal.value.args[0] == "INVALID_ARGUMENT"
        assert said in refusal.value.args[1]
        assert VALUE not in refusal.value.args[1]
        assert journal.all_secrets() == {}
        live.driver.stop()
        await live.work

    asyncio.run(story())
    out, err = capfd.readouterr()
    assert VALUE not in out + err


def test_without_a_place_for_the_key_the_submission_is_refused(journal: FailingJournal, tmp_path: Path) -> None:
    context: Any = Context()

    async def story() -> None:
        live = Live(journal, tmp_path)
        service = vaulted(live, tmp_path)
        (tmp_path / "security").write_text("in the way")
        with pytest.raises(RefusalError, match="no key for secrets can be made") as refusal:
            await service.Submit(submission([{"A": VALUE}]), context)
        assert refusal.value.args[0] == "FAILED_PRECONDITION"
        assert not [entry for entry in journal.facts() if entry.kind == "job_queued"]
        assert (await service.Submit(submission([{}]), context)).ids == ["1"]
        live.driver.stop()
        await live.work

    asyncio.run(story())


def test_nothing_is_written_beside_an_event_that_is_refused(journal: FailingJournal, tmp_path: Path) -> None:
    async def story() -> None:
        live = Live(journal, tmp_path)
        called: list[Sequence[Fact]] = []

        def beside(facts: Sequence[Fact]) -> list[Write]:
            called.append(facts)
            return []

        with pytest.raises(InputError, match="there is no agent"):
            await live.driver.post(DrainAsked(0.0, "unknown", "ada"), beside=beside)
        assert called == []
        await live.driver.post(StepsCounted(0.0, {}), beside=beside)
        assert called == [[]]
        live.driver.stop()
        await live.work

    asyncio.run(story())


def test_secrets_of_jobs_that_no_longer_exist_are_removed_at_the_start(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "journal.sqlite")
    with FailingJournal.open(url, holder="test") as opened:
        assert isinstance(opened, FailingJournal)
        opened.write([lambda connection: write_secrets(connection, "77", {"A": b"left behind by a crash"})])

        async def story() -> None:
            live = Live(opened, tmp_path)
            vaulted(live, tmp_path)
            assert opened.all_secrets() == {}
            live.driver.stop()
            await live.work

        asyncio.run(story())


def test_an_order_to_start_shows_no_value() -> None:
    request = JobRequest(["true"], secrets={"A": VALUE}).submission()
    start = StartAttempt(
        job="1",
        attempt=1,
        first_rank=0,
        ranks=1,
        workers=1,
        type="v100",
        request=request,
        lease_seconds=1.0,
        secrets=SecretValues({"A": VALUE}),
    )
    arrived = unpack_to_agent(pack_to_agent(ToAgentFrame(start, 1)))
    assert arrived is not None
    assert arrived.message == start
    assert VALUE not in repr(start)
    assert "A=(hidden)" in repr(arrived)
