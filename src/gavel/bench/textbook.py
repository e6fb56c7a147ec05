"""Every optimisation policy as a researcher would write it from the paper: one row per job and per pair, in cvxpy.

It shares only the Problem with the policies' Program, so the policies are checked and timed against it. cvxpy comes
with the dev extra only and is imported on use. Unless a solver is named, cvxpy picks one (Clarabel, an interior-point
method, in version 1.9); the answer says which one ran.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from gavel.core.errors import InputError, SolverError
from gavel.core.problem import Bools, CloserColumn, Floats, Ints, Problem

EXACT = "HIGHS"
"""The solver whose vertices are exact to about nine digits."""
RELATIVE_WIDTH = 1e-9
"""A bisection ends when its interval is this narrow."""
STUCK = 1e-6
"""A job that can gain no more than this fraction of its best throughput counts as bottlenecked."""
KEPT = 1e-8
"""The fraction a job may lose, so that rounding leaves the next program feasible."""
FEASIBLE = 1.0 - 1e-7
"""The fraction of a demand that counts as meeting it, because solvers round."""


@dataclass(frozen=True, slots=True, eq=False)
class TextbookAnswer:
    """The result of the straightforward formulation, and how long building and solving took."""

    objective: float
    seconds: float
    solver: str
    throughput: Floats
    """Steps per second of every job, in the problem's order."""
    unmet: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Outcome:
    objective: float
    throughput: Floats
    """One element for each job that can run."""
    unmet: tuple[str, ...] = ()


def textbook(
    problem: Problem,
    policy: str,
    *,
    normalised: bool = False,
    fill: bool = False,
    given_up: Collection[str] | None = None,
    solver: str | None = None,
) -> TextbookAnswer:
    """Solve a problem with the paper's formula for the policy.

    `fill` adds max-min fairness's second program, for the total. `given_up` names the jobs whose deadlines
    min_cost_slo ignores; None leaves the choice to it.
    """
    if policy not in FORMULATIONS:
        raise InputError(f"there is no textbook formulation of {policy!r}; use one of {', '.join(FORMULATIONS)}")
    cvxpy = _cvxpy()
    begin = time.perf_counter()
    model = _Model(problem, cvxpy, solver, normalised=normalised, fill=fill, given_up=given_up)
    if not len(model.live):
        dated = np.flatnonzero(np.isfinite(problem.jobs.deadline) & (policy == "min_cost_slo"))
        unmet = tuple(sorted(problem.jobs.ids[job] for job in dated.tolist()))
        return TextbookAnswer(0.0, time.perf_counter() - begin, "none", np.zeros(len(problem.jobs)), unmet)
    outcome = FORMULATIONS[policy](model)
    seconds = time.perf_counter() - begin
    throughput = np.zeros(len(problem.jobs))
    throughput[model.live] = outcome.throughput
    return TextbookAnswer(outcome.objective, seconds, model.solver_name, throughput, outcome.unmet)


def _cvxpy() -> Any:
    try:
        return importlib.import_module("cvxpy")
    except ImportError as error:
        raise InputError("the textbook formulation needs cvxpy; install gavel-scheduler[dev]") from error


