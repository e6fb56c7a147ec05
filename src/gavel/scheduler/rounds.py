"""The vocabulary of one round: jobs by slot, runs, and what a mechanism is asked and answers."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.problem import Floats, Ints, Problem

Members = tuple[int, ...]
"""The slots of the one or two jobs of a combo."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A combo on a type: what occupies accelerators. A run that goes on is the same object from round to round."""

    members: Members
    type_index: int
    workers: int


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What a mechanism needs to know to plan a round."""

    capacity: Sequence[int]
    """Accelerators by type."""
    running: Sequence[Run]
    """What ran in the last round and may go on."""
    waiting: Ints
    """Slots of the active jobs that do not run."""
    workers: Ints
    """By slot."""
    rates: Floats
    """By slot and type: steps per second alone, 0 where a job cannot run."""
    started: Ints
    """By slot: 1 once a job has ever run."""
    steps: Floats
    """By slot: steps left; NaN if nobody knows."""
    round_seconds: float

    def rounds_left(self, kind: int) -> Floats:
        """By slot: in how many rounds alone on this type a job would be done; NaN if nobody knows."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.steps / (self.rates[:, kind] * self.round_seconds)


class Mechanism(Protocol):
    """Realises allocations round by round."""

    def adopt(self, allocation: Allocation, slots: Ints) -> None:
        """Take up a new allocation; `slots` are those of the problem's jobs, in order."""

    def plan(self, question: Question) -> list[Run]:
        """Everything that runs in the next round; runs that go on are the same objects as in the question."""

    def leave(self, slot: int) -> None:
        """Forget a job that is done; its slot will be used again."""

    def dump(self, numbers: RunNumbers) -> dict[str, Any]:
        """Everything that later plans depend on, as plain data; runs by number."""

    def restore(self, document: Any, runs: Sequence[Run]) -> None:
        """Take up what another one of the same kind and settings wrote down."""


class RunNumbers:
    """Numbers for runs in a dump, in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._numbers: dict[Run, int] = {}

    def of(self, run: Run) -> int:
        return self._numbers.setdefault(run, len(self._numbers))

    def all(self) -> list[Run]:
        """Every run that has a number, by number."""
        return list(self._numbers)


def prices(problem: Problem) -> Floats:
    """By type; types without a price are free."""
    return np.array([kind.price or 0.0 for kind in problem.types])


def offers(
    question: Question, free: Sequence[int], taken: Container[int], prices: Floats | None = None
) -> list[tuple[int, int]]:
    """Jobs that do not run and could use an idle accelerator, as (slot, type), whoever runs best there first.

    Where prices are given, nobody is offered a type on which a step costs it more than on another.
    """
    open_types = [kind for kind, count in enumerate(free) if count > 0]
    idle_jobs = [slot for run in question.running for slot in run.members] + question.waiting.tolist()
    slots = np.array([slot for slot in idle_jobs if slot not in taken], dtype=np.intp)
    if not open_types or not len(slots):
        return []
    rates = question.rates[slots]
    relative = rates / np.maximum(rates.max(axis=1, keepdims=True), 1e-300)
    fitting = question.workers[slots][:, None] <= np.asarray(free)
    fitting &= (relative > 0) & (np.asarray(free) > 0)
    if prices is not None:
        cost = np.where(relative > 0, prices[: rates.shape[1]] / np.maximum(rates, 1e-300), np.inf)
        fitting &= cost <= cost.min(axis=1, keepdims=True) * (1 + 1e-9)
    job, kind = np.nonzero(fitting)
    order = np.lexsort((slots[job], -relative[job, kind]))
    return [(int(slots[job[at]]), int(kind[at])) for at in order]
