"""Measure the mechanisms side by side: `python tools/compare_mechanisms.py [--data DIR] [--write]`, about five minutes.

Three tables of docs/simulation.md: restarts and completion times of long generated jobs, by load and cost of a
restart; short jobs, bursts, gangs and published traces beside the ideal; and what each rule contributes. DIR holds
published logs (see docs/traces.md); without it, rows that need them are left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import Pool
from multiprocessing.pool import Pool as Workers
from pathlib import Path
from statistics import mean

import numpy as np

from gavel.core.throughputs import builtin_table
from gavel.policies.mechanisms import mechanism_for
from gavel.policies.registry import allocate, find_policy
from gavel.scheduler.machine import Settings
from gavel.scheduler.rules import Rules
from gavel.sim.experiment import Experiment, prepare
from gavel.sim.ideal import simulate_ideally
from gavel.sim.outcome import Outcome
from gavel.sim.records import JobRecord, job_records
from gavel.sim.simulate import simulate
from gavel.workload.trace import Trace, TraceJob

PAGE = Path(__file__).parents[1] / "docs" / "simulation.md"
BASE = Experiment(cluster="v100=12,p100=12,k80=12", jobs=300, window=(80, 220))
LONG = {
    "single-worker": (BASE, (1.0, 1.6, 2.2)),
    "multi-worker": (replace(BASE, multi_worker=True), (0.4, 0.6, 0.8)),
    "single-worker, space sharing": (replace(BASE, space_sharing=True), (1.0, 1.6, 2.2)),
}
RESTART_SECONDS = (0.0, 30.0, 60.0)
SEEDS = (0, 1, 2)
SHORT = replace(BASE, jobs=1500, durations=(600.0, 1200.0, 1800.0, 2400.0, 3000.0, 3600.0), window=(200, 1300))
SATURN = Experiment(cluster="t4=24,a100=16,rtx2080ti=24", per_server=8, reference="t4", restart_seconds=60.0)
RULES: dict[str, str | Rules] = {
    "nothing: all rules": "credits",
    "starts during a round": "at rounds",
    "first turns that displace": Rules(first_turns=0.0),
    "waiting before first turns displace": Rules(first_wait=0.0),
    "moves to idle types": Rules(upgrading=0.0),
    "leaving runs alone that are about to end": Rules(ending=0.0),
    "holding accelerators for gangs": Rules(holding=False),
    "equal jobs that trade places": Rules(trading=np.inf),
    "moving only jobs that are behind": Rules(behind=-np.inf),
}


@dataclass(frozen=True)
class Case:
    """A workload: an experiment, and jobs for it if they are not generated or read by the experiment itself."""

    experiment: Experiment
    jobs: tuple[TraceJob, ...] = ()


@dataclass(frozen=True)
class Measured:
    """The outcome of the jobs in a window."""

    average: float
    p99: float
    restarts: float
    slowdown_p99: float
    """Completion time divided by the time alone on the fastest type."""
    short_p99: float
    short_worst: float
    """Completion times of jobs of less than ten minutes; NaN where there are none."""
    utilisation: float

    @classmethod
    def of(cls, records: Sequence[JobRecord], outcome: Outcome) -> Measured:
        done = [record for record in records if record.jct_seconds is not None]
        seconds = np.array([record.jct_seconds for record in done])
        alone = np.array([record.fastest_seconds or np.nan for record in done])
        short = seconds[alone < 600.0]
        return cls(
            float(seconds.mean()),
            float(np.percentile(seconds, 99)),
            mean(record.restarts for record in done),
            float(np.nanpercentile(seconds / alone, 99)),
            float(np.percentile(short, 99)) if len(short) else np.nan,
            float(short.max()) if len(short) else np.nan,
            outcome.given_seconds / max(outcome.offered_seconds, 1e-9),
        )


def measure(case: Case, how: str | Rules, *, only_workers: int = 0) -> Measured:
    """Simulate a case: "ideal", "plain", "credits", "at rounds" (credits, no starts during a round), or by rules."""
    experiment = case.experiment
    scene = prepare(experiment, trace=Trace.of(case.jobs) if case.jobs else None)
    settings = Settings(
        round_seconds=experiment.round_seconds,
        space_sharing=experiment.space_sharing,
        restart_seconds=experiment.restart_seconds,
        start_mid_round=how not in {"plain", "at rounds"} if isinstance(how, str) else True,
    )
    solver = partial(allocate, compare=False)
    scenery = (scene.trace, scene.cluster, scene.table, solver)
    if how == "ideal":
        outcome = simulate_ideally(*scenery, settings, window=experiment.window, entities=scene.entities)
    else:
        policy, name = find_policy("max_min_fairness"), "plain" if how == "plain" else "credits"
        mechanism = mechanism_for(policy, name, rules=how if isinstance(how, Rules) else None)
        outcome = simulate(
            *scenery,
            mechanism,
            settings,
            restart_seconds=experiment.restart_seconds,
            window=experiment.window,
            entities=scene.entities,
        )
    counted = scene.trace.jobs[slice(*experiment.window)] if experiment.window else scene.trace.jobs
    wanted = [job for job in counted if job.workers == only_workers or not only_workers]
    return Measured.of(job_records(wanted, outcome, scene.cluster, scene.table), outcome)


def seeded(base: Experiment, seeds: Sequence[int] = SEEDS) -> list[Case]:
    """The same workload with other seeds."""
    return [Case(replace(base, seed=seed)) for seed in seeds]


def eight() -> list[Case]:
    """Eight jobs of 30 minutes on a V100, at once."""
    template = "ResNet-50 (batch size 64)"
    steps = 1800.0 * float(builtin_table().rates([(template, 1)], ["v100"])[0, 0, 0])
    jobs = tuple(TraceJob(f"job{number}", template, 1, steps, 0.0) for number in range(8))
    return [Case(Experiment(cluster="v100=4,k80=4"), jobs)]


def gangs_of_16(jobs: int = 400, per_hour: float = 4.8) -> list[Case]:
    """Single workers and gangs of up to 16 that arrive at random, lasting 6 minutes to 17 hours on V100s."""
    cases, templates = [], [name for name in builtin_table().templates if name.startswith(("ResNet", "LM", "Trans"))]
    cluster = Experiment(cluster="v100=32,p100=32,k80=32", per_server=8, window=(jobs // 5, jobs * 4 // 5))
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        arrival = rng.exponential(3600.0 / per_hour, jobs).cumsum()
        workers, minutes = (
            rng.choice([1, 4, 8, 16], size=jobs, p=[0.5, 0.2, 0.15, 0.15]),
            10 ** rng.uniform(0.8, 3, jobs),
        )
        profiles = list(zip(rng.choice(templates, jobs).tolist(), workers.tolist(), strict=True))
        rates = builtin_table().scaled(profiles).rates(profiles, ["v100"])[:, 0, 0]
        steps = (rates * minutes * 60.0).tolist()
        given = zip(profiles, steps, arrival.tolist(), strict=True)
        trace = tuple(TraceJob(f"j{n}", *profile, step, at) for n, (profile, step, at) in enumerate(given))
        cases.append(Case(cluster, trace))
    return cases


def others(data: Path) -> dict[str, list[Case]]:
    """Published traces."""
    philly = Experiment(
        cluster="v100=8,p100=8,k80=8",
        trace=str(data / "real" / "philly_11cb48_14d_helios_form.csv"),
        trace_format="helios",
    )
    saturn = replace(SATURN, throughputs=str(data / "sia" / "sia-rigid-throughputs.json"))
    traces = [str(data / "sia" / f"saturn-{number}.csv") for number in range(1, 11)]
    return {PHILLY: [Case(philly)], SATURN_NAME: [Case(replace(saturn, trace=trace)) for trace in traces]}


PHILLY, SATURN_NAME = "Philly, 14 days, 8:8:8", "Sia's ten Saturn traces, 24 T4, 16 A100, 24 RTX"
GANGS = "gangs of up to 16, 32:32:32 (those of 16)"


def short_cases(data: Path | None) -> dict[str, list[Case]]:
    """Workloads of short jobs, bursts and gangs, by name."""
    short = {
        f"jobs of 10 to 60 min, {load}/h, 12:12:12": seeded(replace(SHORT, arrivals_per_hour=float(load)))
        for load in (14, 20, 26)
    }
    generated = {"8 ResNet-50 of 30 min, 4 V100 + 4 K80": eight(), **short, GANGS: gangs_of_16()}
    return generated | (others(data) if data else {})


Compare = Callable[[list[Case], str | Rules, int], list[Measured]]


def comparing(pool: Workers) -> Compare:
    """Measures cases on all cores."""

    def compare(cases: list[Case], how: str | Rules, only_workers: int = 0) -> list[Measured]:
        return pool.map(partial(measure, how=how, only_workers=only_workers), cases, chunksize=1)

    return compare


def average(measured: Sequence[Measured], figure: str) -> float:
    return mean(getattr(each, figure) for each in measured)


def long_rows(compare: Compare) -> Iterator[str]:
    yield "| workload | jobs/h | restart | restarts a job: plain | credits | fewer by | average JCT, credits / plain |"
    yield "|---|---|---|---|---|---|---|"
    for name, (base, loads) in LONG.items():
        for load in loads:
            for cost in RESTART_SECONDS:
                cases = seeded(replace(base, arrivals_per_hour=load, restart_seconds=cost))
                plain, credit = (compare(cases, how, 0) for how in ("plain", "credits"))
                before, after = average(plain, "restarts"), average(credit, "restarts")
                ratio = average(credit, "average") / average(plain, "average")
                fewer = f"{before / max(after, 1e-9):.1f}x"
                yield f"| {name} | {load} | {cost:g} s | {before:.1f} | {after:.1f} | {fewer} | {ratio:.3f} |"


def short_rows(compare: Compare, data: Path | None) -> Iterator[str]:
    yield (
        "| workload | average JCT: ideal | plain | credits | over ideal | p99, credits / plain | restarts a job: plain "
        "| credits | slowdown p99: ideal | plain | credits | jobs < 10 min p99, worst: plain | credits |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for name, cases in short_cases(data).items():
        only = 16 if name == GANGS else 0
        ideal, plain, credit = (compare(cases, how, only) for how in ("ideal", "plain", "credits"))
        jct = [average(side, "average") for side in (ideal, plain, credit)]
        slowdown = [average(side, "slowdown_p99") for side in (ideal, plain, credit)]
        short = [[average(side, f"short_{what}") / 3600.0 for what in ("p99", "worst")] for side in (plain, credit)]
        yield (
            "| "
            + " | ".join(
                [
                    name,
                    *(f"{seconds / 60:,.1f} min" for seconds in jct),
                    f"{100 * (jct[2] / jct[0] - 1):+.1f}%",
                    f"{average(credit, 'p99') / average(plain, 'p99'):.2f}",
                    *(f"{average(side, 'restarts'):.2f}" for side in (plain, credit)),
                    *(f"{value:.1f}" for value in slowdown),
                    *("-" if np.isnan(p99) else f"{p99:.2f} h, {worst:.1f} h" for p99, worst in short),
                ]
            )
            + " |"
        )


def rule_rows(compare: Compare, data: Path | None) -> Iterator[str]:
    long = seeded(replace(BASE, arrivals_per_hour=2.2)) + seeded(
        replace(BASE, multi_worker=True, arrivals_per_hour=0.8)
    )
    cases = {"long jobs at high load": long, **short_cases(data)}
    cases = {name: found for name, found in cases.items() if "14/h" not in name and "20/h" not in name}
    yield "| without | " + " | ".join(f"{name}: JCT, restarts" for name in cases) + " |"
    yield "|---" * (len(cases) + 1) + "|"
    for rule, how in RULES.items():
        cells = []
        for name, found in cases.items():
            measured = compare(found, how, 16 if name == GANGS else 0)
            short = average(measured, "short_p99") / 3600.0
            extra = f", short p99 {short:.2f} h" if name == PHILLY else ""
            cells.append(f"{average(measured, 'average') / 60:,.1f} min, {average(measured, 'restarts'):.2f}{extra}")
        yield "| " + " | ".join([rule, *cells]) + " |"


def main() -> None:
    """Print the tables; with --write, also update docs/simulation.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a directory with the folders real and sia")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/simulation.md")
    parser.add_argument("--only", choices=("mechanisms", "short", "rules"), help="one of the tables")
    options = parser.parse_args()
    with Pool() as pool:
        compare = comparing(pool)
        tables = {
            "mechanisms": long_rows(compare),
            "short": short_rows(compare, options.data),
            "rules": rule_rows(compare, options.data),
        }
        for name, rows in tables.items():
            if options.only in {None, name}:
                lines = []
                for line in rows:
                    lines.append(line)
                    print(line, flush=True)
                if options.write:
                    _write(name, lines)


def _write(name: str, lines: list[str]) -> None:
    begin, end = f"<!-- {name} -->\n", f"<!-- end {name} -->\n"
    start, _, rest = PAGE.read_text().partition(begin)
    PAGE.write_text(start + begin + "\n".join(lines) + "\n" + end + rest.partition(end)[2])


if __name__ == "__main__":
    main()
