"""How an agent shows who it is: its key and certificate in its state directory, and the authority it trusts.

One file holds everything, so that a key and its certificate are replaced together. Jobs must not be able to read it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gavel.client.connection import scheduler_address
from gavel.client.errors import NotReachable
from gavel.client.trust import TrustError, pinned_authority, verified_name
from gavel.errors import GavelError, InputError
from gavel.security.certificates import (
    SKEW,
    agent_fault,
    key_pem,
    lifetime_left,
    new_key,
    read_agent_certificate,
    signing_request,
)
from gavel.security.files import read_private, write_private
from gavel.wire import CHANNEL_OPTIONS
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

FILE = "credentials.json"
CALL_SECONDS = 15.0
"""How long the scheduler may take to sign."""
RENEWED_AT = 1 / 3
"""A certificate is renewed when less than this share of its life is left."""
LOOK_SECONDS = 3600.0
"""The longest pause between looks at the certificate's age, and between attempts to renew it."""
LOOKS = 60
"""At least this many looks in the life of a certificate."""
COMPLAIN_LOOKS = 12
"""After how many failed renewals the failure is repeated."""

Options = Sequence[tuple[str, Any]]


class Credentials(Protocol):
    """How to reach the scheduler securely."""

    @property
    def address(self) -> str:
        """The agents' port of the scheduler."""
        ...

    def channel(self, options: Options) -> grpc.aio.Channel:
        """A new channel with what is current now."""
        ...

    def fault(self) -> str | None:
        """Why a connection cannot succeed, in a sentence; None if it may."""
        ...

    def accepted(self) -> None:
        """Note that the scheduler accepted what the last channel showed."""
        ...

    def rejected(self) -> bool:
        """Note that the scheduler did not accept it; returns whether there is something else to show."""
        ...

    async def keep_fresh(self, say: Callable[[str], None]) -> None:
        """Renew what expires, forever."""
        ...


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key and its certificate, in PEM."""

    key: str
    certificate: str

    def loaded(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.certificate.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """What an agent stores when it has enrolled."""

    scheduler: str
    """The address that it joined."""
    agents_port: int
    server_name: str
    """What the scheduler's certificate is checked against; empty: its host name."""
    authority: str
    """In PEM."""
    own: KeyPair
    previous: KeyPair | None = None
    """The pair before, until the scheduler has accepted the current one."""


