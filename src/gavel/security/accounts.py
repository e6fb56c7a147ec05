"""Users and tokens: kept in memory, so that no check touches the disk; changes go to the journal's database first.

Tokens are random and stored as digests; the token itself is shown once, to the one who creates it.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any

from gavel.client.field_checks import label_fault, shortened
from gavel.core.errors import InputError
from gavel.core.serialization import from_plain, plain_record
from gavel.journal.accounts import write_document
from gavel.journal.queries import JournalReader
from gavel.journal.store import Write
from gavel.security.roles import OPEN_USER, Role

PREFIX, JOIN_PREFIX, SESSION_PREFIX = "gvl_", "gvj_", "gvs_"
LONGEST_TOKEN = 100
"""Characters; longer texts are not even hashed."""
TOKEN_SECONDS = 90 * 86_400.0
JOIN_SECONDS = 3600.0
LONGEST_TOKEN_SECONDS = 3650 * 86_400.0
SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 10_000
MOST_USES = 10_000
MOST_TOKENS = 100
"""Valid tokens of one user."""
KINDS = USER_KIND, TOKEN_KIND = "user", "token"


class UnknownTokenError(Exception):
    """A token that proves nothing, with a sentence for its holder and a word for counting."""

    def __init__(self, sentence: str, reason: str) -> None:
        super().__init__(sentence)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRecord:
    """A person or a program that may call."""

    name: str
    role: Role = Role.USER
    teams: tuple[str, ...] = ()
    """The first is the default team of the user's jobs."""
    leads: tuple[str, ...] = ()
    disabled: bool = False
    created: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """What is known about a token, without the token."""

    id: str
    digest: str
    user: str
    """Whose rights it gives; for a join token, who created it."""
    name: str = ""
    role: Role = Role.USER
    created: float = 0.0
    expires: float = 0.0
    last_used: float = 0.0
    last_address: str = ""
    revoked: bool = False
    uses_left: int = 0
    """For join tokens."""
    parent: str = ""
    """The token with which its user created it: revoking that one revokes this one, too."""


@dataclass(frozen=True, slots=True)
class AccountChange:
    """A change that takes effect by `apply`, once `write` has made it durable."""

    write: Write
    apply: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Known:
    """A caller's user and token, both valid now."""

    user: UserRecord
    token: TokenRecord

    @property
    def role(self) -> Role:
        """The lesser of the user's role and the token's."""
        return self.token.role if not self.token.role.includes(self.user.role) else self.user.role


