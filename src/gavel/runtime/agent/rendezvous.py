"""How the ranks of a gang find each other: addresses and free ports."""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass, field

from gavel.runtime.agent.gang_certificate import GangCertificate
from gavel.runtime.messages import StartAttempt

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The address of rank 0."""

    address: str
    master_port: int
    gang_port: int
    token: str = field(default="", repr=False)
    """What the ranks know each other by; empty: the first one's agent is of a version that derived it."""
    certificate: GangCertificate | None = None
    """What the others know rank 0 by; None: their connections are not encrypted."""


def rendezvous_of(
    start: StartAttempt, address: str, taken: set[int], certificate: GangCertificate | None = None
) -> Rendezvous:
    """The meeting point of this attempt's ranks: as told, or at free ports here, which are added to `taken`.

    The certificate is for a meeting point here.
    """
    if start.first_rank > 0:
        told = GangCertificate(start.gang_certificate) if start.gang_certificate else None
        return Rendezvous(start.master_address, start.master_port, start.gang_port, start.gang_token, told)
    local = start.ranks == start.workers
    own = LOOPBACK if local else address
    return Rendezvous(own, free_port(taken), free_port(taken), secrets.token_hex(16), certificate)


def free_port(taken: set[int]) -> int:
    """Find a free port that was not given to another task."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            taken.add(port)
            return port


def own_address(scheduler: str) -> str:
    """Find the address from which this server reaches the scheduler; nothing is sent."""
    host, _, port = scheduler.rpartition(":")
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return LOOPBACK
