"""`gavel run --pty` with real processes: a scheduler, an agent, and a user at a terminal."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_cluster import LiveCluster, eventually, state_of
from terminal_user import user

from gavel import Client
from gavel.cli.app import run

RUN = ("run", "--env", "SHELL=/bin/sh", "--env", "PS1=% ", "--env", "ENV=")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("cluster")) as running:
        running.start_agent("lab", "v100=2")
        eventually(lambda: running.client().cluster().servers, "the agent has joined")
        yield running


def last_job(client: Client) -> str:
    return max((job.id for job in client.jobs()), key=int)


def test_a_session_from_its_first_key_to_its_exit_code(cluster: LiveCluster, tmp_path: Path) -> None:
    options = (*RUN, "--scheduler", cluster.address, "--directory", str(tmp_path), "--types", "v100")
    with user(*options, "--pty") as someone:
        someone.sees(b"% ")
        assert someone.is_raw()
        someone.types(b"echo $((6*7)) $TERM\r")
        someone.sees(b"42 dumb\r\n")
        someone.types(b"stty size\r")
        someone.sees(b"30 100\r\n")
        someone.resizes(50, 132)
        someone.types(b"sleep 0.2; stty size\r")
        someone.sees(b"50 132\r\n")
        someone.types(b"sleep 1000; echo inter''rupted\r")
        someone.sees(b"rupted\r\n")
        time.sleep(0.3)  # until sleep runs in the foreground
        someone.types(b"\x03")
        someone.sees(b"% ")
        someone.types(b"exit 7\r")
        assert someone.ends() == 7
        assert not someone.is_raw()
    with cluster.client() as client:
        job = client.job(last_job(client)).job
        assert (job.state.value, job.exit_code, job.request.private) == ("completed", 7, True)


def test_a_key_echoes_in_well_under_100_ms(cluster: LiveCluster, tmp_path: Path) -> None:
    options = (*RUN, "--scheduler", cluster.address, "--directory", str(tmp_path), "--pty")
    with user(*options, "--", "sh", "-c", "stty -echo; echo rea''dy; cat") as someone:
        someone.sees(b"ready")
        took = []
        for key in range(20):
            began = time.monotonic()
            someone.types(b"key %d\r" % key)
            someone.sees(b"key %d\r\n" % key)
            took.append(time.monotonic() - began)
        print(f"echo: median {statistics.median(took) * 1000:.1f} ms, worst {max(took) * 1000:.1f} ms")
        someone.types(b"\x04")
        assert someone.ends() == 0


def test_who_leaves_may_return_and_who_does_not_return_blocks_no_accelerator(
    cluster: LiveCluster, tmp_path: Path
) -> None:
    options = ("--scheduler", cluster.address, "--linger")
    with user(*RUN, *options, "60s", "--directory", str(tmp_path), "--pty") as someone:
        someone.sees(b"% ")
        someone.types(b"here=$((6*7))\r")
        someone.types(b"echo in''side ~.\r")
        someone.sees(b"inside ~.\r\n")
        someone.types(b"~.")
        someone.sees(b"gavel: you left the terminal of job ")
        assert someone.ends() == 0
    with cluster.client() as client:
        job = last_job(client)
        with user("run", *options, "2s", "--attach", job) as someone:
            someone.sees(b"inside ~.\r\n")  # what it showed last
            someone.types(b"echo still $here\r")
            someone.sees(b"still 42\r\n")
            someone.process.kill()
            someone.process.wait()
            assert state_of(client, job) == "running"
            ended = client.wait(job, timeout=30.0)[0]
        assert (ended.state.value, ended.reason) == ("failed", "no one was connected to its terminal for 2 s")


def test_a_terminal_comes_back_when_the_scheduler_does(cluster: LiveCluster, tmp_path: Path) -> None:
    options = ("--scheduler", cluster.address, "--directory", str(tmp_path))
    with user(*RUN, *options, "--pty") as someone:
        someone.sees(b"% ")
        someone.types(b"here=$((6*7))\r")
        someone.sees(b"% ")
        cluster.kill_scheduler()
        someone.sees(b"what you type is not sent; ~. leaves]")
        someone.types(b"echo lost\r")
        cluster.start_scheduler()
        someone.sees(b"[gavel: connected again]")
        someone.types(b"echo still $here\r")
        assert b"lost" not in someone.sees(b"still 42\r\n")
        someone.types(b"exit\r")
        assert someone.ends() == 0


def test_a_preempted_terminal_says_so_and_begins_again_at_its_next_turn(cluster: LiveCluster, tmp_path: Path) -> None:
    options = ("--scheduler", cluster.address, "--directory", str(tmp_path))
    with cluster.client() as client, user(*RUN, *options, "--pty") as someone:
        someone.sees(b"% ")
        someone.types(b"here=$((6*7))\r")
        client.drain("lab", now=True)
        someone.sees(b"[gavel: this terminal ends in 5 s: ")
        client.undrain("lab")
        someone.sees(b"runs again (attempt 2) on v100 lab")
        someone.sees(b"% ")
        someone.types(b"echo a new shell: [$here]\r")
        someone.sees(b"a new shell: []\r\n")
        someone.types(b"exit\r")
        assert someone.ends() == 0


def test_a_terminal_waits_its_turn_and_gives_up_when_told(cluster: LiveCluster, tmp_path: Path) -> None:
    options = ("run", "--scheduler", cluster.address, "--directory", str(tmp_path), "--pty", "--types", "k80")
    with user(*options) as someone, user(*options, "--wait", "1s") as hasty:
        someone.sees(b"gavel: no server has accelerators of type 'k80'")
        someone.sees(b"waits: ")
        os.killpg(someone.process.pid, signal.SIGINT)
        someone.sees(b"is cancelled")
        assert someone.ends() == 130
        hasty.sees(b"did not start in time, and was cancelled")
        assert hasty.ends() == 1
    with cluster.client() as client:
        assert [job.state.value for job in client.jobs()][-2:] == ["cancelled", "cancelled"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--pty"], "there is no terminal here"),
        (["--attach", "1"], "there is no terminal here"),
        (["--pty", "--attach", "1"], "--attach returns to a job that exists"),
        (["--linger", "5m", "--", "true"], "--linger is about an interactive terminal"),
        (["--pty", "--json"], "--json does not go with an interactive terminal"),
        (["--pty", "--linger", "2d"], "--linger 2d: it must be between 1 s and 24 h"),
        (["--pty", "--wait", "soon"], "--wait: "),
        ([], "say what to run, after --"),
        (["--rank", "1", "--", "true"], "--rank 1: the job has one worker, rank 0"),
        (["--rank", "all", "--workers", "100", "--", "true"], "--rank all prints the output of at most 64 workers"),
        (["--workers", "0", "--", "true"], "--workers: workers must be at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAVEL_SCHEDULER", "127.0.0.1:1")
    assert run(["run", *options]) == 2
    assert told in capsys.readouterr().err
