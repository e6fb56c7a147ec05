"""Check an answer without a solver: feasibility, every bound and every claim that a job cannot rise, by weak duality.

The duals of a stage are prices. If no job or pair gains more anywhere than it pays for its time and its
accelerators, then in no valid allocation are the throughputs, each at its worth, worth more in total than all resources
at their prices. Everything that an answer claims follows from such inequalities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from gavel.core.allocation import Allocation, Certificate, gang_row
from gavel.core.answer_file import Answer, AnswerStage
from gavel.core.problem import Bools, Classes, Floats, Problem
from gavel.policies.claims import Claim, FillingClaim, LevelClaim, RatioClaim, TotalClaim
from gavel.policies.policy import Options, Policy
from gavel.policies.registry import find_policy
from gavel.program.program import Program
from gavel.program.proof import DUAL_ROUNDING

SAME = 1e-6
"""The relative tolerance of numbers that should be equal."""
TINY = 1e-10
"""What a job or pair may gain beyond what it pays, relative to all resources: rounding, which bounds allow for."""
STUCK = 1e-5
"""A job cannot rise if it provably cannot gain more than this fraction of its reach."""
ROUNDING = 1e-9
"""The tolerance for the limits of a share, a job's time or a type."""


@dataclass(slots=True)
class VerificationReport:
    """What was checked, and what was found wrong."""

    checked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.wrong

    def check(self, what: str, faults: Iterable[str]) -> None:
        """Record that something was checked, and the faults found."""
        self.checked.append(what)
        self.wrong += faults


def verify(problem: Problem, answer: Answer) -> VerificationReport:
    """Check an answer to a problem."""
    policy = find_policy(answer.policy)
    question = problem if answer.asked.space_sharing else problem.without_pairs()
    report = VerificationReport()
    report.check("the rows name jobs and types of the problem, and pairs that may share", _misnamed(question, answer))
    if not report.ok:
        return report
    allocation = spelled_out(question, answer)
    report.check(
        f"no job has more than all of its time, no accelerator is given twice ({len(answer.allocation)} rows)",
        _infeasible(allocation),
    )
    report.check("throughputs, busy accelerators and gap are those of the rows", _misstated(allocation, answer))
    options = Options(answer.asked.normalised, answer.asked.seed)
    if policy.score is None:
        report.checked.append(
            f"not checked: objective and bound of {policy.name}, which do not follow from an allocation"
        )
        return report
    runs = question.runnable[question.jobs.profile]
    if runs.any():
        score = policy.score(options)(allocation)
        report.check("the objective follows from the rows", _unequal("the objective", answer.objective, score))
        _check_proof(policy, question, answer, allocation, report)
    return report


def _check_proof(
    policy: Policy, question: Problem, answer: Answer, allocation: Allocation, report: VerificationReport
) -> None:
    if policy.claim is None or not answer.stages or (policy.deadline_bound and answer.asked.agnostic):
        # An agnostic policy meets other deadlines than the aware one, which its bound comes from.
        report.checked.append("not checked: the bound, for which this answer has no proof")
        return
    options = Options(answer.asked.normalised, answer.asked.seed)
    program = Program(question if policy.shares else question.without_pairs(), rank=np.arange(len(question.jobs)))
    claim = policy.claim(program, options, frozenset(answer.unmet_deadlines))
    judge = _Judge(program, answer, allocation, report, optimal=not (policy.baseline or answer.asked.agnostic))
    judge.judge(claim, minimised=policy.minimised)


def _misnamed(problem: Problem, answer: Answer) -> Iterator[str]:
    jobs, types = set(problem.jobs.ids), {accelerator_type.name for accelerator_type in problem.types}
    seen: set[frozenset[str]] = set()
    for row in answer.allocation:
        if not 1 <= len(row.jobs) == len(set(row.jobs)) <= 2 or frozenset(row.jobs) in seen:
            yield f"a row has {' and '.join(row.jobs) or 'no job'}, instead of one or two jobs that no other row has"
        seen.add(frozenset(row.jobs))
        yield from (f"there is no job {name!r}" for name in row.jobs if name not in jobs)
        yield from (f"there is no type {name!r}" for name in (*row.shares, *row.consolidated) if name not in types)
    for name in (*answer.throughput, *answer.unmet_deadlines, *answer.jobs):
        if name not in jobs:
            yield f"there is no job {name!r}"
    yield from (f"job {name!r} is missing" for name in jobs - answer.throughput.keys())
    for number, stage in enumerate(answer.stages):
        for name in {*stage.stopped, *stage.worth, *stage.time_worth} - jobs:
            yield f"stage {number}: there is no job {name!r}"


