"""Messages between the scheduler and its agents, as plain values.

Only the two ends of the stream convert them to and from protobuf (`agent_wire`); everything else works on these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gavel.client.requests import Submission
from gavel.client.secret_values import SecretValues
from gavel.core.locality import Locality
from gavel.limits import LARGEST, LONGEST_LABEL

PORTS = 2**16
LONGEST_CERTIFICATE = 4096
"""In characters: a certificate of one key takes about 600."""


class Ending(StrEnum):
    """How a process of a job ended."""

    DONE = "done"
    """It finished everything it wanted to do."""
    LEFT = "left"
    """It was asked to leave, and left."""
    CRASHED = "crashed"
    """It ended by itself with an error, or could not be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """Progress of one process of a job."""

    job: str
    attempt: int
    rank: int
    counts: bool = False
    """Whether the job counts its steps; otherwise the figures below are 0."""
    steps: float = 0.0
    """Steps since the job was submitted, all attempts together."""
    saved_steps: float = 0.0
    """How many of them a checkpoint holds."""
    measured_steps: float = 0.0
    measured_seconds: float = 0.0
    """Time since the last report without start-up and saving: the basis of measured rates."""

    @property
    def plausible(self) -> bool:
        """Whether its figures are numbers that a job can reach."""
        figures = (self.steps, self.saved_steps, self.measured_steps, self.measured_seconds)
        return all(0.0 <= figure <= LARGEST for figure in figures)


