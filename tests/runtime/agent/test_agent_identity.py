"""An agent's identity, which cluster it serves, and which schedulers it follows."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from agent_stage import (
    LEAVES_WHEN_ASKED,
    Scheduler,
    Session,
    play,
    python,
    running,
    settings_for,
    shell,
    start,
    stop,
    until,
)
from hypothesis import given
from hypothesis import strategies as st

from gavel.errors import InputError
from gavel.runtime.agent import identity
from gavel.runtime.agent.identity import AgentIdentity, OlderSchedulerError, OtherClusterError
from gavel.runtime.messages import Ack, AttachRefused, ToAgentFrame, Welcome
from gavel.wire import gavel_pb2 as pb


def welcome(cluster: str, term: int) -> ToAgentFrame:
    graces = {"heartbeat_seconds": 1.0, "checkpoint_grace_seconds": 1.0, "terminate_grace_seconds": 1.0}
    return ToAgentFrame(Welcome(cluster=cluster, **graces), term)


# ---- what is kept ----


def test_an_agent_keeps_its_id_from_start_to_start(tmp_path: Path) -> None:
    async def scene() -> None:
        hellos = []
        async with Scheduler() as scheduler:
            for directory in (tmp_path / "a", tmp_path / "a", tmp_path / "b"):
                async with running(settings_for(scheduler, directory)):
                    hellos.append((await scheduler.session()).hello)
        first, again, other = hellos
        assert len(first.agent) == 32
        assert first.agent == again.agent != other.agent
        assert first.incarnation != again.incarnation

    play(scene())


def test_only_the_agent_can_read_its_identity(tmp_path: Path) -> None:
    made = AgentIdentity.of(tmp_path)
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert AgentIdentity.of(tmp_path) == made


def test_an_agent_that_lost_its_state_directory_is_a_new_agent(tmp_path: Path) -> None:
    first = AgentIdentity.of(tmp_path)
    first.path.unlink()
    assert AgentIdentity.of(tmp_path).agent != first.agent


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"agent": "a", "cluster": "c", "term": "many"}'])
def test_a_damaged_identity_is_refused_with_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / identity.FILE).write_text(text)
    with pytest.raises(InputError, match="remove it to make this a new agent"):
        AgentIdentity.of(tmp_path)


# ---- whom it follows ----


@given(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 5), st.booleans()), max_size=12))
def test_terms_of_a_cluster_never_go_back_and_busy_agents_stay(
    tmp_path_factory: pytest.TempPathFactory, frames: list[tuple[str, int, bool]]
) -> None:
    directory = tmp_path_factory.mktemp("state")
    one = AgentIdentity.of(directory)
    for cluster, term, busy in frames:
        before = (one.cluster, one.term)
        try:
            one.follow(welcome(cluster, term), busy=busy)
        except OlderSchedulerError:
            assert cluster in {"", before[0]}
            assert term < before[1]
            assert (one.cluster, one.term) == before
        except OtherClusterError:
            assert busy
            assert cluster != before[0]
            assert (one.cluster, one.term) == before
        else:
            assert (one.cluster, one.term) == (cluster or before[0], term)
        assert AgentIdentity.of(directory) == one


def test_a_refusal_changes_nothing_that_is_remembered(tmp_path: Path) -> None:
    one = AgentIdentity.of(tmp_path)
    one.follow(welcome("a", 3), busy=False)
    one.follow(ToAgentFrame(AttachRefused(reason="the name is in use"), 9), busy=False)
    assert (one.cluster, one.term) == ("a", 3)
    with pytest.raises(OlderSchedulerError, match=r"term 2 < 3\) was ignored; it said: go away"):
        one.follow(ToAgentFrame(AttachRefused(reason="go away"), 2), busy=False)


def test_a_higher_term_is_on_the_disk_before_its_frame_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = AgentIdentity.of(tmp_path)
    synced: list[str] = []
    real = os.fsync

    def sync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    one.follow(ToAgentFrame(Ack(1), 4), busy=True)
    assert synced == [str(tmp_path / f".{identity.FILE}.new"), str(tmp_path)]
    assert json.loads(one.path.read_text())["term"] == 4
    monkeypatch.setattr(identity, "write_durably", _full)
    with pytest.raises(OSError, match="disk"):
        one.follow(ToAgentFrame(Ack(1), 5), busy=True)
    assert one.term == 4


def _full(*_: object) -> None:
    raise OSError("the disk is full")


def test_an_agent_tells_what_it_has_heard(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            scheduler.welcome.cluster, scheduler.term = "one", 3
            async with running(settings_for(scheduler, tmp_path)):
                session = await scheduler.session()
                assert (session.hello.cluster, session.hello.term) == ("", 0)
                session.hang_up()
                hello = (await scheduler.session()).hello
                assert (hello.cluster, hello.term) == ("one", 3)
            async with running(settings_for(scheduler, tmp_path)):
                hello = (await scheduler.session()).hello
                assert (hello.cluster, hello.term) == ("one", 3)

    play(scene())


def test_an_older_scheduler_is_not_obeyed_and_that_is_said_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            scheduler.welcome.cluster, scheduler.term = "one", 3
            settings = settings_for(scheduler, tmp_path, first_pause_seconds=0.01, longest_pause_seconds=0.02)
            async with running(settings) as (_, said):
                session = await scheduler.session()
                session.send(start("1", python(LEAVES_WHEN_ASKED)))
                await session.logged("1", "running")
                # It was frozen, another took over and was heard; now it is back.
                session.term = 4
                session.send(start("2", shell("exit 0")))
                await session.ended("2")
                session.term = 3
                session.send(stop("1", at_once=True))
                session.send(start("3", shell(f"touch {tmp_path}/began")))
                scheduler.term = 3
                for _ in range(3):
                    await scheduler.session()
                scheduler.term = 5
                new = await _session_of(scheduler, 5)
                assert [task.job for task in new.hello.tasks] == ["1"]
                assert new.endings("1") == []
                assert not (tmp_path / "began").exists()
                assert said.count("an older scheduler (term 3 < 4) was ignored") == 1

    play(scene())


async def _session_of(scheduler: Scheduler, term: int) -> Session:
    """Wait for the session that a scheduler of this term has."""
    while True:
        session = await scheduler.session()
        if session.term == term:
            await session.heartbeat()
            return session


def test_an_older_scheduler_that_refuses_does_not_end_the_agent(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            scheduler.welcome.cluster, scheduler.term = "one", 3
            settings = settings_for(scheduler, tmp_path, first_pause_seconds=0.01, longest_pause_seconds=0.02)
            async with running(settings) as (_, said):
                session = await scheduler.session()
                scheduler.term, scheduler.refusal = 2, pb.Refused(reason="who are you?")
                session.hang_up()
                await until(lambda: scheduler.refusals >= 3)
                scheduler.term, scheduler.refusal = 3, None
                await scheduler.session()
                ignored = "an older scheduler (term 2 < 3) was ignored; it said: who are you?"
                assert said.count(ignored) == 1

    play(scene())


# ---- other clusters ----


def test_an_agent_with_tasks_does_not_change_over_to_another_cluster(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            scheduler.welcome.cluster, scheduler.term = "one", 3
            settings = settings_for(scheduler, tmp_path, first_pause_seconds=0.01, longest_pause_seconds=0.02)
            async with running(settings) as (_, said):
                session = await scheduler.session()
                session.send(start("1", python(LEAVES_WHEN_ASKED)))
                await session.logged("1", "running")
                scheduler.welcome.cluster, scheduler.term = "two", 1
                session.hang_up()
                other = await scheduler.session()
                other.send(stop("1", at_once=True))
                await scheduler.session()
                sentence = "it belongs to cluster two, but this agent still runs tasks of cluster one"
                assert sum(sentence in each for each in said) == 1
                scheduler.welcome.cluster, scheduler.term = "one", 3
                while not (back := await scheduler.session()).hello.tasks:
                    pass
                await until(lambda: said[-1].startswith("attached"))
                assert (back.hello.cluster, back.hello.tasks[0].job) == ("one", "1")

    play(scene())


def test_an_agent_without_tasks_changes_over_and_tells_nothing_of_the_first_cluster(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            scheduler.welcome.cluster, scheduler.term, scheduler.acknowledges = "one", 3, False
            async with running(settings_for(scheduler, tmp_path, farewell_seconds=0.1)) as (_, said):
                session = await scheduler.session()
                session.send(start("1", shell("exit 3")))
                await session.ended("1")
                await until(lambda: any("ended job 1" in each for each in said))
                scheduler.welcome.cluster, scheduler.term = "two", 1
                session.hang_up()
                other = await scheduler.session()
                await other.heartbeat()
                assert other.endings("1") == []
                left = "it has left cluster one, which was not told about 1 ended tasks"
                assert f"this agent now serves cluster two; {left}" in said
                other.hang_up()
                hello = (await scheduler.session()).hello
                assert (hello.cluster, hello.term) == ("two", 1)

    play(scene())


def test_the_first_cluster_id_changes_nothing_for_running_jobs(tmp_path: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler, running(settings_for(scheduler, tmp_path)) as (_, said):
            session = await scheduler.session()
            session.send(start("1", python(LEAVES_WHEN_ASKED)))
            await session.logged("1", "running")
            scheduler.welcome.cluster, scheduler.term = "one", 1
            session.hang_up()
            again = await scheduler.session()
            assert (await again.started("1")).job == "1"
            assert not any("cluster" in each for each in said)

    play(scene())
