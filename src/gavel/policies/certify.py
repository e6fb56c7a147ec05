"""The last step of every policy: score the allocation, and check that its objective does not exceed the bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gavel.core.allocation import Allocation, Certificate, Stage
from gavel.core.errors import SolverError
from gavel.core.problem import Floats
from gavel.policies.scores import Score
from gavel.program.program import Program
from gavel.program.proof import FeasiblePoint

WRONG_SIDE = 1e-5
"""An objective that exceeds its bound by more than this, relatively, is a bug and not rounding."""


def certified(
    program: Program,
    point: FeasiblePoint,
    policy: str,
    score: Score,
    *,
    bound: float,
    prices: Floats,
    minimised: bool = False,
    unmet: tuple[str, ...] = (),
    stages: Sequence[Stage] = (),
) -> Allocation:
    """The allocation of a point, with the score as its objective."""
    by_type = {t.name: price for t, price in zip(program.problem.types, prices.tolist(), strict=True)}
    unscored = Certificate(bound, bound, by_type, minimised, unmet, stages=stages)
    return scored(program.allocation(policy, point, unscored), score)


def scored(allocation: Allocation, score: Score) -> Allocation:
    """The allocation with the score as its objective."""
    certificate = allocation.certificate
    objective = score(allocation)
    passed = certificate.bound - objective if certificate.minimised else objective - certificate.bound
    if passed > WRONG_SIDE * max(abs(objective), abs(certificate.bound)):
        raise SolverError(
            f"{allocation.policy}: the objective {objective:.9g} is better than its bound {certificate.bound:.9g} "
            "allows; please report the problem file"
        )
    # If rounding puts the bound on the wrong side of the objective, the allocation is optimal.
    bound = min(certificate.bound, objective) if certificate.minimised else max(certificate.bound, objective)
    return allocation.with_certificate(replace(certificate, objective=objective, bound=bound))
