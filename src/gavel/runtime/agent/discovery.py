"""`--accelerators auto`: the accelerators that the drivers list, within what the agent was given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from gavel.errors import InputError
from gavel.runtime.agent.accelerators import Indices, short_type
from gavel.runtime.agent.allotment import Allotment, Vendor, allotment
from gavel.runtime.agent.nvidia import Card, Listing, nvidia_cards
from gavel.runtime.agent.rocm import amd_cards

BY_HAND = "name the accelerators, for example v100=4"


@dataclass(frozen=True, slots=True)
class Hardware:
    """The accelerators of a server."""

    accelerators: Indices
    """Device numbers by type."""
    names: Mapping[int, str] = field(default_factory=dict)
    """By device number: what the driver calls it; others are called as they were given, or by their number."""
    memory: Mapping[str, int] = field(default_factory=dict)
    """By type: bytes of the smallest accelerator, where known."""
    vendor: Vendor | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Device:
    number: int
    type: str
    name: str
    memory: int


def discovered(environment: Mapping[str, str]) -> Hardware:
    """Ask nvidia-smi, or rocm-smi; a server may hold several types in any order."""
    vendor, listing = _listing()
    given = allotment(environment, vendor)
    if given.names == ():
        raise InputError(f"{given} gives this agent no accelerator; set it to those that it may use, or {BY_HAND}")
    chosen = _given(listing.cards, given, "nvidia-smi" if vendor == "nvidia" else "rocm-smi")
    warnings = [*listing.warnings]
    for _, card in chosen:
        if card.divided and not card.slices:
            warnings.append(f"GPU {card.index} is left out: it is set up for MIG but has no slices")
    devices = list(_devices(chosen, given))
    if not devices:
        said = "; ".join(warnings)
        raise InputError(f"no GPU that works is left here ({said}); {BY_HAND}")
    indices: Indices = {}
    memory: dict[str, int] = {}
    for device in devices:
        indices[device.type] = (*indices.get(device.type, ()), device.number)
        if device.memory:
            memory[device.type] = min(memory.get(device.type, device.memory), device.memory)
    return Hardware(indices, {each.number: each.name for each in devices}, memory, vendor, tuple(warnings))


def named_by_hand(accelerators: Indices, environment: Mapping[str, str]) -> Hardware:
    """Accelerators that a user names, with the memory that their driver says, if it knows the same types."""
    vendor: Vendor | None = None
    listed: dict[str, int] = {}
    with suppress(InputError):
        vendor, listing = _listing()
        for card in listing.cards:
            kind = short_type(card.name)
            if card.memory:
                listed[kind] = min(listed.get(kind, card.memory), card.memory)
    memory = {name: listed[name] for name in accelerators if name in listed}
    allotment(environment, vendor)  # refuses contradictions
    return Hardware(accelerators, memory=memory, vendor=vendor)


def _listing() -> tuple[Vendor, Listing]:
    """What the first tool that lists any card says."""
    nvidia = nvidia_cards()
    if nvidia is not None and (nvidia.cards or nvidia.warnings):
        return "nvidia", nvidia
    amd = amd_cards()
    if amd is not None and (amd.cards or amd.warnings):
        return "amd", amd
    if nvidia is amd is None:
        raise InputError(f"nvidia-smi and rocm-smi are not installed here; {BY_HAND}")
    raise InputError(f"{'rocm-smi' if nvidia is None else 'nvidia-smi'} finds no GPU here; {BY_HAND}")


def _given(cards: Sequence[Card], given: Allotment, tool: str) -> list[tuple[int, Card]]:
    """The cards that the agent was given, numbered in that order; without a list all, by their own numbers."""
    if given.names is None or (given.renumbered and len(given.names) == len(cards)):
        return [(int(card.index), card) for card in cards]
    return [(number, _card(wanted, cards, given, tool)) for number, wanted in enumerate(given.names)]


def _card(wanted: str, cards: Sequence[Card], given: Allotment, tool: str) -> Card:
    """The card, or the one slice of a card, that a name means."""
    found = [card for card in cards if wanted == card.index or _means(wanted, card.uuid)]
    found += [
        Card(card.index, each.uuid, card.name, 0, divided=True, slices=(each,))
        for card in cards
        for each in card.slices
        if _means(wanted, each.uuid)
    ]
    if len(found) != 1:
        many = "lists more than once" if found else "does not list as one GPU that works"
        raise InputError(f"{given.variable} names {wanted}, which {tool} {many}; say what there is, for example v100=4")
    return found[0]


def _means(wanted: str, uuid: str) -> bool:
    return bool(uuid) and not wanted.isdecimal() and uuid.lower().startswith(wanted.lower())


def _devices(chosen: Sequence[tuple[int, Card]], given: Allotment) -> Iterator[_Device]:
    """Each card, or its slices instead; numbered again where there are slices."""
    anew = any(card.slices for _, card in chosen)
    counted = 0
    for number, card in chosen:
        kind = short_type(card.name)
        own = card.index if given.names is None or given.renumbered else given.names[number]
        parts = (
            [(f"{kind}-{each.profile}", each.uuid, each.memory) for each in card.slices]
            if card.divided
            else [(kind, own, card.memory)]
        )
        for type_name, name, memory in parts:
            yield _Device(counted if anew else number, type_name, name, memory)
            counted += 1
