"""Where a scheduler listens, and in which mode: open on this machine, secured, or openly insecure."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import grpc

from gavel.client.access import MACHINE_SOCKET, is_loopback
from gavel.client.trust import fingerprint
from gavel.core.errors import InputError
from gavel.security.local_login import SUFFIX, LocalLogin
from gavel.security.names import default_names
from gavel.security.setup import Secured, is_set_up
from gavel.security.tls import OwnCertificate, Source, server_credentials

logger = logging.getLogger(__name__)

LONGEST_SOCKET = 90
"""Bytes of a socket's path, so that the one for logins fits, too."""
WARN_SECONDS = 3600.0


class Mode(StrEnum):
    """How callers are recognised."""

    OPEN = "open"
    """Not at all, on this machine only: one user."""
    SECURE = "secure"
    INSECURE = "insecure"
    """Not at all, and perhaps beyond this machine: asked for explicitly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """What an operator says about listening and recognising callers."""

    names: tuple[str, ...] = ()
    """Names and addresses that the scheduler is reached by, beside those that the machine knows."""
    agents_listen: str | None = None
    """For agents with certificates; None: the port after the clients'."""
    socket: Path | None = None
    """For local users; None: that of the machine for root, else one in the folder."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    """An authority whose certificates agents show, instead of enrolling."""
    insecure: bool = False
    insecure_listen: str | None = None
    """In addition, for agents that have not enrolled yet."""


@dataclass(frozen=True, slots=True)
class BoundPorts:
    """The addresses at which a scheduler listens."""

    address: str
    agents_port: int = 0
    """0: agents use the clients' port."""
    socket: Path | None = None
    insecure: str = ""


def mode_of(listen: str, folder: Path, wanted: Listening) -> Mode:
    """The mode that these settings lead to; InputError if they contradict each other."""
    split(listen, "--listen")
    if (wanted.tls_cert is None) != (wanted.tls_key is None):
        raise InputError("give both --tls-cert and --tls-key, or neither")
    if wanted.client_ca and wanted.insecure_listen:
        raise InputError("--insecure-listen is for agents that will enrol; with --client-ca, give certificates first")
    if wanted.insecure:
        if wanted.tls_cert or wanted.client_ca or wanted.insecure_listen:
            raise InputError("--insecure means no TLS at all; leave out --tls-cert, --client-ca and --insecure-listen")
        return Mode.INSECURE
    if wanted.tls_cert or wanted.client_ca or wanted.insecure_listen or is_set_up(folder) or not is_loopback(listen):
        return Mode.SECURE
    return Mode.OPEN


def split(address: str, option: str) -> tuple[str, int]:
    """Host and port of an address.

    >>> split("[::1]:7077", "--listen")
    ('[::1]', 7077)
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"{option} {address}: write HOST:PORT, for example 127.0.0.1:7077")
    return host, int(port)


def server_names(listen: str, wanted: Listening) -> tuple[str, ...]:
    """The names in the scheduler's certificate."""
    return default_names(split(listen, "--listen")[0], wanted.names)


def advertised(address: str, wanted: Listening) -> str:
    """The address that others are told to use."""
    host, port = split(address, "--listen")
    if wanted.names:
        host = wanted.names[0]
    elif not is_loopback(address):
        with suppress(ValueError):
            if ipaddress.ip_address(host.strip("[]")).is_unspecified:
                host = socket.getfqdn() or socket.gethostname()
    return f"{host}:{port}"


def insecure_sentence(mode: Mode, bound: BoundPorts) -> str:
    """A warning if anyone who reaches a port can do harm; empty if not."""
    if mode is Mode.INSECURE:
        return (
            f"INSECURE: everyone who reaches {bound.address} can run commands on every server: no TLS, no users; "
            "leave out --insecure to secure it"
        )
    if bound.insecure:
        return (
            f"INSECURE: everyone who reaches {bound.insecure} can attach an agent and receive jobs; "
            "leave out --insecure-listen once all agents have enrolled"
        )
    return ""


