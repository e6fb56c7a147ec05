"""Which hosts the scheduler may call for its users: those that the operator lists, and no others."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from gavel.client.webhooks import Endpoint, endpoint_of, split_authority
from gavel.core.errors import InputError

MOST_NAMED = 10
"""Most hosts named in one sentence."""


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """One entry of the operator's list."""

    scheme: str
    name: str
    port: int
    below: bool = False
    """Whether it allows the names below this one (`*.example.org`), and not the name itself."""

    @classmethod
    def of(cls, text: str) -> AllowedHost:
        """Read `host`, `host:port`, `*.domain`, or `http://host:port` for a host without TLS."""
        scheme, separator, rest = text.rpartition("://")
        scheme = scheme.lower() if separator else "https"
        if scheme not in ("https", "http"):
            raise InputError(f"--notify-hosts {text}: write host, host:port, *.domain or http://host:port")
        below = rest.startswith("*.")
        try:
            name, port = split_authority(rest[2:] if below else rest, scheme)
        except InputError as error:
            raise InputError(f"--notify-hosts {text}: {error}") from None
        if below and ("." not in name or is_address(name)):
            raise InputError(f"--notify-hosts {text}: name a domain of at least two parts after *.")
        return cls(scheme, name, port, below)

    def allows(self, endpoint: Endpoint) -> bool:
        """Whether it allows calling there."""
        if (endpoint.scheme, endpoint.port) != (self.scheme, self.port):
            return False
        if self.below:
            return endpoint.host.endswith(f".{self.name}")
        return endpoint.host == self.name


@dataclass(frozen=True, slots=True)
class Permission:
    """That an endpoint may be called."""

    endpoint: Endpoint
    public_only: bool
    """Whether only addresses of the public internet may be called: the operator did not list this very name, and who
    controls names below a listed domain must not lead the scheduler into its own network."""
    place: str = ""
    """The entry that allows it: what is limited together, so that ever new names below a domain take no more."""


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The operator's list."""

    texts: tuple[str, ...] = ()
    entries: tuple[AllowedHost, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> AllowedHosts:
        listed = tuple(texts)
        return cls(listed, tuple(map(AllowedHost.of, listed)))

    def permit(self, url: str) -> Permission:
        """The right to call a URL; InputError, in a sentence, if there is none."""
        endpoint = endpoint_of(url)
        found = [
            (entry.below, text) for entry, text in zip(self.entries, self.texts, strict=True) if entry.allows(endpoint)
        ]
        if not found:
            raise InputError(self._refusal(endpoint))
        below, place = min(found)  # an entry of this very name first
        return Permission(endpoint, public_only=below, place=place)

    def check(self, urls: Iterable[str]) -> None:
        """Refuse URLs that may not be called."""
        for url in urls:
            try:
                self.permit(url)
            except InputError as error:
                raise InputError(f"notify: {error}") from None

    def _refusal(self, endpoint: Endpoint) -> str:
        what = f"{endpoint.scheme}://{endpoint.authority} may not be called"
        if not self.texts:
            return f"{what}: the operator of this scheduler has listed no hosts (gavel serve --notify-hosts)"
        more = f" and {len(self.texts) - MOST_NAMED} more" if len(self.texts) > MOST_NAMED else ""
        return f"{what}; the operator has listed {', '.join(self.texts[:MOST_NAMED])}{more}"


def is_address(host: str) -> bool:
    """Whether a host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet.

    >>> [is_public(each) for each in ("93.184.216.34", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "fe80::1%x")]
    [True, False, False, False, False]
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
    return found.is_global and not found.is_multicast and (mapped is None or mapped.is_global)
