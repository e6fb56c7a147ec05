"""Generate docs/attacks.md from the attacks that tests play: `python tools/attacks_page.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "attacks.md"
PLAYED = ROOT / "tests" / "security"
INTRODUCTION = """# Attacks

This page lists the {count} attacks that the tests play, by what they are directed at. All of them fail.
`python tools/attacks_page.py` generates the page from the tests, and a test checks that it is up to date.

Attacks are played against a real cluster: `gavel init`, `gavel serve`, an enrolled agent and five users, each with a
login, as processes of their own, with real TLS. The attacker writes messages by hand, and where the network library
refuses to send something, the bytes themselves. A test asserts how an attack is refused: the status, the sentence, that
nothing has changed, and where it matters that the audit lists the attempt.

Some attackers are servers instead. In front of a man in the middle, a test asserts that our client sends nothing but a
handshake. What reaches a terminal is mostly tested with an evil scheduler that sends control characters in every text,
because a real one refuses most of them. Timing is measured within one process, where nanoseconds can be told apart.

A job runs beside all attacks. After each of them it must still be in its first attempt, and both services must be
alive; at the end the job must finish.

## Not defended

- **A job that runs as root** can read everything on its own server, the agent's key included. With that key it
  speaks as this agent until the agent is revoked.
- **Denial of service by a team member with quota**: a user may fill the queue up to the limits of user and team, and
  jobs may use the disks and networks of the servers that they are given.
- **The scheduler's account**: an account that can read the scheduler's folder has the authority's key, and with it the
  cluster.
"""


def page() -> str:
    """The whole page."""
    register = _register()
    parts = [INTRODUCTION.format(count=len(register.REGISTER))]
    for area, title in register.AREAS.items():
        parts += _section(title, sorted(found.name for found in register.REGISTER.values() if found.area == area))
    return "\n".join(parts)


def _register() -> Any:
    """The module with the register, after every module with attacks has been loaded."""
    for folder in (PLAYED, PLAYED.parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    for path in sorted(PLAYED.glob("*_attacks.py")):
        if not path.name.startswith("test_"):
            import_module(path.stem)
    return import_module("attacks")


def _section(title: str, names: list[str]) -> Iterator[str]:
    if names:
        yield f"## {title}\n"
        yield "\n".join(f"- {name}" for name in names) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
