"""Choose a solver, check its answer, and try another solver if the check fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gavel.core.errors import SolverError
from gavel.program import deadline, highs, interior, one_type, shortlist
from gavel.program.lp import Bound, Lp, LpSolution, SolverFailed

TOLERANCE = 1e-6
"""Largest accepted relative gap between an answer and its bound."""
ROUNDING = 1e-10
"""Costs are scaled to at most 1, so a gap below this is rounding, even if the value itself is 0."""
LEVEL_ROUNDING = 1e-12
"""The same for a level, whose value may be small and still matter."""
ROW_TOLERANCE = 1e-6
"""Largest accepted violation of a (scaled) row; the answer is made feasible afterwards."""
MANY_CLASSES, MANY_WIDE_CLASSES, WIDE = 300, 600, 4
"""From this many classes on, the structured interior-point method is faster than simplex; later if classes have more
than four columns each, as with gangs whose rate depends on placement."""
MANY_COLUMNS = 500
"""From this many columns on, sifting is faster than simplex on all columns at once."""


@dataclass(frozen=True, slots=True, eq=False)
class CheckedSolution:
    """A solution that its own duals prove optimal to within the tolerance."""

    solution: LpSolution
    bound: Bound


SolverCall = Callable[[], LpSolution]


def is_large(classes: int, columns: int) -> bool:
    """Whether the interior-point method is fastest for this many classes and columns (without the level).

    >>> is_large(299, 897), is_large(300, 900), is_large(300, 1800), is_large(600, 3600)
    (False, True, False, True)
    """
    return classes >= (MANY_CLASSES if columns <= WIDE * classes else MANY_WIDE_CLASSES)


def solve(
    lp: Lp, *, start: LpSolution | None = None, exact: bool = False, attempts: Iterator[SolverCall] | None = None
) -> CheckedSolution:
    """Solve a program; raise SolverError if no solver's answer passes the check.

    `exact` asks for a vertex. A start that is not a vertex must be a solution of this same program, close to one.
    """
    failures: list[str] = []
    deadline.check()
    if lp.sharing is not None:
        deadline.announce(*lp.matrix.shape)
    for attempt in attempts or _attempts(lp, start, exact=exact):
        deadline.check()
        try:
            solution = attempt()
        except SolverFailed as failure:
            failures.append(str(failure))
            continue
        bound = lp.bound(solution.duals)
        value = float(lp.cost @ solution.x)
        gap, violation = bound.value - value, lp.violation(solution.x)
        rounding = LEVEL_ROUNDING if lp.has_level else ROUNDING
        if gap <= max(TOLERANCE * max(abs(value), abs(bound.value)), rounding) and violation <= ROW_TOLERANCE:
            return CheckedSolution(solution, bound)
        failures.append(f"an answer of {value:.9g} with bound {bound.value:.9g} and violation {violation:.1e}")
    raise SolverError(
        "no solver reached a certified optimum (" + "; ".join(failures) + "); please report the problem file"
    )


def _attempts(lp: Lp, start: LpSolution | None, *, exact: bool) -> Iterator[SolverCall]:
    structured = lp.grid is not None
    large = structured and is_large(lp.classes, lp.matrix.shape[1] - 1)
    if one_type.fits(lp):
        yield lambda: one_type.solve(lp)
    if shortlist.fits(lp):
        yield lambda: shortlist.solve(lp)
    if large:
        if exact:
            yield lambda: highs.vertex(lp, interior.solve(lp) if start is None or start.vertex else start)
        else:
            yield lambda: interior.solve(lp)
        yield lambda: highs.solve(lp, "interior point")
    if not structured and lp.matrix.shape[1] >= MANY_COLUMNS:
        yield lambda: highs.sift(lp, start=start)
    yield lambda: highs.solve(lp, "primal simplex", start=start)
    if start is not None:
        yield lambda: highs.solve(lp, "primal simplex")
    yield lambda: highs.solve(lp, "dual simplex")
    if not large:
        yield lambda: highs.solve(lp, "interior point")
        yield lambda: interior.solve(lp)
