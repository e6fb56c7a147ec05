"""What nvidia-smi lists, also where its driver is old or a card is broken."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from gavel.client.field_checks import shortened
from gavel.errors import InputError

_FIELDS = ("index", "uuid", "name", "memory.total", "mig.mode.current")
_KNOWN = (5, 4, 3)
"""How many of the fields to ask for: drivers from before 2020 know fewer."""
_BROKEN = ("unknown error", "err!", "is lost", "requires reset", "[n/a]", "unable to determine")
_SLICE = re.compile(r"\s+MIG\s+(\S+)\s+Device\s+\d+:\s+\(UUID:\s+(MIG-[^)\s]+)\)")
_GPU = re.compile(r"GPU (\d+):")
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a GPU that is used like a whole one."""

    profile: str
    uuid: str

    @property
    def memory(self) -> int:
        """Its memory in bytes, from the name of its profile.

        >>> Slice("1g.5gb", "MIG-1").memory // 2**30
        5
        """
        found = re.search(r"(\d+)gb", self.profile)
        return int(found[1]) * _GIB if found else 0


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as the driver names it."""

    index: str
    uuid: str
    name: str
    memory: int = 0
    """Bytes; 0: unknown."""
    divided: bool = False
    """Whether only its slices can be used."""
    slices: tuple[Slice, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """The cards that work, and sentences about what does not."""

    cards: tuple[Card, ...]
    warnings: tuple[str, ...] = ()


def nvidia_cards() -> Listing | None:
    """Ask nvidia-smi; None if it is not installed."""
    trouble = ""
    for known in _KNOWN:
        fields = ",".join(_FIELDS[:known])
        try:
            done = _ask([f"--query-gpu={fields}", "--format=csv,noheader"])
        except FileNotFoundError:
            return None
        cards, odd = _read(done.stdout, known)
        if cards or (done.returncode == 0 and not odd):
            return Listing(_with_slices(cards), tuple(map(_left_out, odd)))
        trouble = shortened(" ".join([*odd, done.stderr.strip()]).strip()) if odd or done.stderr else ""
    told = f"exit code {done.returncode}" + (f": {trouble}" if trouble else "")
    raise InputError(f"nvidia-smi does not answer ({told}); name the accelerators, for example v100=4")


def _ask(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - fixed arguments
            ["nvidia-smi", *arguments],  # noqa: S607 - wherever the driver put it
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except FileNotFoundError:
        raise
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"nvidia-smi does not answer ({error}); name the accelerators, for example v100=4") from error


def _read(text: str, known: int) -> tuple[list[Card], list[str]]:
    """The cards in a table, and the lines that describe none that works."""
    cards, odd = [], []
    for line in filter(None, map(str.strip, text.splitlines())):
        row = [part.strip() for part in line.split(",")]
        if len(row) != known or not row[0].isdecimal() or _is_broken(row):
            odd.append(line)
            continue
        row += [""] * (len(_FIELDS) - known)
        cards.append(Card(row[0], row[1], row[2], _bytes(row[3]), row[4].lower() == "enabled"))
    return cards, odd


def _is_broken(row: Sequence[str]) -> bool:
    """Whether the driver could not read a card; some boards have no memory of their own to report."""
    text = " ".join([*row[1:3], "" if _is_missing(row[3:4]) else " ".join(row[3:4])]).lower()
    return any(mark in text for mark in _BROKEN)


def _is_missing(memory: Sequence[str]) -> bool:
    return bool(memory) and memory[0].lower() in {"[n/a]", "n/a", "[not supported]"}


def _bytes(text: str) -> int:
    """The nominal size, in whole GiB: what the driver reports is a little less.

    >>> _bytes("16160 MiB") // 2**30, _bytes("[N/A]")
    (16, 0)
    """
    found = re.fullmatch(r"(\d+)\s*MiB", text)
    return math.ceil(int(found[1]) / 1024) * _GIB if found else 0


def _left_out(line: str) -> str:
    return f"a GPU is left out, because nvidia-smi says of it: {shortened(line)}"


def _with_slices(cards: Sequence[Card]) -> tuple[Card, ...]:
    """The cards with the slices of those that are divided."""
    if not any(card.divided for card in cards):
        return tuple(cards)
    slices: dict[str, list[Slice]] = {}
    index = ""
    for line in _ask(["-L"]).stdout.splitlines():
        if (gpu := _GPU.match(line)) is not None:
            index = gpu[1]
        elif (found := _SLICE.match(line)) is not None:
            slices.setdefault(index, []).append(Slice(found[1], found[2]))
    return tuple(
        Card(card.index, card.uuid, card.name, card.memory, card.divided, tuple(slices.get(card.index, ())))
        for card in cards
    )
