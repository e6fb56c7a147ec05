"""`gavel.should_leave` and its like, for programs with their own loop: real processes beside a fake agent."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import timeit
from pathlib import Path

import pytest

import gavel
from fake_agent import PATIENCE, FakeAgent
from gavel import report
from gavel.client import own_loop
from job_fixtures import Training

REPORTS = """
import gavel, os
for step in range(1, 6):
    gavel.report(step, saved=step - 1)
if os.fork() == 0:
    gavel.report(100)
    os._exit(0)
os.wait()
gavel.report(6)
"""
LOOP = """
import gavel, sys, time
print("began", gavel.seconds_left(), flush=True)
step = 0
while not gavel.should_leave():
    step += 1
    gavel.report(step, saved=step - 1)
    time.sleep(0.002)
gavel.report(step, saved=step)
assert gavel.should_leave() and 0 < gavel.seconds_left() <= 60, gavel.seconds_left()
{ending}
print("left", flush=True)
"""


def run(socket: str, program: str = REPORTS) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GAVEL_SOCKET": socket}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE)


def begun(socket: str | None, program: str) -> subprocess.Popen[str]:
    """Start a program and wait for its first line."""
    environment = {**os.environ, **({} if socket is None else {"GAVEL_SOCKET": socket})}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("began")
    return process


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    said = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == code
    return said


# ---- reporting ----


def test_the_first_and_last_counts_arrive_and_orders_to_leave_are_ignored(agent: FakeAgent) -> None:
    agent.greeting = ({"op": "lease", "seconds": 5.0}, {"op": "stop"})
    assert run(agent.path).stderr == ""
    assert agent.expect("hello")["asks"] is False
    assert agent.expect("progress", steps=1)["saved"] == 0
    assert agent.expect("progress", steps=6)["saved"] == 4
    assert agent.heard("stopped") == agent.heard("unaware") == []


def test_a_forked_child_speaks_for_itself(agent: FakeAgent) -> None:
    run(agent.path)
    agent.expect("hello")
    agent.expect("hello")
    agent.expect("progress", steps=100)
    agent.expect("progress", steps=6)


def test_without_an_agent_nothing_happens(no_gavel_around: None) -> None:
    del no_gavel_around
    report(3)
    assert gavel.should_leave() is False
    assert gavel.seconds_left() == math.inf
    assert gavel.checkpoint_dir() is None
    assert gavel.checkpoint_dir("here") == Path("here")
    gavel.finished()


def test_a_missing_agent_is_no_error() -> None:
    assert run("/nowhere/at/all", REPORTS + "\nassert not gavel.should_leave()").stderr == ""


@pytest.mark.parametrize("steps", [-1, float("nan")])
def test_negative_counts_are_refused(steps: float) -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        report(steps)


def test_beside_an_iterator_it_reports_nothing_and_hears_its_orders(job: FakeAgent, training: Training) -> None:
    steps = training("abc")
    job.expect("hello")
    report(1000)
    assert gavel.should_leave() is False
    job.send(op="stop", seconds=30)
    while not steps.leaving:
        threading.Event().wait(0.001)
    assert gavel.should_leave()
    assert 0 < gavel.seconds_left() <= 30
    assert gavel.checkpoint_dir() is not None
    steps.close()
    job.expect("gone")
    assert job.heard("hello") == job.heard("progress") == []


# ---- leaving ----


@pytest.mark.parametrize("ending", ["", "sys.exit(3)", "raise KeyboardInterrupt", "import os; os._exit(5)"])
def test_a_program_that_was_told_to_leave_has_left_however_it_ends(agent: FakeAgent, ending: str) -> None:
    process = begun(agent.path, LOOP.format(ending=ending))
    agent.expect("hello", asks=True)
    agent.expect("progress")
    agent.send(op="stop")
    process.communicate(timeout=PATIENCE)
    assert "reason" not in agent.expect("stopped")
    assert agent.heard("unaware") == []


def test_the_checkpoint_that_it_saves_then_is_reported(agent: FakeAgent) -> None:
    process = begun(agent.path, LOOP.format(ending=""))
    agent.expect("progress")
    agent.send(op="stop", seconds=60)
    assert ended(process) == "left\n"
    agent.expect("gone")
    last = agent.heard("progress")[-1]
    assert last["steps"] == last["saved"] > 0


def test_a_lease_that_ends_is_an_order_to_leave(agent: FakeAgent) -> None:
    agent.greeting = ({"op": "lease", "seconds": 0.2},)
    process = begun(agent.path, LOOP.format(ending=""))
    agent.expect("renew")
    assert ended(process) == "left\n"
    agent.expect("stopped")


def test_sigterm_is_an_order_to_leave_and_a_second_one_does_not_interrupt_the_save(agent: FakeAgent) -> None:
    save = "print('saving', flush=True); sys.stdin = open(0); sys.stdin.readline()"
    environment = {**os.environ, "GAVEL_SOCKET": agent.path}
    command = [sys.executable, "-c", LOOP.format(ending=save)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.stdout.readline() == "saving\n"
        process.terminate()
        assert ended_after(process, "\n") == "left\n"
    assert agent.expect("stopped")["reason"] == "it got SIGTERM"


def ended_after(process: subprocess.Popen[str], said: str) -> str:
    out = process.communicate(said, timeout=PATIENCE)[0]
    assert process.returncode == 0
    return out


def test_without_gavel_sigterm_is_an_order_to_leave_too(no_gavel_around: None) -> None:
    del no_gavel_around
    process = begun(None, LOOP.format(ending=""))
    process.terminate()
    assert ended(process) == "left\n"


def test_the_handler_that_a_program_had_is_called_and_an_ignored_sigterm_stays_ignored() -> None:
    program = """
