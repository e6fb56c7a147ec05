"""A control group for each task, where the machine supports them: what a task starts stays inside and ends with it.

Works with cgroup v2 and with the freezer and pids hierarchies of v1, below the agent's own group. A root process that
moves itself to another group has left on purpose and is not followed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gavel.runtime.agent.cgroups import hierarchies
from gavel.runtime.agent.confinement import NO_LIMITS, Confined, Confinement, TaskLimits

GIVE_UP_SECONDS = 10.0
"""A process that survives SIGKILL for this long is stuck in the kernel."""
_PAUSE_SECONDS = 0.005
_KINDS = ("", "freezer", "pids")
"""Hierarchies in order of preference; the first is that of v2."""


@dataclass(frozen=True, slots=True)
class Container:
    """The control group of one task."""

    path: Path
    confined: Confined | None = None
    """What limits it, if anything does."""

    @property
    def groups(self) -> tuple[Path, ...]:
        """The groups that a process of it enters."""
        return (self.path, *(() if self.confined is None else self.confined.groups))

    def processes(self) -> list[int]:
        """The processes inside, including those in groups that the task made."""
        found = []
        for group in _groups(self.path):
            with contextlib.suppress(OSError):
                found += [int(line) for line in (group / "cgroup.procs").read_text().split()]
        return [pid for pid in found if _is_alive(pid)]

    def end(self) -> bool:
        """Kill everything inside and remove the group; return whether there was anything."""
        found = False
        until = time.monotonic() + GIVE_UP_SECONDS
        while (pids := self.processes()) and time.monotonic() < until:
            found = True
            self._kill(pids)
            time.sleep(_PAUSE_SECONDS)
        self._remove(until)
        if self.confined is not None:
            self.confined.remove()
        return found

    def _kill(self, pids: list[int]) -> None:
        try:
            (self.path / "cgroup.kill").write_text("1")
        except OSError:  # v1, or Linux before 5.14: frozen processes cannot fork while they are killed one by one
            with self._frozen():
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)

    @contextlib.contextmanager
    def _frozen(self) -> Iterator[None]:
        _try_write(self.path / "freezer.state", "FROZEN")
        try:
            yield
        finally:
            _try_write(self.path / "freezer.state", "THAWED")

    def _remove(self, until: float) -> None:
        for group in reversed(list(_groups(self.path))):
            while _is_busy(group) and time.monotonic() < until:
                time.sleep(_PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class Containers:
    """The control groups of one agent."""

    path: Path
    confinement: Confinement | None = None
    """How memory and CPU time can be limited; None: not looked for."""

    def make(self, name: str, limits: TaskLimits = NO_LIMITS) -> Container:
        """Make a group; end whatever runs in an old one of the same name."""
        container = Container(self.path / f"task-{name}")
        try:
            container.path.mkdir(parents=True)  # an operator may have removed the agent's group while it was empty
        except FileExistsError:
            container.end()
            container.path.mkdir(exist_ok=True)
        if limits == NO_LIMITS or self.confinement is None:
            return container
        return replace(container, confined=self.confinement.confine(container.path, limits))

    def clean_up(self) -> int:
        """End what an earlier agent left; return how many tasks had processes."""
        ended = sum(Container(path).end() for path in sorted(self.path.glob("task-*")))
        if self.confinement is not None:
            self.confinement.clean_up()
        return ended

    def remove(self) -> None:
        """Remove the empty groups; groups of tasks that are still ending stay for the next agent."""
        for path in (*self.path.glob("task-*"), self.path):
            with contextlib.suppress(OSError):
                path.rmdir()
        if self.confinement is not None:
            self.confinement.remove()


def offered(agent: str) -> Containers | None:
    """Find where this agent may make groups; None if nowhere."""
    for parent in _parents():
        containers = Containers(parent / f"gavel-{agent}")
        try:
            containers.path.mkdir(exist_ok=True)
        except OSError:
            continue
        if _works(containers):
            return replace(containers, confinement=Confinement.offered(agent, containers.path))
        containers.remove()
    return None


def _works(containers: Containers) -> bool:
    """Whether a process can really enter a group: permissions alone do not tell."""
    try:
        container = containers.make(f"probe-{os.getpid()}")
        enter = ["/bin/sh", "-c", 'echo 0 > "$0"', str(container.path / "cgroup.procs")]
        done = subprocess.run(enter, capture_output=True, timeout=10, check=False)  # noqa: S603 - a fixed command
        container.end()
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _parents() -> Iterator[Path]:
    """The groups that this process is in, those of the preferred hierarchy first."""
    for kind in _KINDS:
        yield from (group for _, group in hierarchies(kind))


def _groups(path: Path) -> Iterator[Path]:
    """A group and the groups below it, parents first."""
    for directory, _, _ in os.walk(path):
        yield Path(directory)


def _is_busy(group: Path) -> bool:
    """Try to remove a group; return whether it is still in use: a process leaves its group just after it ends."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _try_write(path: Path, text: str) -> None:
    with contextlib.suppress(OSError):
        path.write_text(text)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}
