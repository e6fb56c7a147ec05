"""What a policy is: a function from a Problem to an Allocation, and its properties."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from gavel.core.allocation import Allocation
from gavel.core.problem import Problem
from gavel.policies.claims import Claim
from gavel.policies.scores import Score
from gavel.program.program import Program

Need = Literal["steps", "steps_of_dated", "price", "single_worker"]
"""What a policy requires of every job, of every job with a deadline, or of every type."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of some policies."""

    normalised: bool = False
    """Add up normalised throughputs instead of steps per second (max_throughput, min_cost, min_cost_slo)."""
    seed: int = 0
    """The seed of the random packing (gandiva)."""
    bounded: bool = True
    """Whether baselines also compute the bound, which takes longer than the baseline itself."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy as the command line and the scheduler know it."""

    name: str
    summary: str
    objective: str
    solve: Callable[[Problem, Options], Allocation]
    minimised: bool = False
    needs: frozenset[Need] = frozenset()
    score: Callable[[Options], Score] | None = None
    """Evaluates this policy's objective for any allocation; None if the objective does not follow from one."""
    baseline: bool = False
    adds_up: bool = False
    """Whether it adds up throughputs of different jobs, which `normalised` makes comparable."""
    knows_speeds: bool = True
    """Whether it considers a job's rate on each type; if not, the mechanism must not prefer a type either."""
    deadline_bound: bool = False
    """Whether it gives jobs only what their deadlines need: credits with their patience would miss these deadlines."""
    claim: Callable[[Program, Options, Collection[str]], Claim] | None = None
    """The claim that its stages prove, given a program and the jobs whose deadlines are given up; None: nothing."""
    shares: bool = True
    """Whether it considers pairs of jobs that may share accelerators."""
    user_defined: bool = False
    """Whether it is user-defined and not built in."""

    @property
    def price_aware(self) -> bool:
        """Whether it considers prices; if so, the mechanism does not use idle accelerators for expensive steps."""
        return "price" in self.needs
