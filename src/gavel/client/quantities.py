"""Durations and sizes as people write them: `90`, `5m`, `12h`, `1d12h`, `12:00:00`; `20G`, `512M`."""

from __future__ import annotations

import re

from gavel.errors import InputError

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_PLAIN = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)


def seconds_of(text: str) -> float:
    """A duration in seconds; a number without a unit is in seconds.

    >>> [seconds_of(text) for text in ("90", "5m", "1h30m", "12:00:00", "1-00:00:00")]
    [90.0, 300.0, 5400.0, 43200.0, 86400.0]
    """
    given = text.strip()
    if _PLAIN.fullmatch(given):
        return float(given)
    if (clock := _CLOCK.fullmatch(given)) is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return 86_400.0 * days + 3600.0 * hours + 60.0 * minutes + seconds
    parts = _PART.findall(given)
    units = [unit.lower() for _, unit in parts]
    if not parts or "".join(number + unit for number, unit in parts) != given or len(set(units)) < len(units):
        raise InputError(f"{text!r} is not a duration; write seconds, or for example 90s, 5m, 12h, 1d12h or 12:00:00")
    return float(sum(float(number) * _SECONDS[unit] for number, unit in zip((n for n, _ in parts), units, strict=True)))


def bytes_of(text: str) -> int:
    """A size in bytes; K, M, G and T are powers of 1024.

    >>> [bytes_of(text) for text in ("512M", "20G", "1.5GiB", "1000")]
    [536870912, 21474836480, 1610612736, 1000]
    """
    given = _SIZE.fullmatch(text.strip())
    if given is None:
        raise InputError(f"{text!r} is not a size; write bytes, or for example 512M, 20G or 1.5T")
    return int(float(given[1]) * _BYTES[given[2].lower()])


def duration(seconds: float) -> str:
    """A duration in the form that `seconds_of` reads, as short as it is exact.

    >>> [duration(seconds) for seconds in (43200, 5400, 90, 0.5)]
    ['12h', '1h30m', '1m30s', '0.5s']
    """
    if seconds != int(seconds):
        return f"{seconds:g}s"
    left, parts = int(seconds), []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(_SECONDS[unit]))
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


def size(amount: int) -> str:
    """A size in the form that `bytes_of` reads.

    >>> size(20 * 2**30), size(1536 * 2**20), size(1000)
    ('20G', '1.5G', '1000')
    """
    for unit in ("t", "g", "m", "k"):
        if amount >= _BYTES[unit]:
            shown = f"{amount / _BYTES[unit]:.4g}{unit.upper()}"
            return shown if bytes_of(shown) == amount else f"{amount / _BYTES[unit]:.3g}{unit.upper()}"
    return str(amount)
