"""A live system of real processes on loopback: `gavel serve`, `gavel worker` and the jobs they start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from gavel import Client
from gavel.client.requests import JobRequest
from gavel.client.views import JobView

GAVEL = [sys.executable, "-c", "from gavel.cli.app import main; main()"]
PATIENCE_SECONDS = 60.0
"""A test that waits longer than this has failed; generous, because a busy machine is slow."""

SERVE = {
    "round-seconds": 1.0,
    "heartbeat-seconds": 0.2,
    "agent-timeout-seconds": 2.0,
    "lease-slack-seconds": 8.0,
    "checkpoint-grace-seconds": 5.0,
    "terminate-grace-seconds": 1.0,
    "retry-seconds": 0.2,
}

COUNTING = """
import os, sys
from pathlib import Path
from gavel import GavelIterator

name = f"{os.environ['GAVEL_ATTEMPT']} {os.environ['GAVEL_RANK']}"
trail = Path(sys.argv[1]).open("a", buffering=1)
total = {"steps": 0}
steps = GavelIterator(
    range(25),
    load_checkpoint=lambda folder: total.update(steps=int((folder / "total").read_text())),
    save_checkpoint=lambda folder: (folder / "total").write_text(str(total["steps"])),
)
print(f"begin {name} {total['steps']} {steps.step} {os.getpid()}", file=trail)
print("hello from the job", flush=True)
while not steps.done:
    for _ in steps:
        total["steps"] += 1
        print(f"step {name} {total['steps']}", file=trail)
print(f"end {name} {total['steps']} {steps.step} {steps.preempted}", file=trail)
"""


@dataclass(frozen=True)
class Trail:
    """What a counting job left behind, line by line."""

    path: Path

    def lines(self, kind: str) -> list[list[str]]:
        text = self.path.read_text() if self.path.exists() else ""
        return [line.split()[1:] for line in text.splitlines() if line.startswith(kind)]

    def steps(self, attempt: str | None = None, rank: str = "0") -> list[int]:
        return [int(n) for a, r, n in self.lines("step") if r == rank and attempt in (None, a)]

    def pids(self) -> list[int]:
        return [int(fields[-1]) for fields in self.lines("begin")]


@dataclass
class LiveCluster:
    """Starts and ends processes by id; what is left at the end is ended too."""

    folder: Path
    options: dict[str, object] = field(default_factory=dict)
    scheduler: subprocess.Popen[bytes] | None = None
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    address: str = ""

    def __enter__(self) -> Self:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        (self.folder / "count.py").write_text(COUNTING)
        self.start_scheduler()
        return self

    def __exit__(self, *_: object) -> None:
        processes = [*self.agents.values(), *([self.scheduler] if self.scheduler else [])]
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str, arguments: Iterable[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen([*GAVEL, *arguments], stderr=log, stdout=log, stdin=subprocess.DEVNULL)

    def start_scheduler(self) -> None:
        options = {**SERVE, **self.options}
        flags = [
            part for name, value in options.items() for part in (f"--{name}", *([] if value is True else [str(value)]))
        ]
        arguments = ["serve", "--folder", str(self.folder / "state"), "--listen", self.address, *flags]
        self.scheduler = self._start("scheduler", arguments)
        eventually(self._answers, "the scheduler is up")

    def _answers(self) -> bool:
        host, _, port = self.address.partition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def kill_scheduler(self) -> None:
        assert self.scheduler is not None
        self.scheduler.kill()
        self.scheduler.wait()

    def start_agent(self, name: str, emulate: str, time_scale: float = 2.0, *, called: str = "") -> None:
        self.agents[name] = self._start(
            name,
            [
                *("worker", "--scheduler", self.address, "--name", called or name, "--emulate", emulate),
                *("--time-scale", str(time_scale), "--state", str(self.folder / name)),
                *("--checkpoints", str(self.folder / "checkpoints")),
            ],
        )

    def client(self) -> Client:
        return Client(self.address, timeout=PATIENCE_SECONDS, patience=PATIENCE_SECONDS)

    def counting(self, trail: str, *, steps: int, workers: int = 1, retries: int = 3, template: str = "") -> JobRequest:
        """A job that writes down every step: about 14 a second on a V100 and 7 on a K80."""
        command = (sys.executable, str(self.folder / "count.py"), str(self.folder / trail))
        return JobRequest(
            command=command, steps=steps, workers=workers, retries=retries, template=template or "A3C", name=trail
        )

    def trail(self, name: str) -> Trail:
        return Trail(self.folder / name)

    def everything(self) -> str:
        """All that was said, for the message of a failed test."""
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))


def eventually(what: Callable[[], object], why: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"not within {seconds} s: {why}"
        time.sleep(0.02)


def state_of(client: Client, job: str) -> str:
    return str(client.job(job).job.state.value)


def completed(views: Iterable[JobView]) -> bool:
    return all(view.state.value == "completed" for view in views)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def signal_process(pid: int, number: int) -> None:
    os.kill(pid, number)
