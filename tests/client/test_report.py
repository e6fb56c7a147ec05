"""`gavel.report`, for programs with their own loop."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fake_agent import PATIENCE, FakeAgent
from gavel import report
from job_fixtures import Training

PROGRAM = """
import gavel, os
for step in range(1, 6):
    gavel.report(step, saved=step - 1)
if os.fork() == 0:
    gavel.report(100)
    os._exit(0)
os.wait()
gavel.report(6)
"""


def run(socket: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GAVEL_SOCKET": socket}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE)


def test_the_first_and_last_counts_arrive_and_orders_to_leave_are_ignored(agent: FakeAgent) -> None:
    agent.greeting = ({"op": "lease", "seconds": 5.0}, {"op": "stop"})
    assert run(agent.path).stderr == ""
    assert agent.expect("hello")["asks"] is False
    assert agent.expect("progress", steps=1)["saved"] == 0
    assert agent.expect("progress", steps=6)["saved"] == 0


def test_a_forked_child_speaks_for_itself(agent: FakeAgent) -> None:
    run(agent.path)
    agent.expect("hello")
    agent.expect("hello")
    agent.expect("progress", steps=100)
    agent.expect("progress", steps=6)


def test_without_an_agent_it_does_nothing(no_gavel_around: None) -> None:
    del no_gavel_around
    report(3)


def test_a_missing_agent_is_no_error() -> None:
    assert run("/nowhere/at/all").stderr == ""


@pytest.mark.parametrize("steps", [-1, float("nan")])
def test_negative_counts_are_refused(steps: float) -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        report(steps)


def test_beside_an_iterator_it_is_silent(job: FakeAgent, training: Training) -> None:
    training("abc")
    job.expect("hello")
    report(1000)
    training("abc").close()
    job.expect("gone")
    assert job.heard("progress") == []
