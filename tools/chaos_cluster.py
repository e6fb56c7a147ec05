"""The processes of a campaign: a scheduler and agents on loopback, found through /proc.

Every process carries the campaign's mark in its environment; processes without it are never signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MARK = "CHAOS_CAMPAIGN"
PLAIN = "from gavel.cli.app import main; main()"
SHIFTED = (
    "import os, time; wall, at = time.time, os.environ['CHAOS_CLOCK']; "
    f"time.time = lambda: wall() + float(open(at).read()); {PLAIN}"
)
"""Without libfaketime, only Python's wall clock is shifted."""

SERVE: Mapping[str, object] = {
    "round-seconds": 2.0,
    "heartbeat-seconds": 0.3,
    "agent-timeout-seconds": 3.0,
    "lease-slack-seconds": 8.0,
    "checkpoint-grace-seconds": 5.0,
    "terminate-grace-seconds": 1.0,
    "retry-seconds": 0.1,
    "mechanism": "plain",  # takes turns each round, so that there are many preemptions
}
AGENTS: Mapping[str, str] = {"one": "v100=2", "two": "v100=1", "three": "k80=1"}
"""Gangs of two fit on `one` alone, or on two agents."""


@dataclass(frozen=True, slots=True)
class Found:
    """A process of the campaign."""

    pid: int
    kind: str
    """scheduler, agent, guard, job or other."""
    agent: str
    job: str


@dataclass
class Cluster:
    """Starts processes and ends all of them, including their descendants."""

    folder: Path
    journal: str | None = None
    space_sharing: bool = False
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    scheduler: subprocess.Popen[bytes] | None = None
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)
    """The scheduler and agents that are stopped by a signal."""
    address: str = ""
    faketime: str = ""

    def __post_init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        for name in ("ledgers", "locks"):
            (self.folder / name).mkdir()
        self.set_clock(0.0)
        self.faketime = next((str(path) for path in sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), "")

    @property
    def sharing(self) -> int:
        """Jobs that may have one device."""
        return 2 if self.space_sharing else 1

    def set_clock(self, seconds: float) -> None:
        """Shift the scheduler's wall clock, even while it runs."""
        fresh = self.folder / "clock.new"
        fresh.write_text(f"{seconds:+.0f}")
        fresh.replace(self.folder / "clock")

    # ---- starting ----

    def start_scheduler(self) -> None:
        """Start it without waiting for it."""
        options = {**SERVE, **({"space-sharing": True} if self.space_sharing else {})}
        if self.journal:
            options["journal"] = self.journal
        flags = [part for name, value in options.items() for part in _flag(name, value)]
        arguments = ["serve", "--folder", str(self.folder / "state"), "--listen", self.address, *flags]
        code = PLAIN if self.faketime else SHIFTED
        self.scheduler = self._start("scheduler", [sys.executable, "-c", code, *arguments], self._clock_environment())

    def _clock_environment(self) -> dict[str, str]:
        at = str(self.folder / "clock")
        if not self.faketime:
            return {"CHAOS_CLOCK": at}
        return {
            "LD_PRELOAD": self.faketime,
            "FAKETIME_TIMESTAMP_FILE": at,
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def start_agent(self, name: str) -> None:
        """Start an agent on its own state directory."""
        options = {
            "scheduler": self.address,
            "name": name,
            "emulate": AGENTS[name],
            "time-scale": 2.0,
            "state": self.folder / "agents" / name,
            "checkpoints": self.folder / "checkpoints",
        }
        flags = [part for option, value in options.items() for part in _flag(option, value)]
        command = [sys.executable, "-c", PLAIN, "worker", *flags]
        self.agents[name] = self._start(f"agent-{name}", command, {"CHAOS_AGENT": name})

    def _start(self, name: str, command: Sequence[str], extra: Mapping[str, str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, MARK: self.mark, **extra}
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - our own program
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us alone
            )

    def answers(self) -> bool:
        """Whether a scheduler listens and is not frozen."""
        if self.scheduler is None or self.scheduler.poll() is not None or "scheduler" in self.frozen:
            return False
        host, _, port = self.address.partition(":")
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex((host, int(port))) == 0

    # ---- looking ----

    def processes(self) -> Iterator[Found]:
        """Every process that carries the mark."""
        wanted = f"{MARK}={self.mark}".encode()
        for path in Path("/proc").iterdir():
            if not path.name.isdecimal() or int(path.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                environment = (path / "environ").read_bytes().split(b"\0")
                if wanted in environment:
                    yield _found(int(path.name), environment, (path / "cmdline").read_bytes())

    def of_kind(self, kind: str) -> list[Found]:
        """Processes of a kind, in order of pid."""
        return sorted((found for found in self.processes() if found.kind == kind), key=lambda found: found.pid)

    # ---- ending ----

    def end(self, *, patience: float = 40.0) -> list[str]:
        """Ask agents and then the scheduler to end; returns those that did not."""
        stubborn = []
        for process in [*self.agents.values(), self.scheduler]:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for name, process in [*self.agents.items(), ("scheduler", self.scheduler)]:
            if process is not None:
                try:
                    process.wait(patience)
                except subprocess.TimeoutExpired:
                    stubborn.append(name)
        return stubborn

    def kill_everything(self) -> int:
        """Kill all marked processes until none is left; returns how many there were."""
        killed: set[int] = set()
        for _ in range(100):
            found = list(self.processes())
            for process in found:
                send(process.pid, signal.SIGKILL)
                killed.add(process.pid)
            for process in [*self.agents.values(), *([self.scheduler] if self.scheduler else [])]:
                process.poll()
            if not found:
                break
        return len(killed)


def send(pid: int, number: int) -> bool:
    """Signal a process, unless it has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _flag(name: str, value: object) -> list[str]:
    return [f"--{name}"] if value is True else [f"--{name}", str(value)]


def _found(pid: int, environment: Sequence[bytes], command: bytes) -> Found:
    values = dict(part.decode(errors="replace").partition("=")[::2] for part in environment)
    words = command.split(b"\0")
    if any(word.endswith(b"guard.py") for word in words):
        kind = "guard"
    elif any(word.endswith(b"chaos_job.py") for word in words):
        kind = "job"
    else:
        kind = "scheduler" if b"serve" in words else "agent" if b"worker" in words else "other"
    return Found(pid, kind, values.get("CHAOS_AGENT", ""), values.get("GAVEL_JOB_ID", ""))
