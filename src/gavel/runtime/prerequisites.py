"""What jobs wait for of other jobs: a fold over facts that knows which dependencies are met, open, or lost for good.

An end changes the answer of few dependencies: those on the job itself, and those on its array when its first job fails
or its last one ends. So the cost of an end does not grow with the number of jobs that have dependencies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gavel.client.dependencies import Dependency, is_array_id
from gavel.core.jobs import Cause

Value = TypeVar("Value")
DEPENDENCY = "dependency"
"""The code of the cause for which a job waits for others."""
NEVER = "never"
"""The code of the cause for which a job can never start."""
MOST_NAMED = 3
"""Most jobs that a sentence names for each condition."""


@dataclass(frozen=True, slots=True)
class Ends:
    """How the jobs that a reference stands for have ended: one job, or an array."""

    unfinished: int = 0
    completed: int = 0
    failed: int = 0
    """Failed or cancelled."""
    first: str = ""
    """The first that failed or was cancelled."""
    how: str = ""
    """Its outcome."""

    def ended(self, job: str, outcome: str) -> Ends:
        """The same, once one more of the jobs has ended."""
        left = max(self.unfinished - 1, 0)
        if outcome == "completed":
            return replace(self, unfinished=left, completed=self.completed + 1)
        first, how = (self.first, self.how) if self.first else (job, outcome)
        return replace(self, unfinished=left, failed=self.failed + 1, first=first, how=how)

    def meets(self, condition: str) -> bool | None:
        """Whether a condition is met: for good, never, or None as long as that is open.

        >>> Ends(unfinished=1).meets("ok"), Ends(unfinished=1, failed=1).meets("ok"), Ends(completed=2).meets("failed")
        (None, False, False)
        """
        if condition == "ok" and self.failed:
            return False
        if self.unfinished:
            return None
        return not self.failed if condition == "ok" else condition == "any" or bool(self.failed)


OUTCOMES = {"completed": "has completed", "failed": "has failed", "cancelled": "was cancelled"}
_UNTIL = {"ok": ("has completed", "have completed"), "any": ("has ended", "have ended")}
_FAILED = ("has failed or was cancelled", "have failed or were cancelled")


def waits_until(dependencies: Iterable[Dependency]) -> str:
    """What is waited for, as a clause.

    >>> waits_until([Dependency("38"), Dependency("39"), Dependency("a40", "any")])
    'waits until jobs 38 and 39 have completed, and array a40 has ended'
    """
    groups: dict[tuple[str, bool], list[str]] = {}
    for each in dependencies:
        groups.setdefault((each.condition, is_array_id(each.reference)), []).append(each.reference)
    clauses = []
    for (condition, arrays), references in groups.items():
        one, many = _UNTIL.get(condition, _FAILED)
        what = "array" if arrays else "job"
        clauses.append(f"{_named(what, references)} {one if len(references) == 1 else many}")
    return f"waits until {', and '.join(clauses)}"


def _named(what: str, references: Sequence[str]) -> str:
    if len(references) == 1:
        return f"{what} {references[0]}"
    if len(references) > MOST_NAMED + 1:
        more = len(references) - MOST_NAMED
        return f"{what}s {', '.join(references[:MOST_NAMED])} and {more:,} others"
    return f"{what}s {', '.join(references[:-1])} and {references[-1]}"


def lost(dependency: Dependency, ends: Ends) -> str:
    """Why a dependency can never be met, as a sentence without its end."""
    what = f"array {dependency.reference}" if is_array_id(dependency.reference) else f"job {dependency.reference}"
    if dependency.condition == "failed":
        how = f"{what} has completed"
    elif ends.first != dependency.reference:
        how = f"job {ends.first} of {what} {OUTCOMES[ends.how]}"
    else:
        how = f"{what} {OUTCOMES[ends.how]}"
    return f"{how}, and it {waits_until([dependency])}"


class Prerequisites:
    """The dependencies of unfinished jobs, and how the jobs of unfinished arrays have ended."""

    def __init__(self) -> None:
        self._array_of: dict[str, str] = {}
        """By unfinished job: its array, or empty."""
        self._arrays: dict[str, Ends] = {}
        """Arrays with unfinished jobs."""
        self._open: dict[str, dict[Dependency, None]] = {}
        """By job: dependencies that are not met, in order. A job without any is not here."""
        self._lost: dict[str, str] = {}
        """By job: why one of its dependencies can never be met."""
        self._dependents: dict[str, dict[str, None]] = {}
        """By reference: the jobs with an open dependency on it."""

    # ---- what is known ----

    def ends_of(self, reference: str) -> Ends | None:
        """How the jobs of a reference have ended; None if all of them have, or it never existed."""
        if reference in self._array_of:
            return Ends(unfinished=1)
        return self._arrays.get(reference)

    def open_of(self, job: str) -> Sequence[Dependency]:
        """What a job waits for."""
        return tuple(self._open.get(job, ()))

    def reason(self, job: str) -> Cause | None:
        """Why a job may not start because of others; None if they do not keep it."""
        if job in self._lost:
            remedy = f"cancel it, or name other jobs with `gavel edit {job} --after`"
            return Cause(NEVER, f"it can never start: {self._lost[job]}; {remedy}")
        return Cause(DEPENDENCY, waits_until(self._open[job])) if job in self._open else None

    def path(self, job: str, dependencies: Iterable[Dependency]) -> list[str] | None:
        """How a job would come to wait for itself with other dependencies: the jobs on the way; None if it would not.

        An array waits for all that one of its unfinished jobs waits for.
        """
        own = {job, self._array_of.get(job, "")} - {""}
        came: dict[str, str] = {}
        stack = [(each.reference, job) for each in dependencies]
        members = self._members()
        while stack:
            reference, before = stack.pop()
            if reference in came:
                continue
            came[reference] = before
            if reference in own:
                return _way(came, reference, job)
            for member in members.get(reference, (reference,)):
                stack += [(each.reference, reference) for each in self._open.get(member, ())]
        return None

    def _members(self) -> Mapping[str, Sequence[str]]:
        """By array: its jobs that have open dependencies."""
        members: dict[str, list[str]] = {}
        for job in self._open:
            if array := self._array_of[job]:
                members.setdefault(array, []).append(job)
        return members

    # ---- evolve ----

    def added(self, job: str, array: str, after: Iterable[str], met: Iterable[str]) -> None:
        """A job was submitted; `met` are those of its dependencies that are met already."""
        self._array_of[job] = array
        if array:
            known = self._arrays.get(array, Ends())
            self._arrays[array] = Ends(known.unfinished + 1, known.completed, known.failed, known.first, known.how)
        self.wait_for(job, after, met)

    def wait_for(self, job: str, after: Iterable[str], met: Iterable[str]) -> None:
        """A job waits for these from now on."""
        self._forget(job)
        done = set(met)
        for text in after:
            if text not in done:
                dependency = Dependency.of(text)
                self._open.setdefault(job, {})[dependency] = None
                self._dependents.setdefault(dependency.reference, {})[job] = None

    def ended(self, job: str, outcome: str) -> Iterator[str]:
        """A job has ended: those that it kept from starting, or can never start now."""
        self._forget(job)
        array = self._array_of.pop(job, "")
        if array:
            before = self._arrays[array]
            after = self._arrays[array] = before.ended(job, outcome)
            if not after.unfinished:
                del self._arrays[array]
            if not after.unfinished or (after.failed and not before.failed):
                yield from self._answered(array, after)
        yield from self._answered(job, Ends(unfinished=1).ended(job, outcome))

    def _answered(self, reference: str, ends: Ends) -> Iterator[str]:
        """Settle the dependencies on a reference that has got an answer."""
        for job in list(self._dependents.get(reference, ())):
            for dependency in [each for each in self._open[job] if each.reference == reference]:
                met = ends.meets(dependency.condition)
                if met is None:
                    continue
                if met:
                    self._meet(job, dependency)
                else:
                    self._lost.setdefault(job, lost(dependency, ends))
                if job in self._lost or job not in self._open:
                    yield job

    def _meet(self, job: str, dependency: Dependency) -> None:
        left = self._open[job]
        del left[dependency]
        if all(each.reference != dependency.reference for each in left):
            self._unlink(job, dependency.reference)
        if not left:
            del self._open[job]

    def _forget(self, job: str) -> None:
        self._lost.pop(job, None)
        for dependency in self._open.pop(job, {}):
            self._unlink(job, dependency.reference)

    def _unlink(self, job: str, reference: str) -> None:
        dependents = self._dependents.get(reference, {})
        dependents.pop(job, None)
        if not dependents:
            self._dependents.pop(reference, None)

    # ---- as a document ----

    def document(self) -> dict[str, Any]:
        """Everything that unfinished jobs do not tell."""
        return {
            "open": {job: [str(each) for each in waits] for job, waits in _ordered(self._open)},
            "lost": dict(_ordered(self._lost)),
            "arrays": {
                array: [ends.completed, ends.failed, ends.first, ends.how]
                for array, ends in sorted(self._arrays.items())
                if ends.completed or ends.failed
            },
        }

    @classmethod
    def of(cls, document: Mapping[str, Any], unfinished: Iterable[tuple[str, str]]) -> Prerequisites:
        """The dependencies in a document, given unfinished jobs with their arrays."""
        made = cls()
        for array, (completed, failed, first, how) in document.get("arrays", {}).items():
            made._arrays[array] = Ends(0, completed, failed, first, how)
        waits = document.get("open", {})
        for job, array in unfinished:
            made.added(job, array, waits.get(job, ()), ())
        made._lost.update(document.get("lost", {}))
        return made


def _ordered(by_job: Mapping[str, Value]) -> list[tuple[str, Value]]:
    return sorted(by_job.items(), key=lambda each: int(each[0]))


def _way(came: Mapping[str, str], last: str, job: str) -> list[str]:
    """The references on the way back to a job, in order."""
    way = [last]
    while came[way[-1]] != job:
        way.append(came[way[-1]])
    return [job, *reversed(way)]
