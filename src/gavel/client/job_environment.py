"""What a job process finds in its environment: its identity, its agent's socket and its checkpoint directory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gavel.errors import InputError


@dataclass(frozen=True)
class JobEnvironment:
    """The environment of one process of a job. Without Gavel everything is absent, and the process is rank 0 of 1."""

    socket: str | None = None
    steps: int | None = None
    checkpoint_dir: Path | None = None
    rank: int = 0
    world_size: int = 1
    gang_address: tuple[str, int] | None = None
    gang_token: str = field(default="", repr=False)
    gang_certificate: Path | None = None
    """The file by which ranks recognise rank 0; None: their connections are not encrypted."""
    lease_seconds: float | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> JobEnvironment:
        """Read the variables that the agent sets; where they are absent, those of the program that started the ranks.

        In a job with one process for each server that starts no ranks, these processes are the ranks.
        """
        rank, world = _place(environment)
        address = environment.get("GAVEL_GANG_ADDRESS")
        directory = environment.get("GAVEL_CHECKPOINT_DIR")
        certificate = environment.get("GAVEL_GANG_CERTIFICATE")
        return cls(
            socket=environment.get("GAVEL_SOCKET") or None,
            steps=_steps(environment),
            checkpoint_dir=Path(directory) if directory else None,
            rank=rank,
            world_size=world,
            gang_address=_address(address) if address and world > 1 else None,
            gang_token=environment.get("GAVEL_GANG_TOKEN", ""),
            gang_certificate=Path(certificate) if certificate else None,
            lease_seconds=_number(environment, "GAVEL_LEASE_SECONDS"),
        )


_PLACES = (
    ("GAVEL_RANK", "GAVEL_WORLD_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("GAVEL_NODE_RANK", "GAVEL_NODES"),
)
"""Where the rank of a process and the number of ranks are, by who sets them: the agent, torchrun, Open MPI, others."""


def _place(environment: Mapping[str, str]) -> tuple[int, int]:
    """The rank of this process, and how many there are."""
    names = next((names for names in _PLACES if any(environment.get(name) for name in names)), _PLACES[0])
    _check_world(environment, names)
    return _whole(environment, names[0], 0), _whole(environment, names[1], 1)


def _check_world(environment: Mapping[str, str], names: tuple[str, str]) -> None:
    """Refuse ranks of one server that take themselves for all: several such groups would write the same checkpoint."""
    nodes, size = _whole(environment, "GAVEL_NODES", 1), _whole(environment, names[1], 1)
    if nodes <= 1 or names[0].startswith("GAVEL_"):
        return
    joined = _whole(environment, "GROUP_WORLD_SIZE", 0)  # torchrun: how many servers it knows of
    if joined != nodes if joined else size <= _whole(environment, "GAVEL_WORKERS_HERE", 0):
        raise InputError(
            f"this is one of {size} ranks that were started on one server, but the job runs on {nodes} servers, and "
            "each would train by itself; use torchrun without --standalone and --nnodes, which joins the ranks of all"
        )


def _steps(environment: Mapping[str, str]) -> int | None:
    steps = _number(environment, "GAVEL_STEPS")
    return None if steps is None or steps <= 0 else math.ceil(steps)


def _number(environment: Mapping[str, str], name: str) -> float | None:
    text = environment.get(name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{name} is {text!r}: it must be a number")
    return value


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    value = _number(environment, name)
    return default if value is None else int(value)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise InputError(f"GAVEL_GANG_ADDRESS is {text!r}: it must be host:port")
    return host.strip("[]"), int(port)
