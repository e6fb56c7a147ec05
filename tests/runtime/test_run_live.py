"""`gavel run -- CMD` with real processes: output, exit codes, interruptions, preemptions and restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_cluster import GAVEL, PATIENCE_SECONDS, LiveCluster, eventually, state_of

from gavel import Client


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path_factory.mktemp("cluster")) as running:
        running.start_agent("lab", "v100=2")
        eventually(lambda: running.client().cluster().servers, "the agent has joined")
        yield running


@pytest.fixture
def client(cluster: LiveCluster) -> Iterator[Client]:
    with cluster.client() as connected:
        yield connected


class Foreground:
    """A `gavel run` with pipes for its output."""

    def __init__(self, cluster: LiveCluster, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*GAVEL, "run", "--scheduler", cluster.address, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        self.printed, self.said = b"", b""
        self._threads = [threading.Thread(target=self._read, args=(name,)) for name in ("printed", "said")]
        for thread in self._threads:
            thread.start()

    def _read(self, name: str) -> None:
        stream = {"printed": self.process.stdout, "said": self.process.stderr}[name]
        assert stream is not None
        with stream:
            while data := os.read(stream.fileno(), 65536):
                setattr(self, name, getattr(self, name) + data)

    def prints(self, text: bytes) -> None:
        eventually(lambda: text in self.printed, f"it prints {text!r}")

    def says(self, text: bytes) -> None:
        eventually(lambda: text in self.said, f"it says {text!r}")

    def ends(self) -> int:
        code = self.process.wait(PATIENCE_SECONDS)
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        return code


def last_job(client: Client) -> str:
    return max((job.id for job in client.jobs()), key=int)


def test_the_output_arrives_byte_for_byte_and_nothing_else_on_stdout(cluster: LiveCluster) -> None:
    script = r"import os; os.write(1, bytes(range(256)) * 400 + b'end without newline')"
    job = Foreground(cluster, "--", sys.executable, "-c", script)
    assert job.ends() == 0
    assert job.printed == bytes(range(256)) * 400 + b"end without newline"
    assert job.said == b""


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (("sh", "-c", "exit 7"), 7, b"failed: exit code 7"),
        (("sh", "-c", "kill -KILL $$"), 137, b"failed: killed by signal SIGKILL"),
        (("no-such-program",), 1, b"failed: there is no command no-such-program"),
    ],
)
def test_the_exit_code_is_that_of_the_job(
    cluster: LiveCluster, client: Client, command: tuple[str, ...], code: int, said: bytes
) -> None:
    job = Foreground(cluster, "--", *command)
    assert job.ends() == code
    assert said in job.said
    assert client.job(last_job(client)).job.attempts <= 1


def test_control_c_lets_the_job_say_its_last_words(cluster: LiveCluster, client: Client) -> None:
    script = "trap 'echo last words; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    job = Foreground(cluster, "--", "sh", "-c", script)
    job.prints(b"ready")
    job.process.send_signal(signal.SIGINT)
    assert job.ends() == 130
    assert job.printed.endswith(b"last words\n")  # the shell may say before that its sleep was ended, too
    assert b"is told to end" in job.said
    assert state_of(client, last_job(client)) == "cancelled"


def test_a_program_that_is_told_to_end_takes_its_job_along(cluster: LiveCluster, client: Client) -> None:
    job = Foreground(cluster, "--", "sh", "-c", "echo ready; sleep 1000")
    job.prints(b"ready")
    job.process.send_signal(signal.SIGTERM)
    assert job.ends() == 128 + signal.SIGTERM
    assert state_of(client, last_job(client)) == "cancelled"


def test_keep_leaves_the_job_running(cluster: LiveCluster, client: Client) -> None:
    job = Foreground(cluster, "--keep", "--", "sh", "-c", "echo ready; sleep 1000")
    job.prints(b"ready")
    job.process.send_signal(signal.SIGINT)
    assert job.ends() == 130
    assert b"continues: `gavel logs" in job.said
    assert state_of(client, last_job(client)) == "running"
    client.cancel(last_job(client))


def test_a_reader_that_is_gone_ends_the_job(cluster: LiveCluster, client: Client) -> None:
    endless = "sh -c 'while :; do echo line; sleep 0.05; done'"
    script = f"{sys.executable} -m gavel run --scheduler {cluster.address} -- {endless} | head -1"
    shell = ["/bin/bash", "-c", f"set -o pipefail; {script}"]
    found = subprocess.run(shell, capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    assert (found.returncode, found.stdout) == (141, b"line\n")
    eventually(lambda: state_of(client, last_job(client)) == "cancelled", "the job is cancelled")


def test_json_is_a_document_about_the_end(cluster: LiveCluster) -> None:
    job = Foreground(cluster, "--json", "--name", "talker", "--", "sh", "-c", "echo words; exit 2")
    assert job.ends() == 2
    document = json.loads(job.printed)
    assert (document["job"]["state"], document["job"]["exit_code"], document["job"]["id"]) == (
        "failed",
        2,
        document["id"],
    )
    assert job.said.startswith(b"words\n")


def test_all_ranks_print_with_a_prefix(cluster: LiveCluster) -> None:
    job = Foreground(cluster, "--workers", "2", "--rank", "all", "--", "sh", "-c", "echo rank $GAVEL_RANK")
    assert job.ends() == 0
    assert sorted(job.printed.splitlines()) == [b"[0] rank 0", b"[1] rank 1"]


def test_it_survives_a_restart_of_the_scheduler_and_says_what_happens(cluster: LiveCluster, tmp_path: Path) -> None:
    script = f"echo first; while ! test -e {tmp_path}/go; do sleep 0.05; done; echo second"
    job = Foreground(cluster, "-v", "--", "sh", "-c", script)
    job.prints(b"first")
    job.says(b"runs on v100 lab\n")
    cluster.kill_scheduler()
    job.says(b"the scheduler cannot be reached")
    (tmp_path / "go").touch()
    cluster.start_scheduler()
    assert job.ends() == 0
    assert job.printed == b"first\nsecond\n"


def test_the_log_continues_after_a_preemption(cluster: LiveCluster, client: Client) -> None:
    # The agent leaves and returns: its job is stopped, and starts again.
    script = "echo attempt $GAVEL_ATTEMPT; test $GAVEL_ATTEMPT -gt 1 || sleep 1000"
    job = Foreground(cluster, "-v", "--", "sh", "-c", script)
    job.prints(b"attempt 1\n")
    client.drain("lab", now=True)
    job.says(b"was preempted and waits: ")
    client.undrain("lab")
    assert job.ends() == 0
    assert job.printed == b"attempt 1\nattempt 2\n"
    assert b"runs again (attempt 2) on v100 lab" in job.said