class _Model:
    """The matrix X of time fractions, one row for each job and pair of jobs, with the paper's constraints."""

    def __init__(
        self,
        problem: Problem,
        cvxpy: Any,
        solver: str | None,
        *,
        normalised: bool,
        fill: bool,
        given_up: Collection[str] | None,
    ) -> None:
        self.problem, self.cp, self.solver = problem, cvxpy, solver
        self.normalised, self.fill, self.given_up = normalised, fill, given_up
        self.solver_name = solver or "default"
        self.counts = np.array([t.count for t in problem.types], dtype=float)
        self.type_of = np.array([c.type_index for c in problem.columns], dtype=np.intp)
        profile = problem.jobs.profile
        fits = problem.profiles.workers[profile][:, None] <= self.counts[self.type_of][None, :]
        alone = np.where(fits, problem.profiles.rates[profile], 0.0)
        self.live: Ints = np.flatnonzero((alone > 0).any(axis=1))
        self.alone = alone[self.live]
        self.workers = problem.profiles.workers[profile[self.live]].astype(float)
        self.weight = problem.jobs.weight[self.live]
        self.steps = problem.jobs.steps[self.live]
        self.equal = self.by_type(self.alone) @ (self.counts / max(self.counts.sum(), 1.0))
        self.fastest = self.alone.max(axis=1, initial=0.0)
        self.first, self.second, self.rates, self.second_rates = self._combos()
        self.best = self.fastest.copy()
        """The highest rate of each job, alone or in a pair."""
        np.maximum.at(self.best, self.first, self.rates.max(axis=1, initial=0.0))
        shared = self.second >= 0
        np.maximum.at(self.best, self.second[shared], self.second_rates[shared].max(axis=1, initial=0.0))
        self.x = cvxpy.Variable(self.rates.shape, nonneg=True)

    def by_type(self, rates: Floats) -> Floats:
        """Rates at the better placement on each type."""
        best = np.zeros((len(rates), len(self.counts)))
        for column, type_index in enumerate(self.type_of):
            best[:, type_index] = np.maximum(best[:, type_index], rates[:, column])
        return best

    def _combos(self) -> tuple[Ints, Ints, Floats, Floats]:
        """Every job, then every pair of jobs whose profiles may share."""
        pairs, profile = self.problem.pairs, self.problem.jobs.profile[self.live]
        firsts, seconds = [np.arange(len(self.live))], [np.full(len(self.live), -1)]
        rates, second_rates = [self.alone], [np.zeros_like(self.alone)]
        members = [np.flatnonzero(profile == p) for p in range(len(self.problem.profiles.workers))]
        for one, other, both in zip(pairs.first.tolist(), pairs.second.tolist(), pairs.rates, strict=True):
            first, second = (grid.ravel() for grid in np.meshgrid(members[one], members[other], indexing="ij"))
            distinct = first < second if one == other else first >= 0
            first, second = first[distinct], second[distinct]
            enough = self.problem.profiles.workers[one] <= self.counts[self.type_of]
            runs = (both > 0).all(axis=0) & enough
            firsts.append(first)
            seconds.append(second)
            rates.append(np.tile(np.where(runs, both[0], 0.0), (len(first), 1)))
            second_rates.append(np.tile(np.where(runs, both[1], 0.0), (len(first), 1)))
        return np.concatenate(firsts), np.concatenate(seconds), np.concatenate(rates), np.concatenate(second_rates)

    def members(self) -> tuple[Any, Any]:
        """Two sparse 0/1 matrices: which row counts for which job, as its first and as its second member."""
        rows = np.arange(len(self.first))
        shape = (len(self.live), len(self.first))
        shared = np.flatnonzero(self.second >= 0)
        first = sparse.csr_array((np.ones(len(rows)), (self.first, rows)), shape=shape)
        second = sparse.csr_array((np.ones(len(shared)), (self.second[shared], shared)), shape=shape)
        return first, second

    def throughput(self, per_job: Floats) -> Any:
        """Throughput of every job, times a factor per job."""
        cp, (first, second) = self.cp, self.members()
        total = first @ cp.sum(cp.multiply(self.rates * per_job[self.first][:, None], self.x), axis=1)
        if (self.second >= 0).any():
            factor = np.where(self.second >= 0, per_job[self.second], 0.0)
            total += second @ cp.sum(cp.multiply(self.second_rates * factor[:, None], self.x), axis=1)
        return total

    def valid(self, whole: Any = 1.0) -> list[Any]:
        """The paper's constraints; with Charnes and Cooper's change of variables, `whole` stands for 1."""
        cp, (first, second) = self.cp, self.members()
        time_share = cp.sum(self.x, axis=1)
        onto_types = sparse.csr_array(
            (np.ones(len(self.type_of)), (np.arange(len(self.type_of)), self.type_of)),
            shape=(len(self.type_of), len(self.counts)),
        )
        used = (self.workers[self.first] @ self.x) @ onto_types
        constraints = [
            self.x <= (self.rates > 0).astype(float) * whole,
            (first + second) @ time_share <= whole,
            used <= self.counts * whole,
        ]
        for column in self.problem.closer_columns:
            constraints += self._gangs(column, whole)
        return constraints

    def _gangs(self, column: CloserColumn, whole: Any) -> list[Any]:
        """Limit gangs of each size or above that sit together to what the servers can hold."""
        rows = []
        size = self.workers[self.first]
        for workers in sorted({int(s) for s in size[self.rates[:, column.index] > 0]}):
            limit = column.most_gangs(workers)
            if limit is not None:
                rows.append((size >= workers).astype(float) @ self.x[:, column.index] <= limit * whole)
        return rows

    def solve(self, problem: Any) -> float:
        """The optimum of a cvxpy problem; raises unless the solver reports an optimum."""
        options: dict[str, Any] = {}
        if self.solver == EXACT:
            options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        problem.solve(solver=self.solver, **options)
        if problem.status != self.cp.OPTIMAL:
            raise SolverError(f"textbook: the solver ended with {problem.status!r}")
        self.solver_name = str(problem.solver_stats.solver_name)
        return float(problem.value)

    def reached(self) -> Floats:
        """Steps per second of every job in the last solution."""
        x = np.asarray(self.x.value)
        done = np.bincount(self.first, weights=(self.rates * x).sum(axis=1), minlength=len(self.live))
        shared = self.second >= 0
        second = (self.second_rates * x).sum(axis=1)[shared]
        return np.asarray(done + np.bincount(self.second[shared], weights=second, minlength=len(self.live)))

    @property
    def normalise(self) -> Floats:
        """By job: the factor from steps per second to normalised throughput times workers."""
        return np.asarray(self.workers / self.equal)


