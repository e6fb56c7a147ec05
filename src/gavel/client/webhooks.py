"""Notifications between scheduler and receiver: how URLs are read and shown, how bodies are signed and checked."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gavel.client.field_checks import shortened
from gavel.errors import InputError

EVENT, DELIVERY, TIMESTAMP, SIGNATURE = "Gavel-Event", "Gavel-Delivery", "Gavel-Timestamp", "Gavel-Signature"
TOLERANCE_SECONDS = 300.0
"""How old a signature may be: a copied notification is of no use for longer."""
HIDDEN_PATH = "/(hidden)"
"""In place of the path of a URL, which is often a secret by which a chat system recognises its senders."""
_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)", re.ASCII)
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_PORTS = {"https": 443, "http": 80}


class BadSignatureError(InputError):
    """A notification that its receiver must not believe."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a URL leads."""

    scheme: str
    host: str
    """In lower case, without a final dot; an IPv6 address without its brackets."""
    port: int
    path: str
    """With the query; at least `/`."""

    @property
    def authority(self) -> str:
        """Host and port, as requests name them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def endpoint_of(url: str) -> Endpoint:
    """Read a URL strictly; InputError if it is not a plain http or https URL.

    >>> endpoint_of("https://Chat.example.org/hook?room=1")
    Endpoint(scheme='https', host='chat.example.org', port=443, path='/hook?room=1')
    """
    if not url.isascii() or any(character <= " " or character in '\\"<>^`{|}\x7f' for character in url):
        raise InputError(f"{_quoted(url)} contains a character that URLs write as %XX (names of hosts: in punycode)")
    found = _URL.fullmatch(url)
    if found is None:
        raise InputError(f"{_quoted(url)} is not a URL such as https://chat.example.org/hook")
    scheme, authority, path = found.groups()
    if "@" in authority:
        raise InputError(f"{_quoted(url)} names a user before its host; leave that out")
    host, port = split_authority(authority, scheme)
    return Endpoint(scheme, host, port, path if path.startswith("/") else f"/{path}")


def split_authority(authority: str, scheme: str) -> tuple[str, int]:
    """The host, in its only spelling, and the port of `host`, `host:port` or `[address]:port`.

    >>> split_authority("[::0001]:8443", "https"), split_authority("Example.ORG.", "https")
    (('::1', 8443), ('example.org', 443))
    """
    bracketed = re.fullmatch(r"\[([0-9a-fA-F:.]*)\](?::([0-9]{1,5}))?", authority)
    plain = re.fullmatch(r"([^\[\]:]*)(?::([0-9]{1,5}))?", authority)
    found = bracketed or plain
    if found is None:
        raise InputError(f"{shortened(authority)} is not a host, or a host and a port")
    name, port = found.group(1).lower(), int(found.group(2) or _PORTS[scheme])
    if not 0 < port < 2**16:
        raise InputError(f"{port} is not a port; there are 1 to 65535")
    if bracketed is not None:
        try:
            return str(ipaddress.IPv6Address(name)), port
        except ValueError:
            raise InputError(f"{shortened(authority)} is not an IPv6 address") from None
    name = name.removesuffix(".")
    if _NAME.fullmatch(name) is None:
        raise InputError(f"{shortened(authority)} is not the name or address of a host")
    if name.rpartition(".")[2].isdecimal() or name.rpartition(".")[2].startswith("0x"):
        try:
            return str(ipaddress.IPv4Address(name)), port
        except ValueError:
            raise InputError(f"{shortened(authority)} is not an IPv4 address of four decimal numbers") from None
    return name, port


def host_only(url: str) -> str:
    """A URL for others to see, without its path.

    >>> host_only("https://chat.example.org/T0/secret")
    'https://chat.example.org/(hidden)'
    """
    found = _URL.match(url)
    if found is None:
        return HIDDEN_PATH[1:]
    scheme, authority, path = found.groups()
    return f"{scheme}://{authority.rpartition('@')[2]}{HIDDEN_PATH if path not in ('', '/') else path}"


def signature_of(key: str, timestamp: str, body: bytes) -> str:
    """The value of `Gavel-Signature`."""
    return "v1=" + hmac.new(key.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def verify_notification(
    body: bytes,
    headers: Mapping[str, str],
    key: str,
    *,
    tolerance_seconds: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> dict[str, Any]:
    """Check a notification that a receiver got, and return its contents; BadSignatureError if it is not to be believed.

    `body` is what was received, byte for byte; `key` is what `gavel notifications` shows.
    """
    given = {name.lower(): value for name, value in headers.items()}
    timestamp, signature = given.get(TIMESTAMP.lower(), ""), given.get(SIGNATURE.lower(), "")
    if not timestamp or not signature:
        raise BadSignatureError(f"the notification has no {SIGNATURE} or no {TIMESTAMP}")
    if not hmac.compare_digest(signature_of(key, timestamp, body).encode(), signature.encode(errors="replace")):
        raise BadSignatureError("the notification was signed with another key, or was changed on its way")
    age = (time.time() if now is None else now) - float(timestamp)
    if not abs(age) <= tolerance_seconds:
        raise BadSignatureError(f"the notification was signed {age:.0f} s ago; at most {tolerance_seconds:g} s pass")
    contents: dict[str, Any] = json.loads(body)
    return contents


def _quoted(url: str) -> str:
    return shortened(host_only(url)) if _URL.match(url) else shortened(url)
