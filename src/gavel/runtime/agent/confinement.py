"""Limits on what a task uses: RAM and CPU time, by control groups of v1 or v2, where the agent may set them."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from gavel.runtime.agent.cgroups import hierarchies

PERIOD_MICROSECONDS = 100_000
"""CPU quotas are counted in periods of this length, which is the kernel's default."""


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """What a task may use; 0: as much as there is."""

    memory: int = 0
    """Bytes of RAM."""
    cores: float = 0.0


NO_LIMITS = TaskLimits()


@dataclass(frozen=True, slots=True)
class Confined:
    """The limits on one task that are in force."""

    limits: TaskLimits
    """Only those that could be set."""
    groups: tuple[Path, ...] = ()
    """Groups beside that of the task itself, with v1."""
    counts: Path | None = None
    """Where the kernel counts the processes that it killed for using too much memory."""

    def out_of_memory(self) -> bool:
        """Whether a process was killed because the task used more memory than it may."""
        try:
            lines = self.counts.read_text().splitlines() if self.counts is not None else []
        except OSError:
            return False
        return any(
            name == "oom_kill" and count not in {"", "0"} for name, _, count in (x.partition(" ") for x in lines)
        )

    def remove(self) -> None:
        """Remove the groups, which are empty once the task has ended."""
        for group in self.groups:
            with contextlib.suppress(OSError):
                group.rmdir()


@dataclass(frozen=True, slots=True)
class Confinement:
    """Where the tasks of one agent can be limited."""

    memory: Path | None = None
    """With v1: the agent's group in the hierarchy of this controller; None: there is none."""
    cpu: Path | None = None
    unified: frozenset[str] = frozenset()
    """With v2: the controllers that tasks have."""

    @classmethod
    def offered(cls, agent: str, tasks: Path) -> Confinement:
        """Find what can be limited; `tasks` is the agent's own group, below which those of its tasks are."""
        unified = _delegated(tasks) if (tasks / "cgroup.controllers").exists() else frozenset()
        found = {name: None if name in unified else _group(name, agent) for name in ("memory", "cpu")}
        return cls(found["memory"], found["cpu"], unified)

    @property
    def missing(self) -> tuple[str, ...]:
        """What cannot be limited."""
        both = {"memory": self.memory, "cpu": self.cpu}
        return tuple(name for name, group in both.items() if group is None and name not in self.unified)

    def confine(self, task: Path, limits: TaskLimits) -> Confined:
        """Set the limits of a task; what cannot be limited is left out."""
        groups: list[Path] = []
        memory, cores, counts = 0, 0.0, None
        if limits.memory and (group := self._group_of(task, "memory", groups)) is not None:
            counts = _limit_memory(group, limits.memory)
            memory = limits.memory if counts is not None else 0
        if limits.cores and (group := self._group_of(task, "cpu", groups)) is not None:
            cores = limits.cores if _limit_cores(group, limits.cores) else 0.0
        return Confined(TaskLimits(memory, cores), tuple(groups), counts)

    def _group_of(self, task: Path, controller: str, groups: list[Path]) -> Path | None:
        """The group in which a controller limits a task; a new one is added to `groups`."""
        if controller in self.unified:
            return task
        parent = self.memory if controller == "memory" else self.cpu
        if parent is None:
            return None
        group = parent / task.name
        with contextlib.suppress(OSError):  # what is left of an old one of the same name
            group.rmdir()
        try:
            group.mkdir(parents=True)
        except OSError:
            return None
        groups.append(group)
        return group

    def clean_up(self) -> None:
        """Remove what an earlier agent left."""
        for parent in filter(None, (self.memory, self.cpu)):
            for group in parent.glob("task-*"):
                with contextlib.suppress(OSError):
                    group.rmdir()

    def remove(self) -> None:
        """Remove the empty groups of this agent."""
        self.clean_up()
        for parent in filter(None, (self.memory, self.cpu)):
            with contextlib.suppress(OSError):
                parent.rmdir()


def _group(controller: str, agent: str) -> Path | None:
    """The agent's group in a hierarchy of v1; None if it may not make one."""
    for _, parent in hierarchies(controller):
        group = parent / f"gavel-{agent}"
        try:
            group.mkdir(exist_ok=True)
        except OSError:
            continue
        limit = group / ("memory.limit_in_bytes" if controller == "memory" else "cpu.cfs_quota_us")
        if os.access(limit, os.W_OK):
            return group
        with contextlib.suppress(OSError):
            group.rmdir()
    return None


def _delegated(tasks: Path) -> frozenset[str]:
    """The controllers of v2 that the agent's tasks can have, after passing them on.

    A group that passes controllers on may hold no process itself, so the agent moves to its own group.
    """
    parent = tasks.parent
    if not _passes_on(parent):
        with contextlib.suppress(OSError):
            if (parent / "cgroup.procs").read_text().split() == [str(os.getpid())]:
                own = tasks / "agent"
                own.mkdir(exist_ok=True)
                (own / "cgroup.procs").write_text(str(os.getpid()))
                _passes_on(parent)
    _passes_on(tasks)
    try:
        return frozenset((tasks / "cgroup.subtree_control").read_text().split()) & {"memory", "cpu"}
    except OSError:
        return frozenset()


def _passes_on(group: Path) -> bool:
    try:
        (group / "cgroup.subtree_control").write_text("+memory +cpu")
    except OSError:
        return False
    return True


def _limit_memory(group: Path, memory: int) -> Path | None:
    """Limit memory, and swap, too; returns where the kernel counts what it kills, or None if that fails."""
    unified = (group / "memory.max").exists()
    limit, swap = (
        ("memory.max", "memory.swap.max") if unified else ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
    )
    try:
        (group / limit).write_text(str(memory))
    except OSError:
        return None
    if (group / swap).exists():
        with contextlib.suppress(OSError):
            (group / swap).write_text("0" if unified else str(memory))
    return group / ("memory.events" if unified else "memory.oom_control")


def _limit_cores(group: Path, cores: float) -> bool:
    quota = max(int(cores * PERIOD_MICROSECONDS), 1000)  # the least that the kernel takes
    try:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
    except OSError:
        return False
    return True