class Listener:
    """Binds a server's ports, and answers local logins."""

    def __init__(self, server: grpc.aio.Server, listen: str, folder: Path, wanted: Listening) -> None:
        self._server = server
        self._listen = listen
        self._folder = folder
        self._wanted = wanted
        self._logins: LocalLogin | None = None
        self._socket: Path | None = None

    def bind(self, secured: Secured | None) -> BoundPorts:
        """Bind all ports; without identities, one in plaintext."""
        if secured is None:
            return BoundPorts(_bound(self._server, self._listen, None, "--listen"))
        source = self._source(secured)
        address = _bound(self._server, self._listen, server_credentials(source), "--listen")
        agents = _bound(
            self._server,
            self._agents_listen(address),
            server_credentials(source, self._client_authority(secured)),
            "--agents-listen",
        )
        insecure = ""
        if self._wanted.insecure_listen:
            insecure = _bound(self._server, self._wanted.insecure_listen, None, "--insecure-listen")
        self._socket = self._bind_socket()
        return BoundPorts(address, split(agents, "--agents-listen")[1], self._socket, insecure)

    def trust(self, secured: Secured) -> tuple[bytes, str]:
        """What agents check the scheduler's certificate by: an authority in PEM, and a name (empty: the host's)."""
        if self._wanted.tls_cert is None:
            return secured.authority.authority_pem, secured.authority.server_name
        begin = b"-----BEGIN CERTIFICATE-----"
        return begin + self._wanted.tls_cert.read_bytes().rpartition(begin)[2], ""

    def fingerprint(self, secured: Secured) -> str:
        """That of the authority which vouches for the scheduler: the last certificate that it shows."""
        return fingerprint(ssl.PEM_cert_to_DER_cert(self.trust(secured)[0].decode()))

    async def start_logins(self, logins: LocalLogin) -> None:
        """Answer local users, once the server has started."""
        if self._socket is not None:
            _let_everyone_connect(self._socket)
            await logins.start(self._socket.with_name(self._socket.name + SUFFIX))
            self._logins = logins

    async def stop(self) -> None:
        """Take no more logins."""
        if self._logins is not None:
            await self._logins.stop()

    def _source(self, secured: Secured) -> Source:
        if self._wanted.tls_cert is None or self._wanted.tls_key is None:
            return secured.authority.shown
        return OwnCertificate(self._wanted.tls_cert, self._wanted.tls_key)

    def _client_authority(self, secured: Secured) -> bytes:
        if self._wanted.client_ca is None:
            return secured.authority.authority_pem
        try:
            return self._wanted.client_ca.read_bytes()
        except OSError as error:
            raise InputError(f"--client-ca {self._wanted.client_ca}: {error.strerror}") from None

    def _agents_listen(self, address: str) -> str:
        host, port = split(address, "--listen")
        if self._wanted.agents_listen is not None:
            return self._wanted.agents_listen
        asked = split(self._listen, "--listen")[1]
        return f"{host}:{port + 1 if asked else 0}"

    def _bind_socket(self) -> Path:
        default = MACHINE_SOCKET if os.geteuid() == 0 else self._folder.absolute() / MACHINE_SOCKET.name
        path = self._wanted.socket or default
        if len(os.fsencode(path.absolute())) > LONGEST_SOCKET:
            raise InputError(
                f"--socket {path}: the path of a socket has at most {LONGEST_SOCKET} bytes; give a shorter one"
            )
        try:
            _room_for(path)
            self._server.add_insecure_port(f"unix:{path.absolute()}")
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or "it is in use"
            raise InputError(f"--socket {path}: cannot listen there ({reason}); give another path") from None
        return path.absolute()


def _room_for(path: Path) -> None:
    """Make the socket's folder, and remove a socket that a scheduler left there."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        path.parent.chmod(0o755)
    if path.is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
            except OSError:
                path.unlink(missing_ok=True)


def _let_everyone_connect(path: Path) -> None:
    path.chmod(0o666)


def _bound(server: grpc.aio.Server, listen: str, credentials: grpc.ServerCredentials | None, option: str) -> str:
    host, _ = split(listen, option)
    try:
        port = server.add_insecure_port(listen) if credentials is None else server.add_secure_port(listen, credentials)
    except RuntimeError as error:
        raise InputError(f"{option} {listen}: the port is in use or not permitted; choose another") from error
    return f"{host}:{port}"


async def keep_warning(sentence: str) -> None:
    """Say it again every hour; ends only by cancellation."""
    while True:
        await asyncio.sleep(WARN_SECONDS)
        logger.warning("%s", sentence)
