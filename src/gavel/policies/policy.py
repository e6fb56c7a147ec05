"""What a policy is: a function from a Problem to an Allocation, and what others must know of it."""

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
"""What must be known of every job (or every job with a deadline) or type, or hold for every job."""


@dataclass(frozen=True, slots=True)
class Options:
    """What some policies let one choose."""

    normalised: bool = False
    """Add up normalised throughputs instead of steps per second (max_throughput, min_cost, min_cost_slo)."""
    seed: int = 0
    """Of the random packing (gandiva)."""
    bounded: bool = True
    """Whether baselines shall find out how much better one could do, which takes longer than they do."""


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
    """How to judge any allocation by this policy's objective; None for a plan that an allocation does not show."""
    baseline: bool = False
    adds_up: bool = False
    """Whether it adds up throughputs of different jobs, which `normalised` makes comparable."""
    knows_speeds: bool = True
    """Whether it looks at how fast a job runs on each type; if not, the mechanism should not prefer a type either."""
    deadline_bound: bool = False
    """Whether it keeps deadlines and gives no more than they ask for: patience would miss them, priorities do not."""
    claim: Callable[[Program, Options, Collection[str]], Claim] | None = None
    """What its stages prove, by class of a program, given the jobs whose deadlines are given up; None: nothing."""
    shares: bool = True
    """Whether it looks at pairs of jobs that may share accelerators."""
    user_defined: bool = False
    """Whether it is none of ours."""

    @property
    def price_aware(self) -> bool:
        """Whether it looks at prices; if so, the mechanism does not waste idle accelerators on dear steps."""
        return "price" in self.needs
