"""How `gavel worker` finds its credentials: enrols once with a join token, then uses what it stored.

A join token must not stay where jobs can read it: not in the command line of the agent, and not in its environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gavel.client.connection import scheduler_address
from gavel.errors import InputError
from gavel.runtime.agent.credentials import Credentials, OwnCredentials, StoredCredentials, enrol
from gavel.runtime.agent.state import held

TOKEN_VARIABLE = "GAVEL_JOIN_TOKEN"  # noqa: S105 - a name
ONCE = ("--join", "--token", "--fingerprint")
"""Options that only an agent that has not enrolled yet needs."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """What the command line says about credentials."""

    join: str | None = None
    token: str | None = None
    fingerprint: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None

    def check(self) -> None:
        """Refuse combinations that cannot work."""
        own = (self.certificate, self.key, self.authority)
        if any(own) and not all(own):
            raise InputError("own certificates need all of --tls-cert, --tls-key and --ca")
        if any(own) and self.join is not None:
            raise InputError("--join is for agents of the cluster's own authority: leave out --tls-cert, or --join")
        if self.join is None and (self.token is not None or self.fingerprint is not None):
            raise InputError("--token and --fingerprint need --join HOST:PORT: the scheduler to join")
        if self.join is not None and self.fingerprint is None:
            raise InputError("--join needs --fingerprint sha256:…: without it, anyone in between could take the token")


def credentials_for(joining: Joining, scheduler: str | None, state: Path, name: str, say: Say) -> Credentials | None:
    """The credentials of this agent; None: it connects in plaintext. Enrols first if it has been asked to."""
    joining.check()
    if joining.certificate is not None and joining.key is not None and joining.authority is not None:
        found = OwnCredentials(_agents_port(scheduler), joining.certificate, joining.key, joining.authority)
        if (fault := found.fault()) is not None:
            raise InputError(fault)
        return found
    stored = _enrolled(joining, state, name, say) if joining.join is not None else StoredCredentials.load(state)
    if stored is None:
        return None
    _check_use(stored, name)
    return stored if scheduler is None else stored.at(scheduler_address(scheduler))


def _check_use(stored: StoredCredentials, name: str) -> None:
    if (fault := stored.fault()) is not None:
        raise InputError(fault)
    if stored.name != name:
        raise InputError(
            f"this agent enrolled as {stored.name!r} and is now called {name!r}; start it with --name {stored.name}, "
            "or revoke it with `gavel agent revoke` and enrol it again under its new name"
        )


def _agents_port(scheduler: str | None) -> str:
    """The agents' port of a scheduler: the one after its own.

    >>> _agents_port("head")
    'head:7078'
    """
    host, _, port = scheduler_address(scheduler).rpartition(":")
    return f"{host}:{int(port) + 1}"


def _enrolled(joining: Joining, state: Path, name: str, say: Say) -> StoredCredentials:
    """Enrol, unless that has happened before; a token that others could read ends with this process."""
    with held(state) as identity:
        stored = StoredCredentials.load(state)
        if stored is not None and not stored.expired:
            say(f"this agent has enrolled before, at {stored.enrolled.scheduler}; the join token is not used")
        else:
            stored = enrol(
                state,
                agent=identity.agent,
                name=name,
                join=joining.join or "",
                token=_token(joining),
                fingerprint=joining.fingerprint or "",
            )
            say(f"agent {name} has enrolled at {stored.enrolled.scheduler}; from now on it needs no token")
    if joining.token not in (None, "-") or TOKEN_VARIABLE in os.environ:
        _start_again(sys.orig_argv, os.environ)
    return stored


def _token(joining: Joining) -> str:
    if joining.token == "-":  # noqa: S105 - not a token
        return sys.stdin.readline().strip()
    token = (joining.token or os.environ.get(TOKEN_VARIABLE, "")).strip()
    if not token:
        raise InputError(f"--join needs a join token: --token gvj_…, --token - to read it, or {TOKEN_VARIABLE}")
    return token


def _start_again(arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Replace this process by one whose command line and environment have no token."""
    kept = {name: value for name, value in environment.items() if name != TOKEN_VARIABLE}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, without_options(arguments, ONCE), kept)  # noqa: S606 - ourselves


def without_options(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """A command line without some options and their values.

    >>> without_options(["gavel", "worker", "--token", "x", "--join=y", "--name", "a"], ONCE)
    ['gavel', 'worker', '--name', 'a']
    """
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in options:
            skip = True
        elif not argument.startswith(tuple(f"{option}=" for option in options)):
            kept.append(argument)
    return kept
