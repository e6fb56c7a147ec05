"""Every policy by name, with its requirements, and `allocate`, the one way to ask for an allocation."""

from __future__ import annotations

import difflib
from dataclasses import replace

import numpy as np

from gavel.core.allocation import Allocation, Certificate
from gavel.core.errors import InputError
from gavel.core.problem import Problem
from gavel.core.user_code import is_user_defined
from gavel.policies import agnostic, baselines, completion, cost, fairness, hierarchy, scores, user_defined
from gavel.policies.policy import Options, Policy
from gavel.program import deadline

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(
            "max_min_fairness",
            "Least attained service: raise the smallest weighted normalised throughput, then the total.",
            "smallest normalised throughput x workers / weight",
            lambda p, _: fairness.max_min_fairness(p),
            score=lambda _: scores.fairness,
            claim=lambda program, *_: fairness.equal_levels(program),
        ),
        Policy(
            "max_min_fairness_water_filling",
            "The same, then the second smallest, the third and so on: the fairest of all.",
            "smallest normalised throughput x workers / weight",
            lambda p, _: fairness.max_min_fairness_water_filling(p),
            score=lambda _: scores.fairness,
            claim=lambda program, *_: fairness.rising(program),
        ),
        Policy(
            "makespan",
            "Finish the last job as early as possible.",
            "seconds until the last job is done",
            lambda p, _: completion.makespan(p),
            minimised=True,
            needs=frozenset({"steps"}),
            score=lambda _: scores.makespan,
            claim=lambda program, *_: completion.ending_together(program),
        ),
        Policy(
            "finish_time_fairness",
            "Themis: keep the worst slowdown against owning 1/n of the cluster as small as possible.",
            "largest ratio of total time to total time with 1/n of the cluster",
            lambda p, _: completion.finish_time_fairness(p),
            minimised=True,
            needs=frozenset({"steps"}),
            score=lambda _: scores.finish_time_fairness,
            claim=lambda program, *_: completion.equally_slowed(program),
        ),
        Policy(
            "fifo",
            "First in, first out, each job on the fastest type it can get.",
            "sum of throughput / fastest throughput x workers, weighted M ... 1 by arrival",
            lambda p, _: completion.fifo(p),
            score=lambda _: scores.fifo,
            claim=lambda program, *_: completion.by_arrival(program),
        ),
        Policy(
            "shortest_job_first",
            "Finish the shortest job as early as possible, then the next shortest.",
            "seconds until the first job is done",
            lambda p, _: completion.shortest_job_first(p),
            minimised=True,
            needs=frozenset({"steps"}),
            score=lambda _: scores.shortest_duration,
            claim=lambda program, *_: completion.by_duration(program),
        ),
        Policy(
            "max_throughput",
            "Most steps per second of all jobs together.",
            "sum of throughputs",
            lambda p, o: cost.max_throughput(p, normalised=o.normalised),
            score=lambda o: cost.total(o.normalised),
            adds_up=True,
            claim=lambda program, o, _: cost.largest_total(program, o.normalised),
        ),
        Policy(
            "min_cost",
            "Most steps per second per dollar.",
            "sum of throughputs / dollars an hour",
            lambda p, o: cost.min_cost(p, normalised=o.normalised),
            needs=frozenset({"price"}),
            score=lambda o: cost.total_per_dollar(o.normalised),
            adds_up=True,
            claim=lambda program, o, _: cost.cheapest_total(program, o.normalised),
        ),
        Policy(
            "min_cost_slo",
            "The same, subject to every deadline that can be met.",
            "sum of throughputs / dollars an hour",
            lambda p, o: cost.min_cost_slo(p, normalised=o.normalised),
            needs=frozenset({"price", "steps_of_dated"}),
            score=lambda o: cost.total_per_dollar(o.normalised),
            adds_up=True,
            deadline_bound=True,
            claim=lambda program, o, unmet: cost.cheapest_in_time(program, o.normalised, unmet),
        ),
        Policy(
            "hierarchical",
            "Weighted fairness over a tree of entities, fairness or fifo inside each, by water filling.",
            "smallest normalised throughput x workers / weight passed down to the job",
            lambda p, _: hierarchy.hierarchical(p),
            score=lambda _: hierarchy.score,
            claim=lambda program, *_: hierarchy.rising(program),
        ),
        Policy(
            "isolated",
            "Baseline: 1/n of every type for each of n jobs.",
            "smallest normalised throughput x workers / weight",
            lambda p, o: baselines.isolated(p, bounded=o.bounded),
            score=lambda _: scores.fairness,
            baseline=True,
            knows_speeds=False,
            claim=lambda program, *_: fairness.equal_levels(program),
            shares=False,
        ),
        Policy(
            "gandiva",
            "Baseline: random pairs share accelerators, kept when that helps; equal shares of every type.",
            "smallest normalised throughput x workers / weight",
            lambda p, o: baselines.gandiva(p, seed=o.seed, bounded=o.bounded),
            score=lambda _: scores.fairness,
            baseline=True,
            knows_speeds=False,
            claim=lambda program, *_: fairness.equal_levels(program),
        ),
        Policy(
            "allox",
            "Baseline: match single-worker jobs to places in queues for the least average completion time.",
            "average seconds until a job is done, its age included",
            lambda p, _: baselines.allox(p),
            minimised=True,
            needs=frozenset({"steps", "single_worker"}),
            baseline=True,
            shares=False,
        ),
    )
}


