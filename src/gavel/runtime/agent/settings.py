"""The settings of an agent."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gavel.client.field_checks import shortened
from gavel.client.requests import Submission
from gavel.core.throughputs import ThroughputTable, builtin_table
from gavel.errors import InputError
from gavel.limits import LONGEST_LABEL
from gavel.runtime.agent.accelerators import Indices, parse_accelerators
from gavel.runtime.agent.allotment import Vendor, allotment
from gavel.runtime.agent.confinement import TaskLimits
from gavel.runtime.agent.container_runtimes import RUNTIMES
from gavel.runtime.agent.credentials import Credentials
from gavel.runtime.agent.emulation import Emulation
from gavel.runtime.agent.run_as import RunAs
from gavel.runtime.offers import figures_fault, offer_fault
from gavel.runtime.privacy import OTHERS, make_directory
from gavel.wire import DEFAULT_ADDRESS


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One server: what it has, where it stores things, and which scheduler it serves.

    >>> AgentSettings(accelerators={"v100": (0, 1)}, state=Path("state"), checkpoints=Path("ckpt")).counts()
    {'v100': 2}
    """

    accelerators: Indices
    """Device numbers by type."""
    state: Path
    """A directory of this agent alone: its identity, its logs, and what it needs to clean up after its own crash."""
    checkpoints: Path
    """Where jobs keep their checkpoints, one directory each; all servers must see the same files."""
    scheduler: str = DEFAULT_ADDRESS
    name: str = field(default_factory=platform.node)
    address: str | None = None
    """Where other servers reach this one; None: the address it uses towards the scheduler."""
    emulation: Emulation | None = None
    """None: the accelerators are real."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """What job processes inherit."""
    log_bytes: int = 16 * 1024 * 1024
    """Size limit for the log of one process."""
    kept_logs: int = 500
    """How many logs of ended tasks are kept."""
    first_pause_seconds: float = 0.1
    longest_pause_seconds: float = 5.0
    """The longest pause between attempts to reach the scheduler; pauses double up to this."""
    patience_seconds: float = 30.0
    """How long to keep trying when the scheduler says that this agent's name is in use."""
    farewell_seconds: float = 5.0
    """How long a leaving agent tries to tell the scheduler how its jobs ended."""
    umask: int | None = None
    """Of jobs and their checkpoint directories; None: that of the agent."""
    credentials: Credentials | None = None
    """How this agent shows who it is; None: not at all, in plaintext."""
    contain: bool = True
    """Whether each task gets a control group, where the machine supports them."""
    run_as: RunAs = field(default_factory=RunAs)
    """As which accounts jobs run."""
    device_names: Mapping[int, str] = field(default_factory=dict)
    """By device number: what its driver calls it; others are called as the agent was given them, or by their number."""
    vendor: Vendor | None = None
    """Whose accelerators these are; None: that of the variables that name them."""
    accelerator_memory: Mapping[str, int] = field(default_factory=dict)
    """By type: bytes of one accelerator, where known."""
    cpus: float = 0.0
    """CPU cores that jobs may use; 0: not limited."""
    memory_bytes: int = 0
    """RAM that jobs may use; 0: not limited."""
    enforce_shares: bool = False
    """Whether jobs that do not say what they need are held to their accelerators' part of the cores and RAM."""
    container_runtimes: tuple[str, ...] = RUNTIMES
    """What may run jobs in containers; the first that is installed does."""

    def counts(self) -> dict[str, int]:
        """How many accelerators there are of each type."""
        return {name: len(indices) for name, indices in self.accelerators.items()}

    def limits(self, request: Submission, accelerators: int) -> TaskLimits:
        """What a process with this many accelerators may use: what its job states for each, or their part."""
        total = sum(self.counts().values()) if self.enforce_shares else 0
        cores = request.cpus or (self.cpus / total if total else 0.0)
        memory = request.memory_bytes or (self.memory_bytes // total if total else 0)
        return TaskLimits(memory * accelerators, cores * accelerators)

    def _check_given(self) -> None:
        """Refuse accelerators, named by hand, that the agent was not given."""
        given, count = allotment(self.environment, self.vendor), sum(self.counts().values())
        if given.names is not None and len(given.names) < count:
            raise InputError(
                f"this agent was given only the devices {given}, {len(given.names)} in all, "
                f"and its accelerators are {count}; name only those it has"
            )

    def check(self) -> None:
        """Refuse invalid settings before anything is started."""
        if not self.name or len(self.name) > LONGEST_LABEL or not self.name.isprintable():
            raise InputError(f"agent name {shortened(self.name)}: give a short printable name")
        if not self.accelerators:
            raise InputError("this agent has no accelerators; give some, for example v100=4")
        if (fault := offer_fault(self.name, self.counts())) is not None:
            raise InputError(fault)
        _, separator, port = self.scheduler.rpartition(":")
        if not (separator and port.isdecimal() and 0 < int(port) < 65536):
            raise InputError(f"scheduler {self.scheduler!r} is not HOST:PORT, for example {DEFAULT_ADDRESS}")
        if self.emulation is not None:
            self.emulation.check_types(tuple(self.accelerators))
        elif not self.device_names:
            self._check_given()
        if (fault := figures_fault(self.cpus, self.memory_bytes, self.accelerator_memory)) is not None:
            raise InputError(fault)
        _writable(self.checkpoints, self.umask)  # first: a parent that both share stays open
        _writable(self.state, OTHERS)


def emulated(text: str, *, table: ThroughputTable | None = None, time_scale: float = 1.0) -> tuple[Indices, Emulation]:
    """Emulated accelerators and how they behave: two of the fields of AgentSettings."""
    return parse_accelerators(text), Emulation(builtin_table() if table is None else table, time_scale)


def _writable(directory: Path, umask: int | None) -> None:
    try:
        make_directory(directory, umask)
    except OSError as error:
        raise InputError(f"cannot create the directory {directory} ({error.strerror}); choose another") from error
    probe = directory / f".probe-{os.getpid()}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"the directory {directory} is not writable ({error.strerror}); choose another") from error
