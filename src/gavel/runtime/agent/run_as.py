"""Which operating-system user a job runs as: decided by the agent's own setting, never by a job.

It finds accounts and does file work on behalf of one; the guard is what becomes that user.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import pwd
import threading
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gavel.client.field_checks import shortened
from gavel.errors import InputError

T = TypeVar("T")

SAME = "same"
ANY = "*"
NO_ONE = ("", "you")
"""Users of a scheduler without identities."""
LOWEST_PERSON = 1000
"""Accounts below this number belong to the system, unless /etc/login.defs says otherwise."""
_LOGIN_DEFINITIONS = Path("/etc/login.defs")


class NoAccountError(Exception):
    """A job must not run here, because its user has no account; the message says what to do."""


@dataclass(frozen=True, slots=True)
class SystemAccount:
    """An operating-system user."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    """The main one first."""
    home: str

    @property
    def owner(self) -> tuple[int, int]:
        """What files that belong to it are given to."""
        return self.uid, self.gid

    @property
    def variables(self) -> dict[str, str]:
        """What a login sets."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    @property
    def directory(self) -> str:
        """Where its processes start."""
        return self.home if Path(self.home).is_dir() else "/"


@dataclass(frozen=True, slots=True)
class RunAs:
    """How the users of jobs become accounts; without rules, all jobs run as the agent's own user."""

    accounts: Mapping[str, str] = field(default_factory=dict)
    """SystemAccount names by user; `*`: all others. The account `same` is that of the user's name."""
    unnamed: bool = False
    """Whether jobs without a user run as the agent's own user: the scheduler knows no identities."""

    def account_of(self, user: str) -> SystemAccount | None:
        """The account for a user's job; None: the agent's own user. NoAccountError if there is none for it."""
        if not self.accounts or (self.unnamed and user in NO_ONE):
            return None
        wanted = self.accounts.get(user) or self.accounts.get(ANY)
        if not user and wanted in (None, SAME):
            raise NoAccountError(
                "the job has no user, because it was submitted before the scheduler recorded users; leave out --run-as "
                'to run such jobs as root, as before, or name an account for them: a FILE with "" = "ACCOUNT"'
            )
        if wanted is None:
            raise NoAccountError(f"--run-as names no account for user {shortened(user)}; add the user or {ANY!r} to it")
        return _same_account(user) if wanted == SAME else _permitted(_account(wanted, user))

    def described(self) -> str:
        """One sentence about it for the operator; empty: there is nothing to know."""
        if os.geteuid() != 0:
            return (
                "jobs run as this agent's own user and can read its files, including its key; to keep them apart, run "
                "the agent as root: each job then runs as the account of its user, or as --run-as says"
            )
        if not self.accounts:
            return "jobs run as root, as --run-as root says: every job owns this server"
        if self.unnamed:
            return "jobs run as the account of their user; jobs of a scheduler without identities run as root"
        if set(self.accounts) == {ANY} and self.accounts[ANY] != SAME:
            return f"jobs run as account {self.accounts[ANY]}: jobs of different users can reach each other"
        return "jobs run as the account of their user, as --run-as says"


def run_as(text: str | None) -> RunAs:
    """Read --run-as; None: it is not given."""
    if os.geteuid() != 0:
        if text is None or text == pwd.getpwuid(os.geteuid()).pw_name:
            return RunAs()
        raise InputError(f"--run-as {text} needs an agent that runs as root; start it as root, or leave the option out")
    if text is None:
        return RunAs({ANY: SAME}, unnamed=True)
    if text == SAME:
        return RunAs({ANY: SAME})
    if text == "root":
        return RunAs()
    if "/" in text or Path(text).suffix in {".json", ".toml"}:
        return RunAs(_mapping(Path(text)))
    _check_target(text, "--run-as")
    return RunAs({ANY: text})


def _mapping(path: Path) -> dict[str, str]:
    """Read accounts by user from a file that only root can change."""
    try:
        if path.stat().st_uid != 0 or path.stat().st_mode & 0o022:
            raise InputError(f"--run-as {path}: only root may be able to change it; chown root and chmod go-w")
        text = path.read_text()
        found: Any = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise InputError(f"--run-as {path} cannot be read as a table of accounts by user: {error}") from error
    if not isinstance(found, dict) or not found or not all(isinstance(name, str) and name for name in found.values()):
        raise InputError(f'--run-as {path}: it must have one account for each user, such as alice = "alice"')
    for name in found.values():
        if name != SAME:
            _check_target(name, f"--run-as {path}")
    return found


def _check_target(name: str, option: str) -> None:
    try:
        account = _account(name, name)
    except NoAccountError:
        raise InputError(f"{option}: this server has no account {name!r}; create it or name another") from None
    if account.uid == 0:
        raise InputError(f"{option}: account {name!r} is root; only `--run-as root` itself lets jobs run as root")


def _same_account(user: str) -> SystemAccount:
    """The account of a user's own name: of a person, since the scheduler's users do not name system accounts."""
    account = _permitted(_account(user, user))
    if account.uid < _lowest_person():
        raise NoAccountError(
            f"account {account.name} (number {account.uid}) belongs to the system, so user {shortened(user)} must not "
            "become it by having its name; if that is meant, say so in a file for --run-as"
        )
    return account


def _permitted(account: SystemAccount) -> SystemAccount:
    if account.uid == 0:
        raise NoAccountError(f"account {account.name} is root, and jobs never run as root; use another account")
    return account


def _account(name: str, user: str) -> SystemAccount:
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: no name at all
        raise NoAccountError(
            f"server {platform.node()} has no account {shortened(name)} for user {shortened(user)}; create it there or "
            "map the user to another with --run-as"
        ) from None
    others = [group for group in os.getgrouplist(found.pw_name, found.pw_gid) if group != found.pw_gid]
    return SystemAccount(found.pw_name, found.pw_uid, found.pw_gid, (found.pw_gid, *others), found.pw_dir)


def _lowest_person() -> int:
    try:
        lines = [line.split() for line in _LOGIN_DEFINITIONS.read_text().splitlines()]
        return next(int(words[1]) for words in lines if len(words) == 2 and words[0] == "UID_MIN")
    except (OSError, ValueError, StopIteration):
        return LOWEST_PERSON


# ---- file work on behalf of an account ----

_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159, "loongarch64": 159, "ppc64le": 81, "s390x": 206}
"""The system call that changes the groups of one thread; libc's function changes those of all."""


def on_behalf(account: SystemAccount | None, work: Callable[[], T]) -> T:
    """Do file work with the rights of an account: a link that its jobs planted leads nowhere that they cannot go.

    It happens in a separate thread, whose rights the kernel checks for files; None: with our own.
    """
    if account is None:
        return work()
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            _take_file_rights(account)
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below
            failure.append(error)

    thread = threading.Thread(target=run, name="gavel-on-behalf")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def _take_file_rights(account: SystemAccount) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    number = _SETGROUPS.get(platform.machine())
    groups = (ctypes.c_uint32 * len(account.groups))(*account.groups)
    if number is None or libc.syscall(number, len(account.groups), groups) != 0:
        raise PermissionError(f"this server cannot act for account {account.name}")
    for change, wanted in ((libc.setfsgid, account.gid), (libc.setfsuid, account.uid)):
        change(wanted)
        if change(wanted) != wanted:  # it returns what was set before, and no error
            raise PermissionError(f"this server cannot act for account {account.name}")
