"""Random problems for property tests: small, but with everything that a real one may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Entity, Job, Pair, PlacedRate, Rate
from gavel.core.problem import Problem


@dataclass(frozen=True)
class Case:
    """A problem as its parts, so that a test can change one of them."""

    types: tuple[AcceleratorType, ...]
    jobs: tuple[Job, ...]
    pairs: tuple[Pair, ...] = ()
    entities: Mapping[str, Entity] | None = None

    def problem(self) -> Problem:
        return Problem.of(self.types, self.jobs, self.pairs, self.entities)

    def with_jobs(self, jobs: tuple[Job, ...]) -> Case:
        return replace(self, jobs=jobs)

    def scaled(self, factors: Mapping[str, float], *, steps: bool) -> Case:
        """Each job's rates, alone and in pairs, times its factor; with `steps`, its steps too."""

        def job(j: Job) -> Job:
            f = factors[j.id]
            scaled_steps = j.steps * f if steps and j.steps is not None else j.steps
            return replace(j, rates={k: times(r, f) for k, r in j.rates.items()}, steps=scaled_steps)

        def pair(p: Pair) -> Pair:
            f, g = (factors[name] for name in p.jobs)
            return replace(p, rates={k: (a * f, b * g) for k, (a, b) in p.rates.items()})

        return replace(self, jobs=tuple(map(job, self.jobs)), pairs=tuple(map(pair, self.pairs)))


def times(rate: Rate, factor: float) -> Rate:
    """A rate, wherever the workers sit, times a factor."""
    if isinstance(rate, PlacedRate):
        return PlacedRate(rate.consolidated * factor, rate.unconsolidated * factor)
    return rate * factor


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    max_jobs: int = 8,
    max_types: int = 4,
    pairs: bool = True,
    placed: bool = True,
    entities: bool = True,
    max_workers: int = 4,
) -> Case:
    """Up to eight jobs of a few templates on up to four types; every job has steps and every type a price."""
    with_placement = placed and draw(st.booleans())
    types = tuple(draw(_type(n, with_placement)) for n in range(draw(st.integers(1, max_types))))
    templates = draw(st.lists(_template(types, max_workers, with_placement), min_size=1, max_size=4))
    tree = draw(trees()) if entities else {}
    count = draw(st.integers(min(2, max_jobs), max_jobs) | st.integers(1, max_jobs))
    jobs = tuple(draw(_job(n, templates, sorted(tree))) for n in range(count))
    sharing = draw(_pairs(jobs)) if pairs and draw(st.integers(0, 2)) else ()
    return Case(types, jobs, sharing, tree)


@st.composite
def _type(draw: st.DrawFn, number: int, with_servers: bool) -> AcceleratorType:
    count = draw(st.sampled_from([2, 1, 3, 4, 6, 0]))
    price = draw(st.sampled_from([0.25, 0.45, 1.46, 2.48, 12.0]))
    if with_servers and draw(st.booleans()):
        return AcceleratorType.uniform(f"t{number}", count=count, per_server=draw(st.integers(2, 4)), price=price)
    return AcceleratorType(f"t{number}", count, price)


_parts = st.sampled_from([1.0, 0.5, 0.3, 0.1, 0.05, 0.25, 0.6, 0.9, 0.0])


@st.composite
def _template(
    draw: st.DrawFn, types: tuple[AcceleratorType, ...], max_workers: int, placed: bool
) -> tuple[int, dict[str, Rate]]:
    workers = draw(st.sampled_from([w for w in (1, 1, 1, 2, 2, 3, 4) if w <= max_workers]))
    scale = draw(st.sampled_from([1e-3, 0.1, 1.0, 3.0, 70.0, 1e3]))
    rates: dict[str, Rate] = {}
    for kind in types:
        rate = scale * draw(_parts)
        if placed and workers > 1 and rate and draw(st.booleans()):
            rates[kind.name] = PlacedRate(rate, rate * draw(_parts))
        elif rate:
            rates[kind.name] = rate
    return workers, rates


@st.composite
def _job(draw: st.DrawFn, number: int, templates: list[tuple[int, dict[str, Rate]]], paths: list[str]) -> Job:
    workers, rates = draw(st.sampled_from(templates))
    fastest = max((best(rate) for rate in rates.values()), default=1.0)
    seconds = draw(st.sampled_from([0.5, 10.0, 600.0, 600.0, 3600.0, 5e5]))
    return Job(
        f"job{number}",
        rates,
        workers=workers,
        weight=draw(st.sampled_from([1.0, 1.0, 1.0, 0.5, 2.0, 5.0])),
        steps=seconds * fastest,
        arrival=float(draw(st.integers(0, 3))),
        age_seconds=draw(st.sampled_from([0.0, 0.0, 60.0, 1e4])),
        isolated_age_seconds=draw(st.sampled_from([0.0, 0.0, 60.0, 1e4])),
        deadline_seconds=draw(st.sampled_from([None, None, seconds * 0.9, seconds * 1.5, seconds * 4.0])),
        entity=draw(st.sampled_from([None, *paths])),
    )


def best(rate: Rate) -> float:
    """A rate where the workers sit best."""
    return max(rate.consolidated, rate.unconsolidated) if isinstance(rate, PlacedRate) else rate


@st.composite
def _pairs(draw: st.DrawFn, jobs: tuple[Job, ...]) -> tuple[Pair, ...]:
    """Some jobs share accelerators; now and then one even runs faster for it, as measurements have it."""
    found = []
    for one in range(len(jobs)):
        for other in range(one + 1, len(jobs)):
            if jobs[one].workers == jobs[other].workers and draw(st.booleans()):
                factors = st.sampled_from([0.6, 0.4, 0.2, 0.8, 0.95, 1.05, 0.0])
                common = sorted(set(jobs[one].rates) & set(jobs[other].rates))
                rates = {
                    kind: (
                        anywhere(jobs[one].rates[kind]) * draw(factors),
                        anywhere(jobs[other].rates[kind]) * draw(factors),
                    )
                    for kind in common
                }
                found.append(Pair((jobs[one].id, jobs[other].id), rates))
    return tuple(found)


def anywhere(rate: Rate) -> float:
    """A rate with the workers spread."""
    return rate.unconsolidated if isinstance(rate, PlacedRate) else rate


def trees() -> st.SearchStrategy[dict[str, Entity]]:
    """Entities up to three deep, each sharing fairly or first in, first out."""
    paths = st.sampled_from(["a", "b", "c", "a/x", "a/y", "b/x", "a/x/p", "a/x/q"])
    entity = st.builds(
        Entity, weight=st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.0]), policy=st.sampled_from(["fairness", "fifo"])
    )
    return st.dictionaries(paths, entity, max_size=6)