def _max_min(model: _Model, per_job: Floats) -> float:
    """Maximise the smallest throughput x factor."""
    level = model.cp.Variable()
    rows = model.throughput(per_job) >= level
    return model.solve(model.cp.Problem(model.cp.Maximize(level), [*model.valid(), rows]))


def _max_min_fairness(model: _Model) -> _Outcome:
    level = _max_min(model, model.normalise / model.weight)
    if model.fill:
        gains = model.throughput(model.normalise)
        rows = gains >= model.weight * level * (1 - 1e-9)
        total = model.cp.Maximize(model.cp.sum(gains))
        model.solve(model.cp.Problem(total, [*model.valid(), rows]))
    return _Outcome(level, model.reached())


def _makespan(model: _Model) -> _Outcome:
    """Max-min of throughput over steps, in units of the longest job's duration on its fastest type."""
    unit = float((model.steps / model.fastest).max())
    level = _max_min(model, unit / model.steps)
    return _Outcome(unit / level, model.reached())


def _finish_time_fairness(model: _Model) -> _Outcome:
    """Bisection over rho: can every job have the throughput that rho requires?"""
    cp = model.cp
    age = model.problem.jobs.age[model.live]
    share = model.counts / (len(model.live) * model.workers[:, None]) * (model.by_type(model.alone) > 0)
    share /= np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    alone = model.steps / (share * model.by_type(model.alone)).sum(axis=1)
    isolated = model.problem.jobs.isolated_age[model.live] + alone
    need, part = cp.Parameter(len(model.live), nonneg=True), cp.Variable()
    rows = model.throughput(1.0 / model.best) >= cp.multiply(need, part)
    question = cp.Problem(cp.Maximize(part), [*model.valid(), rows])
    low = float(((age + model.steps / model.best) / isolated).max())
    high = low

    def feasible(rho: float) -> bool:
        need.value = model.steps / (rho * isolated - age) / model.best
        return model.solve(question) >= 1 - 1e-9

    # A job that takes k times as long has a rho at most k times as large, so a few doublings suffice.
    while not feasible(high):
        high *= 2.0
    while high - low > RELATIVE_WIDTH * high:
        middle = (low + high) / 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    feasible(high)
    return _Outcome(high, model.reached())


def _fifo(model: _Model) -> _Outcome:
    return _in_order(model, _arrival_order(model))


def _in_order(model: _Model, order: Ints) -> _Outcome:
    """The paper's sum times workers, with M for the first job; jobs that cannot run keep their place in the order."""
    rank = np.empty(len(order))
    rank[order] = np.arange(len(order), 0, -1)
    total = model.cp.sum(model.throughput(rank[model.live] * model.workers / model.fastest))
    value = model.solve(model.cp.Problem(model.cp.Maximize(total), model.valid()))
    return _Outcome(value, model.reached())


def _arrival_order(model: _Model) -> Ints:
    jobs = model.problem.jobs
    return np.array(sorted(range(len(jobs)), key=lambda j: (jobs.arrival[j], jobs.ids[j])), dtype=np.intp)


def _shortest_job_first(model: _Model) -> _Outcome:
    """The paper's objective alone: the job that can finish first finishes as early as possible."""
    optimistic = model.steps / model.best
    shares = model.throughput(1.0 / model.best)
    shortest = np.inf
    for job in np.argsort(optimistic, kind="stable").tolist():
        if optimistic[job] < shortest:
            share = model.solve(model.cp.Problem(model.cp.Maximize(shares[job]), model.valid()))
            shortest = min(shortest, float(optimistic[job]) / share)
    return _Outcome(shortest, model.reached())


def _worth(model: _Model) -> Floats:
    return model.normalise if model.normalised else np.ones(len(model.live))


