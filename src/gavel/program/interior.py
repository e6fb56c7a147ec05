"""An interior-point solver for many classes coupled by few rows (capacities) and at most one shared level.

General solvers see a sparse matrix; here every class is a 2x2 block (its time and its floor), so that a step costs a
few passes over the columns and one small dense system. The method is Mehrotra's predictor-corrector on the form

    maximise c.x,  A x + w = b,  A'y - z = c,  x, w, y, z >= 0.

Close to the optimum, the blocks are nearly singular. Everything computed from them is therefore written as sums of
products of 2x2 minors (Cauchy-Binet), in which the terms that would cancel do not appear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gavel.program import deadline
from gavel.program.lp import Floats, Ints, Lp, LpSolution, SolverFailed
from gavel.program.rows import Rows

ITERATIONS = 100
TOLERANCE = 1e-8
GOOD_ENOUGH = 1e-6
"""If progress stalls, an answer this close is still returned: the certificate decides whether it is accepted."""
LEVEL_CAP = 1.0 - 1e-8
"""By definition, the level is at most 1. Stopping just below keeps an interior if a single class, running all of its
time on its fastest type, limits the level; otherwise its block would become singular."""
WIDEST = 12
"""Work grows with the cube of the columns per class; with more than this, a general solver is as fast."""


def solve(lp: Lp) -> LpSolution:
    """Solve a program whose columns run one class each."""
    blocks = _Blocks.of(lp)
    point = _Point.start(blocks)
    best, best_error = point, np.inf
    with np.errstate(all="ignore"):  # a numerical breakdown shows as a non-finite error, which ends the loop
        for _ in range(ITERATIONS):
            deadline.check()
            residual = _residual(blocks, point)
            if not np.isfinite(residual.error) or residual.error > 1e6 * best_error:
                break
            if residual.error < best_error:
                best, best_error = point, residual.error
            if residual.error < TOLERANCE:
                break
            try:
                point = _step(blocks, point, residual)
            except np.linalg.LinAlgError:
                break
    if best_error > GOOD_ENOUGH:
        raise SolverFailed(f"the interior-point method stopped at a relative error of {best_error:.1e}")
    return LpSolution(blocks.unpad(best), best.y / blocks.cost_scale, vertex=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Coupling:
    """One coupling row's coefficients at one position of every class."""

    row: int
    position: int
    coefficient: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Blocks:
    """The program with its columns laid out as (position, class); `real` marks the ones that exist."""

    cost: Floats
    cost_scale: float
    time: Floats
    floor: Floats
    """Throughput, with its sign in the floor row: negative."""
    coupling: tuple[_Coupling, ...]
    rhs: Floats
    rows: Rows
    real: NDArray[np.bool_]
    level: Floats | None
    """The level's coefficient in each floor row."""
    level_cost: float
    grid: tuple[Ints, Ints]

    @classmethod
    def of(cls, lp: Lp) -> _Blocks:
        if lp.grid is None:
            raise SolverFailed("columns that run two classes need a general solver")
        owner, position = lp.grid
        m, width = lp.classes, int(position.max(initial=0)) + 1
        if width > WIDEST:
            raise SolverFailed(f"{width} columns a class need a general solver")
        places = lp.matrix.places
        structural = places.column < len(owner)
        row, column, data = places.indices[structural], places.column[structural], lp.matrix.data[structural]
        dense: dict[tuple[int, int], Floats] = {}
        time, floor = np.zeros((width, m)), np.zeros((width, m))
        for target, part in ((time, lp.rows.times), (floor, lp.rows.floors)):
            chosen = (row >= part.start) & (row < part.stop)
            target[position[column[chosen]], owner[column[chosen]]] = data[chosen]
        for at in range(width):
            chosen = (row >= lp.rows.coupling.start) & (position[column] == at)
            for coupled in np.unique(row[chosen]):
                here = chosen & (row == coupled)
                number = int(coupled) - lp.rows.coupling.start
                dense[number, at] = np.zeros(m)
                dense[number, at][owner[column[here]]] = data[here]
        real = np.zeros((width, m), dtype=bool)
        real[position, owner] = True
        # With a level, m floors share its one unit of cost: scale it so that their duals are of the order of 1.
        scale = float(m) if lp.has_level else 1.0 / max(float(np.abs(lp.cost).max(initial=0.0)), 1e-300)
        cost = np.full((width, m), -1.0)
        cost[position, owner] = lp.cost[: len(owner)] * scale
        return cls(
            cost,
            scale,
            time,
            floor,
            tuple(_Coupling(r, at, values) for (r, at), values in dense.items()),
            lp.rhs,
            lp.rows,
            real,
            lp.matrix.data[~structural] if lp.has_level else None,
            float(lp.cost[-1]) * scale if lp.has_level else 0.0,
            (position, owner),
        )

    def unpad(self, p: _Point) -> Floats:
        return np.append(p.x[self.grid], p.level)

    def coupled(self, x: Floats) -> Floats:
        """The coupling rows of A x."""
        total = np.zeros(len(self.rhs[self.rows.coupling]))
        for c in self.coupling:
            total[c.row] += c.coefficient @ x[c.position]
        return total

    def priced(self, y: Floats) -> Floats:
        """What the coupling rows' duals y add to A'y, by position and class."""
        total = np.zeros(self.cost.shape)
        for c in self.coupling:
            total[c.position] += c.coefficient * y[c.row]
        return total

    def times(self, x: Floats, level: float) -> Floats:
        """A x."""
        floors = (self.floor * x).sum(axis=0)
        if self.level is not None:
            floors = floors + self.level * level
        return np.concatenate([(self.time * x).sum(axis=0), floors, self.coupled(x)])

    def transposed_times(self, y: Floats) -> tuple[Floats, float]:
        """A'y, and its entry for the level."""
        rows = self.rows
        grid = self.time * y[rows.times] + self.floor * y[rows.floors] + self.priced(y[rows.coupling])
        return grid, 0.0 if self.level is None else float(self.level @ y[rows.floors])


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    x: Floats
    z: Floats
    y: Floats
    w: Floats
    level: float = 0.0
    level_z: float = 0.0
    cap_w: float = 0.0
    cap_y: float = 0.0
    """The level's slack below LEVEL_CAP, and its dual; like the two fields before, unused without a level."""

    @classmethod
    def start(cls, blocks: _Blocks) -> _Point:
        x = np.where(blocks.real, 0.5 / len(blocks.cost), 0.0)
        y = np.ones(len(blocks.rhs))
        w = np.maximum(blocks.rhs - blocks.times(x, 0.5), 0.1)
        forward, level = blocks.transposed_times(y)
        z = np.where(blocks.real, np.maximum(forward - blocks.cost, 0.1), 1.0)
        if blocks.level is None:
            return cls(x, z, y, w)
        return cls(x, z, y, w, 0.5, max(level - blocks.level_cost, 0.1), 0.5, 1.0)

    def moved(self, d: _Point, primal: float, dual: float) -> _Point:
        return _Point(
            self.x + primal * d.x,
            self.z + dual * d.z,
            self.y + dual * d.y,
            self.w + primal * d.w,
            self.level + primal * d.level,
            self.level_z + dual * d.level_z,
            self.cap_w + primal * d.cap_w,
            self.cap_y + dual * d.cap_y,
        )

    def products(self) -> float:
        rows = float(np.vdot(self.x, self.z) + self.w @ self.y)
        return rows + self.level * self.level_z + self.cap_w * self.cap_y

    def longest(self, d: _Point) -> tuple[float, float]:
        """How far along a direction the primal and the dual side stay positive."""
        primal = (_pace(self.x, d.x), _pace(self.w, d.w), _pace(self.level, d.level), _pace(self.cap_w, d.cap_w))
        dual = (_pace(self.z, d.z), _pace(self.y, d.y), _pace(self.level_z, d.level_z), _pace(self.cap_y, d.cap_y))
        return 1.0 / max(*primal, 1e-12), 1.0 / max(*dual, 1e-12)


