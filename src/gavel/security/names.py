"""The names and addresses in the scheduler's certificate: those it may be reached by, and the one that is checked.

Clients that know the authority check only the fixed name, so a missing address never locks them out.
"""

from __future__ import annotations

import fcntl
import re
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from gavel.client.field_checks import shortened
from gavel.errors import InputError

Address = IPv4Address | IPv6Address
ALWAYS = ("localhost", "127.0.0.1", "::1")

_LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_SIOCGIFADDR = 0x8915
"""Asks the kernel for the IPv4 address of an interface."""


def fixed_name(cluster: str) -> str:
    """The name that the authority's clients check, wherever the scheduler is.

    >>> fixed_name("0f3c")
    'scheduler.0f3c.gavel.internal'
    """
    if not re.fullmatch(_LABEL, cluster):
        raise InputError(f"cluster id {shortened(cluster)} cannot be part of a certificate's name")
    return f"scheduler.{cluster}.gavel.internal"


def default_names(listen_host: str, extra: Iterable[str] = ()) -> tuple[str, ...]:
    """All names of a server certificate: of this machine, of the listener, and those that were asked for."""
    found = [*ALWAYS, *(name for name in (*_machine_names(), listen_host) if _fault(name) is None)]
    return normalised([*found, *extra])


def normalised(names: Iterable[str]) -> tuple[str, ...]:
    """Names in one form and in order, each once; addresses that stand for every interface are left out.

    >>> normalised(["Head.", "head", "[::1]", "0.0.0.0", "10.0.0.7"])
    ('head', '::1', '10.0.0.7')
    """
    found: dict[str, None] = {}
    for name in names:
        if (fault := _fault(name)) is not None:
            raise InputError(f"--name {shortened(name)} {fault}; give a host name or an address")
        parsed = parse_name(name)
        if isinstance(parsed, str) or not parsed.is_unspecified:
            found[str(parsed)] = None
    return tuple(found)


def parse_name(name: str) -> str | Address:
    """An address, or a DNS name in lower case and ASCII; ValueError if it is neither.

    >>> parse_name("10.0.0.7"), parse_name("Köln.example")
    (IPv4Address('10.0.0.7'), 'xn--kln-sna.example')
    """
    bare = name.strip().removeprefix("[").removesuffix("]").partition("%")[0]
    with suppress(ValueError):
        return ip_address(bare)
    text = name.strip().rstrip(".").lower()
    ascii_name = text if text.isascii() else text.encode("idna").decode("ascii")
    if len(ascii_name) > 253 or not _NAME.fullmatch(ascii_name):
        raise ValueError("is not a host name")
    if re.fullmatch(r"[0-9.]+", ascii_name):
        raise ValueError("looks like an address, but is none")
    return ascii_name


def _fault(name: str) -> str | None:
    try:
        parse_name(name)
    except UnicodeError:
        return "is not a host name"
    except ValueError as error:
        return str(error)
    return None


def _machine_names() -> Iterator[str]:
    """What this machine is called, and its addresses as far as the kernel tells them."""
    host = socket.gethostname()
    yield host
    with suppress(OSError, UnicodeError):
        yield socket.getfqdn(host)
    yield from _addresses()


def _addresses() -> Iterator[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, interface in socket.if_nameindex():
            with suppress(OSError):  # an interface without an IPv4 address
                asked = struct.pack("256s", interface.encode()[:15])
                yield socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, asked)[20:24])
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            address = IPv6Address(bytes.fromhex(line.split()[0]))
            if not address.is_link_local:
                yield str(address)