import gavel, os, signal
signal.signal(signal.SIGTERM, {handler})
gavel.should_leave()
os.kill(os.getpid(), signal.SIGTERM)
print(gavel.should_leave())
"""
    assert run("", program.format(handler="lambda *_: print('heard')")).stdout == "heard\nTrue\n"
    assert run("", program.format(handler="signal.SIG_IGN")).stdout == "False\n"


def test_a_forked_worker_dies_of_sigterm_as_before() -> None:
    program = """
import gavel, multiprocessing, time
gavel.should_leave()
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
worker.start()
worker.terminate()
worker.join(60)
print(worker.exitcode, gavel.should_leave())
"""
    assert run("", program).stdout == "-15 False\n"


def test_a_child_that_exits_does_not_end_its_parents_connection(agent: FakeAgent) -> None:
    program = """
import gavel, os, sys
gavel.should_leave()
steps = gavel.GavelIterator("abc")
if os.fork() == 0:
    sys.exit()
os.wait()
list(steps)
"""
    run(agent.path, program)
    agent.expect("done", steps=3)


# ---- having finished ----


def test_an_order_that_came_too_late_for_the_program_to_see_is_said_to_be_overlooked(agent: FakeAgent) -> None:
    program = 'import gavel; gavel.should_leave(); print("began", flush=True); input()'
    environment = {**os.environ, "GAVEL_SOCKET": agent.path}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        agent.send(op="stop")
        agent.send(op="lease", seconds=0.001)  # asks for another as soon as it has read both
        agent.expect("renew")
        ended_after(process, "\n")
    agent.expect("unaware")
    assert agent.heard("stopped") == []


def test_finished_work_is_done_although_it_was_told_to_leave(agent: FakeAgent) -> None:
    agent.greeting = ({"op": "stop"},)
    run(agent.path, "import gavel; assert gavel.should_leave(); gavel.report(9, saved=9, done=True)")
    agent.expect("stopped")
    assert agent.expect("done")["steps"] == 9


def test_after_the_work_is_finished_sigterm_ends_the_process(agent: FakeAgent) -> None:
    program = 'import gavel, time; gavel.should_leave(); gavel.finished(); print("began", flush=True); time.sleep(1000)'
    process = begun(agent.path, program)
    process.terminate()
    ended(process, -signal.SIGTERM)


# ---- cost and threads ----


def test_asking_sends_nothing_and_takes_no_lock(job: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    gavel.should_leave()
    job.expect("hello")
    loop = own_loop._LOOP
    assert loop is not None
    monkeypatch.setattr(loop, "_lock", None)  # using it would fail
    assert timeit.timeit(gavel.should_leave, number=1000) < PATIENCE
    assert not gavel.should_leave()
    monkeypatch.undo()
    loop.close()


def test_threads_that_ask_at_once_share_one_connection(job: FakeAgent) -> None:
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        gavel.should_leave()
        report(1)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loop = own_loop._LOOP
    assert loop is not None
    loop.close()
    job.expect("hello")
    job.expect("gone")
    assert job.heard("hello") == []