def _max_throughput(model: _Model) -> _Outcome:
    worth = _worth(model)
    unit = float((worth * model.best).max())
    total = model.cp.sum(model.throughput(worth / unit))
    value = model.solve(model.cp.Problem(model.cp.Maximize(total), model.valid()))
    return _Outcome(value * unit, model.reached())


def _min_cost(model: _Model) -> _Outcome:
    return _most_per_dollar(model, np.zeros(len(model.live)))


def _most_per_dollar(model: _Model, floors: Floats) -> _Outcome:
    """A linear-fractional program by Charnes and Cooper: scale the allocation so that it costs one dollar per hour."""
    cp, worth = model.cp, _worth(model)
    unit = float((worth * model.best).max())
    prices = np.array([t.price or 0.0 for t in model.problem.types])[model.type_of]
    scale = cp.Variable(nonneg=True)
    dollars = cp.sum(cp.multiply(np.outer(model.workers[model.first], prices), model.x))
    rows = [*model.valid(scale), dollars == 1.0]
    asked = np.flatnonzero(floors > 0)
    if len(asked):
        per_floor = np.divide(1.0, floors, out=np.zeros_like(floors), where=floors > 0)
        rows.append(model.throughput(per_floor)[asked] >= scale)
    total = cp.sum(model.throughput(worth / unit))
    value = model.solve(cp.Problem(cp.Maximize(total), rows)) * unit
    return _Outcome(value, model.reached() / max(float(scale.value), 1e-12))


def _min_cost_slo(model: _Model) -> _Outcome:
    deadline = model.problem.jobs.deadline[model.live]
    dated = np.isfinite(deadline)
    needed = np.where(dated, model.steps / np.where(dated, np.maximum(deadline, 1e-9), 1.0), 0.0)
    ids = [model.problem.jobs.ids[job] for job in model.live.tolist()]
    if model.given_up is None:
        keep = _meetable(model, needed)
    else:
        keep = dated & np.array([name not in model.given_up for name in ids])
    names = {ids[job] for job in np.flatnonzero(dated & ~keep).tolist()}
    late = np.isfinite(model.problem.jobs.deadline)
    late[model.live] = False
    names |= {model.problem.jobs.ids[job] for job in np.flatnonzero(late).tolist()}
    outcome = _most_per_dollar(model, np.where(keep, needed * FEASIBLE, 0.0))
    return _Outcome(outcome.objective, outcome.throughput, tuple(sorted(names)))


def _meetable(model: _Model, needed: Floats) -> Bools:
    """Add deadlines one by one, least accelerator time first, and keep each one if all can still be met."""
    kept = np.zeros(len(needed), dtype=bool)
    effort = needed / model.fastest * model.workers
    for job in np.argsort(effort, kind="stable"):
        if needed[job] > 0:
            kept[job] = True
            kept[job] = meets(model, np.where(kept, needed, 0.0))
    return kept


def meets(model: _Model, floors: Floats) -> bool:
    """Whether all jobs can reach their floors at once."""
    cp = model.cp
    part = cp.Variable()
    rows = model.throughput(1.0 / model.best) >= (floors / model.best) * part
    return model.solve(cp.Problem(cp.Maximize(part), [*model.valid(), rows, part <= 2.0])) >= FEASIBLE


