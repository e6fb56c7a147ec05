"""Weighted fairness over a tree of entities, each sharing among its children by fairness or first in, first out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.jobs import Entity
from gavel.core.problem import Bools, Floats, Ints, Problem
from gavel.policies import scores
from gavel.policies.certify import certified
from gavel.policies.claims import FillingClaim
from gavel.program.demand import Demand, Path
from gavel.program.filling import water_fill
from gavel.program.program import Program


def hierarchical(problem: Problem) -> Allocation:
    """Water filling in which each entity's weight is divided among its jobs, again whenever one of them stops."""
    program = _program(problem)
    tree = Tree.of(program)
    filled = water_fill(program, rising(program).rise)
    share = tree.deal(np.ones(len(program), dtype=bool)) / program.normalised_gain
    served = share > 0
    bound = min(filled.stages[0].bound, float(np.min(program.reach[served] / share[served])))
    return certified(
        program, filled.point, "hierarchical", score, bound=bound, prices=filled.prices, stages=filled.stages
    )


def rising(program: Program) -> FillingClaim:
    """All classes rise at a speed in proportion to the weight that the tree passes down to them."""
    tree, gain = Tree.of(program), program.normalised_gain
    jobs_at_once = program.problem.counts.sum() * (2.0 if len(program.problem.pairs) else 1.0)

    def affordable(throughput: Floats) -> bool:
        return bool((program.count * program.workers * throughput / program.reach).sum() <= jobs_at_once * (1 + 1e-6))

    def rise(position: Floats, active: Bools) -> Demand:
        return Path(position, active, lambda still: tree.deal(still) / gain, program.reach, affordable)

    return FillingClaim(rise)


def score(allocation: Allocation) -> float:
    """The smallest normalised throughput per weight, over the jobs that have weight in the first stage."""
    program = _program(allocation.problem)
    by_class = np.zeros(len(program.classes))
    by_class[program.live] = Tree.of(program).deal(np.ones(len(program), dtype=bool))
    weight = by_class[program.classes.of_job]
    counted = weight > 0
    gains = scores.normalised(allocation.problem, allocation.job_throughput)
    return float(np.min(gains[counted] / weight[counted], initial=np.inf))


def _program(problem: Problem) -> Program:
    return Program(problem, "weight", "entity", rank=_queue_rank(problem))


def _queue_rank(problem: Problem) -> Ints:
    """By job: its place, if it is in a first-in-first-out queue; 0 for all others, which need not be told apart."""
    parents = list(problem.entities)
    queued = np.array(
        [any(problem.entities[ancestor].policy == "fifo" for ancestor in _lineage(path)) for path in parents]
        + [False]  # jobs of no entity, index -1
    )
    place = np.empty(len(problem.jobs), dtype=np.intp)
    place[scores.arrival_order(problem)] = np.arange(1, len(problem.jobs) + 1)
    return np.where(queued[problem.jobs.entity], place, 0)


def _lineage(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """The tree of entities, through which weight flows from the root to the classes."""

    program: Program
    arrival: Floats
    entities: tuple[Entity, ...]
    children: tuple[Ints, ...]
    """By entity: its child entities; the root is last."""
    classes: tuple[Ints, ...]
    """By entity: the classes that belong to it directly."""

    @classmethod
    def of(cls, program: Program) -> Tree:
        paths = list(program.problem.entities)
        number = {path: index for index, path in enumerate(paths)}
        root = len(paths)
        parent = [number.get(path.rpartition("/")[0], root) for path in paths]
        owner = program.problem.jobs.entity[program.member]
        owner = np.where(owner < 0, root, owner)
        place = np.empty(len(program.problem.jobs))
        place[scores.arrival_order(program.problem)] = np.arange(len(place))
        earliest = np.full(len(program.classes), np.inf)
        np.minimum.at(earliest, program.classes.of_job, place)
        return cls(
            program,
            earliest[program.live],
            (*program.problem.entities.values(), Entity()),
            tuple(np.flatnonzero(np.asarray(parent, dtype=np.intp) == e) for e in range(root + 1)),
            tuple(np.flatnonzero(owner == e) for e in range(root + 1)),
        )

    def deal(self, active: Bools) -> Floats:
        """By class: the weight of a member if only the active classes take part.

        Jobs without an entity, and entities at the top of the tree, keep their own weight.
        """
        first = np.full(len(self.entities), np.inf)  # the earliest active arrival below each entity; inf: none
        for entity in reversed(self._top_down()):
            below = self.classes[entity][active[self.classes[entity]]]
            first[entity] = min(
                float(np.min(self.arrival[below], initial=np.inf)),
                float(np.min(first[self.children[entity]], initial=np.inf)),
            )
        weight = np.zeros(len(active))
        purse = np.zeros(len(self.entities))
        purse[-1] = 1.0
        for entity in self._top_down():
            if purse[entity] > 0 and np.isfinite(first[entity]):
                self._share_out(entity, active, first, purse, weight)
        return weight

    def _top_down(self) -> list[int]:
        order = [len(self.entities) - 1]
        for entity in order:
            order.extend(self.children[entity].tolist())
        return order

    def _share_out(self, entity: int, active: Bools, first: Floats, purse: Floats, weight: Floats) -> None:
        """Divide an entity's weight among its children, in place."""
        jobs = self.classes[entity][active[self.classes[entity]]]
        teams = self.children[entity][np.isfinite(first[self.children[entity]])]
        if self.entities[entity].policy == "fifo":
            heads = [(float(self.arrival[c]), weight, int(c)) for c in jobs]
            heads += [(float(first[t]), purse, int(t)) for t in teams]
            _, account, index = min(heads, key=lambda head: head[0])
            account[index] = purse[entity] / (self.program.count[index] if account is weight else 1.0)
            return
        claims = self.program.weight[jobs] * self.program.count[jobs]
        team_claims = np.array([self.entities[t].weight for t in teams])
        total = float(claims.sum() + team_claims.sum())
        if entity == len(self.entities) - 1:
            purse[entity] = total
        weight[jobs] = purse[entity] * self.program.weight[jobs] / total
        purse[teams] = purse[entity] * team_claims / total