def spelled_out(problem: Problem, answer: Answer) -> Allocation:
    """Convert the rows to an allocation in which every job is a class by itself."""
    number = {name: index for index, name in enumerate(problem.jobs.ids)}
    columns = len(problem.columns)
    pair_of = {
        (int(one), int(other)): row
        for row, (one, other) in enumerate(zip(problem.pairs.first, problem.pairs.second, strict=True))
    }
    combos = np.full((len(answer.allocation), 2), -1)
    instances, rates = np.zeros((len(combos), columns)), np.zeros((len(combos), 2, columns))
    for index, row in enumerate(answer.allocation):
        ends = [number[name] for name in row.jobs]
        combos[index, : len(ends)] = ends
        profile = problem.jobs.profile[ends].tolist()
        if len(ends) == 1:
            rates[index, 0] = problem.rates[profile[0]]
        elif (profile[0], profile[1]) in pair_of:
            rates[index] = problem.pairs.rates[pair_of[profile[0], profile[1]]]
        elif (profile[1], profile[0]) in pair_of:
            rates[index] = problem.pairs.rates[pair_of[profile[1], profile[0]]][::-1]
        for position, column in enumerate(problem.columns):
            instances[index, position] = row.share(problem.types[column.type_index].name, column.locality)
    everyone = np.arange(len(problem.jobs))
    classes = Classes(everyone, np.ones(len(everyone), dtype=np.intp), everyone)
    certificate = Certificate(answer.objective, answer.bound, answer.prices)
    return Allocation(problem, answer.policy, classes, combos, instances, rates, certificate)


def _infeasible(allocation: Allocation) -> Iterator[str]:
    problem, ids = allocation.problem, allocation.problem.jobs.ids

    def row(index: int) -> str:
        return " and ".join(ids[job] for job in allocation.combos[index].tolist() if job >= 0)

    finite = np.isfinite(allocation.instances)
    for index in np.unique((~finite | (allocation.instances < -ROUNDING)).nonzero()[0]).tolist():
        yield f"{row(index)}: a share is negative or not a number"
    if not finite.all():
        return
    pairs = allocation.combos[:, 1] >= 0
    runs = np.where(pairs[:, None], (allocation.rates > 0).all(axis=1), allocation.rates[:, 0] > 0)
    workers = problem.profiles.workers[problem.jobs.profile[allocation.combos]]
    runs &= workers[:, :1] <= problem.counts[problem.column_type]
    runs &= ~pairs[:, None] | (workers[:, 0] == workers[:, 1])[:, None]
    for index in np.unique(((allocation.instances > ROUNDING) & ~runs).nonzero()[0]).tolist():
        yield f"{row(index)}: has a share where it cannot run"
    for job in (allocation.class_time > 1 + ROUNDING).nonzero()[0].tolist():
        yield f"job {ids[job]!r} has {allocation.class_time[job]:.9g} of its time"
    for accelerator_type, busy in zip(problem.types, allocation.busy.tolist(), strict=True):
        if busy > accelerator_type.count * (1 + ROUNDING) + ROUNDING:
            yield f"{busy:.9g} of {accelerator_type.count} {accelerator_type.name} are in use"
    yield from _too_many_gangs(allocation)


def _too_many_gangs(allocation: Allocation) -> Iterator[str]:
    problem = allocation.problem
    wanted = problem.profiles.workers[problem.jobs.profile[allocation.combos[:, 0]]]
    for column in problem.closer_columns:
        for size in np.unique(wanted).tolist():
            most = column.most_gangs(size)
            gangs = float(allocation.instances[wanted >= size, column.index].sum())
            if most is not None and gangs > most * (1 + ROUNDING) + ROUNDING:
                together = f"{gangs:.9g} gangs of {size} or more are consolidated on {column.type.name}"
                yield f"{together}, but servers hold {most}"


def _misstated(allocation: Allocation, answer: Answer) -> Iterator[str]:
    for name, rate in allocation.throughput.items():
        yield from _unequal(f"the throughput of {name!r}", answer.throughput[name], rate)
    for accelerator_type, busy in zip(allocation.problem.types, allocation.busy.tolist(), strict=True):
        yield from _unequal(f"busy {accelerator_type.name}", answer.busy.get(accelerator_type.name, np.nan), busy)
    gap = abs(answer.bound - answer.objective) / max(abs(answer.objective), abs(answer.bound), 1e-300)
    if answer.objective != answer.bound and abs(gap - answer.gap) > SAME:
        yield f"the gap is {gap:.3g}, not {answer.gap:.3g}"