class _Filling:
    """Naive water filling: raise all jobs in proportion to weight, and test one by one which can gain no more."""

    def __init__(self, model: _Model) -> None:
        cp, n = model.cp, len(model.live)
        self.model = model
        self.best = model.normalise * model.best
        self.gain, self.floor, self.speed = (cp.Parameter(n, nonneg=True) for _ in range(3))
        self.level = cp.Variable(nonneg=True)
        self.level_counts = cp.Parameter(nonneg=True)
        shares = model.throughput(
            1.0 / model.best
        )  # fractions of each job's best, so that all rows have a similar scale
        rows = shares >= self.floor + cp.multiply(self.speed, self.level)
        goal = cp.Maximize(self.gain @ shares + self.level_counts * self.level)
        self.program = cp.Problem(goal, [*model.valid(), rows])

    def run(self, weights: Callable[[Bools], Floats]) -> tuple[float, Floats]:
        """The level of the first stage and the final normalised throughput of all jobs."""
        position, active = np.zeros(len(self.best)), np.ones(len(self.best), dtype=bool)
        first: float | None = None
        while active.any():
            weight = np.where(active, weights(active), 0.0)
            level = self._raise(position, weight)
            first = level if first is None else first
            position = position + weight * level
            asked = active & (weight > 0)
            active = active & ~(asked & self._stuck(position, asked))
        self._solve(np.ones(len(self.best)), position)
        return float(first or 0.0), self.model.reached() * self.model.normalise

    def _raise(self, position: Floats, weight: Floats) -> float:
        unit = float(np.min(self.best[weight > 0] / weight[weight > 0]))
        self.gain.value = np.zeros(len(self.best))
        self.level_counts.value = 1.0
        self.floor.value, self.speed.value = position / self.best * (1 - KEPT), weight * unit / self.best
        self.model.solve(self.program)
        return max(float(self.level.value), 0.0) * unit

    def _stuck(self, position: Floats, asked: Bools) -> Bools:
        """Jobs that cannot gain while all keep what they have; those that gain along with others are not retested."""
        stuck = asked.copy()
        for job in np.flatnonzero(asked):
            if stuck[job]:
                gain = np.zeros(len(self.best))
                gain[job] = 1.0
                gained = self._solve(gain, position) - position / self.best
                if gained[job] > STUCK:
                    stuck &= gained <= STUCK
        return stuck

    def _solve(self, gain: Floats, position: Floats) -> Floats:
        """Maximise a weighted sum of fractions of the best throughput, with no job below its current one."""
        self.gain.value, self.level_counts.value = gain, 0.0
        self.floor.value, self.speed.value = position / self.best * (1 - KEPT), np.zeros(len(self.best))
        self.model.solve(self.program)
        return np.asarray(self.model.reached() / self.model.best)


def _water_filling(model: _Model) -> _Outcome:
    level, gains = _Filling(model).run(lambda _: model.weight)
    return _Outcome(level, gains / model.normalise)


def _hierarchical(model: _Model) -> _Outcome:
    level, gains = _Filling(model).run(_Hierarchy(model).weights)
    return _Outcome(level, gains / model.normalise)


class _Hierarchy:
    """The paper's rule for weights: an entity's policy divides its weight among its jobs that are not bottlenecked."""

    def __init__(self, model: _Model) -> None:
        self.entities = model.problem.entities
        paths = list(self.entities)
        self.path = [paths[e] if e >= 0 else "" for e in model.problem.jobs.entity[model.live].tolist()]
        self.own_weight = model.weight
        queue = _arrival_order(model).tolist()
        self.arrival: list[int] = [queue.index(job) for job in model.live.tolist()]

    def weights(self, active: Bools) -> Floats:
        """The weight of each job if only the active ones count."""
        result = np.zeros(len(active))
        children = self._children("", active)
        for child in children:
            self._pass_down(child, self._claim(child), active, result)
        return result

    def _children(self, path: str, active: Bools) -> list[str | int]:
        """Jobs (by number) and entities (by path) directly below a path that are active or contain an active job."""
        prefix = f"{path}/" if path else ""
        names: dict[str | int, None] = {}
        for job in np.flatnonzero(active).tolist():
            if self.path[job] == path:
                names[job] = None
            elif self.path[job].startswith(prefix):
                names[prefix + self.path[job][len(prefix) :].split("/")[0]] = None
        return list(names)

    def _claim(self, child: str | int) -> float:
        return float(self.own_weight[child] if isinstance(child, int) else self.entities[child].weight)

    def _earliest(self, child: str | int, active: Bools) -> int:
        if isinstance(child, int):
            return self.arrival[child]
        return min(self._earliest(grandchild, active) for grandchild in self._children(child, active))

    def _pass_down(self, child: str | int, weight: float, active: Bools, result: Floats) -> None:
        if isinstance(child, int):
            result[child] = weight
            return
        below = self._children(child, active)
        if self.entities[child].policy == "fifo":
            head = min(below, key=lambda grandchild: self._earliest(grandchild, active))
            self._pass_down(head, weight, active, result)
            return
        total = sum(self._claim(grandchild) for grandchild in below)
        for grandchild in below:
            self._pass_down(grandchild, weight * self._claim(grandchild) / total, active, result)


FORMULATIONS: dict[str, Callable[[_Model], _Outcome]] = {
    "max_min_fairness": _max_min_fairness,
    "max_min_fairness_water_filling": _water_filling,
    "makespan": _makespan,
    "finish_time_fairness": _finish_time_fairness,
    "fifo": _fifo,
    "shortest_job_first": _shortest_job_first,
    "max_throughput": _max_throughput,
    "min_cost": _min_cost,
    "min_cost_slo": _min_cost_slo,
    "hierarchical": _hierarchical,
}
