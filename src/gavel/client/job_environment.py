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
        """Read the variables that the agent sets; where they are absent, torchrun's RANK and WORLD_SIZE apply."""
        world = _whole(environment, "GAVEL_WORLD_SIZE", _whole(environment, "WORLD_SIZE", 1))
        address = environment.get("GAVEL_GANG_ADDRESS")
        directory = environment.get("GAVEL_CHECKPOINT_DIR")
        certificate = environment.get("GAVEL_GANG_CERTIFICATE")
        return cls(
            socket=environment.get("GAVEL_SOCKET") or None,
            steps=_steps(environment),
            checkpoint_dir=Path(directory) if directory else None,
            rank=_whole(environment, "GAVEL_RANK", _whole(environment, "RANK", 0)),
            world_size=world,
            gang_address=_address(address) if address and world > 1 else None,
            gang_token=environment.get("GAVEL_GANG_TOKEN", ""),
            gang_certificate=Path(certificate) if certificate else None,
            lease_seconds=_number(environment, "GAVEL_LEASE_SECONDS"),
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
