"""The real training of `gavel demo` where torch is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fake_agent import PATIENCE, FakeAgent
from gavel.cli.demo_jobs import NUMPY_TRAINING, TORCH_TRAINING, demo_jobs, training
from gavel.core.throughputs import builtin_table

STEPS = 60


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(NUMPY_TRAINING)
    return path


def begin(program: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(program)],
        env={**os.environ, "GAVEL_STEPS": str(STEPS), **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def lines(process: subprocess.Popen[str]) -> list[str]:
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return printed.splitlines()


def test_the_numpy_training_stops_and_resumes_with_the_loss_of_a_whole_run(
    agent: FakeAgent, program: Path, tmp_path: Path
) -> None:
    whole = begin(program)
    place = {"GAVEL_SOCKET": agent.path, "GAVEL_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}
    agent.greeting = ({"op": "pace", "rate": 5.0},)
    first = begin(program, **place)
    agent.expect("progress")
    agent.send(op="stop")
    assert len(lines(first)) == 2
    stopped = agent.expect("stopped")["steps"]
    assert 0 < stopped < STEPS
    agent.greeting = ()
    resumed = lines(begin(program, **place))
    assert resumed[0] == f"begins at step {stopped}"
    assert resumed[-1] == lines(whole)[-1]


def test_a_real_training_is_among_the_jobs_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    jobs = demo_jobs(builtin_table(), 3, time_scale=60.0, seconds=0.001, seed=0)
    assert (jobs[-1].program, jobs[-1].steps) == (NUMPY_TRAINING, 1)
    monkeypatch.setitem(sys.modules, "torch", sys.modules["sys"])
    assert training() == TORCH_TRAINING
