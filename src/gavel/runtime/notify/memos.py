"""What has been told about arrays and troubled jobs, so that nothing is told twice, even across restarts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sql

from gavel.journal.accounts import write_document
from gavel.journal.store import Write
from gavel.runtime.notify.newest import NewestOnly

KIND = "notified"
"""Of documents beside the facts."""


class Memos:
    """Small documents by key, such as `array 7`; what changes is written with the facts that change it."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Any]] = {}
        self._changed: set[str] = set()
        self._writes = NewestOnly(_write)

    def load(self, kept: Mapping[str, Mapping[str, Any]]) -> None:
        """Begin with what an earlier scheduler has noted."""
        self._kept = {key: dict(each) for key, each in kept.items()}

    def get(self, kind: str, name: str) -> Mapping[str, Any] | None:
        return self._kept.get(f"{kind} {name}")

    def put(self, kind: str, name: str, document: Mapping[str, Any]) -> None:
        self._kept[f"{kind} {name}"] = dict(document)
        self._changed.add(f"{kind} {name}")

    def drop(self, kind: str, name: str) -> None:
        if self._kept.pop(f"{kind} {name}", None) is not None:
            self._changed.add(f"{kind} {name}")

    def keep_only(self, wanted: Callable[[str, str], bool]) -> None:
        """Drop all memos that are not wanted, by kind and name."""
        for key in list(self._kept):
            kind, _, name = key.partition(" ")
            if not wanted(kind, name):
                self.drop(kind, name)

    def writes(self) -> list[Write]:
        """What has changed since the last call."""
        changed, self._changed = self._changed, set()
        return [self._writes.of({key: self._kept.get(key) for key in changed})] if changed else []


def _write(connection: sql.Connection, documents: Mapping[str, Mapping[str, Any] | None]) -> None:
    for key, document in documents.items():
        write_document(connection, KIND, key, document)