class Accounts:
    """All users and tokens."""

    def __init__(self, users: Iterable[UserRecord] = (), tokens: Iterable[TokenRecord] = ()) -> None:
        self.users = {user.name: user for user in users}
        self.tokens = {token.id: token for token in tokens}
        self._by_digest = {token.digest: token.id for token in self.tokens.values()}
        self._used: set[str] = set()
        """Ids of tokens whose last use is not written yet."""

    @classmethod
    def load(cls, journal: JournalReader) -> Accounts:
        """Read what the journal's database has."""
        users = [_of(UserRecord, document) for document in journal.documents(USER_KIND).values()]
        return cls(users, [_of(TokenRecord, document) for document in journal.documents(TOKEN_KIND).values()])

    # ---- recognising ----

    def recognise(self, text: str, now: float, address: str = "") -> Known:
        """The user and token that a text proves; UnknownTokenError if it proves nothing."""
        token = self._valid(text, now)
        if token.role is Role.AGENT:
            raise UnknownTokenError("this is a join token, for `gavel worker --join`; log in with your own", "join")
        user = self.active(token.user)
        token = self.tokens[token.id] = replace(token, last_used=now, last_address=address)
        self._used.add(token.id)
        return Known(user, token)

    def active(self, name: str) -> UserRecord:
        """The user of that name, unless it is disabled."""
        user = self.users.get(name)
        if user is None or user.disabled:
            raise UnknownTokenError(f"user {name!r} is disabled; ask an administrator", "disabled")
        return user

    def _valid(self, text: str, now: float) -> TokenRecord:
        found = self._by_digest.get(digest_of(text)) if len(text) <= LONGEST_TOKEN else None
        token = None if found is None else self.tokens.get(found)
        if token is None:
            raise UnknownTokenError("the scheduler does not know this token; ask for a new one", "unknown")
        if token.revoked:
            raise UnknownTokenError(f"token {token.id} was revoked; ask for a new one", "revoked")
        if now >= token.expires:
            raise UnknownTokenError(f"token {token.id} has expired; ask for a new one", "expired")
        return token

    def valid(self, token: str, now: float) -> bool:
        """Whether the token with this id still proves something."""
        found = self.tokens.get(token)
        user = None if found is None else self.users.get(found.user)
        return (
            found is not None and not found.revoked and now < found.expires and user is not None and not user.disabled
        )

    def used(self) -> Write | None:
        """The write of when tokens were last used; None if none was since the last time."""
        used, self._used = self._used, set()
        tokens = [self.tokens[token] for token in used if token in self.tokens]
        return partial(_write_tokens, tokens=tokens) if tokens else None

    # ---- users ----

    def add_user(self, user: UserRecord) -> AccountChange:
        """Add a user; InputError if the name is taken or a field is invalid."""
        check_user(user)
        check_new_name(user.name)
        if (taken := self._resembling(user.name)) is not None:
            raise InputError(f"there is a user {taken!r} already; `gavel user set` changes one")
        return self._put_user(user)

    def _resembling(self, name: str) -> str | None:
        """A user that people could take for one of that name: names differ in more than upper and lower case."""
        return next((known for known in self.users if known.casefold() == name.casefold()), None)

    def change_user(self, name: str, changes: Mapping[str, Any]) -> tuple[UserRecord, AccountChange]:
        """Replace fields of a user; returns the user afterwards."""
        user = replace(self.user(name), **changes)
        check_user(user)
        admins = [each.name for each in self.users.values() if each.role is Role.ADMIN and not each.disabled]
        if admins == [name] and (user.disabled or user.role is not Role.ADMIN):
            raise InputError(f"{name} is the only administrator; make another one first")
        return user, self._put_user(user)

    def user(self, name: str) -> UserRecord:
        """The user of that name; InputError if there is none."""
        if name not in self.users:
            raise InputError(f"there is no user {shortened(name)}; `gavel user list` lists them")
        return self.users[name]

    def _put_user(self, user: UserRecord) -> AccountChange:
        def apply() -> None:
            self.users[user.name] = user

        return AccountChange(partial(_write, kind=USER_KIND, key=user.name, record=user), apply)

    # ---- tokens ----

    def create_token(
        self,
        *,
        user: str,
        role: Role,
        now: float,
        seconds: float = 0.0,
        name: str = "",
        uses: int = 0,
        parent: str = "",
    ) -> tuple[str, TokenRecord, AccountChange]:
        """A new token: its text, its record, and the change that makes it valid."""
        if (fault := label_fault(name)) is not None:
            raise InputError(f"the token's name {fault}: {shortened(name)}")
        joins = role is Role.AGENT
        lasting = seconds or (JOIN_SECONDS if joins else TOKEN_SECONDS)
        if not 1.0 <= lasting <= LONGEST_TOKEN_SECONDS:
            raise InputError(f"a token is valid for between 1 second and 3,650 days, not {lasting:g} s")
        if not joins and uses:
            raise InputError("only join tokens have a number of uses")
        if uses > MOST_USES:
            raise InputError(f"a join token has at most {MOST_USES:,} uses, not {uses:,}")
        if sum(token.user == user and self.valid(token.id, now) for token in self.tokens.values()) >= MOST_TOKENS:
            raise InputError(f"{user} has {MOST_TOKENS} valid tokens, the most at once; revoke some first")
        text = (JOIN_PREFIX if joins else PREFIX) + secrets.token_urlsafe(32)
        record = TokenRecord(
            id=self._fresh_id(),
            digest=digest_of(text),
            user=user,
            name=name,
            role=role,
            created=now,
            expires=now + lasting,
            uses_left=(uses or 1) if joins else 0,
            parent=parent,
        )
        return text, record, self._put_token(record)

    def _fresh_id(self) -> str:
        while (found := secrets.token_hex(4)) in self.tokens:
            pass
        return found

    def revoke(self, token: str) -> AccountChange:
        """The token with this id proves nothing from now on."""
        return self._put_token(replace(self.token(token), revoked=True))

    def made_with(self, token: str) -> list[str]:
        """The tokens that were created with a token, and with those in turn."""
        found = [token]
        for parent in found:  # `found` grows during the loop
            found += [each.id for each in self.tokens.values() if each.parent == parent and each.id not in found]
        return found[1:]

    def token(self, token: str) -> TokenRecord:
        """The token with this id; InputError if there is none."""
        if token.startswith((PREFIX, JOIN_PREFIX, SESSION_PREFIX)):
            raise InputError("this is a token itself; name it by its id, which `gavel token list` shows")
        if token not in self.tokens:
            raise InputError(f"there is no token {shortened(token)}; `gavel token list --all` lists them")
        return self.tokens[token]

    def redeem(self, text: str, now: float) -> tuple[TokenRecord, AccountChange]:
        """A join token that may be used once more, and the change that counts the use."""
        token = self._valid(text, now)
        if token.role is not Role.AGENT:
            raise UnknownTokenError("this is not a join token; `gavel token create --join` makes one", "role")
        if not self.active(token.user).role.includes(Role.OPERATOR):
            told = f"join token {token.id} is {token.user}'s, who may no longer create any; ask an operator for another"
            raise UnknownTokenError(told, "creator")
        if token.uses_left < 1:
            raise UnknownTokenError(f"join token {token.id} is used up; `gavel token create --join` makes one", "used")
        return token, self._put_token(replace(token, uses_left=token.uses_left - 1, last_used=now))

    def _put_token(self, token: TokenRecord) -> AccountChange:
        def apply() -> None:
            self.tokens[token.id] = token
            self._by_digest[token.digest] = token.id

        return AccountChange(partial(_write, kind=TOKEN_KIND, key=token.id, record=token), apply)

    def forget_tokens(self, before: float) -> AccountChange | None:
        """Remove tokens that expired before that time; None if there are none."""
        gone = [token for token in self.tokens.values() if token.expires < before]

        def write(connection: Any) -> None:
            for token in gone:
                write_document(connection, TOKEN_KIND, token.id, None)

        def apply() -> None:
            for token in gone:
                self.tokens.pop(token.id, None)
                self._by_digest.pop(token.digest, None)

        return AccountChange(write, apply) if gone else None


