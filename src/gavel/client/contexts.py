"""The schedulers that a user has logged in to: address, trust and token of each, in the user's configuration directory.

Only the file is here: which context a command uses is decided in `access`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from gavel.errors import InputError

FILE = "contexts.json"
VERSION = 1
LONGEST_NAME = 200


class Trust(StrEnum):
    """By what a context recognises its scheduler."""

    AUTHORITY = "authority"
    """The certificate authority that is stored with it."""
    SYSTEM = "system"
    """The authorities that this machine trusts."""
    NONE = "none"
    """Nothing: a UNIX socket, or plaintext."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerContext:
    """One scheduler, and who the user is there."""

    name: str
    address: str
    """HOST:PORT or unix:PATH."""
    trust: Trust = Trust.NONE
    authority: str = ""
    """In PEM."""
    fingerprint: str = ""
    server_name: str = ""
    """The name in the scheduler's certificate; empty: its host name."""
    token: str = field(default="", repr=False)
    user: str = ""

    def document(self) -> dict[str, Any]:
        """What may be shown: everything except the token."""
        shown = {each.name: str(getattr(self, each.name)) for each in fields(self) if each.name != "token"}
        return {**shown, "has_token": bool(self.token)}


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts by name, and which of them is current."""

    known: Mapping[str, SchedulerContext] = field(default_factory=dict)
    current: str = ""

    @property
    def chosen(self) -> SchedulerContext | None:
        return self.known.get(self.current)

    def named(self, name: str) -> SchedulerContext:
        """The context of that name; InputError if there is none."""
        if name not in self.known:
            there = f"there are: {', '.join(self.known)}" if self.known else "`gavel login HOST` makes one"
            raise InputError(f"there is no context {name[:LONGEST_NAME]!r}; {there}")
        return self.known[name]

    def at(self, address: str) -> SchedulerContext | None:
        """The context for an address; the current one first if several have it."""
        ordered = sorted(self.known.values(), key=lambda each: each.name != self.current)
        return next((each for each in ordered if each.address == address), None)

    def adding(self, context: SchedulerContext) -> Contexts:
        """With a new or replaced context, which becomes the current one."""
        check_name(context.name)
        return Contexts({**self.known, context.name: context}, context.name)

    def using(self, name: str) -> Contexts:
        return replace(self, current=self.named(name).name)

    def without(self, name: str) -> Contexts:
        left = {each: context for each, context in self.known.items() if each != self.named(name).name}
        return Contexts(left, "" if self.current == name else self.current)


def check_name(name: str) -> None:
    """Refuse a name that could not be typed or printed."""
    if not re.fullmatch(r"[\w.@:+\[\]-]{1,200}", name) or name.startswith("-"):
        raise InputError(f"{name[:LONGEST_NAME]!r} cannot name a context; use letters, digits and . _ - @ :")


def configuration_directory(environment: Mapping[str, str] | None = None) -> Path | None:
    """The directory for the user's configuration; None if the user has none."""
    given = os.environ if environment is None else environment
    if base := given.get("XDG_CONFIG_HOME"):
        return Path(base) / "gavel"
    try:
        return Path.home() / ".config" / "gavel"
    except RuntimeError:  # no HOME, and the system does not know the user
        return None


def _warn(sentence: str) -> None:
    print(f"gavel: {sentence}", file=sys.stderr)


class ContextFile:
    """The file of all contexts, readable for its owner only."""

    def __init__(self, directory: Path | None, warn: Callable[[str], None] = _warn) -> None:
        self.directory = directory
        self._warn = warn

    @classmethod
    def own(cls) -> ContextFile:
        """The file of the user that runs this process."""
        return cls(configuration_directory())

    @property
    def path(self) -> Path:
        if self.directory is None:
            raise InputError("there is no home directory to keep contexts in; set XDG_CONFIG_HOME or HOME")
        return self.directory / FILE

    def read(self) -> Contexts:
        """All contexts; none if there is no file. A file that others may read is reported and closed to them."""
        if self.directory is None:
            return Contexts()
        try:
            with self.path.open("rb") as file:
                self._tighten(file.fileno())
                content = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return Contexts()
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {_words(error)}; make it readable for you alone") from None
        return self._parsed(content)

    def change(self, how: Callable[[Contexts], Contexts]) -> Contexts:
        """Replace the contexts by what `how` makes of them; concurrent changes happen one after the other."""
        try:
            with self._locked():
                changed = how(self.read())
                self._write(changed)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {_words(error)}") from None
        return changed

    def _tighten(self, descriptor: int) -> None:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if not mode & 0o077:
            return
        self._warn(
            f"{self.path} has tokens and was open to other users (mode {mode:03o}); it is closed to them now. "
            "If they may have read it, revoke the tokens: `gavel token revoke`"
        )
        with suppress(OSError):
            os.fchmod(descriptor, 0o600)

    def _parsed(self, content: bytes) -> Contexts:
        try:
            return _from_document(json.loads(content))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            # Without the reason, which could quote a token.
            raise InputError(f"{self.path} is damaged; remove it and log in again with `gavel login`") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the directory, which is made if needed."""
        directory = self.path.parent
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
                os.fchmod(descriptor, 0o700)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _write(self, contexts: Contexts) -> None:
        """Write a new file, which is 0600 from its beginning, and put it in the place of the old one."""
        descriptor, name = tempfile.mkstemp(prefix=f".{FILE}.", dir=self.path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(_document(contexts), file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _document(contexts: Contexts) -> dict[str, Any]:
    return {
        "version": VERSION,
        "current": contexts.current,
        "contexts": [
            {each.name: str(getattr(context, each.name)) for each in fields(context)}
            for context in contexts.known.values()
        ],
    }


def _from_document(document: Any) -> Contexts:
    """Fields that only a newer version knows are left out."""
    names = {each.name for each in fields(SchedulerContext)}
    found: list[SchedulerContext] = []
    for plain in document["contexts"]:
        given = {name: value for name, value in plain.items() if name in names}
        if not all(isinstance(value, str) for value in given.values()):
            raise TypeError
        context = SchedulerContext(**{**given, "trust": Trust(given.get("trust", Trust.NONE))})
        if context.trust is Trust.AUTHORITY and not context.authority:
            raise ValueError
        found.append(context)
    return Contexts({context.name: context for context in found}, str(document.get("current", "")))


def _words(error: OSError) -> str:
    return (error.strerror or "unknown error").lower()
