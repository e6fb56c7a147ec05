"""Limits of users and teams: how many jobs they may have and submit, and how many accelerators their jobs may use.

A fold over facts, like everything that decisions depend on: which jobs count, which of them are admitted to
scheduling, and what was submitted in the last minute. What is used is counted as jobs come and go, so no question looks
at all jobs. It decides which jobs could be admitted or held; recording that is left to the caller. A job that waits for
another reason is set aside: it counts as unfinished, but neither uses nor reserves accelerators.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gavel.client.requests import Submission
from gavel.core.errors import InputError
from gavel.core.jobs import Cause
from gavel.core.serialization import from_plain, plain_record

WINDOW_SECONDS = 60
CODE = "over_limit"
"""The code of the cause for which a job waits."""


class OverLimitError(InputError):
    """A submission beyond a limit; nothing of it was accepted."""


class Kind(StrEnum):
    """Whose limits they are."""

    USER = "user"
    TEAM = "team"
    DEFAULT = "default"
    """Of every user; a limit of the user's own replaces it."""


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """A user, a team with everything below it, or every user."""

    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        return {Kind.USER: self.name, Kind.TEAM: f"team {self.name}"}.get(self.kind, "every user")


EVERYBODY = Subject(Kind.DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a user or a team may have; 0: no such limit."""

    unfinished_jobs: int = 0
    running_accelerators: int = 0
    submissions_per_minute: float = 0.0
    """Jobs submitted in a minute, each copy counted."""

    def or_else(self, other: Limits) -> Limits:
        """With the other's limits where it has none."""
        return Limits(
            unfinished_jobs=self.unfinished_jobs or other.unfinished_jobs,
            running_accelerators=self.running_accelerators or other.running_accelerators,
            submissions_per_minute=self.submissions_per_minute or other.submissions_per_minute,
        )

    def within(self, other: Limits) -> bool:
        """Whether no limit is above the other's; no limit is above any.

        >>> Limits(unfinished_jobs=5).within(Limits(unfinished_jobs=5)), Limits().within(Limits(unfinished_jobs=5))
        (True, False)
        """
        pairs = (
            (self.unfinished_jobs, other.unfinished_jobs),
            (self.running_accelerators, other.running_accelerators),
            (self.submissions_per_minute, other.submissions_per_minute),
        )
        return all(not most or 0 < limit <= most for limit, most in pairs)

    def check(self) -> None:
        """Raise InputError for a limit that is not a number from 0."""
        for name, value in plain_record(self).items():
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise InputError(f"{name} is {value}; it must be 0 (no limit of its own) or more")
        if 0 < self.submissions_per_minute < 1:
            raise InputError(f"submissions_per_minute is {self.submissions_per_minute:g}; it must be 0 or at least 1")


NO_LIMITS = Limits()


def subjects_of(user: str, team: str | None) -> tuple[Subject, ...]:
    """Whose limits apply to a job: its user's, its team's, and those of the teams above.

    >>> [str(subject) for subject in subjects_of("ann", "research/nlp")]
    ['ann', 'team research', 'team research/nlp']
    """
    own = (Subject(Kind.USER, user),) if user else ()
    parts = team.split("/") if team else []
    return (*own, *(Subject(Kind.TEAM, "/".join(parts[: depth + 1])) for depth in range(len(parts))))


# ---- sentences; None: within the limit ----


def over_unfinished(who: Subject, limit: int, used: int, more: int) -> str | None:
    """Why this many more jobs are too many."""
    if not limit or used + more <= limit:
        return None
    return (
        f"{who} may have {_count(limit, 'unfinished job')}, has {used:,}, and submits {more:,} more; "
        "wait until some have finished, cancel some, or ask an operator for a higher limit"
    )


def over_rate(who: Subject, limit: float, used: int, more: int) -> str | None:
    """Why this many jobs are too many for one minute."""
    if not limit or used + more <= limit:
        return None
    rate = f"{who} may submit {limit:g} jobs a minute"
    if more > limit:
        return f"{rate}, and submits {more:,} at once; submit fewer at a time, or ask an operator for a higher limit"
    return f"{rate}, has submitted {used:,}, and submits {more:,} more; wait a minute, or ask for a higher limit"


def over_size(who: Subject, limit: int, workers: int) -> str | None:
    """Why a job can never run under a limit of accelerators."""
    if not limit or workers <= limit:
        return None
    return (
        f"a job needs {_count(workers, 'accelerator')}, but {who} may run {limit:,} at a time; "
        "give it fewer workers, or ask an operator for a higher limit"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# ---- jobs and what they use ----

Group = tuple[str, str]
"""User and team: jobs of a group have the same limits."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """What an unfinished job counts as."""

    job: str
    """Its id; jobs are admitted in the order of their numbers."""
    group: Group
    workers: int


@dataclass(slots=True)
class _Use:
    """What a subject uses."""

    unfinished: int = 0
    accelerators: int = 0
    """Of admitted jobs."""
    recent: Counter[int] = field(default_factory=Counter)
    """By second: jobs submitted."""

    @property
    def nothing(self) -> bool:
        return not self.unfinished and not self.recent


class Quotas:
    """Limits in force, what is used, and which jobs wait because of them."""

    def __init__(self) -> None:
        self.limits: dict[Subject, Limits] = {}
        """Without those that limit nothing."""
        self.due = False
        """Whether something changed that may admit a job."""
        self._claims: dict[str, _Claim] = {}
        self._waiting: dict[Group, dict[str, None]] = {}
        """By group, in order of submission: jobs that are not admitted. Jobs in neither mapping are set aside."""
        self._admitted: dict[Group, dict[str, None]] = {}
        self._uses: dict[Subject, _Use] = {}
        self._subjects: dict[Group, tuple[Subject, ...]] = {}
        self._caps: dict[Group, Mapping[Subject, int]] = {}
        """The limits of accelerators of groups, while no limit changes."""
        self._second = 0
        """When old submissions were last forgotten."""

    # ---- what is known ----

    def limits_of(self, subject: Subject) -> Limits:
        """The limits that apply: a user's own, else the default of every user."""
        own = self.limits.get(subject, NO_LIMITS)
        return own.or_else(self.limits.get(EVERYBODY, NO_LIMITS)) if subject.kind is Kind.USER else own

    def used_by(self, subject: Subject, time: float) -> Limits:
        """What a subject uses now."""
        use = self._uses.get(subject, _NO_USE)
        return Limits(
            unfinished_jobs=use.unfinished,
            running_accelerators=use.accelerators,
            submissions_per_minute=float(_recent(use, time)),
        )

    def subjects(self) -> list[Subject]:
        """Everything with limits or use, in order."""
        return sorted({*self.limits, *(subject for subject, use in self._uses.items() if use.unfinished)})

    def waits(self, job: str) -> bool:
        """Whether a job is not admitted."""
        claim = self._claims.get(job)
        return claim is not None and job in self._waiting.get(claim.group, ())

    def reason(self, job: str) -> Cause:
        """Why a job is not admitted, as of now."""
        return self._why(self._claims[job], {})

    def _why(self, claim: _Claim, taken: Mapping[Subject, int]) -> Cause:
        """Why a job is not admitted, if these accelerators are taken as well."""
        limited = self._limited(claim.group)
        full = [who for who, limit in limited.items() if self._use(who, taken) + claim.workers > limit]
        if not limited:
            return Cause(CODE, "its limits have just been raised")
        who = (full or list(limited))[0]
        limit = limited[who]
        if (told := over_size(who, limit, claim.workers)) is not None:
            return Cause(CODE, told)
        uses = self._use(who, taken)
        order = "" if full else "; earlier jobs come first"
        return Cause(CODE, f"{who} may run {_count(limit, 'accelerator')} at a time, and uses {uses:,}{order}")

    # ---- decide ----

    def check(self, requests: Sequence[Submission], time: float) -> None:
        """Raise OverLimitError unless all of these jobs may be submitted."""
        more: Counter[Subject] = Counter()
        for (user, team), count in Counter((job.user, job.entity) for job in requests).items():
            for subject in subjects_of(user, team):
                more[subject] += count
        for subject, count in more.items():
            limits, use = self.limits_of(subject), self._uses.get(subject, _NO_USE)
            told = over_unfinished(subject, limits.unfinished_jobs, use.unfinished, count)
            told = told or over_rate(subject, limits.submissions_per_minute, _recent(use, time), count)
            if told:
                raise OverLimitError(told)
        self._check_sizes(requests)

    def _check_sizes(self, requests: Iterable[Submission]) -> None:
        for user, team, workers in {(job.user, job.entity, job.workers) for job in requests}:
            for subject in subjects_of(user, team):
                limit = self.limits_of(subject).running_accelerators
                if (told := over_size(subject, limit, workers)) is not None:
                    raise OverLimitError(told)

    def must_wait(self, jobs: Sequence[tuple[str, Submission]]) -> dict[str, Cause]:
        """Of new jobs, those that are not admitted yet, and why."""
        if not any(limits.running_accelerators for limits in self.limits.values()):
            return {}
        claims = [_Claim(job, _group(request), request.workers) for job, request in jobs]
        admitted = set(self._pass(claims))
        taken: Counter[Subject] = Counter()
        for claim in claims:
            if claim.job in admitted:
                taken.update(dict.fromkeys(self._of(claim.group), claim.workers))
        return {claim.job: self._why(claim, taken) for claim in claims if claim.job not in admitted}

    def admissible(self, newcomers: Iterable[str] = ()) -> tuple[str, ...]:
        """Jobs that can be admitted now, in order of submission: those that wait, and newcomers that were set aside."""
        claims = sorted((self._claims[job] for job in newcomers), key=_number)
        return tuple(self._pass(claims)) if self._waiting or claims else ()

    def refusals(self, newcomers: Iterable[str], admitted: Iterable[str]) -> dict[str, Cause]:
        """Why newcomers are not admitted, once those others are."""
        claims = [self._claims[job] for job in newcomers]
        if not claims:
            return {}
        taken: Counter[Subject] = Counter()
        for claim in map(self._claims.__getitem__, admitted):
            for who in self._of(claim.group):
                taken[who] += claim.workers
        return {claim.job: self._why(claim, taken) for claim in claims}

    def excess(self, runs: Callable[[str], bool]) -> tuple[tuple[str, ...], Cause] | None:
        """Jobs to hold because a limit was lowered: admitted ones that do not run, the latest first; and why."""
        for subject, use in self._uses.items():
            limit = self.limits_of(subject).running_accelerators
            if limit and use.accelerators > limit and (jobs := self._latest(subject, use.accelerators - limit, runs)):
                told = f"{subject} may run {_count(limit, 'accelerator')} at a time, and uses {use.accelerators:,}"
                return jobs, Cause(CODE, told)
        return None

    def _latest(self, subject: Subject, excess: int, runs: Callable[[str], bool]) -> tuple[str, ...]:
        """Admitted jobs of a subject that do not run, from the latest, until they make up for the excess."""
        groups = [group for group in self._admitted if subject in self._of(group)]
        found: list[str] = []
        for job in sorted((job for group in groups for job in self._admitted[group]), key=int, reverse=True):
            if excess <= 0:
                break
            if not runs(job):
                found.append(job)
                excess -= self._claims[job].workers
        return tuple(found)

    def _pass(self, newcomers: Iterable[_Claim]) -> Iterator[str]:
        """The jobs to admit, waiting ones and newcomers, in order of submission.

        A job that does not fit blocks the limits that it exceeds for all later jobs, and reserves its accelerators
        under its other limits. So later jobs never take what it needs, it fits once earlier jobs have ended, and no
        job waits forever. A job that is larger than a limit blocks and reserves nothing: it waits for a higher limit.
        """
        taken: Counter[Subject] = Counter()
        blocked: set[Subject] = set()
        queues = self._queues(newcomers)
        heads = [(int(claim.job), claim, rest) for rest in queues for claim in [next(rest)]]
        heapq.heapify(heads)
        while heads:
            _, claim, rest = heapq.heappop(heads)
            limited = self._limited(claim.group)
            if blocked and not blocked.isdisjoint(limited):
                continue  # and so is the rest of its group
            if not limited or claim.workers <= min(limited.values()):
                full = [who for who, limit in limited.items() if self._use(who, taken) + claim.workers > limit]
                blocked.update(full)
                for who in limited:
                    taken[who] += claim.workers
                if full:
                    continue
                yield claim.job
            following = next(rest, None)
            if following is not None:
                heapq.heappush(heads, (int(following.job), following, rest))

    def _queues(self, newcomers: Iterable[_Claim]) -> list[Iterator[_Claim]]:
        """By group: the jobs that wait and the newcomers, in order of submission."""
        fresh: dict[Group, list[_Claim]] = {}
        for claim in newcomers:
            fresh.setdefault(claim.group, []).append(claim)
        return [
            heapq.merge(map(self._claims.__getitem__, self._waiting.get(group, ())), fresh.get(group, ()), key=_number)
            for group in {**self._waiting, **fresh}
        ]

    def _limited(self, group: Group) -> Mapping[Subject, int]:
        """The limits of accelerators that apply to a group."""
        known = self._caps.get(group)
        if known is None:
            limits = {subject: self.limits_of(subject).running_accelerators for subject in self._of(group)}
            known = self._caps[group] = {subject: limit for subject, limit in limits.items() if limit}
        return known

    def _use(self, who: Subject, taken: Mapping[Subject, int]) -> int:
        """The accelerators that a subject uses, with those that are taken in the present pass."""
        return self._uses.get(who, _NO_USE).accelerators + taken.get(who, 0)

    def _of(self, group: Group) -> tuple[Subject, ...]:
        known = self._subjects.get(group)
        if known is None:
            known = self._subjects[group] = subjects_of(*group)
        return known

    # ---- evolve ----

    def change(self, subject: Subject, limits: Limits) -> None:
        """Limits of a subject are in force."""
        if limits == NO_LIMITS:
            self.limits.pop(subject, None)
        else:
            self.limits[subject] = limits
        self._caps.clear()
        self.due = True

    def queued(self, job: str, request: Submission, time: float, *, held: bool, aside: bool = False) -> None:
        """A job was submitted; `held`: because of a limit, `aside`: it waits for another reason."""
        self._forget(int(time))
        self._add(job, request, held=held, aside=aside)
        for subject in self._of(_group(request)):
            self._uses[subject].recent[int(time)] += 1

    def _add(self, job: str, request: Submission, *, held: bool, aside: bool) -> None:
        claim = self._claims[job] = _Claim(job, _group(request), request.workers)
        for subject in self._of(claim.group):
            self._uses.setdefault(subject, _Use()).unfinished += 1
        if not aside:
            self._place(job, claim, held=held)

    def _place(self, job: str, claim: _Claim, *, held: bool) -> None:
        """Put a job with those that wait, or those that are admitted."""
        queues = self._waiting if held else self._admitted
        queues.setdefault(claim.group, {})[job] = None
        for subject in self._of(claim.group):
            self._uses[subject].accelerators += 0 if held else claim.workers

    def _take(self, job: str, claim: _Claim) -> None:
        """Take a job out of those that wait, or those that are admitted, unless it is set aside."""
        held = self.waits(job)
        queues = self._waiting if held else self._admitted
        if job not in queues.get(claim.group, ()):
            return
        del queues[claim.group][job]
        if not queues[claim.group]:
            del queues[claim.group]
        for subject in self._of(claim.group):
            self._uses[subject].accelerators -= 0 if held else claim.workers
        self.due = True

    def held(self, jobs: Iterable[str]) -> None:
        """Jobs wait because of a limit."""
        unordered: set[Group] = set()
        for job in jobs:
            claim = self._claims[job]
            self._take(job, claim)
            last = next(reversed(self._waiting.get(claim.group, {})), None)
            self._place(job, claim, held=True)
            if last is not None and int(last) > int(job):
                unordered.add(claim.group)
        for group in unordered:
            self._waiting[group] = dict.fromkeys(sorted(self._waiting[group], key=int))

    def set_aside(self, jobs: Iterable[str]) -> None:
        """Jobs wait for another reason."""
        for job in jobs:
            self._take(job, self._claims[job])

    def released(self, jobs: Iterable[str]) -> None:
        """Jobs are admitted."""
        for job in jobs:
            claim = self._claims.get(job)
            if claim is not None and job not in self._admitted.get(claim.group, ()):
                self._take(job, claim)
                self._place(job, claim, held=False)

    def ended(self, job: str) -> None:
        """A job has finished."""
        claim = self._claims.get(job)
        if claim is None:
            return
        self._take(job, claim)
        del self._claims[job]
        for subject in self._of(claim.group):
            use = self._uses[subject]
            use.unfinished -= 1
            if use.nothing:
                del self._uses[subject]
        if claim.group not in self._waiting and claim.group not in self._admitted:
            self._subjects.pop(claim.group, None)
            self._caps.pop(claim.group, None)

    def _forget(self, second: int) -> None:
        """Forget submissions that are older than the window, at most once a second."""
        if second == self._second:
            return
        self._second = second
        for subject, use in list(self._uses.items()):
            use.recent = Counter({at: count for at, count in use.recent.items() if at >= second - WINDOW_SECONDS})
            if use.nothing:
                del self._uses[subject]

    # ---- as a document ----

    def document(self) -> dict[str, Any]:
        """Everything that unfinished jobs do not tell."""
        return {
            "limits": [[who.kind.value, who.name, plain_record(limits)] for who, limits in sorted(self.limits.items())],
            "waiting": sorted((job for jobs in self._waiting.values() for job in jobs), key=int),
            "recent": [
                [who.kind.value, who.name, [[at, count] for at, count in sorted(use.recent.items())]]
                for who, use in sorted(self._uses.items(), key=lambda each: each[0])
                if use.recent
            ],
            "second": self._second,
        }

    @classmethod
    def of(
        cls, document: Mapping[str, Any], unfinished: Iterable[tuple[str, Submission]], aside: Container[str] = ()
    ) -> Quotas:
        """The quotas in a document, with the jobs that have not finished and those of them that are set aside."""
        quotas = cls()
        quotas.due = True
        for kind, name, limits in document.get("limits", ()):
            quotas.limits[Subject(Kind(kind), name)] = from_plain(Limits, limits)
        waiting = set(document.get("waiting", ()))
        for job, request in sorted(unfinished, key=lambda each: int(each[0])):
            quotas._add(job, request, held=job in waiting, aside=job in aside)
        for kind, name, recent in document.get("recent", ()):
            use = quotas._uses.setdefault(Subject(Kind(kind), name), _Use())
            use.recent = Counter({int(at): int(count) for at, count in recent})
        quotas._second = document.get("second", 0)
        return quotas


_NO_USE = _Use()


def _group(request: Submission) -> Group:
    return request.user, request.entity or ""


def _number(claim: _Claim) -> int:
    """Where a job stands in the order of submission."""
    return int(claim.job)


def _recent(use: _Use, time: float) -> int:
    """Jobs submitted in the last minute; whole seconds count, so it may include one more second."""
    first = int(time) - WINDOW_SECONDS
    return sum(count for at, count in use.recent.items() if at >= first)
