"""How many jobs of an array may run at once: a fold over facts that knows which of them have a place.

A job keeps its place while it is preempted or pauses; it gives it up when it ends, or waits for an earlier reason.
Places are given in order of index. It decides who could have one; recording that is left to the caller.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gavel.client.requests import Submission
from gavel.core.jobs import Cause

ARRAY = "array"
"""The code of the cause for which a job waits for others of its array."""

Key = tuple[int, int]
"""Index and id: the order in which the jobs of an array get places."""


@dataclass(slots=True)
class _Array:
    """The unfinished jobs of one array."""

    at_once: int
    """0: any number."""
    keys: dict[str, Key] = field(default_factory=dict)
    placed: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    """Jobs that have neither a place nor an earlier reason to wait."""
    queue: list[Key] = field(default_factory=list)
    """A heap with every waiting job; it may contain others, which are dropped when they come first."""

    @property
    def room(self) -> int:
        return max(self.at_once - len(self.placed), 0) if self.at_once else len(self.keys)

    @property
    def over(self) -> bool:
        return bool(self.at_once) and len(self.placed) > self.at_once

    def first(self, count: int, more: Iterable[str]) -> list[str]:
        """The jobs that come first, of those that wait and others."""
        rest = sorted((self.keys[job] for job in more), reverse=True)
        taken: list[Key] = []
        found: dict[str, None] = {}
        while len(found) < count and (self.queue or rest):
            if rest and (not self.queue or rest[-1] < self.queue[0]):
                found[str(rest.pop()[1])] = None
                continue
            key = heapq.heappop(self.queue)
            if str(key[1]) in self.waiting and str(key[1]) not in found:
                taken.append(key)
                found[str(key[1])] = None
        for key in taken:
            heapq.heappush(self.queue, key)
        return list(found)


class Throttles:
    """The arrays with unfinished jobs."""

    def __init__(self) -> None:
        self._array_of: dict[str, str] = {}
        self._arrays: dict[str, _Array] = {}
        self._due: set[str] = set()
        """Arrays in which a place may have become free."""
        self._over: set[str] = set()
        """Arrays with more places taken than they have now."""

    @property
    def due(self) -> bool:
        """Whether some job may get a place."""
        return bool(self._due)

    @property
    def over(self) -> bool:
        """Whether some array has more places taken than it has now, because it was given fewer."""
        return bool(self._over)

    def reason(self, job: str) -> Cause:
        """Why a job has no place."""
        array = self._array_of[job]
        return _full(array, self._arrays[array].at_once)

    # ---- decide ----

    def opening(self, freed: Iterable[str]) -> tuple[list[str], list[str]]:
        """Who gets a place now, and which of the freed jobs get none.

        `freed` are jobs whose earlier reason to wait is gone; without an array, they need no place.
        """
        fresh: dict[str, list[str]] = {array: [] for array in sorted(self._due)}
        through: list[str] = []
        refused: list[str] = []
        for job in freed:
            if job in self._array_of:
                fresh.setdefault(self._array_of[job], []).append(job)
            else:
                through.append(job)
        for name, jobs in fresh.items():
            array = self._arrays[name]
            chosen = array.first(array.room, jobs)
            through += chosen
            having = set(chosen)
            refused += [job for job in jobs if job not in having]
        return through, refused

    def arrivals(self, jobs: Iterable[tuple[str, Submission]]) -> dict[str, Cause]:
        """Of new jobs without an earlier reason to wait, those that get no place, and why."""
        by_array: dict[str, list[tuple[Key, str, Submission]]] = {}
        for job, request in jobs:
            if request.array_id:
                by_array.setdefault(request.array_id, []).append((_key(job, request), job, request))
        refused: dict[str, Cause] = {}
        for name, members in by_array.items():
            known = self._arrays.get(name) or _Array(members[0][2].at_once)
            if known.at_once:
                cause = _full(name, known.at_once)
                refused |= {job: cause for _, job, _ in sorted(members)[known.room :]}
        return refused

    def excess(self, runs: Callable[[str], bool]) -> list[str]:
        """Jobs that lose their place because their array has fewer now: those that do not run, the last ones first."""
        found: list[str] = []
        for name in sorted(self._over):
            array = self._arrays[name]
            idle = sorted((job for job in array.placed if not runs(job)), key=array.keys.__getitem__, reverse=True)
            found += idle[: len(array.placed) - array.at_once]
        return found

    def settled(self) -> None:
        """Everyone who could get a place has one."""
        self._due.clear()

    # ---- evolve ----

    def added(self, job: str, request: Submission) -> None:
        """A job was submitted."""
        if not request.array_id:
            return
        array = self._arrays.setdefault(request.array_id, _Array(request.at_once))
        array.keys[job] = _key(job, request)
        self._array_of[job] = request.array_id

    def place(self, job: str) -> None:
        """A job has a place."""
        if job in self._array_of:
            array = self._arrays[self._array_of[job]]
            array.placed.add(job)
            array.waiting.discard(job)
            self._check(self._array_of[job])

    def wait(self, job: str) -> None:
        """A job waits for a place."""
        self.leave(job)
        if job in self._array_of:
            array = self._arrays[self._array_of[job]]
            array.waiting.add(job)
            heapq.heappush(array.queue, array.keys[job])

    def leave(self, job: str) -> None:
        """A job waits for something else, and needs no place."""
        if job in self._array_of:
            array = self._arrays[self._array_of[job]]
            if job in array.placed:
                array.placed.discard(job)
                self._due.add(self._array_of[job])
            array.waiting.discard(job)
            self._check(self._array_of[job])

    def ended(self, job: str) -> None:
        """A job has ended."""
        self.leave(job)
        name = self._array_of.pop(job, "")
        if name:
            del self._arrays[name].keys[job]
            if not self._arrays[name].keys:
                del self._arrays[name]
                self._due.discard(name)
                self._over.discard(name)

    def limit(self, array: str, at_once: int) -> bool:
        """An array may have this many jobs at once from now on, 0: any number; returns whether that is a change."""
        known = self._arrays.get(array)
        if known is None or known.at_once == at_once:
            return False
        known.at_once = at_once
        self._due.add(array)
        self._check(array)
        return True

    def waiting_in(self, array: str) -> list[str]:
        """The jobs of an array that wait for a place."""
        known = self._arrays.get(array)
        return [] if known is None else sorted(known.waiting, key=known.keys.__getitem__)

    def _check(self, name: str) -> None:
        if self._arrays[name].over:
            self._over.add(name)
        else:
            self._over.discard(name)

    # ---- as a document ----

    def document(self) -> dict[str, Any]:
        """Everything that unfinished jobs, and what they wait for, do not tell."""
        return {array: known.at_once for array, known in sorted(self._arrays.items())}

    @classmethod
    def of(cls, document: Mapping[str, Any], unfinished: Iterable[tuple[str, Submission]]) -> Throttles:
        """The arrays of unfinished jobs, with the numbers in a document. No job has a place or waits for one yet."""
        made = cls()
        for job, request in unfinished:
            made.added(job, request)
        for array, at_once in document.items():
            made.limit(array, at_once)
        return made


def _full(array: str, at_once: int) -> Cause:
    jobs = "one job" if at_once == 1 else f"{at_once:,} jobs"
    return Cause(ARRAY, f"array {array} runs at most {jobs} at once")


def _key(job: str, request: Submission) -> Key:
    return request.index or 0, int(job)
