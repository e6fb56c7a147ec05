"""Writes of which only the newest about each subject is carried out: many events of one batch change the same row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import sqlalchemy as sql

from gavel.journal.store import Write

Subject = TypeVar("Subject", bound=Hashable)
Content = TypeVar("Content")

MOST_SUBJECTS = 10_000
"""Remembered at a time."""


class NewestOnly(Generic[Subject, Content]):
    """Makes writes by subject. They run in the order in which they were made, perhaps several times, in any thread."""

    def __init__(self, write: Callable[[sql.Connection, Mapping[Subject, Content]], None]) -> None:
        self._write = write
        self._newest: dict[Subject, int] = {}
        """By subject: the number of the last write about it."""
        self._made = 0

    def of(self, contents: Mapping[Subject, Content]) -> Write:
        """A write of these contents; when it runs, it leaves out those for which a newer one has been made."""
        if len(self._newest) > MOST_SUBJECTS:
            self._newest = {}  # at worst, some older writes are carried out before newer ones
        self._made += 1
        number = self._made
        self._newest.update(dict.fromkeys(contents, number))

        def write(connection: sql.Connection) -> None:
            current = {
                subject: each for subject, each in contents.items() if self._newest.get(subject, number) == number
            }
            if current:
                self._write(connection, current)

        return write

    def forget(self, subjects: Iterable[Subject]) -> None:
        """Drop what nothing more will be written about."""
        for subject in subjects:
            self._newest.pop(subject, None)
