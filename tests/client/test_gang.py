"""Gangs of real processes: whatever happens, all ranks stop, save and end at the same step, or fail with a sentence."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import gavel
from fake_agent import PATIENCE, FakeAgent
from gavel.client.errors import GangError
from gavel.client.gang_wire import Peer, Watch, part

PROGRAM = Path(__file__).with_name("gang_program.py")
MANY = 1_000_000


class Gang:
    """The processes of one attempt of a job."""

    def __init__(self, agent: FakeAgent, directory: Path, ranks: int, *options: object, **environment: str) -> None:
        self.address = ("127.0.0.1", free_port())
        shared = {
            "GAVEL_SOCKET": agent.path,
            "GAVEL_CHECKPOINT_DIR": str(directory),
            "GAVEL_WORLD_SIZE": str(ranks),
            "GAVEL_GANG_ADDRESS": f"127.0.0.1:{self.address[1]}",
            "GAVEL_GANG_TOKEN": "the word",
            "PYTHONPATH": os.pathsep.join([str(Path(gavel.__file__).parents[1]), str(PROGRAM.parent)]),
            **environment,
        }
        command = [sys.executable, str(PROGRAM), *map(str, options)]
        self.processes = [
            subprocess.Popen(
                command,
                env={**os.environ, **shared, "GAVEL_RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,  # `said` must not read ahead: `ends` reads the rest
            )
            for rank in range(ranks)
        ]

    def said(self, line: str, rank: int = 0) -> None:
        """Wait until a rank says this."""
        output = self.processes[rank].stdout
        assert output is not None
        late = threading.Timer(PATIENCE, self.processes[rank].kill)
        late.start()
        try:
            assert line.encode() in (said.rstrip(b"\n") for said in output)
        finally:
            late.cancel()

    def ends(self) -> list[str]:
        """Wait for all ranks, and return the last line of each; none may have failed."""
        outcomes = [process.communicate(timeout=PATIENCE) for process in self.processes]
        assert [process.returncode for process in self.processes] == [0] * len(outcomes), outcomes
        return [output.decode().splitlines()[-1] for output, _ in outcomes]

    def failures(self) -> list[str]:
        """Wait for all ranks, and return the last line of each on standard error; none may have succeeded."""
        errors = [process.communicate(timeout=PATIENCE)[1].decode() for process in self.processes]
        assert 0 not in {process.returncode for process in self.processes}
        return [error.splitlines()[-1] if error else "" for error in errors]

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def running(gang: Gang) -> Iterator[Gang]:
    try:
        yield gang
    finally:
        gang.kill()


def the_same(ends: list[str]) -> str:
    assert len(set(ends)) == 1, [end[:40] for end in ends]
    return ends[0]


def what_one_run_sees(steps: int) -> list[list[int]]:
    numbers = random.Random(0)
    return [[batch, numbers.randrange(1000)] for batch in range(steps)]


@pytest.mark.parametrize(("ranks", "seed"), [(2, 0), (2, 1), (2, 2), (2, 3), (3, 4), (3, 5), (8, 6)])
def test_stopped_at_any_moment_all_ranks_leave_at_the_same_step_and_resume_there(
    agent: FakeAgent, tmp_path: Path, ranks: int, seed: int
) -> None:
    moment = random.Random(seed).randrange(1, 400)
    asked = random.Random(seed).choice([0, 0, ranks - 1])
    with running(Gang(agent, tmp_path, ranks, "--batches", MANY, "--tell-at", moment)) as gang:
        gang.said("there", asked)
        agent.send(asked, op="stop")
        _, step, preempted, seen = the_same(gang.ends()).split(" ", 3)
    assert preempted == "True"
    assert int(step) >= moment
    assert {agent.expect("stopped", **{"from": rank})["steps"] for rank in range(ranks)} == {int(step)}
    assert json.loads(seen) == what_one_run_sees(int(step))
    last = int(step) + 20
    with running(Gang(agent, tmp_path, ranks, "--batches", MANY, GAVEL_STEPS=str(last))) as gang:
        gang.said(f"began {step}", asked)
        _, end, preempted, all_seen = the_same(gang.ends()).split(" ", 3)
    assert (int(end), preempted) == (last, "False")
    assert json.loads(all_seen) == what_one_run_sees(last)
    assert {agent.expect("done", **{"from": rank})["steps"] for rank in range(ranks)} == {last}


def test_after_a_crash_all_ranks_resume_from_the_last_common_save(agent: FakeAgent, tmp_path: Path) -> None:
    with running(Gang(agent, tmp_path, 3, "--batches", 7, "--epochs", MANY, "--save-every", 0.05)) as gang:
        for _ in range(2):
            for rank in range(3):
                agent.expect("saved", **{"from": rank})
    newest = max(int(path.name.removeprefix("step-")) for path in tmp_path.glob("step-*"))
    last = newest + 1
    with running(Gang(agent, tmp_path, 3, "--batches", 7, "--epochs", MANY, GAVEL_STEPS=str(last))) as gang:
        for rank in range(3):
            gang.said(f"began {newest}", rank)
        assert the_same(gang.ends()).startswith(f"ended {last} False")


def test_without_a_number_of_steps_all_are_done_when_the_data_ends(agent: FakeAgent, tmp_path: Path) -> None:
    with running(Gang(agent, tmp_path, 3, "--batches", 9, "--epochs", 3)) as gang:
        assert the_same([end.split(" [")[0] for end in gang.ends()]) == "ended 27 False"


@pytest.mark.parametrize("batches", [(20, 23), (23, 20), (20, 20, 300), (300, 300, 20), (1, 2)])
def test_ranks_with_different_batch_counts_fail_with_a_sentence(
    agent: FakeAgent, tmp_path: Path, batches: tuple[int, ...]
) -> None:
    with running(Gang(agent, tmp_path, len(batches), "--batches", *batches)) as gang:
        for sentence in gang.failures():
            assert sentence.startswith("gavel.client.errors.GangError: rank ")
        for rank in range(len(batches)):
            agent.expect("failed", **{"from": rank})


@pytest.mark.parametrize(("killed", "left"), [(0, 1), (1, 0)])
def test_when_one_is_killed_the_others_fail(agent: FakeAgent, tmp_path: Path, killed: int, left: int) -> None:
    with running(Gang(agent, tmp_path, 2, "--batches", MANY, "--tell-at", 50)) as gang:
        gang.said("there", killed)
        gang.processes[killed].send_signal(signal.SIGKILL)
        assert gang.failures()[left] == f"gavel.client.errors.GangError: rank {killed} of the gang is gone"
    assert agent.expect("failed")["from"] == left


@pytest.mark.parametrize(("killed", "left"), [(0, 1), (1, 0)])
def test_a_rank_blocked_on_a_dead_one_is_ended(agent: FakeAgent, tmp_path: Path, killed: int, left: int) -> None:
    with running(Gang(agent, tmp_path, 2, "--batches", MANY, "--tell-at", 50, "--stuck", left)) as gang:
        gang.said("there", left)
        gang.processes[killed].send_signal(signal.SIGKILL)
        assert gang.failures()[left] == f"gavel: rank {left} ends: rank {killed} of the gang is gone"
    assert agent.expect("failed", **{"from": left})["reason"] == f"rank {killed} of the gang is gone"


@pytest.mark.parametrize("orderly", [True, False])
def test_a_rank_that_says_goodbye_is_not_reported_as_lost(orderly: bool) -> None:
    mine, theirs = socket.socketpair()
    ends: list[str] = []
    me, other = Peer(mine, 3), Peer(theirs, 0)
    watch = Watch([me], ends.append, 0.01)
    other.send({"limit": 5})
    other.hang_up(orderly=orderly)
    watch.thread.join(PATIENCE)
    assert not watch.thread.is_alive()
    assert ends == ([] if orderly else ["rank 3 of the gang is gone"])
    assert me.receive() == {"limit": 5}
    with pytest.raises(GangError, match="has left" if orderly else "is gone"):
        me.receive()
    me.hang_up(orderly=True)
    part([me, other], orderly=True)


def test_a_caller_without_the_token_is_disconnected(agent: FakeAgent, tmp_path: Path) -> None:
    with running(Gang(agent, tmp_path, 1, "--batches", 10, GAVEL_WORLD_SIZE="2")) as gang:
        hello = {"rank": 1, "token": "guessed"}
        assert hung_up(gang, json.dumps(hello).encode() + b"\n")
        assert hung_up(gang, b"GET / HTTP/1.1\r\n\r\n")
        agent.send(0, op="stop")
        assert the_same(gang.ends()) == "ended 0 True []"


def hung_up(gang: Gang, hello: bytes) -> bool:
    """Send something to rank 0 as soon as it listens, and wait for its answer."""
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(gang.address, PATIENCE) as stranger:
            if stranger.getsockname() != stranger.getpeername():
                stranger.sendall(hello)
                with contextlib.suppress(ConnectionResetError):
                    return stranger.recv(1) == b""
                return True
        assert gang.processes[0].poll() is None


def test_each_rank_can_save_its_own_part_of_the_checkpoint(agent: FakeAgent, tmp_path: Path) -> None:
    options = ("--batches", 5, "--every-rank", "--epochs", MANY)
    with running(Gang(agent, tmp_path, 2, *options, GAVEL_STEPS="12")) as gang:
        first = [json.loads(end.split(" ", 3)[3]) for end in gang.ends()]
    assert first[0] != first[1]  # their random numbers differ
    parts = [tmp_path / "step-000000012" / f"rank-{rank}" for rank in range(2)]
    assert [json.loads((part / "seen.json").read_text()) for part in parts] == first
    with running(Gang(agent, tmp_path, 2, *options, GAVEL_STEPS="13")) as gang:
        second = [json.loads(end.split(" ", 3)[3]) for end in gang.ends()]
    assert [seen[:12] for seen in second] == first


def test_a_rank_without_functions_to_save_is_named(agent: FakeAgent, tmp_path: Path) -> None:
    with running(Gang(agent, tmp_path, 2, "--batches", MANY, "--unsaved", 1, GAVEL_STEPS="5")) as gang:
        for sentence in gang.failures():
            assert "rank 1 could not save: it has no save_checkpoint function" in sentence


@pytest.mark.parametrize("rank", [0, 1])
def test_a_full_disk_at_one_rank_is_no_ranks_fault(agent: FakeAgent, tmp_path: Path, rank: int) -> None:
    options = ("--batches", MANY, "--every-rank", "--full", rank)
    with running(Gang(agent, tmp_path, 2, *options, GAVEL_STEPS="5")) as gang:
        for sentence in gang.failures():
            assert "No space left on device" in sentence
        for _ in gang.processes:
            assert "No space left on device" in agent.expect("failed", blameless=True)["reason"]
