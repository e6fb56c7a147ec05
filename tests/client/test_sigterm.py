"""SIGTERM to a program with a GavelIterator, from Slurm or by hand: it saves and leaves. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_gang import MANY, Gang

from fake_agent import PATIENCE, FakeAgent

PROGRAM = """
import itertools, signal, sys, time
from pathlib import Path
import gavel

def load(folder):
    print("loaded", (folder / "count").read_text(), flush=True)

def save(folder):
    print("saving", flush=True)
    sys.stdin.readline()
    (folder / "count").write_text(str(steps.step))

if "handler" in sys.argv[2:]:
    signal.signal(signal.SIGTERM, lambda *_: print("heard", flush=True))
steps = gavel.GavelIterator(
    itertools.repeat(0), load_checkpoint=load, save_checkpoint=save, steps=10**9, checkpoint_dir=sys.argv[1]
)
for _ in steps:
    if steps.step == 3:
        print("running", flush=True)
    time.sleep(0.001)
steps.close()
print("preempted" if steps.preempted else "done", flush=True)
if "linger" in sys.argv[2:]:
    sys.stdin.readline()
    print("ended", flush=True)
"""


class Program:
    """The program, line by line."""

    def __init__(self, directory: Path, *options: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(directory), *options],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def says(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{line}\n"

    def may_go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ends(self, code: int = 0) -> list[str]:
        said = self.process.communicate(timeout=PATIENCE)[0]
        assert self.process.returncode == code
        return said.splitlines()


def test_it_saves_leaves_and_goes_on_to_its_end_and_resumes(no_gavel_around: None, tmp_path: Path) -> None:
    del no_gavel_around
    program = Program(tmp_path, "linger")
    program.says("running")
    program.process.terminate()
    program.says("saving")
    program.process.terminate()  # a second one does not interrupt the save
    program.may_go_on()
    program.says("preempted")
    program.process.terminate()  # it is leaving already
    assert program.ends() == ["ended"]
    (checkpoint,) = tmp_path.glob("step-*")
    steps = int(checkpoint.name.removeprefix("step-"))
    assert steps >= 3
    resumed = Program(tmp_path)
    resumed.says(f"loaded {steps}")
    resumed.process.kill()
    resumed.process.communicate()


def test_the_programs_own_handler_is_called_as_well(no_gavel_around: None, tmp_path: Path) -> None:
    del no_gavel_around
    program = Program(tmp_path, "handler")
    program.says("running")
    program.process.terminate()
    program.says("heard")
    program.says("saving")
    assert program.ends() == ["preempted"]


@pytest.mark.parametrize("paced", [False, True])
def test_under_gavel_it_says_that_it_stopped_and_why(agent: FakeAgent, tmp_path: Path, paced: bool) -> None:
    program = Program(tmp_path, GAVEL_SOCKET=agent.path)
    program.says("running")
    if paced:  # on emulated accelerators it may be waiting for the end of a long step
        agent.send(op="pace", rate=0.001)
        agent.send(op="lease", seconds=0.5)
        agent.expect("renew")
        agent.send(op="lease", seconds=1000)
    program.process.terminate()
    program.says("saving")
    assert program.ends() == ["preempted"]
    assert agent.expect("stopped")["reason"] == "it got SIGTERM"


def test_training_that_is_complete_can_be_ended_by_it_again(no_gavel_around: None, tmp_path: Path) -> None:
    del no_gavel_around
    program = Program(tmp_path, "linger", GAVEL_STEPS="5")
    program.says("running")
    program.says("saving")
    program.may_go_on()
    program.says("done")
    program.process.terminate()
    program.ends(-signal.SIGTERM)


@pytest.mark.parametrize("rank", [0, 1])
def test_if_one_rank_of_a_gang_gets_it_all_leave_at_the_same_step(agent: FakeAgent, tmp_path: Path, rank: int) -> None:
    gang = Gang(agent, tmp_path, 2, "--batches", MANY, "--tell-at", 20)
    try:
        gang.said("there", rank)
        gang.processes[rank].terminate()
        first, second = gang.ends()
    finally:
        gang.kill()
    assert first.split()[:3] == second.split()[:3]
    assert first.split()[2] == "True"


def test_an_iterator_that_is_made_after_sigterm_leaves_at_once(no_gavel_around: None) -> None:
    del no_gavel_around
    program = """
import gavel, signal
gavel.should_leave()
signal.raise_signal(signal.SIGTERM)
steps = gavel.GavelIterator("abc")
print(list(steps), steps.preempted)
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert ended.stdout == "[] True\n"