# ---- from an agent ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first message of a stream: who the agent is and what runs there."""

    protocol: int
    version: str = ""
    name: str
    """A label for people; servers are named after it."""
    agent: str
    """The agent's identity, kept in its state directory. Two agents never share one."""
    incarnation: str
    """Differs for every start of the agent. What an earlier incarnation of the same agent ran has ended."""
    accelerators: Mapping[str, int]
    """By type."""
    address: str = ""
    """Where other servers reach this one."""
    tasks: tuple[TaskStatus, ...] = ()
    draining: bool = False
    cluster: str = ""
    """The cluster that the agent served last; empty if it is new."""
    term: int = 0
    """The highest term that the agent has heard of."""
    encrypts_gangs: bool = False
    """Whether its ranks can meet over TLS."""
    accelerator_memory: Mapping[str, int] = field(default_factory=dict)
    """By type: bytes of one accelerator, where known."""
    cpus: float = 0.0
    """CPU cores that jobs may use; 0: unknown."""
    memory_bytes: int = 0
    """RAM that jobs may use; 0: unknown."""
    abilities: tuple[str, ...] = ()
    """What it can do beyond the first version of the protocol."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life, with the list of what the agent runs."""

    tasks: tuple[TaskStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted:
    """A rank runs; rank 0 of a gang says where the others find it."""

    job: str
    attempt: int
    rank: int
    master_address: str = ""
    master_port: int = 0
    gang_port: int = 0
    gang_token: str = field(default="", repr=False)
    """Drawn at random for this attempt; only its ranks may know it."""
    gang_certificate: str = field(default="", repr=False)
    """By which the other ranks recognise rank 0, in PEM; empty: their connections are not encrypted."""

    @property
    def plausible(self) -> bool:
        """Whether it can be where a gang meets."""
        ports = 0 <= self.master_port < PORTS and 0 <= self.gang_port < PORTS
        texts = self.master_address, self.gang_token
        certificate = len(self.gang_certificate) <= LONGEST_CERTIFICATE and self.gang_certificate.isascii()
        return ports and certificate and all(len(text) <= LONGEST_LABEL and text.isprintable() for text in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnded:
    """A rank has ended. Repeated after a reconnection until it is acknowledged."""

    status: TaskStatus
    ending: Ending
    reason: str = ""
    log_tail: bytes = b""
    hopeless: bool = False
    """The same would happen again: for example, the command does not exist."""
    blameless: bool = False
    """Not the job's fault, so it uses up no retry: for example, the checkpoint disk was full."""
    exit_code: int | None = None
    """Of its process, negative for the signal that ended it; None: it had none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLog:
    """Bytes that a rank has printed."""

    job: str
    attempt: int
    rank: int
    data: bytes
    begin: int
    """How many bytes this attempt printed before these."""


@dataclass(frozen=True, slots=True)
class Draining:
    """The agent takes no new work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsHandled:
    """The agent has carried out every removal up to a number."""

    through: int
    removed: tuple[str, ...] = ()
    """Jobs that had checkpoints here."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """By job: why its checkpoints were left alone, in a sentence."""


FromAgent = Hello | Heartbeat | TaskStarted | TaskEnded | TaskLog | Draining | CheckpointsHandled


# ---- to an agent ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The agent is part of the cluster."""

    cluster: str
    heartbeat_seconds: float
    checkpoint_grace_seconds: float
    terminate_grace_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRefused:
    """The agent may not attach."""

    reason: str
    retry: bool = False
    """Whether a later attempt may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    """Start the ranks of an attempt that belong to this agent."""

    job: str
    attempt: int
    first_rank: int
    ranks: int
    workers: int
    type: str
    request: Submission
    lease_seconds: float
    beside: str = ""
    """Another job, with which this one shares its accelerators."""
    locality: Locality = Locality.SERVER
    master_address: str = ""
    master_port: int = 0
    gang_port: int = 0
    """Where rank 0 is; only for agents that do not hold it."""
    gang_token: str = field(default="", repr=False)
    """What rank 0 knows its gang by; only for agents that do not hold it."""
    gang_certificate: str = field(default="", repr=False)
    """What the gang knows rank 0 by; only for agents that do not hold it."""
    plain_gang: bool = False
    """Whether rank 0 must meet ranks that cannot encrypt; only for the agent that holds it."""
    steps_done: float = 0.0
    secrets: SecretValues = field(default_factory=SecretValues)
    """Variables of the job's environment that the agent keeps in memory only."""
    node: int = 0
    """The number of this server among those of the job; its process has this number for a rank."""
    nodes: int = 0
    """How many servers the job has; 0: it has one process for each accelerator, not for each server."""

    @property
    def process_ranks(self) -> range:
        """By what the processes at this agent are known."""
        return process_ranks(self.first_rank, self.ranks, self.node if self.nodes else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """These jobs may run for this long from now on."""

    seconds: float
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAttempt:
    """Let an attempt save a checkpoint and leave, or leave at once."""

    job: str
    attempt: int
    reason: str
    at_once: bool = False
    """No checkpoint is wanted: the job was cancelled, or its gang is broken."""


@dataclass(frozen=True, slots=True)
class Ack:
    """The message with this number is in the journal; the agent may forget it."""

    number: int


@dataclass(frozen=True, slots=True)
class RemoveCheckpoints:
    """Remove the checkpoints of finished jobs, in this order; may be repeated."""

    removals: tuple[tuple[int, str], ...]
    """The number and the job of each removal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalKeys:
    """A user is connected to the terminal of a job: what was typed, and the terminal's size."""

    job: str
    attempt: int
    data: bytes = field(default=b"", repr=False)
    """May be a password."""
    rows: int = 0
    """0: unchanged."""
    columns: int = 0
    linger_seconds: float = 0.0
    """How long the job outlives the last of these messages; 0: as long as usual."""
    notice: str = ""
    """A line for the user, beside what the job prints."""


def process_ranks(first_rank: int, ranks: int, node: int | None) -> range:
    """By what the processes of a part are known: their ranks, or the number of their server if there is one for it.

    >>> process_ranks(4, 4, None), process_ranks(4, 4, 1)
    (range(4, 8), range(1, 2))
    """
    return range(first_rank, first_rank + ranks) if node is None else range(node, node + 1)


ToAgent = Welcome | AttachRefused | StartAttempt | Lease | StopAttempt | Ack | RemoveCheckpoints | TerminalKeys


@dataclass(frozen=True, slots=True)
class FromAgentFrame:
    """A message with its number: an agent counts its messages, and an ending keeps its number when repeated."""

    number: int
    message: FromAgent


@dataclass(frozen=True, slots=True)
class ToAgentFrame:
    """A message with what makes it safe to obey late."""

    message: ToAgent
    term: int
    """The scheduler's term. An agent ignores schedulers with a lower term than the highest it has heard of."""
    heard: int = field(default=0)
    """The highest number the scheduler had read from the agent: leases count from when that message was sent."""
