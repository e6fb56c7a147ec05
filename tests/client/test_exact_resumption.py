"""A torch training that was interrupted ends with the parameters and the loss of one that was not, to the last bit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from torch_runs import Run

from fake_agent import FakeAgent
from needs import needs_torch

PROGRAM = Path(__file__).parent / "torch_program.py"
pytestmark = needs_torch


# An epoch has six batches: the step after number 17 is the first of another.
@pytest.mark.parametrize(
    ("kind", "steps", "interruptions"),
    [("plain", 40, [17, *random.Random(8).sample(range(38), 3)]), ("generator", 20, [17, 9]), ("workers", 9, [3])],
)
def test_interruptions_change_nothing(
    agent: FakeAgent, tmp_path: Path, kind: str, steps: int, interruptions: list[int]
) -> None:
    options = ["--kind", kind, "--steps", str(steps)]
    environment = {"GAVEL_SOCKET": agent.path, "GAVEL_CHECKPOINT_DIR": str(tmp_path / "checkpoints")}
    whole = Run(tmp_path / "whole", PROGRAM, *options)
    stops = sorted(set(interruptions))
    for stop in stops:
        run = Run(tmp_path / str(stop), PROGRAM, *options, "--stop-at", str(stop), **environment)
        run.printed("holding")
        agent.send(op="stop")
        run.result()
        assert agent.expect("stopped")["steps"] == stop + 1
    resumed = Run(tmp_path / "resumed", PROGRAM, *options, **environment).result()
    assert resumed[0] == f"began {stops[-1] + 1}"
    assert resumed[1] == whole.result()[1]