class StoredCredentials:
    """Credentials that the scheduler signed, in a state directory; the copy on disk is never behind."""

    def __init__(
        self, path: Path, enrolled: Enrolled, clock: Callable[[], float] = time.time, moved_to: str = ""
    ) -> None:
        self._path = path
        self._clock = clock
        self._moved_to = moved_to
        self.enrolled = enrolled

    @classmethod
    def load(cls, state: Path, clock: Callable[[], float] = time.time) -> StoredCredentials | None:
        """Read the credentials in a state directory; None if this agent has not enrolled."""
        path = state / FILE
        try:
            document = json.loads(read_private(path))
            own, previous = document.pop("own"), document.pop("previous")
            enrolled = Enrolled(
                **document, own=KeyPair(**own), previous=None if previous is None else KeyPair(**previous)
            )
            _check_pair(enrolled.own)
        except FileNotFoundError:
            return None
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path} is damaged ({error}); remove it, revoke the agent with `gavel agent revoke`, and enrol again"
            ) from None
        return cls(path, enrolled, clock)

    @property
    def address(self) -> str:
        return self._moved_to or f"{self.enrolled.scheduler.rpartition(':')[0]}:{self.enrolled.agents_port}"

    def at(self, scheduler: str) -> StoredCredentials:
        """The same credentials for a scheduler that has moved; the stored address stays."""
        host, _, port = scheduler.rpartition(":")
        offset = self.enrolled.agents_port - int(self.enrolled.scheduler.rpartition(":")[2])
        return StoredCredentials(self._path, self.enrolled, self._clock, f"{host}:{int(port) + offset}")

    @property
    def name(self) -> str:
        """The name that the certificate is for."""
        return read_agent_certificate(self.enrolled.own.certificate).name

    @property
    def expired(self) -> bool:
        return self._left() <= 0

    def _left(self) -> float:
        return lifetime_left(self.enrolled.own.loaded(), self._clock())

    def channel(self, options: Options) -> grpc.aio.Channel:
        enrolled = self.enrolled
        shown = (enrolled.authority, enrolled.own.key, enrolled.own.certificate)
        return _secure_channel(self.address, shown, enrolled.server_name, options)

    def fault(self) -> str | None:
        if not self.expired:
            return None
        ended = self.enrolled.own.loaded().not_valid_after_utc
        return (
            f"the certificate of this agent expired on {ended:%Y-%m-%d %H:%M} UTC, and the clock of this machine says "
            f"{datetime.fromtimestamp(self._clock(), UTC):%Y-%m-%d %H:%M} UTC; if that is right, "
            "enrol it again: gavel worker --join HOST:PORT --token … --fingerprint …"
        )

    def accepted(self) -> None:
        if self.enrolled.previous is not None:
            with suppress(OSError):  # a full disk; the next connection tries again
                self._store(replace(self.enrolled, previous=None))

    def rejected(self) -> bool:
        previous = self.enrolled.previous
        if previous is None or lifetime_left(previous.loaded(), self._clock()) <= 0:
            return False
        swapped = replace(self.enrolled, own=previous, previous=None)
        with suppress(OSError):
            self._store(swapped)
        self.enrolled = swapped
        return True

    async def keep_fresh(self, say: Callable[[str], None]) -> None:
        failures = 0
        while True:
            if self._left() < RENEWED_AT:
                try:
                    await self.renew()
                    failures = 0
                    say(f"this agent has a new certificate, valid until {self._until():%Y-%m-%d %H:%M} UTC")
                except GavelError as error:
                    if failures % COMPLAIN_LOOKS == 0:
                        say(f"{error}; it is valid until {self._until():%Y-%m-%d %H:%M} UTC; trying again")
                    failures += 1
            await asyncio.sleep(self._pause())

    async def renew(self) -> None:
        """Have the scheduler sign a new key; the old pair is kept until the new one has been accepted."""
        key = new_key()
        request = pb.RenewRequest(signing_request=signing_request(key))
        async with self.channel(_OPTIONS) as channel:
            try:
                reply = await GavelStub(channel).RenewCertificate(request, timeout=CALL_SECONDS)  # type: ignore[no-untyped-call]
            except grpc.aio.AioRpcError as error:
                raise InputError(
                    f"the scheduler at {self.address} does not renew the certificate of this agent ({_said(error)})"
                ) from None
        own = KeyPair(key_pem(key).decode(), reply.certificate)
        _check_pair(own)
        try:
            self._store(replace(self.enrolled, own=own, previous=self.enrolled.own))
        except OSError as error:
            raise InputError(f"the new certificate cannot be stored in {self._path} ({error.strerror})") from None

    def _until(self) -> datetime:
        return self.enrolled.own.loaded().not_valid_after_utc

    def _pause(self) -> float:
        certificate = self.enrolled.own.loaded()
        issued = certificate.not_valid_before_utc + SKEW
        return min(LOOK_SECONDS, max(0.05, (certificate.not_valid_after_utc - issued).total_seconds() / LOOKS))

    def _store(self, enrolled: Enrolled) -> None:
        write_private(self._path, json.dumps(asdict(enrolled)).encode())
        self.enrolled = enrolled


