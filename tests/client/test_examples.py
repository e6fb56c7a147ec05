"""The examples as users run them: without Gavel, and preempted and resumed with exactly the same result."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from counting import PATIENCE
from torch_runs import Run

from fake_agent import FakeAgent
from gavel.client.job_file import read_jobs
from needs import needs_torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def environment(agent: FakeAgent, checkpoints: Path, steps: int) -> dict[str, str]:
    return {"GAVEL_SOCKET": agent.path, "GAVEL_CHECKPOINT_DIR": str(checkpoints), "GAVEL_STEPS": str(steps)}


def final(lines: list[str]) -> str:
    assert lines[-1].startswith("final loss ")
    return lines[-1]


@needs_torch
@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_preempted_and_resumed_it_ends_with_the_loss_of_a_run_without_gavel(
    agent: FakeAgent, tmp_path: Path, name: str
) -> None:
    program = EXAMPLES / f"{name}.py"
    whole = Run(tmp_path / "whole", program, "--seed", "3", "--steps", "40")
    under_gavel = environment(agent, tmp_path / "checkpoints", 40)
    agent.greeting = ({"op": "pace", "rate": 5.0},)
    first = Run(tmp_path / "first", program, "--seed", "3", **under_gavel)
    agent.expect("progress")
    agent.send(op="stop")
    assert first.result()[-1].startswith("step 0 ")  # no final loss
    assert 0 < agent.expect("stopped")["steps"] < 40
    agent.greeting = ()
    resumed = Run(tmp_path / "resumed", program, "--seed", "3", **under_gavel)
    assert final(resumed.result()) == final(whole.result())


@needs_torch
def test_another_seed_gives_another_loss(tmp_path: Path) -> None:
    runs = [Run(tmp_path / seed, EXAMPLES / "ddp.py", "--seed", seed, "--steps", "5") for seed in ("1", "2")]
    first, second = (final(run.result()) for run in runs)
    assert first != second


def pair(directory: Path, **more: str) -> list[Run]:
    """Run both workers of the distributed example."""
    ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    master, gang = (port.getsockname()[1] for port in ports)
    for port in ports:
        port.close()
    directory.mkdir()
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(master), **more}
    if more:
        shared |= {"GAVEL_GANG_ADDRESS": f"127.0.0.1:{gang}", "GAVEL_GANG_TOKEN": "a word", "GAVEL_WORLD_SIZE": "2"}
    return [
        Run(
            directory / rank,
            EXAMPLES / "ddp.py",
            *("--seed", "3", "--steps", "40"),
            **shared,
            **{"RANK": rank, "LOCAL_RANK": rank, **({"GAVEL_RANK": rank} if more else {})},
        )
        for rank in ("0", "1")
    ]


@needs_torch
def test_two_workers_stop_at_the_same_step_and_end_with_the_loss_of_a_run_without_gavel(
    agent: FakeAgent, tmp_path: Path
) -> None:
    under_gavel = environment(agent, tmp_path / "checkpoints", 40)
    agent.greeting = ({"op": "pace", "rate": 5.0},)
    first = pair(tmp_path / "first", **under_gavel)
    agent.expect("progress")
    agent.send(0, op="stop")
    for run in first:
        run.result()
    stopped = [agent.expect("stopped", **{"from": rank})["steps"] for rank in range(2)]
    assert stopped[0] == stopped[1]
    assert 0 < stopped[0] < 40
    agent.greeting = ()
    resumed = [final(run.result()) for run in pair(tmp_path / "resumed", **under_gavel)]
    whole = [final(run.result()) for run in pair(tmp_path / "whole")]
    assert {*resumed, *whole} == {whole[0]}


def shell(checkpoints: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(EXAMPLES / "plain.sh")],
        env={**os.environ, "GAVEL_CHECKPOINT_DIR": str(checkpoints), "GAVEL_STEPS": "6"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_the_shell_job_resumes_counting_where_it_was_terminated(tmp_path: Path) -> None:
    with shell(tmp_path / "checkpoints") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "step 3\n":
                os.killpg(process.pid, signal.SIGTERM)  # as guards do
                break
        left = process.communicate(timeout=PATIENCE)[0].splitlines()[-1]
    assert process.returncode == 128 + signal.SIGTERM
    count = int(left.removeprefix("leaving at "))
    assert 3 <= count < 6
    with shell(tmp_path / "checkpoints") as process:
        lines = process.communicate(timeout=PATIENCE)[0].splitlines()
    assert lines == [f"beginning at {count}", *(f"step {step}" for step in range(count + 1, 7)), "counted to 6"]


def test_the_shell_job_counts_in_the_current_directory_without_gavel(no_gavel_around: None, tmp_path: Path) -> None:
    del no_gavel_around
    subprocess.run([str(EXAMPLES / "plain.sh"), "2"], cwd=tmp_path, check=True, timeout=PATIENCE)
    assert (tmp_path / "count").read_text() == "2\n"


@pytest.mark.parametrize("name", ["cnn", "transformer", "ddp", "plain"])
def test_its_job_file_is_accepted_and_finds_its_program(name: str) -> None:
    (job,) = read_jobs(str(EXAMPLES / f"{name}.yaml"))
    assert Path(job.working_directory) == EXAMPLES
    assert any((EXAMPLES / part).is_file() for part in job.command)
    assert job.workers == (2 if name == "ddp" else 1)