def _pace(value: Floats | float, step: Floats | float) -> float:
    """How fast the quickest component approaches 0, relative to its value."""
    if isinstance(value, float):
        return max(-float(step) / value, 0.0) if value > 0 else 0.0
    return float(np.maximum.reduce(-step / np.where(value > 0, value, np.inf), axis=None, initial=0.0))


@dataclass(frozen=True, slots=True, eq=False)
class _Residual:
    primal: Floats
    dual: Floats
    level_dual: float
    cap: float
    mu: float
    error: float


def _residual(blocks: _Blocks, p: _Point) -> _Residual:
    with_level = blocks.level is not None
    forward, level_forward = blocks.transposed_times(p.y)
    primal = blocks.rhs - blocks.times(p.x, p.level) - p.w
    dual = np.where(blocks.real, blocks.cost - forward + p.z, 0.0)
    level_dual = blocks.level_cost - level_forward - p.cap_y + p.level_z if with_level else 0.0
    cap = LEVEL_CAP - p.level - p.cap_w if with_level else 0.0
    products = p.products()
    objective = float(np.vdot(np.where(blocks.real, blocks.cost, 0.0), p.x)) + blocks.level_cost * p.level
    relative = products / max(abs(objective), 1e-9)
    worst_row, worst_column = float(np.abs(primal).max()), float(np.abs(dual).max(initial=0.0))
    error = max(worst_row, worst_column, abs(level_dual), abs(cap), relative)
    count = int(blocks.real.sum()) + len(p.w) + 2 * with_level
    return _Residual(primal, dual, level_dual, cap, products / count, error)