@dataclass(frozen=True, slots=True)
class OwnCredentials:
    """Certificates of the operator's own authority, read again for each connection."""

    address: str
    certificate: Path
    key: Path
    authority: Path

    def channel(self, options: Options) -> grpc.aio.Channel:
        return _secure_channel(self.address, self._read(), "", options)

    def fault(self) -> str | None:
        try:
            _, key, certificate = self._read()
            _check_pair(KeyPair(key, certificate))
            shown = read_agent_certificate(certificate)
        except InputError as error:
            return str(error)
        except ValueError:
            return f"{self.certificate} or {self.key} is damaged"
        if shown.expires <= time.time():
            return f"the certificate in {self.certificate} has expired; have your authority issue a new one"
        return None

    def _read(self) -> tuple[str, str, str]:
        try:
            return self.authority.read_text(), read_private(self.key).decode(), self.certificate.read_text()
        except OSError as error:
            raise InputError(f"{error.filename} cannot be read ({error.strerror})") from None

    def accepted(self) -> None:
        """Nothing is kept for later."""

    def rejected(self) -> bool:
        return False

    async def keep_fresh(self, say: Callable[[str], None]) -> None:  # noqa: ARG002 - the operator renews them
        await asyncio.Event().wait()


def enrol(
    state: Path,
    *,
    agent: str,
    name: str,
    join: str,
    token: str,
    fingerprint: str,
    clock: Callable[[], float] = time.time,
) -> StoredCredentials:
    """Exchange a join token for a certificate, and store it.

    Nothing is sent to a scheduler with another fingerprint.
    """
    if (fault := agent_fault(agent, name)) is not None:
        raise InputError(fault)
    address, key = scheduler_address(join), new_key()
    authority = pinned_authority(address, fingerprint)
    server_name = verified_name(address, authority)
    request = pb.EnrolRequest(join_token=token, agent=agent, name=name, signing_request=signing_request(key))
    reply = _asked_to_sign(address, authority, server_name, request)
    own = KeyPair(key_pem(key).decode(), reply.certificate)
    _check_pair(own)
    enrolled = Enrolled(
        scheduler=address,
        agents_port=reply.agents_port,
        server_name=server_name,
        authority=authority,
        own=own,
    )
    made = StoredCredentials(state / FILE, enrolled, clock)
    made._store(enrolled)  # noqa: SLF001 - its own module
    return made


def _asked_to_sign(address: str, authority: str, server_name: str, request: pb.EnrolRequest) -> pb.Certificate:
    credentials = grpc.ssl_channel_credentials(authority.encode())
    with grpc.secure_channel(address, credentials, options=_named(server_name, _OPTIONS)) as channel:
        try:
            reply: pb.Certificate = GavelStub(channel).Enrol(request, timeout=CALL_SECONDS)  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            raise _enrolment_error(address, error) from None
    return reply


def _enrolment_error(address: str, error: Any) -> GavelError:
    code, said = error.code(), _said(error)
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        if "CERTIFICATE_VERIFY_FAILED" in (error.details() or ""):
            return TrustError(
                f"the certificate of the scheduler at {address} is not for its address, "
                "or not from the authority with that fingerprint; the join token was not sent"
            )
        return NotReachable(address, said.rpartition(": ")[2].lower())
    return InputError(f"the scheduler at {address} does not enrol this agent: {said}")


def _check_pair(pair: KeyPair) -> None:
    """Refuse a certificate that is not for the key."""
    key = load_pem_private_key(pair.key.encode(), password=None)
    try:
        certificate = pair.loaded()
    except ValueError:
        raise InputError("the certificate for this agent cannot be read") from None
    if certificate.public_key() != key.public_key():
        raise InputError("the certificate for this agent is not for its key")


def _secure_channel(address: str, shown: tuple[str, str, str], server_name: str, options: Options) -> grpc.aio.Channel:
    authority, key, certificate = (text.encode() for text in shown)
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    return grpc.aio.secure_channel(address, credentials, options=_named(server_name, options))


def _named(server_name: str, options: Options) -> list[tuple[str, Any]]:
    return [*options, *([("grpc.ssl_target_name_override", server_name)] if server_name else [])]


def _said(error: Any) -> str:
    details = " ".join((error.details() or "").split())
    return details[:500] or str(error.code().name).lower().replace("_", " ")


_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)
