"""The register of attacks: each has a name, an area and a function that plays it and asserts that it fails.

docs/attacks.md lists them; `tools/attacks_page.py` writes that page from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attacked_cluster import Target

Play = Callable[[Target], None]
AREAS = {
    "identity": "Tokens, sessions and who calls",
    "rights": "Roles, ownership and acting for others",
    "transport": "TLS, certificates and connections",
    "enrolment": "Join tokens and agents' certificates",
    "agents": "Messages of agents",
    "requests": "Requests of clients",
    "secrets": "Secrets, files and environments",
    "jobs": "Jobs against agents and each other",
    "floods": "Floods and slow peers",
    "terminals": "What reaches a terminal",
}


@dataclass(frozen=True)
class Attack:
    """One attack."""

    name: str
    area: str
    play: Play


REGISTER: dict[str, Attack] = {}


def attack(area: str) -> Callable[[Play], Play]:
    """Register a function; its docstring is the attack's name, as a sentence without a full stop."""
    assert area in AREAS

    def add(play: Play) -> Play:
        name = (play.__doc__ or "").strip().split("\n")[0].removesuffix(".")
        assert name, f"{play.__name__} needs a docstring that names the attack"
        assert name not in REGISTER, f"{name!r} is registered twice"
        REGISTER[name] = Attack(name, area, play)
        return play

    return add


def of_module(module: str) -> list[Attack]:
    """The attacks that a module registers, for its tests."""
    return [found for found in REGISTER.values() if found.play.__module__ == module]
