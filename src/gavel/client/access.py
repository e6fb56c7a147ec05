"""Where the scheduler is, how it is recognised and as whom we call it: one pure decision from all that may say so."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path

from gavel.client.contexts import ContextFile, Contexts, SchedulerContext, Trust
from gavel.client.errors import NotSecured
from gavel.errors import InputError
from gavel.wire import DEFAULT_ADDRESS, DEFAULT_PORT

ADDRESS_VARIABLE = "GAVEL_SCHEDULER"
TOKEN_VARIABLE = "GAVEL_TOKEN"  # noqa: S105 - a name
FINGERPRINT_VARIABLE = "GAVEL_FINGERPRINT"
AUTHORITY_VARIABLE = "GAVEL_CA"
INSECURE_VARIABLE = "GAVEL_INSECURE"
MACHINE_SOCKET = Path("/run/gavel/gavel.sock")
"""The socket of a scheduler that serves this whole machine."""
SYSTEM_AUTHORITIES = "system"
"""What GAVEL_CA or --ca says for the authorities that this machine trusts."""
UNIX = "unix:"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerAccess:
    """How to reach one scheduler."""

    address: str
    """HOST:PORT or unix:PATH."""
    trust: Trust = Trust.NONE
    authority: str = ""
    """In PEM; empty with a fingerprint: the authority is fetched first and compared with that."""
    fingerprint: str = ""
    server_name: str = ""
    """The name in the scheduler's certificate; empty: found out with the fingerprint, or its host name."""
    token: str = field(default="", repr=False)
    """Empty: none, or on a UNIX socket that of a session."""
    acting_for: str = ""

    @property
    def local(self) -> bool:
        """Whether it is a UNIX socket."""
        return self.address.startswith(UNIX)

    @property
    def socket(self) -> str:
        """The path of the UNIX socket."""
        return re.sub("^unix:(//(?=/))?", "", self.address)

    @property
    def encrypted(self) -> bool:
        return self.trust is not Trust.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a program or command line says itself; empty: nothing."""

    address: str | None = None
    token: str = field(default="", repr=False)
    fingerprint: str = ""
    acting_for: str = ""


def access_now(wishes: Wishes) -> SchedulerAccess:
    """The access that this process has: from its arguments, environment, contexts and machine."""
    environment = os.environ
    return resolve(
        wishes,
        environment,
        ContextFile.own().read(),
        machine_socket=not _named(wishes, environment) and MACHINE_SOCKET.is_socket(),
        authority=_authority_file(environment.get(AUTHORITY_VARIABLE, "")),
    )


def resolve(
    wishes: Wishes,
    environment: Mapping[str, str],
    contexts: Contexts,
    *,
    machine_socket: bool = False,
    authority: str = "",
) -> SchedulerAccess:
    """Decide where to call and as whom; `authority` is the content of the file that GAVEL_CA names.

    The address: as given, else GAVEL_SCHEDULER, else that of the current context, else this machine's socket, else
    the default port on this machine. An address or name of a context brings that context's trust and token, unless the
    program or the environment says otherwise.
    """
    context = _context(wishes, environment, contexts)
    address = context.address if context else _address(wishes, environment, machine_socket=machine_socket)
    access = replace(
        _trusting(address, wishes, environment, context, authority),
        token=wishes.token or environment.get(TOKEN_VARIABLE, "").strip() or (context.token if context else ""),
        acting_for=wishes.acting_for,
    )
    check_words(access)
    return _guarded(access, explicit=bool(wishes.token), insecure=bool(environment.get(INSECURE_VARIABLE)))


def _named(wishes: Wishes, environment: Mapping[str, str]) -> str:
    given = wishes.address if wishes.address is not None else environment.get(ADDRESS_VARIABLE, "")
    return given.strip()


def _context(wishes: Wishes, environment: Mapping[str, str], contexts: Contexts) -> SchedulerContext | None:
    """The context that is meant: by name, by address, or because it is current and nothing else is said."""
    named = _named(wishes, environment)
    if not named:
        return contexts.chosen
    return contexts.known.get(named) or contexts.at(normal_address(named))


def _address(wishes: Wishes, environment: Mapping[str, str], *, machine_socket: bool) -> str:
    if named := _named(wishes, environment):
        return normal_address(named)
    return f"{UNIX}{MACHINE_SOCKET}" if machine_socket else DEFAULT_ADDRESS


def _trusting(
    address: str, wishes: Wishes, environment: Mapping[str, str], context: SchedulerContext | None, authority: str
) -> SchedulerAccess:
    if address.startswith(UNIX):
        return SchedulerAccess(address=address)
    fingerprint = wishes.fingerprint or environment.get(FINGERPRINT_VARIABLE, "").strip()
    if fingerprint and not (context and context.authority and context.fingerprint == fingerprint.lower()):
        return SchedulerAccess(address=address, trust=Trust.AUTHORITY, fingerprint=fingerprint)
    if not fingerprint and authority:
        system = authority == SYSTEM_AUTHORITIES
        return SchedulerAccess(
            address=address,
            trust=Trust.SYSTEM if system else Trust.AUTHORITY,
            authority="" if system else authority,
        )
    if context is None:
        return SchedulerAccess(address=address)
    return SchedulerAccess(
        address=address,
        trust=context.trust,
        authority=context.authority,
        fingerprint=context.fingerprint,
        server_name=context.server_name,
    )


def _guarded(access: SchedulerAccess, *, explicit: bool, insecure: bool) -> SchedulerAccess:
    """Refuse plaintext beyond this machine, and keep the token out of plaintext."""
    if access.encrypted or access.local:
        return access
    if not insecure and not is_loopback(access.address):
        raise NotSecured(
            f"there is no login for {access.address}, and nothing is sent in plaintext beyond this machine; "
            f"run `gavel login {access.address}`, or set {FINGERPRINT_VARIABLE} and {TOKEN_VARIABLE}, "
            f"or {INSECURE_VARIABLE}=1 if its scheduler runs with --insecure"
        )
    if explicit and access.token:
        raise NotSecured(
            f"a token is not sent to {access.address} in plaintext; give its fingerprint, or run `gavel login`"
        )
    return replace(access, token="")


def check_words(access: SchedulerAccess) -> None:
    """Refuse a token or a name that cannot be sent; a token is never quoted."""
    if access.token and not re.fullmatch(r"[\x21-\x7e]{1,1000}", access.token):
        raise InputError("the token has characters that no token has; copy it again")
    if access.token.startswith("gvj_"):
        raise InputError("this is a join token, for `gavel worker --join`; use a token of your own, which begins gvl_")
    if access.acting_for and not re.fullmatch(r"[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?", access.acting_for):
        raise InputError(f"{access.acting_for[:200]!r} is not a user's name; `gavel user list` lists them")


def normal_address(address: str) -> str:
    """An address in its full form, with the port.

    >>> normal_address("gpu-head"), normal_address("[::1]:9000")
    ('gpu-head:7077', '[::1]:9000')
    """
    if address.startswith(UNIX) and len(address) > len(UNIX):
        return address
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+)(?::(\d{1,5}))?", address)
    port = int(match[2] or DEFAULT_PORT) if match else 0
    if not match or not 0 < port < 65536:
        raise InputError(f"{address!r} is not a scheduler address; write HOST:PORT, for example {DEFAULT_ADDRESS}")
    return f"{match[1]}:{port}"


def scheduler_address(given: str | None = None) -> str:
    """The scheduler's address: as given, else from the environment, else on this machine.

    >>> scheduler_address("gpu-head"), scheduler_address("[::1]:9000")
    ('gpu-head:7077', '[::1]:9000')
    """
    named = (given if given is not None else os.environ.get(ADDRESS_VARIABLE, "")).strip()
    return normal_address(named or DEFAULT_ADDRESS)


def host_of(address: str) -> str:
    """The host of HOST:PORT.

    >>> host_of("[::1]:7077"), host_of("head:7077")
    ('::1', 'head')
    """
    return address.rpartition(":")[0].strip("[]")


def is_loopback(address: str) -> bool:
    """Whether HOST:PORT is on this machine.

    >>> is_loopback("127.0.0.1:7077"), is_loopback("localhost:7077"), is_loopback("10.0.0.1:7077")
    (True, True, False)
    """
    host = host_of(address).lower()
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _authority_file(path: str) -> str:
    """The content of the file that GAVEL_CA names, or the word for the machine's own authorities."""
    if path in ("", SYSTEM_AUTHORITIES):
        return path
    return read_authority(AUTHORITY_VARIABLE, path)


def read_authority(option: str, path: str) -> str:
    """Certificates from a PEM file."""
    try:
        content = Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or "it is not text").lower()
        raise InputError(f"{option} {path}: {reason}; give a file with certificates in PEM") from None
    if "-----BEGIN CERTIFICATE-----" not in content:
        raise InputError(f"{option} {path} has no certificate in PEM")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=content)
    except ssl.SSLError:
        raise InputError(f"{option} {path} has a certificate that cannot be read; copy the file again") from None
    return content