def find_policy(name: str) -> Policy:
    """The policy of that name; `module.NAME` is a user-defined one. The error names similar policies."""
    if name in POLICIES:
        return POLICIES[name]
    if is_user_defined(name):
        return user_defined.load(name)
    near = difflib.get_close_matches(name.lower().replace("-", "_"), POLICIES, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else "`gavel policies` lists them all"
    raise InputError(f"there is no policy {name!r}; {hint}")


def allocate(
    problem: Problem,
    policy: str = "max_min_fairness",
    *,
    heterogeneity_agnostic: bool = False,
    normalised: bool = False,
    seed: int = 0,
    compare: bool = True,
    limit_seconds: float | None = None,
) -> Allocation:
    """Solve a problem with the policy of that name; raise TimeLimitError if that takes longer than the limit.

    With `compare`, the bound of an agnostic answer is the optimum of the aware policy, and that of a baseline is
    the optimum of max-min fairness; this takes one more solve.

    >>> from gavel.core.cluster import AcceleratorType
    >>> from gavel.core.jobs import Job
    >>> types = [AcceleratorType("v100", 1), AcceleratorType("k80", 1)]
    >>> rates = [(4.0, 1.0), (3.0, 1.0), (2.0, 1.0)]
    >>> jobs = [Job(f"job{n}", {"v100": fast, "k80": slow}) for n, (fast, slow) in enumerate(rates)]
    >>> allocation = allocate(Problem.of(types, jobs), "max_min_fairness")
    >>> round(allocation.certificate.objective, 3)
    0.727
    >>> {row.jobs[0]: round(row.shares["v100"], 2) for row in allocation.rows()}
    {'job0': 0.45, 'job1': 0.45, 'job2': 0.09}
    """
    chosen, options = find_policy(policy), Options(normalised, seed, compare)
    if normalised:
        check_adds_up(chosen)
    check_needs(chosen, problem)
    if not scores.runnable_jobs(problem).any():
        return _nothing_to_run(chosen, problem)
    with deadline.at_most(limit_seconds):
        answer = (
            _agnostic(chosen, problem, options, compare=compare)
            if heterogeneity_agnostic
            else chosen.solve(problem, options)
        )
    # Some policies ignore pairs; the answer still refers to the problem as it was asked.
    return answer if answer.problem is problem else replace(answer, problem=problem)


def check_adds_up(policy: Policy) -> None:
    """Raise InputError if a policy does not add up throughputs, so that there is nothing to normalise."""
    if not policy.adds_up:
        which = ", ".join(other.name for other in POLICIES.values() if other.adds_up)
        raise InputError(
            f"{policy.name} does not add up throughputs, so there is nothing to normalise; --normalised is for {which}"
        )


def check_needs(policy: Policy, problem: Problem) -> None:
    """Raise InputError if the policy cannot solve the problem, or the problem lacks what the policy requires."""
    if "single_worker" in policy.needs:
        workers = problem.profiles.workers[problem.jobs.profile]
        wide = np.flatnonzero(workers > 1)
        if len(wide):
            raise InputError(
                f"{policy.name} matches single-worker jobs only, but job {problem.jobs.ids[int(wide[0])]!r} has "
                f"{workers[wide[0]]} workers; use another policy, for example shortest_job_first"
            )
    if "steps" in policy.needs:
        bad = np.flatnonzero(~(problem.jobs.steps > 0))
        if len(bad):
            raise InputError(
                f"{policy.name} needs the steps left of every job, but job {problem.jobs.ids[int(bad[0])]!r} has none; "
                "give each job a positive 'steps'"
            )
    if "steps_of_dated" in policy.needs:
        bad = np.flatnonzero(np.isfinite(problem.jobs.deadline) & ~(problem.jobs.steps > 0))
        if len(bad):
            raise InputError(
                f"{policy.name} needs the steps left of every job with a deadline, but job "
                f"{problem.jobs.ids[int(bad[0])]!r} has none; give it a positive 'steps'"
            )
    if "price" in policy.needs:
        for name in (each.name for each in problem.types if each.count and not each.price):
            raise InputError(
                f"{policy.name} needs a positive price for every type, but {name!r} has none; give dollars per "
                f'hour as "price" of types.{name} in a problem, or as --prices {name}=... in a simulation'
            )


def _agnostic(policy: Policy, problem: Problem, options: Options, *, compare: bool) -> Allocation:
    """Decide as if all types were equally fast; objective and bound are at the true rates."""
    seen = _decided_alike(policy, agnostic.alike(problem), options)
    placed = agnostic.at_true_rates(seen, problem, spread=not policy.price_aware)
    if policy.score is None or not compare:
        note = "decided as if all types were equally fast; objective, bound and prices are as the policy sees them"
        return replace(placed, certificate=replace(seen.certificate, notes=(*seen.certificate.notes, note)))
    aware = policy.solve(problem, options).certificate
    objective = policy.score(options)(placed)
    # Deadlines met at the mean rate may be missed at the true one; then the objective can exceed the aware bound.
    bound = min(aware.bound, objective) if policy.minimised else max(aware.bound, objective)
    unmet = cost.missed_deadlines(placed) if policy.deadline_bound else ()
    note = "decided as if all types were equally fast; the gap is what that loses"
    return replace(placed, certificate=replace(aware, objective=objective, bound=bound, unmet=unmet, notes=(note,)))


def _decided_alike(policy: Policy, seen: Problem, options: Options) -> Allocation:
    """The answer for equal types: merged into one, except for user-defined policies and those that consider prices."""
    one = None if policy.price_aware or policy.user_defined else agnostic.as_one_type(seen)
    return policy.solve(seen, options) if one is None else agnostic.dealt_out(policy.solve(one, options), seen)


def _nothing_to_run(policy: Policy, problem: Problem) -> Allocation:
    """An empty allocation, for problems in which no job can run; each limit says why."""
    classes = problem.classes()
    columns = len(problem.columns)
    prices = {t.name: 0.0 for t in problem.types}
    dated = np.isfinite(problem.jobs.deadline) & policy.deadline_bound
    unmet = tuple(sorted(problem.jobs.ids[job] for job in np.flatnonzero(dated).tolist()))
    return Allocation(
        problem,
        policy.name,
        classes,
        np.empty((0, 2), dtype=np.intp),
        np.empty((0, columns)),
        np.empty((0, 2, columns)),
        Certificate(0.0, 0.0, prices, policy.minimised, unmet, notes=("no job can run",)),
    )
