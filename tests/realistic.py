"""Problems as a real cluster poses them: built-in templates, gangs, servers, weights, entities and a few pairs.

One generator serves hypothesis, which shrinks what it draws, and seeded loops, whose figures can be quoted.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import strategies as st

from gavel.core.cluster import AcceleratorType
from gavel.core.jobs import Entity, Job, Pair, PlacedRate, Rate
from gavel.core.throughputs import builtin_table
from strategies import Case

TABLE = builtin_table()
MOST_OF_A_TYPE = 32
PATHS = ("a", "b", "c", "a/x", "a/y", "b/x", "a/x/p", "a/x/q", "b/x/p")


def realistic_cases(*, max_jobs: int = 40) -> st.SearchStrategy[Case]:
    """Realistic problems drawn, and shrunk, by hypothesis."""
    return st.randoms(use_true_random=False).map(lambda random: realistic(random, max_jobs=max_jobs))


def realistic(random: Random, *, max_jobs: int = 40) -> Case:
    """6 to `max_jobs` jobs on up to three types, from a queue four times as long as the cluster to an idle cluster."""
    profiles = random.sample(TABLE.profiles, random.randint(2, 12))
    entities = _entities(random)
    weights = random.choice([(1.0,), (1.0, 1.0, 2.0), (0.5, 1.0, 1.0, 2.0, 3.0, 5.0)])
    jobs = [_job(random, f"j{n}", profiles, weights, list(entities)) for n in range(random.randint(6, max_jobs))]
    types = _types(random, wanted=sum(job.workers for job in jobs))
    jobs = [_with_rates(random, job, [kind.name for kind in types]) for job in jobs]
    pairs = _pairs(random, jobs) if random.random() < 0.3 else ()
    return Case(types, tuple(jobs), pairs, entities)


def _entities(random: Random) -> dict[str, Entity]:
    """A tree up to three deep; parents that are not described have the defaults."""
    paths = random.sample(PATHS, random.choice([0, 1, 2, 3, 4, 6]))
    return {
        path: Entity(random.choice([0.5, 1.0, 1.0, 2.0, 3.0]), random.choice(["fairness", "fairness", "fifo"]))
        for path in sorted(paths)
    }


def _job(
    random: Random, name: str, profiles: list[tuple[str, int]], weights: tuple[float, ...], paths: list[str]
) -> Job:
    template, workers = random.choice(profiles)
    if random.random() < 0.4:
        workers = 1
    return Job(
        name,
        {},
        workers=workers,
        weight=random.choice(weights),
        arrival=float(random.randint(0, 10)),
        entity=random.choice([None, *paths, *paths]),
        template=template,
    )


def _types(random: Random, *, wanted: int) -> tuple[AcceleratorType, ...]:
    names = random.sample(TABLE.types, random.choice([3, 3, 3, 2, 1]))
    total = wanted / random.choice([0.5, 0.8, 1.0, 1.3, 2.0, 4.0])
    parts = [random.choice([1, 1, 2, 3]) for _ in names]
    counts = [min(round(total * part / sum(parts)), MOST_OF_A_TYPE) for part in parts]
    return tuple(_type(random, name, count) for name, count in zip(names, counts, strict=True))


def _type(random: Random, name: str, count: int) -> AcceleratorType:
    """A type whose servers are not known, or of one size, or mixed."""
    layout = random.choice(["unknown", "uniform", "uniform", "mixed"])
    if layout == "uniform":
        return AcceleratorType.uniform(name, count=count, per_server=random.choice([2, 4, 8]))
    servers: list[int] = []
    while layout == "mixed" and sum(servers) < count:
        servers.append(min(random.choice([1, 2, 4, 8]), count - sum(servers)))
    return AcceleratorType(name, count, servers=tuple(servers))


def _with_rates(random: Random, job: Job, names: list[str]) -> Job:
    """The table's rates, for one job in six on some of the types only."""
    allowed = random.sample(names, random.randint(1, len(names))) if random.random() < 1 / 6 else names
    assert job.template is not None
    (placed,) = TABLE.rates([(job.template, job.workers)], allowed).tolist()
    rates: dict[str, Rate] = {
        name: together if together == spread else PlacedRate(together, spread)
        for name, (together, spread) in zip(allowed, placed, strict=True)
        if together or spread
    }
    return replace(job, rates=rates)


def _pairs(random: Random, jobs: list[Job]) -> tuple[Pair, ...]:
    """A few jobs of one worker that share accelerators as the table says."""
    single = [job for job in jobs if job.workers == 1]
    found = []
    for _ in range(random.randint(1, 8) if len(single) > 1 else 0):
        one, other = random.sample(single, 2)
        assert one.template is not None
        assert other.template is not None
        rates = {
            name: TABLE.together((one.template, 1), (other.template, 1), name)
            for name in sorted(set(one.rates) & set(other.rates))
        }
        found.append(Pair((one.id, other.id), rates))
    by_jobs = {frozenset(pair.jobs): pair for pair in found}
    return tuple(by_jobs.values())
