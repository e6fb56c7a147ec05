"""Sets a cluster up: its authority, its first administrator, and the tokens that the first people and agents need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gavel.client.field_checks import label_fault
from gavel.core.errors import InputError
from gavel.journal.audit import AuditEntry
from gavel.journal.store import Journal
from gavel.security.accounts import AccountChange, Accounts, UserRecord, check_new_name
from gavel.security.authority import Authority, exists
from gavel.security.enrolment import KIND, Enrolment
from gavel.security.files import write_private
from gavel.security.local_login import account_name
from gavel.security.roles import Role
from gavel.security.trail import written

FOLDER = "security"
"""Below the scheduler's folder."""
ADMIN_TOKEN, JOIN_TOKEN = "admin.token", "join.token"
FIRST_USES = 32
"""How many agents may use the first join token."""


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """What is shown once, when a cluster is set up."""

    admin: str
    join: str
    admin_file: Path
    join_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """Everything by which a secured scheduler recognises its callers."""

    authority: Authority
    accounts: Accounts
    enrolment: Enrolment
    owner: str
    """The user of the account that set the cluster up."""
    first: FirstTokens | None = None
    """Only if it was set up just now."""


def is_set_up(folder: Path) -> bool:
    """Whether the scheduler of this folder has an authority."""
    return exists(folder / FOLDER)


def set_up(
    folder: Path,
    journal: Journal,
    names: Iterable[str],
    clock: Callable[[], float],
    *,
    own_client_authority: bool = False,
) -> Secured:
    """Load what a scheduler needs, and make what is missing: authority, administrator, first tokens."""
    place = folder / FOLDER
    authority = (
        Authority.load(place, journal.cluster) if exists(place) else Authority.create(place, journal.cluster, names)
    )
    authority.issue_server(names)
    accounts = Accounts.load(journal)
    first = None if accounts.users else _first(place, journal, accounts, clock())
    return Secured(
        authority=authority,
        accounts=accounts,
        enrolment=Enrolment.of(None if own_client_authority else authority, journal.documents(KIND)),
        owner=_owner(accounts),
        first=first,
    )


def _first(place: Path, journal: Journal, accounts: Accounts, now: float) -> FirstTokens:
    """The administrator and the first tokens."""
    owner = own_name()
    added = accounts.add_user(UserRecord(name=owner, role=Role.ADMIN, created=now))
    admin, _, admin_change = accounts.create_token(user=owner, role=Role.ADMIN, now=now, name="set-up")
    join, _, join_change = accounts.create_token(user=owner, role=Role.AGENT, now=now, name="set-up", uses=FIRST_USES)
    changes: list[AccountChange] = [added, admin_change, join_change]
    entry = AuditEntry(
        key=f"set-up {journal.cluster} {now}", time=now, user=owner, method="set-up", what="administrator added"
    )
    tokens = FirstTokens(admin, join, place / ADMIN_TOKEN, place / JOIN_TOKEN)
    write_private(tokens.admin_file, f"{admin}\n".encode())
    write_private(tokens.join_file, f"{join}\n".encode())
    journal.write([*(change.write for change in changes), written([entry])])
    for change in changes:
        change.apply()
    return tokens


def own_name() -> str:
    """The name of the account that this process runs as."""
    name = account_name(os.geteuid())
    try:
        check_new_name(name)
    except InputError:
        return "admin"
    return name if label_fault(name) is None else "admin"


def _owner(accounts: Accounts) -> str:
    """The user of this account; if it is none, the first administrator."""
    own = own_name()
    admins = [user.name for user in accounts.users.values() if user.role is Role.ADMIN and not user.disabled]
    return own if own in accounts.users or not admins else min(admins)
