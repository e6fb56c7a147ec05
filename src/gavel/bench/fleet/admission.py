"""Sets the folder of a benchmark's scheduler up before it starts: users with tokens, and agents that are enrolled.

Enrolment takes no calls here; what is measured is a fleet that has enrolled long ago.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from gavel.bench.fleet.login import Login
from gavel.client.access import FINGERPRINT_VARIABLE, TOKEN_VARIABLE
from gavel.journal.store import Journal, Write
from gavel.runtime.configuration import ServeSettings
from gavel.runtime.server import open_journal
from gavel.security.accounts import Accounts, UserRecord
from gavel.security.certificates import key_pem, new_key, signing_request
from gavel.security.enrolment import Enrolment
from gavel.security.roles import Role
from gavel.security.setup import set_up

LOOPBACK = "127.0.0.1"


class User(StrEnum):
    """The users of a benchmark, and what they do."""

    SUBMITTER = "submitter"
    PROBER = "prober"
    WATCHER = "watcher"


ROLES: Mapping[User, Role] = MappingProxyType(
    {User.SUBMITTER: Role.USER, User.PROBER: Role.VIEWER, User.WATCHER: Role.VIEWER}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """By what a scheduler recognises the callers of a benchmark; the default: not at all."""

    authority: str = ""
    server_name: str = ""
    fingerprint: str = ""
    tokens: Mapping[User, str] = field(default_factory=dict, repr=False)
    key_pairs: str = ""
    """The file with the keys and certificates of the agents."""

    def login(self, address: str, user: User | None = None) -> Login:
        """For calls of a user; None: of agents, which show certificates."""
        token = self.tokens.get(user, "") if user is not None else ""
        return Login(address=address, authority=self.authority, server_name=self.server_name, token=token)

    def environment(self, user: User) -> dict[str, str]:
        """Variables by which a command is recognised: a token on the command line could be read by others."""
        if not self.fingerprint:
            return {}
        return {TOKEN_VARIABLE: self.tokens[user], FINGERPRINT_VARIABLE: self.fingerprint}


OPEN = Admission()


def secure(folder: Path, state: Path, agents: Iterable[str]) -> Admission:
    """Set up the scheduler whose state is in `state`; the agents' keys are kept in `folder`."""
    state.mkdir(mode=0o700)
    with open_journal(ServeSettings(folder=state)) as journal:
        secured = set_up(state, journal, (LOOPBACK,), time.time)
        tokens = _add_users(journal, secured.accounts)
        key_pairs = _enrol(journal, secured.enrolment, agents)
    path = folder / "agents.json"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(key_pairs, file)
    return Admission(
        authority=secured.authority.authority_pem.decode(),
        server_name=secured.authority.server_name,
        fingerprint=secured.authority.fingerprint,
        tokens=tokens,
        key_pairs=str(path),
    )


def _add_users(journal: Journal, accounts: Accounts) -> dict[User, str]:
    """Add all users; returns their tokens."""
    now, writes, tokens = time.time(), list[Write](), {}
    for user, role in ROLES.items():
        tokens[user], _, token = accounts.create_token(user=user, role=role, now=now)
        added = accounts.add_user(UserRecord(name=user, role=role, created=now))
        writes += [added.write, token.write]
    journal.write(writes)
    return tokens


def _enrol(journal: Journal, enrolment: Enrolment, agents: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Enrol all agents in one transaction; returns their keys and certificates."""
    writes, pairs = list[Write](), {}
    for agent in agents:
        key = new_key()
        change = enrolment.enrol(agent, agent, signing_request(key), User.SUBMITTER)
        assert change.signed is not None  # noqa: S101 - for mypy
        writes.append(change.write)
        pairs[agent] = key_pem(key).decode(), change.signed.pem
    journal.write(writes)
    return pairs