def _step(blocks: _Blocks, p: _Point, r: _Residual) -> _Point:
    system = _System.of(blocks, p)
    guess = system.direction(r, _Products(-p.x * p.z, -p.w * p.y, -p.level * p.level_z, -p.cap_w * p.cap_y))
    primal, dual = (min(1.0, reach) for reach in p.longest(guess))
    left = p.moved(guess, primal, dual).products() / p.products()
    target = r.mu * max(left**3, 1e-3)
    change = _Products(
        np.where(blocks.real, target - guess.x * guess.z, 0.0) - p.x * p.z,
        target - guess.w * guess.y - p.w * p.y,
        target - guess.level * guess.level_z - p.level * p.level_z,
        target - guess.cap_w * guess.cap_y - p.cap_w * p.cap_y,
    )
    d = system.direction(r, change)
    primal, dual = (min(1.0, 0.9995 * reach) for reach in p.longest(d))
    return p.moved(d, primal, dual)


@dataclass(frozen=True, slots=True, eq=False)
class _Products:
    """The change of the complementary products that a step should make."""

    xz: Floats
    wy: Floats
    level: float
    cap: float


@dataclass(frozen=True, slots=True, eq=False)
class _System:
    """The linear system of one step, after elimination of the classes.

    For a class with columns B (2 x width), theta = x/z and slack D = w/y: M = B theta B' + D.
    """

    blocks: _Blocks
    point: _Point
    classes: _Eliminated
    small: Floats
    """The dense matrix of the coupling rows' duals and the level."""
    stiffness: float
    """How strongly the level is held by its own bounds, 0 and LEVEL_CAP."""

    @classmethod
    def of(cls, blocks: _Blocks, p: _Point) -> _System:
        at = blocks.rows
        slack = p.w / p.y
        theta = np.where(blocks.real, p.x / p.z, 0.0)
        classes = _eliminate(blocks.time, blocks.floor, theta, slack[at.times], slack[at.floors])
        rows = len(slack[at.coupling])
        size = rows + (blocks.level is not None)
        small = np.zeros((size, size))
        small[:rows, :rows] = np.diag(slack[at.coupling])
        for a in blocks.coupling:
            for b in blocks.coupling:
                meeting = a.coefficient @ (b.coefficient * classes.response[a.position, b.position])
                small[a.row, b.row] += meeting
        stiffness = 0.0
        if blocks.level is not None:
            stiffness = p.level_z / p.level + p.cap_y / p.cap_w
            crossing = blocks.coupled(classes.to_floor * blocks.level)
            small[:rows, -1] = -crossing
            small[-1, :rows] = -crossing
            small[-1, -1] = -(blocks.level**2 @ classes.floor_floor) - stiffness
        return cls(blocks, p, classes, small, stiffness)

    def direction(self, r: _Residual, change: _Products) -> _Point:
        """The step that makes both residuals vanish and changes the products by the given amounts."""
        blocks, p = self.blocks, self.point
        rows, level = blocks.rows, blocks.level
        pull = np.where(blocks.real, r.dual + change.xz / np.where(p.x > 0, p.x, 1.0), 0.0)
        rest = change.wy / p.y - r.primal
        time, floor = rest[rows.times], rest[rows.floors]
        if level is not None:
            cap_pull = (change.cap - p.cap_y * r.cap) / p.cap_w
            shift = (change.level / p.level + r.level_dual - cap_pull) / self.stiffness
            floor = floor + level * shift
        right = blocks.coupled(self.classes.columns(pull, time, floor)) + rest[rows.coupling]
        if level is not None:
            right = np.append(right, -(level @ self.classes.rows(pull, time, floor)[1]))
        solved = np.asarray(np.linalg.solve(self.small, right), dtype=np.float64)
        duals = solved[: len(rest[rows.coupling])]
        if level is not None:
            floor = floor - level * solved[-1]
        pull = pull - blocks.priced(duals)
        dy = rows.joined(*self.classes.rows(pull, time, floor), duals)
        forward, level_forward = blocks.transposed_times(dy)
        step = _Point(
            self.classes.columns(pull, time, floor),
            np.where(blocks.real, forward - r.dual, 0.0),
            dy,
            (change.wy - p.w * dy) / p.y,
        )
        if level is None:
            return step
        moved = shift - float(solved[-1])
        cap_y = cap_pull + p.cap_y / p.cap_w * moved
        return replace(
            step, level=moved, level_z=level_forward + cap_y - r.level_dual, cap_w=r.cap - moved, cap_y=cap_y
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Eliminated:
    """The effect of the eliminated classes on the coupling rows."""

    time_time: Floats
    time_floor: Floats
    floor_floor: Floats
    """M^-1."""
    to_time: Floats
    to_floor: Floats
    """M^-1 B theta, (position, class) each."""
    response: Floats
    """theta - theta B' M^-1 B theta, (position, position, class)."""

    def columns(self, pull: Floats, time: Floats, floor: Floats) -> Floats:
        """How the columns move."""
        moved = (self.response * pull).sum(axis=1)
        return np.asarray(moved - self.to_time * time - self.to_floor * floor)

    def rows(self, pull: Floats, time: Floats, floor: Floats) -> tuple[Floats, Floats]:
        """How the duals of the time and floor rows move."""
        return (
            (self.to_time * pull).sum(axis=0) + self.time_time * time + self.time_floor * floor,
            (self.to_floor * pull).sum(axis=0) + self.time_floor * time + self.floor_floor * floor,
        )


def _eliminate(time: Floats, floor: Floats, theta: Floats, time_slack: Floats, floor_slack: Floats) -> _Eliminated:
    """Invert every class's block M and apply it to the class's columns, without cancellation."""
    width, m = time.shape
    minor = time[:, None] * floor[None, :] - time[None, :] * floor[:, None]
    # det M: theta theta minor^2 over pairs of columns, plus the terms with slack.
    pairs = [[theta[k] * theta[p] * minor[k, p] ** 2 for p in range(width)] for k in range(width)]
    singles = theta * (time**2 * floor_slack + floor**2 * time_slack)
    slack = time_slack * floor_slack
    determinant = sum((pairs[k][p] for k in range(width) for p in range(k)), start=singles.sum(axis=0) + slack)
    response = np.empty((width, width, m))
    for k in range(width):
        others = [p for p in range(width) if p != k]
        apart = sum((pairs[p][q] for p in others for q in others if q < p), start=singles[others].sum(axis=0) + slack)
        response[k, k] = theta[k] * apart / determinant
        for p in range(k):
            # Entry (k, p) of B' adj(M) B.
            common = (minor[k] * minor[p] * theta).sum(axis=0)
            common += floor_slack * time[k] * time[p] + time_slack * floor[k] * floor[p]
            response[k, p] = response[p, k] = -theta[k] * theta[p] * common / determinant
    to_time = np.stack([(minor[k] * theta * floor).sum(axis=0) + floor_slack * time[k] for k in range(width)])
    to_floor = np.stack([time_slack * floor[k] - (minor[k] * theta * time).sum(axis=0) for k in range(width)])
    return _Eliminated(
        ((floor**2 * theta).sum(axis=0) + floor_slack) / determinant,
        -(time * floor * theta).sum(axis=0) / determinant,
        ((time**2 * theta).sum(axis=0) + time_slack) / determinant,
        theta * to_time / determinant,
        theta * to_floor / determinant,
        response,
    )
