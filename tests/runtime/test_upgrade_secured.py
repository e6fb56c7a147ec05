"""A cluster of version 0.2 becomes a secured one while its jobs run: as docs/security.md says, with real processes.

Of version 0.2 there are its journal and the messages of one of its agents; everything else is the present version.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import ssl
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from live_cluster import LiveCluster, eventually
from raw_peers import RawAgent, play

from gavel import Client, Refused
from gavel.client import trust
from gavel.client.checkpoints import Checkpoints, Position, write_position
from gavel.runtime.agent.ownership import Owner, claim
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

DUMP = Path(__file__).parent / "journal_of_version_0_2.sql"
"""Job 1 is completed, job 2 runs at agent `one` in its first attempt, job 3 waits for a k80."""
IDENTITY = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1"
SAVED = 60
"""Steps of job 2 when its agent is ended for the upgrade, of 100."""


class Upgrade(LiveCluster):
    """The scheduler's folder, the agents' state and the checkpoints as version 0.2 left them."""

    cluster = ""

    def prepare(self) -> None:
        state = self.folder / "state"
        state.mkdir()
        with closing(sqlite3.connect(state / "journal.sqlite")) as journal:
            journal.executescript(DUMP.read_text())
            [(self.cluster,)] = journal.execute("SELECT cluster FROM about")
        program = self.folder / "bin" / "count-steps"
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\nexec {sys.executable} "{self.folder}/count.py" "{self.folder}/trail-$GAVEL_JOB_ID"\n'
        )
        program.chmod(0o755)

    def old_agents_files(self) -> None:
        """What the agent of version 0.2 leaves when it is ended: its identity, and a checkpoint of job 2."""
        (self.folder / "one").mkdir(mode=0o700)
        known = {"agent": IDENTITY, "cluster": self.cluster, "term": 1}
        (self.folder / "one" / "identity.json").write_text(json.dumps(known))
        place = self.folder / "checkpoints" / "2"
        claim(place, Owner(self.cluster, "2"), 1)
        with Checkpoints(place).writing(SAVED) as folder:
            (folder / "total").write_text(str(SAVED))
            write_position(folder, Position(SAVED, SAVED // 25, SAVED % 25, {}))

    def secret(self, name: str) -> str:
        return (self.folder / "state" / "security" / name).read_text().strip()

    @property
    def fingerprint(self) -> str:
        return trust.fingerprint(ssl.PEM_cert_to_DER_cert(self.secret("authority.crt")))

    def as_user(self, token: str) -> Client:
        return Client(self.address, token=token, fingerprint=self.fingerprint)

    def join(self, name: str, emulate: str) -> None:
        """Start an agent of the present version with the line that the scheduler printed."""
        self.agents[name] = self._start(
            name,
            [
                *("worker", "--join", self.address, "--token", self.secret("join.token")),
                *("--fingerprint", self.fingerprint, "--name", name, "--emulate", emulate, "--time-scale", "4"),
                *("--state", str(self.folder / name), "--checkpoints", str(self.folder / "checkpoints")),
            ],
        )


@pytest.fixture
def upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upgrade:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    old, agents = free_address(), free_address()
    options = {"insecure-listen": old, "agents-listen": agents, "socket": tmp_path / "s", "agent-timeout-seconds": 20.0}
    found = Upgrade(tmp_path, options)
    found.prepare()
    return found


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_agents_enrol_while_jobs_of_the_version_before_run_and_every_step_is_done_once(upgrade: Upgrade) -> None:
    async def scene() -> None:
        with upgrade:
            await _story(upgrade)

    try:
        play(scene())
    except BaseException:
        print(upgrade.everything())
        raise


async def _story(upgrade: Upgrade) -> None:
    old = str(upgrade.options["insecure-listen"])
    with upgrade.as_user(upgrade.secret("admin.token")) as admin:
        async with grpc.aio.insecure_channel(old) as channel:
            stub = GavelStub(channel)  # type: ignore[no-untyped-call]
            agent = await _attached(stub, upgrade)
            await _job_continues_in_its_attempt(agent, admin)
            await _clients_of_the_version_before_are_told_what_to_do(stub)
            await _only_operators_cancel_a_job_without_a_user(upgrade, admin)
            upgrade.join("two", "k80=1")
            await _until(lambda: _state(admin, "3") == "completed", "the job that waited runs at a new agent")
            assert _state(admin, "2") == "running", "it is not disturbed"
            await _leaves(agent)
            upgrade.old_agents_files()
        upgrade.join("one", "v100=1")
        await _until(lambda: _state(admin, "2") == "completed", "the job continues where its agent enrolled")
        await _plaintext_is_refused_to_enrolled_agents(old)
        await _restart_without_plaintext(upgrade, admin)
    _check_trails(upgrade)


async def _attached(stub: Any, upgrade: Upgrade) -> RawAgent:
    """Attach as an agent of version 0.2 does after its scheduler was restarted: it says nothing about TLS."""
    agent = RawAgent(stub.Attach(), "one")
    await agent.say(hello=_hello(cluster=upgrade.cluster, tasks=[_status(20)]))
    assert (await agent.hear("welcome")).cluster == upgrade.cluster
    return agent


def _hello(**fields: Any) -> pb.Hello:
    kinds = [pb.Accelerators(type="v100", count=1)]
    known = {"protocol": PROTOCOL, "version": "0.2.0", "agent": IDENTITY, "incarnation": "1", "term": 1}
    return pb.Hello(name="one", accelerators=kinds, **{**known, **fields})


def _status(steps: float, saved: float = 0.0) -> pb.TaskStatus:
    return pb.TaskStatus(job="2", attempt=1, counts=True, steps=steps, saved_steps=saved)


async def _job_continues_in_its_attempt(agent: RawAgent, admin: Client) -> None:
    await agent.hear("lease", lambda lease: lease.seconds > 0)
    await agent.say(heartbeat=pb.Heartbeat(tasks=[_status(30)]))
    await _until(lambda: admin.job("2").job.steps_done == 30, "its steps are counted")
    found = admin.job("2").job
    assert (found.state.value, found.attempts, found.failures) == ("running", 1, 0)
    assert not {"start", "stop"} & {message.WhichOneof("message") for message in agent.received}


async def _clients_of_the_version_before_are_told_what_to_do(stub: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="`gavel login`") as refused:
        await stub.List(pb.JobQuery())
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def _only_operators_cancel_a_job_without_a_user(upgrade: Upgrade, admin: Client) -> None:
    admin.add_user("ann", teams=["nlp"])
    with upgrade.as_user(admin.create_token(user="ann").token) as ann:
        with pytest.raises(Refused, match="before this scheduler had users; only operators change it"):
            ann.cancel("3")
        with pytest.raises(Refused, match="its logs are for operators only"):
            list(ann.logs("2"))
        assert {job.id: job.request.user for job in ann.jobs()} == {"1": "", "2": "", "3": ""}


async def _leaves(agent: RawAgent) -> None:
    """End the agent as SIGTERM does: it takes no more work, and its job saves and leaves."""
    await agent.say(draining=pb.Draining())
    await agent.hear("stop", lambda stop: stop.job == "2")
    await agent.say(ended=pb.TaskEnded(status=_status(SAVED, SAVED), how=pb.TaskEnded.LEFT, reason="asked to leave"))
    await agent.hear("ack")
    agent.call.cancel()


async def _plaintext_is_refused_to_enrolled_agents(old: str) -> None:
    async with grpc.aio.insecure_channel(old) as channel:
        impostor = RawAgent(GavelStub(channel).Attach(), "one")  # type: ignore[no-untyped-call]
        await impostor.say(hello=_hello(incarnation="2"))
        assert "certificate" in (await impostor.hear("refused")).reason


async def _restart_without_plaintext(upgrade: Upgrade, admin: Client) -> None:
    assert sorted(agent.name for agent in admin.agents()) == ["one", "two"]
    upgrade.kill_scheduler()
    old = str(upgrade.options.pop("insecure-listen"))
    upgrade.start_scheduler()
    await _until(lambda: {agent.state for agent in admin.agents()} == {"connected"}, "agents come back by themselves")
    with socket.socket() as probe:
        host, _, port = old.partition(":")
        assert probe.connect_ex((host, int(port))) != 0, "the old port is closed"
    assert {job.id: job.state.value for job in admin.jobs()} == dict.fromkeys(("1", "2", "3"), "completed")


def _check_trails(upgrade: Upgrade) -> None:
    continued, waited = upgrade.trail("trail-2"), upgrade.trail("trail-3")
    assert [fields[:3] for fields in continued.lines("begin")] == [["2", "0", str(SAVED)]]
    assert continued.steps() == list(range(SAVED + 1, 101))
    assert waited.steps() == list(range(1, 51))


def _state(client: Client, job: str) -> str:
    return str(client.job(job).job.state.value)


async def _until(what: Callable[[], object], why: str) -> None:
    await asyncio.to_thread(eventually, what, why, 40.0)
