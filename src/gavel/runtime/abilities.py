"""What agents can do beyond the first version of the protocol, and what a job needs of them.

The ability to start one process for each server has the name of that launcher.
"""

from __future__ import annotations

from collections.abc import Iterable

from gavel.client.request_rules import PER_SERVER
from gavel.client.requests import Submission

ENVIRONMENTS = "environments"
"""Run in a virtual environment, with environment modules, or in a container."""
GRACE = "grace"
"""Give a job its own time to save."""
TERMINAL = "terminal"
"""Give a job a terminal."""
ABILITIES = (PER_SERVER, ENVIRONMENTS, GRACE, TERMINAL)
"""Those of agents of this version."""

_NEEDED_FOR = {
    PER_SERVER: "one process for each server (launcher: per-server)",
    ENVIRONMENTS: "a virtual environment, environment modules or a container",
    GRACE: "its own time to save (grace)",
    TERMINAL: "a terminal",
}


def needed(request: Submission) -> frozenset[str]:
    """The abilities without which an agent would run a job otherwise than it asks.

    >>> sorted(needed(Submission(command=("train",), grace_seconds=5.0, launcher="per-server")))
    ['grace', 'per-server']
    """
    wanted = {
        PER_SERVER: request.launcher == PER_SERVER,
        ENVIRONMENTS: bool(request.venv or request.modules or request.container),
        GRACE: request.grace_seconds is not None,
        TERMINAL: request.terminal,
    }
    return frozenset(ability for ability, is_wanted in wanted.items() if is_wanted)


def inability(agent: str, abilities: Iterable[str], request: Submission) -> str:
    """Why an agent must not start a job, in a sentence; empty if it may.

    >>> inability("old", (), Submission(command=("train",), grace_seconds=5.0))
    'it needs its own time to save (grace), which the version of agent old does not know; upgrade gavel there'
    >>> inability("old", (), Submission(command=("train",)))
    ''
    """
    missing = sorted(needed(request) - set(abilities))
    if not missing:
        return ""
    what = " and ".join(_NEEDED_FOR[ability] for ability in missing)
    return f"it needs {what}, which the version of agent {agent} does not know; upgrade gavel there"