@dataclass(slots=True)
class Sessions:
    """Tokens of local users, recognised by the operating system; they live only in memory."""

    seconds: float = SESSION_SECONDS
    _users: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By digest: the user, and when it expires."""

    def begin(self, user: str, now: float) -> tuple[str, float]:
        """A token for a user, and when it expires."""
        text = SESSION_PREFIX + secrets.token_urlsafe(32)
        while len(self._users) >= MOST_SESSIONS:
            self._forget_one()
        expires = now + self.seconds
        self._users[digest_of(text)] = user, expires
        return text, expires

    def _forget_one(self) -> None:
        """Forget the oldest session of the user who has the most, so that no user ends another's."""
        busiest, _ = Counter(user for user, _ in self._users.values()).most_common(1)[0]
        del self._users[next(digest for digest, (user, _) in self._users.items() if user == busiest)]

    def user(self, text: str, now: float) -> tuple[str, float]:
        """Whose session this is, and when it expires."""
        found = self._users.get(digest_of(text)) if len(text) <= LONGEST_TOKEN else None
        if found is None or now >= found[1]:
            raise UnknownTokenError("this session is unknown or has expired", "session")
        return found


def digest_of(text: str) -> str:
    """What is stored instead of a token; comparing digests tells an attacker nothing about the token."""
    return sha256(text.encode(errors="replace")).hexdigest()


def check_user(user: UserRecord) -> None:
    """Raise InputError for a user that cannot be one."""
    for what, name in (("name", user.name), *(("team", team) for team in (*user.teams, *user.leads))):
        if not name or name.strip() != name or (fault := label_fault(name)) is not None:
            reason = "is empty or has blanks around it" if not name or name.strip() != name else fault
            raise InputError(f"the {what} of a user {reason}: {shortened(name)}")
    if user.name == OPEN_USER:
        raise InputError(f"{OPEN_USER!r} is the user of a scheduler that recognises no one; give another name")
    if not user.role.for_people:
        raise InputError(f"a user cannot have the role {user.role}; give viewer, user, operator or admin")


def check_new_name(name: str) -> None:
    """Raise InputError for a name that looks like another one, or means something else where users are named."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._@+$\\-]*", name):
        raise InputError(
            f"{shortened(name)} cannot name a user; use letters from a to z, digits and . _ - @ + $ \\, "
            "beginning with a letter, a digit or _"
        )


def _of(kind: type[Any], document: Mapping[str, Any]) -> Any:
    return from_plain(kind, document)


def _write(connection: Any, *, kind: str, key: str, record: UserRecord | TokenRecord) -> None:
    write_document(connection, kind, key, plain_record(record))


def _write_tokens(connection: Any, *, tokens: Iterable[TokenRecord]) -> None:
    for token in tokens:
        _write(connection, kind=TOKEN_KIND, key=token.id, record=token)
