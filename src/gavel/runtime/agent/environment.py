"""Builds the environment of a job process, and checks whether its command can be started at all."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gavel.runtime.agent.inherited import inherited_by_jobs
from gavel.runtime.agent.rendezvous import Rendezvous
from gavel.runtime.agent.run_as import SystemAccount
from gavel.runtime.messages import StartAttempt


@dataclass(frozen=True, slots=True)
class Seat:
    """What is specific to one process of a job."""

    rank: int
    """Its rank; the number of this server, if one process runs on each."""
    local_rank: int
    devices: tuple[int, ...]
    socket: str
    lease_seconds: float
    certificate: str = ""
    """The file with the gang's certificate and, for rank 0, its key; empty: there is none."""


@dataclass(frozen=True, slots=True)
class Variables:
    """The environment of a job process by where it comes from."""

    inherited: Mapping[str, str]
    """From this server's agent, and its account."""
    own: Mapping[str, str]
    """The job's own, its secrets, and ours."""

    def all(self) -> dict[str, str]:
        return {**self.inherited, **self.own}


def job_variables(
    inherited: Mapping[str, str],
    start: StartAttempt,
    seat: Seat,
    rendezvous: Rendezvous,
    *,
    checkpoints: Path,
    devices: Mapping[str, str],
    extra: Mapping[str, str],
    account: SystemAccount | None = None,
) -> Variables:
    """Build the whole environment: inherited, then the job's own, its secrets, then our variables, which win.

    `devices` are the variables that show it its accelerators.
    """
    kept = inherited_by_jobs(inherited, other_user=account is not None)
    if account is not None:
        kept |= account.variables
    ours = {
        **_gavel(start, seat, rendezvous, checkpoints),
        **(_node(start, rendezvous) if start.nodes else _torch(start, seat, rendezvous)),
        **devices,
    }
    return Variables(kept, {"PYTHONUNBUFFERED": "1", **start.request.environment, **start.secrets, **ours, **extra})


def _gavel(start: StartAttempt, seat: Seat, rendezvous: Rendezvous, checkpoints: Path) -> dict[str, str]:
    told = {
        "GAVEL_JOB_ID": start.job,
        "GAVEL_ATTEMPT": str(start.attempt),
        "GAVEL_CHECKPOINT_DIR": str(checkpoints),
        "GAVEL_SOCKET": seat.socket,
        "GAVEL_ACCELERATOR_TYPE": start.type,
        "GAVEL_LEASE_SECONDS": f"{seat.lease_seconds:.3f}",
        "GAVEL_DEVICES": ",".join(map(str, seat.devices)),
    }
    if not start.nodes:  # ranks that the job starts itself have other numbers
        told |= {"GAVEL_RANK": str(seat.rank), "GAVEL_WORLD_SIZE": str(start.workers)}
    if start.request.steps:
        told["GAVEL_STEPS"] = _plain(start.request.steps)
    if start.workers > 1:
        told["GAVEL_GANG_ADDRESS"] = f"{rendezvous.address}:{rendezvous.gang_port}"
        told["GAVEL_GANG_TOKEN"] = gang_token(start, rendezvous)
        if seat.certificate:
            told["GAVEL_GANG_CERTIFICATE"] = seat.certificate
    return told


def _plain(number: float) -> str:
    return str(int(number)) if number.is_integer() else repr(number)


def gang_token(start: StartAttempt, rendezvous: Rendezvous) -> str:
    """The secret that the ranks of an attempt share and no other process knows: a port may be reused.

    An agent of an earlier version derives it from public figures, and the ranks of its gangs must agree with it.
    """
    if rendezvous.token:
        return rendezvous.token
    known = f"{start.job}\0{start.attempt}\0{rendezvous.address}\0{rendezvous.master_port}\0{rendezvous.gang_port}"
    return hashlib.sha256(known.encode()).hexdigest()[:32]


def _torch(start: StartAttempt, seat: Seat, rendezvous: Rendezvous) -> dict[str, str]:
    """What torch.distributed reads. A single worker gets none of it: libraries would wrap its model for a group."""
    if start.workers <= 1:
        return {}
    return {
        "RANK": str(seat.rank),
        "WORLD_SIZE": str(start.workers),
        "LOCAL_RANK": str(seat.local_rank),
        "LOCAL_WORLD_SIZE": str(start.ranks),
        "MASTER_ADDR": rendezvous.address,
        "MASTER_PORT": str(rendezvous.master_port),
    }


def _node(start: StartAttempt, rendezvous: Rendezvous) -> dict[str, str]:
    """What the one process of a server reads to start its ranks; torchrun reads the variables that begin with PET."""
    place = {
        "NNODES": str(start.nodes),
        "NODE_RANK": str(start.node),
        "NPROC_PER_NODE": str(start.ranks),
        "MASTER_ADDR": rendezvous.address,
        "MASTER_PORT": str(rendezvous.master_port),
    }
    return {
        "GAVEL_NODES": place["NNODES"],
        "GAVEL_NODE_RANK": place["NODE_RANK"],
        "GAVEL_WORKERS_HERE": place["NPROC_PER_NODE"],
        "GAVEL_WORKERS": str(start.workers),
        "GAVEL_MASTER_ADDR": place["MASTER_ADDR"],
        "GAVEL_MASTER_PORT": place["MASTER_PORT"],
        **{f"PET_{name}": value for name, value in place.items()},
    }


def obstacle(command: Sequence[str], directory: str | None, environment: Mapping[str, str]) -> str | None:
    """Say why a command can never start here; None if it can."""
    if directory and not Path(directory).is_dir():
        return f"there is no working directory {directory}"
    if not command or not command[0]:
        return "it has no command"
    program = str(Path(directory or ".", command[0])) if "/" in command[0] else command[0]
    path = environment.get("PATH", os.defpath)
    if shutil.which(program, mode=os.F_OK, path=path) is None:
        return f"there is no command {command[0]}"
    if shutil.which(program, path=path) is None:
        return f"command {command[0]} may not be executed"
    return None
