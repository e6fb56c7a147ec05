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
from dataclasses import dataclass
from pathlib import Path

GIVE_UP_SECONDS = 10.0
"""A process that survives SIGKILL for this long is stuck in the kernel."""
_PAUSE_SECONDS = 0.005
_MOUNTS, _OWN_GROUPS = Path("/proc/self/mounts"), Path("/proc/self/cgroup")
_KINDS = ("", "freezer", "pids")
"""Hierarchies in order of preference; the first is that of v2."""


@dataclass(frozen=True, slots=True)
class Container:
    """The control group of one task."""

    path: Path

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

    def make(self, name: str) -> Container:
        """Make a group; end whatever runs in an old one of the same name."""
        container = Container(self.path / f"task-{name}")
        with contextlib.suppress(FileExistsError):
            container.path.mkdir(parents=True)  # an operator may have removed the agent's group while it was empty
            return container
        container.end()
        container.path.mkdir(exist_ok=True)
        return container

    def clean_up(self) -> int:
        """End what an earlier agent left; return how many tasks had processes."""
        return sum(Container(path).end() for path in sorted(self.path.glob("task-*")))

    def remove(self) -> None:
        """Remove the empty groups; groups of tasks that are still ending stay for the next agent."""
        for path in (*self.path.glob("task-*"), self.path):
            with contextlib.suppress(OSError):
                path.rmdir()


def offered(agent: str) -> Containers | None:
    """Find where this agent may make groups; None if nowhere."""
    for parent in _parents():
        containers = Containers(parent / f"gavel-{agent}")
        try:
            containers.path.mkdir(exist_ok=True)
        except OSError:
            continue
        if _works(containers):
            return containers
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
    try:
        mounts, own = _mounts(_MOUNTS.read_text()), _own_groups(_OWN_GROUPS.read_text())
    except OSError:  # not Linux
        return
    for kind in _KINDS:
        if kind in mounts and kind in own:
            # In a container without a cgroup namespace, our own group is what is mounted.
            candidates = (Path(f"{mounts[kind]}{own[kind]}"), Path(mounts[kind]))
            yield from dict.fromkeys(path for path in candidates if (path / "cgroup.procs").exists())


def _mounts(text: str) -> dict[str, str]:
    """Where the hierarchies are mounted, by controller; v2 has the empty name.

    >>> _mounts("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\\ncgroup /c/freezer cgroup rw,relatime,freezer 0 0\\n")
    {'': '/sys/fs/cgroup', 'freezer': '/c/freezer'}
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, place, kind, options = line.split()[:4]
        if kind == "cgroup2":
            found.setdefault("", place)
        elif kind == "cgroup":
            for controller in set(options.split(",")) & set(_KINDS):
                found.setdefault(controller, place)
    return found


def _own_groups(text: str) -> dict[str, str]:
    """The group of a process in each hierarchy, by controller.

    >>> _own_groups("6:freezer:/a\\n0::/b\\n")
    {'freezer': '/a', '': '/b'}
    """
    lines = [line.split(":", 2) for line in text.splitlines()]
    return {name: path for _, names, path in lines for name in names.split(",")}


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
