"""How often a caller may call, and an address may fail to authenticate.

Pure: the clock is passed in, memory is bounded. It refuses nothing itself: the gate asks, and answers callers.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]

CALLS_PER_SECOND = 50.0
CALLS_AT_ONCE = 200
FAILURES_PER_MINUTE = 10
REMEMBERED = 20_000
"""Most keys that are remembered; the one that was used longest ago is forgotten first, and begins with a full burst."""
LONGEST_KEY = 200
"""Characters of a key; the rest does not count."""
IPV6_NETWORK = 64
"""Bits: one customer has a whole network of IPv6 addresses, so its addresses count together."""


@dataclass(slots=True)
class _Bucket:
    level: float
    """What may be taken now."""
    at: float
    """When the level was last computed."""


class Buckets:
    """A token bucket for each key: in any interval at most `rate` times its length plus `burst` is taken."""

    def __init__(self, rate: float, burst: float, clock: Clock, *, remembered: int = REMEMBERED) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._remembered = remembered
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait(self, key: str) -> float:
        """Seconds until one can be taken; 0: now."""
        bucket = self._buckets.get(key[:LONGEST_KEY])
        level = self.burst if bucket is None else self._refilled(bucket)
        return max(1.0 - level, 0.0) / self.rate

    def take(self, key: str) -> float:
        """Take one if possible; returns the seconds to wait, or 0 if it was taken."""
        key = key[:LONGEST_KEY]
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(self.burst, self._clock())
            if len(self._buckets) > self._remembered:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            now = self._clock()
            bucket.level, bucket.at = self._refilled(bucket), max(now, bucket.at)
        if bucket.level < 1.0:
            return (1.0 - bucket.level) / self.rate
        bucket.level -= 1.0
        return 0.0

    def _refilled(self, bucket: _Bucket) -> float:
        """The level now; a clock that is set back adds nothing."""
        return min(self.burst, bucket.level + max(self._clock() - bucket.at, 0.0) * self.rate)


class Rates:
    """How often each token, or each address without one, may call."""

    def __init__(
        self,
        clock: Clock,
        *,
        per_second: float = CALLS_PER_SECOND,
        at_once: int = CALLS_AT_ONCE,
        remembered: int = REMEMBERED,
    ) -> None:
        self._buckets = Buckets(per_second, at_once, clock, remembered=remembered)

    def admit(self, key: str) -> str | None:
        """Count a call; a sentence if it is one too many."""
        wait = self._buckets.take(key)
        if not wait:
            return None
        return (
            f"too many calls: at most {self._buckets.rate:g} a second, {self._buckets.burst:g} at once; "
            f"wait {_seconds(wait)} and try again"
        )


class Failures:
    """Failed authentications by address.

    An address with too many is refused at once, without a line in the audit. A right token works from there all the
    same, so that a caller with many neighbours behind one address is not locked out by one of them.
    """

    def __init__(self, clock: Clock, *, per_minute: int = FAILURES_PER_MINUTE, remembered: int = REMEMBERED) -> None:
        self._per_minute = per_minute
        self._buckets = Buckets(per_minute / 60.0, per_minute, clock, remembered=remembered)

    def note(self, address: str) -> None:
        """Count a failed authentication."""
        self._buckets.take(network_of(address))

    def blocked(self, address: str) -> str | None:
        """A sentence if the address has failed too often, else None. Asking counts nothing."""
        wait = self._buckets.wait(network_of(address))
        if not wait:
            return None
        return (
            f"too many failed logins from this address: at most {self._per_minute} a minute; "
            f"check the token, and try again in {_seconds(wait)}"
        )


def network_of(address: str) -> str:
    """What an address is counted as: itself, or its network for IPv6.

    >>> network_of("192.0.2.7"), network_of("2001:db8:1:2:3:4:5:6"), network_of("unix")
    ('192.0.2.7', '2001:db8:1:2::/64', 'unix')
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, IPV6_NETWORK), strict=False))


def _seconds(wait: float) -> str:
    return f"{wait:.2f} s" if wait < 1.0 else f"{math.ceil(wait)} s"