def _unequal(what: str, claimed: float, found: float, tolerance: float = SAME) -> Iterator[str]:
    if not abs(claimed - found) <= tolerance * max(abs(claimed), abs(found), 1e-12) and claimed != found:
        yield f"{what} is {found:.9g}, not {claimed:.9g}"


@dataclass(frozen=True, slots=True, eq=False)
class _Duals:
    """The duals of a stage, by class of the program."""

    worth: Floats
    time: Floats
    prices: Floats
    """By type."""
    gangs: Floats
    """By class and column: what consolidated gangs pay for the room."""
    affordable: float


@dataclass(frozen=True, slots=True, eq=False)
class _Judge:
    """Checks the stages of one answer."""

    program: Program
    answer: Answer
    allocation: Allocation
    report: VerificationReport
    optimal: bool
    """Whether the answer claims to be optimal."""

    def judge(self, claim: Claim, *, minimised: bool) -> None:
        kinds = [stage.kind for stage in self.answer.stages]
        if not _prove(claim, kinds):
            self.report.check("the stages", [f"there are stages {', '.join(kinds)}, which prove nothing here"])
            return
        match claim:
            case LevelClaim():
                bound = self._level(claim)
            case FillingClaim():
                bound = self._filling(claim)
            case TotalClaim():
                bound = self._total_stage(0, claim.gain, claim.floors)
                bound = bound if claim.objective is None else claim.objective
            case RatioClaim():
                bound = self._ratio(claim)
        stages = len(kinds)
        self.report.check(
            f"the bound follows from {stages} stage{'s' if stages > 1 else ''} by weak duality",
            self._final(bound, minimised=minimised),
        )

    def _final(self, bound: float, *, minimised: bool) -> Iterator[str]:
        answer = self.answer
        sign = -1.0 if minimised else 1.0
        # If deadlines are missed at true rates, or nothing is claimed, the objective may be on either side.
        proven = sign * max(sign * bound, sign * answer.objective) if not self.optimal else bound
        yield from _unequal("the bound", answer.bound, proven)
        if sign * (answer.objective - answer.bound) > SAME * max(abs(answer.objective), abs(answer.bound)):
            yield f"the objective {answer.objective:.9g} exceeds its bound {answer.bound:.9g}"

    def _of(self, values: dict[str, float]) -> Floats:
        ids = self.program.problem.jobs.ids
        return np.array([values.get(ids[job], 0.0) for job in self.program.member.tolist()])

    @property
    def _throughput(self) -> Floats:
        return self.allocation.job_throughput[self.program.member]

    def _duals(self, number: int, charge: Floats | None = None) -> _Duals:
        """The duals of a stage, after checking that no combo gains more than it pays, including `charge`."""
        stage, problem, program = self.answer.stages[number], self.program.problem, self.program
        named = {name: stage.prices.get(name, np.nan) for name in program.polytope.structure.rows.names}
        prices = np.array([named[accelerator_type.name] for accelerator_type in problem.types])
        worth, time = self._of(dict(stage.worth)), self._of(dict(stage.time_worth))
        gangs, limits = self._gangs(stage)
        everything = np.concatenate([worth, time, list(named.values())])
        faults = [] if (everything >= 0).all() else ["a dual is negative, missing or not a number"]
        faults += [f"there is no row {name!r}" for name in stage.prices if name not in named]
        fee = np.zeros(len(problem.columns)) if charge is None else charge
        rates = problem.rates[program.profile]
        pays = program.workers[:, None] * (prices[problem.column_type] + fee) + gangs
        gains = worth[:, None] * rates
        excess = np.where(rates > 0, gains - time[:, None] - pays, -np.inf)
        small = TINY * float(prices @ problem.counts + limits + time.sum())
        own = np.maximum(gains.max(axis=1), time + np.where(rates > 0, pays, 0.0).max(axis=1))
        allowed = np.maximum(SAME * own, small)
        for index in (excess.max(axis=1, initial=-np.inf) > allowed).nonzero()[0].tolist():
            type_name = problem.types[problem.column_type[int(excess[index].argmax())]].name
            faults.append(f"job {problem.jobs.ids[program.member[index]]!r} gains more on {type_name} than it pays")
        time = np.maximum(time, time + excess.max(axis=1, initial=-np.inf))
        raised, paired = self._pairs(worth, time, prices, fee, small)
        faults += paired
        affordable = float((prices + raised) @ problem.counts + limits + time.sum())
        self.report.check(
            f"stage {number} ({stage.kind} {stage.value:.6g}): nowhere does a job or a pair gain more than it pays",
            (f"stage {number}: {fault}" for fault in faults),
        )
        return _Duals(worth, time, prices, gangs, affordable)

    def _gangs(self, stage: AnswerStage) -> tuple[Floats, float]:
        """By class and column: the price of being consolidated; and the total price of all that room."""
        problem, workers = self.program.problem, self.program.workers
        paid, total = np.zeros((len(self.program), len(problem.columns))), 0.0
        for column in problem.closer_columns:
            for size in np.unique(workers).astype(int).tolist():
                price = stage.prices.get(gang_row(column.type.name, size), 0.0)
                paid[workers >= size, column.index] += price
                total += price * (column.most_gangs(size) or 0)
        return paid, total

    def _pairs(
        self, worth: Floats, time: Floats, prices: Floats, fee: Floats, small: float
    ) -> tuple[Floats, list[str]]:
        """By type: the extra price at which no pair gains; and the pairs for which this is more than rounding."""
        problem, program = self.program.problem, self.program
        raised, faults = np.zeros(len(prices)), []
        members = [(program.profile == profile).nonzero()[0] for profile in range(len(problem.rates))]
        for row, (one, other) in enumerate(zip(problem.pairs.first, problem.pairs.second, strict=True)):
            first, second = members[int(one)], members[int(other)]
            if not len(first) or not len(second) or (one == other and len(first) < 2):
                continue
            workers = float(program.workers[first[0]])
            rates = problem.pairs.rates[row]
            for column in (rates > 0).all(axis=0).nonzero()[0].tolist():
                type_index = int(problem.column_type[column])
                if workers > problem.counts[type_index]:
                    continue
                left = worth[first] * rates[0, column] - time[first]
                right = worth[second] * rates[1, column] - time[second]
                most = float(np.sort(left)[-2:].sum()) if one == other else float(left.max() + right.max())
                over = most - workers * (prices[type_index] + fee[column])
                size = max(worth[first].max() * rates[0, column], worth[second].max() * rates[1, column], 1e-300)
                if over > max(SAME * size, small):
                    names = problem.jobs.ids[program.member[first[0]]], problem.jobs.ids[program.member[second[-1]]]
                    faults.append(
                        f"a pair like {' and '.join(names)} gains more on {problem.types[type_index].name} than it pays"
                    )
                raised[type_index] = max(raised[type_index], over / workers)
        return raised, faults

    def _level(self, claim: LevelClaim) -> float:
        stage = self.answer.stages[0]
        duals = self._duals(0)
        objective = claim.objective(stage.value)
        self.report.check("stage 0: no level is higher", self._highest(stage, duals, claim))
        faults = list(self._stopped(range(len(self.answer.stages))))
        if self.optimal:
            faults += _unequal("the level of stage 0, as an objective,", objective, self.answer.objective)
            needed = claim.demand.at(stage.value) * (1 - SAME)
            if (self._throughput < needed).any():
                faults.append("some job is below the level of stage 0")
        factor = claim.per_level(stage.value)
        for accelerator_type, price in zip(self.program.problem.types, duals.prices.tolist(), strict=True):
            faults += _unequal(
                f"the price of {accelerator_type.name}",
                self.answer.prices.get(accelerator_type.name, np.nan),
                price * factor,
            )
        self.report.check("level, prices and stages of jobs agree with each other", faults)
        if len(self.answer.stages) > 1:
            floors = np.minimum(claim.demand.at(stage.value), self.program.reach)
            self._total_stage(1, claim.gain, floors)
        return claim.objective(stage.bound)

    def _highest(self, stage: AnswerStage, duals: _Duals, claim: LevelClaim) -> Iterator[str]:
        """Check that the level uses everything that is affordable, so that no higher level is feasible."""
        yield from _unequal("stage 0: the bound of the level", stage.bound, stage.value)
        yield from self._loose(0, duals, claim.demand.at(stage.value))
        top = claim.demand.ceiling(self.program.reach)
        if not duals.worth.any() and stage.value < top - SAME * abs(top):
            yield "stage 0: no dual proves that the level cannot be higher"

    def _loose(self, number: int, duals: _Duals, throughput: Floats) -> Iterator[str]:
        """Check that the proof is tight: at these prices, all resources afford no more than these throughputs."""
        used = float(np.where(duals.worth > 0, duals.worth * throughput, 0.0).sum())
        if not abs(duals.affordable - used) <= SAME * max(duals.affordable, used):
            yield f"stage {number}: its duals afford {duals.affordable:.9g}, but {used:.9g} is used: they prove nothing"

    def _filling(self, claim: FillingClaim) -> float:
        program = self.program
        position, level = np.zeros(len(program)), 0.0
        active = np.ones(len(program), dtype=bool)
        ids = program.problem.jobs.ids
        for number, stage in enumerate(self.answer.stages):
            duals = self._duals(number)
            demand = claim.rise(position, active)
            position = np.maximum(demand.at(stage.value - level), position)
            stopped = np.array([ids[job] in set(stage.stopped) for job in program.member.tolist()], dtype=bool)
            self.report.check(
                f"stage {number}: all {int(stopped.sum())} jobs that stop are at its level and cannot rise",
                (f"stage {number}: {fault}" for fault in self._stuck(duals, position, stopped, active)),
            )
            faults = [*_unequal(f"the bound of stage {number}", stage.bound, stage.value)]
            faults += self._loose(number, duals, position)
            if stage.value - level > demand.ceiling(program.reach) * (1 + SAME) + SAME * stage.value:
                faults.append(f"stage {number}: no job rises to the level {stage.value:.9g}")
            self.report.check(f"stage {number}: no level is higher", faults)
            active &= ~stopped
            level = stage.value
        faults = [f"job {ids[job]!r} stops in no stage" for job in program.member[active].tolist()]
        faults += self._stopped(range(len(self.answer.stages)))
        first = self.answer.stages[0]
        if self.optimal:
            faults += _prices_differ(self.answer, first)
        self.report.check("every job stops once, and prices are those of the first stage", faults)
        one = claim.rise(np.zeros(len(program)), np.ones(len(program), dtype=bool))
        speed = one.slope(0.0) if first.value <= 0 else one.slope(first.value * 1e-12)
        served = speed > 0
        return min(first.bound, float(np.min(program.reach[served] / speed[served], initial=np.inf)))

    def _stuck(self, duals: _Duals, position: Floats, stopped: Bools, active: Bools) -> Iterator[str]:
        """Faults of the jobs that stop in a stage: they could rise, or have another throughput."""
        program, ids = self.program, self.program.problem.jobs.ids
        left = max(duals.affordable - float(duals.worth @ position), DUAL_ROUNDING * duals.affordable)
        headroom = np.divide(left, duals.worth, out=np.full(len(program), np.inf), where=duals.worth > 0)
        saturated = position >= program.reach * (1 - STUCK)
        for index in (stopped & ~saturated & (headroom > STUCK * program.reach)).nonzero()[0].tolist():
            yield f"nothing proves that job {ids[program.member[index]]!r} cannot rise"
        for index in (stopped & ~active).nonzero()[0].tolist():
            yield f"job {ids[program.member[index]]!r} had stopped before"
        if self.optimal:
            off = np.abs(self._throughput - position) > STUCK * program.reach
            for index in (stopped & off).nonzero()[0].tolist():
                yield (
                    f"job {ids[program.member[index]]!r} gets {self._throughput[index]:.9g} instead of the "
                    f"{position[index]:.9g} at which it stops"
                )

    def _stopped(self, numbers: Iterable[int]) -> Iterator[str]:
        """Check that jobs and stages agree on where each job stops."""
        for number in numbers:
            for name in self.answer.stages[number].stopped:
                found = self.answer.jobs.get(name)
                if found is None or found.stage != number:
                    yield f"job {name!r} stops in stage {number}, but is listed otherwise"
        listed = {name for stage in self.answer.stages for name in stage.stopped}
        for name, job in self.answer.jobs.items():
            if job.stage is not None and name not in listed:
                yield f"job {name!r} is listed in a stage in which it does not stop"

    def _total_stage(
        self, number: int, gain: Floats, floors: Floats, charge: Floats | None = None, *, least: bool = False
    ) -> float:
        """Check that no total is larger, and return the bound that the duals prove."""
        stage = self.answer.stages[number]
        duals = self._duals(number, charge)
        held = duals.worth - gain
        faults = [*_misjudged(duals.worth, gain, floors)]
        proven = duals.affordable - float(np.maximum(held, 0.0) @ floors)
        claimed = -stage.bound if least else stage.bound
        size = max(abs(claimed), duals.affordable, float(np.maximum(held, 0.0) @ floors))
        if not abs(proven - claimed) <= SAME * size:
            faults.append(f"its duals prove {proven:.9g}, not the bound {claimed:.9g}")
        if self.optimal and charge is None:
            faults += _unequal("the total", stage.value, float(gain @ self._throughput), 10 * SAME)
            if (self._throughput < floors * (1 - 2 * SAME)).any():
                faults.append("some job is below its floor")
        self.report.check(f"stage {number}: no total is larger", (f"stage {number}: {fault}" for fault in faults))
        return stage.bound

    def _ratio(self, claim: RatioClaim) -> float:
        program, stages = self.program, self.answer.stages
        last, best_single = stages[-1], self._best_single(claim)
        if len(stages) == 1:
            # Without floors, the best ratio is that of a single job or pair.
            self.report.check("stage 0: no ratio is larger", _unequal("stage 0: the ratio", last.bound, best_single))
            self._duals(0, claim.charge * last.bound)
            return last.bound
        least = self._total_stage(0, np.zeros(len(program)), claim.floors, claim.charge, least=True)
        duals = self._duals(1, claim.charge * last.value)
        held = float(np.maximum(duals.worth - claim.gain, 0.0) @ claim.floors)
        surplus, size = duals.affordable - held, max(duals.affordable, held, float(claim.gain @ self._throughput))
        proven = min(best_single, last.value + max(surplus, 0.0) / max(least, 1e-12))
        faults = [f"stage 1: {fault}" for fault in _misjudged(duals.worth, claim.gain, claim.floors)]
        if not proven <= last.bound * (1 + 2 * SAME) or abs(surplus) > 2 * SAME * size:
            faults.append(f"stage 1: its duals prove the ratio {proven:.9g}, not {last.bound:.9g}")
        if self.optimal and (self._throughput < claim.floors * (1 - 2 * SAME)).any():
            faults.append("some job misses a deadline that is not given up")
        self.report.check("stage 1: no ratio is larger", faults)
        return last.bound

    def _best_single(self, claim: RatioClaim) -> float:
        """The best ratio of gain to charge of a single job or pair: no allocation has a better one."""
        problem, program = self.program.problem, self.program
        rates = problem.rates[program.profile]
        each = claim.gain[:, None] * rates / (program.workers[:, None] * claim.charge)
        best = float(each.max(initial=0.0))
        gain = np.zeros(len(problem.rates))
        np.maximum.at(gain, program.profile, claim.gain)
        present = np.bincount(program.profile, minlength=len(gain))
        one, other = problem.pairs.first, problem.pairs.second
        here = (present[one] > 0) & (present[other] > 0) & ((one != other) | (present[one] > 1))
        total = (gain[one][:, None] * problem.pairs.rates[:, 0] + gain[other][:, None] * problem.pairs.rates[:, 1])[
            here
        ]
        workers = problem.profiles.workers[one][here][:, None]
        fits = workers <= problem.counts[problem.column_type]
        return max(best, float((total * fits / (workers * claim.charge)).max(initial=0.0)))


def _misjudged(worth: Floats, gain: Floats, floors: Floats) -> Iterator[str]:
    """Check that jobs are worth what they gain, or more if they have a floor."""
    held = worth - gain
    wrong = (held < 0) | ((floors == 0) & (held > 0))
    if (wrong & (np.abs(held) > SAME * np.maximum(gain, worth))).any():
        yield "a job is worth less than it gains, or more without a floor"


def _prices_differ(answer: Answer, first: AnswerStage) -> Iterator[str]:
    for name, price in answer.prices.items():
        yield from _unequal(f"the price of {name}", price, first.prices.get(name, np.nan))


def _prove(claim: Claim, kinds: Sequence[str]) -> bool:
    """Whether stages of these kinds can prove a claim."""
    match claim:
        case LevelClaim():
            return kinds in (["level"], ["level", "total"])
        case FillingClaim():
            return bool(kinds) and set(kinds) == {"level"}
        case TotalClaim():
            return kinds == ["total"]
        case RatioClaim():
            return kinds in (["ratio"], ["charge", "ratio"])
