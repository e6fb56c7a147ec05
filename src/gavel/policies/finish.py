"""How egalitarian policies end: hold the level, give away what is left, and state what was achieved."""

from __future__ import annotations

from dataclasses import replace

from gavel.core.allocation import Allocation, Certificate
from gavel.core.errors import SolverError
from gavel.core.problem import Floats
from gavel.policies.scores import Score
from gavel.program.program import Level, Program

WRONG_SIDE = 1e-5
"""An objective that passes its bound by more than this, relatively, is not rounding but a mistake of ours."""


def hold_and_fill(
    program: Program,
    level: Level,
    *,
    policy: str,
    score: Score,
    bound: float,
    prices: Floats,
    minimised: bool = False,
) -> Allocation:
    """Hold every class at the level, and maximise total normalised throughput with the rest.

    The optimum of a max-min problem is hugely degenerate: a vertex of it leaves accelerators idle. With this second
    program nobody can gain without another losing.
    """
    filled = program.maximise(program.normalised_gain, floors=level.needed, start=level.start)
    return certified(program, filled.amounts, policy, score, bound=bound, prices=prices, minimised=minimised)


def certified(
    program: Program,
    amounts: Floats,
    policy: str,
    score: Score,
    *,
    bound: float,
    prices: Floats,
    minimised: bool = False,
    unmet: tuple[str, ...] = (),
) -> Allocation:
    """The allocation of these amounts, with the score as its objective."""
    by_type = {t.name: price for t, price in zip(program.problem.types, prices.tolist(), strict=True)}
    unscored = Certificate(bound, bound, by_type, minimised, unmet)
    return scored(program.allocation(policy, amounts, unscored), score)


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
    # A bound that rounding puts on the wrong side of what was achieved says: optimal.
    bound = min(certificate.bound, objective) if certificate.minimised else max(certificate.bound, objective)
    return allocation.with_certificate(replace(certificate, objective=objective, bound=bound))
