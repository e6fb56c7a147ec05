"""Generated workloads: the paper's distributions, and what a seed promises."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.errors import InputError
from gavel.core.jobs import is_path
from gavel.core.throughputs import builtin_table
from gavel.workload.generate import LONG_MINUTES, SHORT_MINUTES, WORKER_SHARES, generate
from gavel.workload.reference import Reference
from gavel.workload.trace import Trace, TraceJob

TABLE = builtin_table()
V100 = Reference.of(TABLE, "v100")


def workload(**changes: Any) -> Trace:
    asked: dict[str, Any] = {
        "jobs": 200,
        "arrivals_per_hour": 4.0,
        "multi_worker": True,
        "table": TABLE,
        "seed": 0,
    }
    return generate(**(asked | changes))


def seconds(job: TraceJob) -> float:
    return job.steps / V100.rate(job.template, job.workers)


@given(
    jobs=st.integers(1, 60),
    load=st.none() | st.floats(0.01, 1000.0),
    multi=st.booleans(),
    seed=st.integers(0, 2**64),
    share=st.floats(0.0, 1.0),
    factors=st.lists(st.floats(0.1, 20.0), max_size=3),
    entities=st.lists(st.text(min_size=1, max_size=3).filter(is_path), max_size=3),
)
def test_every_workload_is_sorted_starts_at_0_and_runs_on_the_table(
    jobs: int, load: float | None, multi: bool, seed: int, share: float, factors: list[float], entities: list[str]
) -> None:
    def build() -> Trace:
        return workload(
            jobs=jobs,
            arrivals_per_hour=load,
            multi_worker=multi,
            seed=seed,
            high_priority_share=share,
            slo_factors=factors,
            entities=entities,
        )

    trace = build()
    assert trace == build()
    assert len({job.id for job in trace.jobs}) == jobs
    arrivals = [job.arrival for job in trace.jobs]
    assert arrivals[0] == 0.0
    assert arrivals == sorted(arrivals)
    for job in trace.jobs:
        assert job.workers in (TABLE.workers(job.template) if multi else (1,))
        assert 60 * 10 ** SHORT_MINUTES[0] * (1 - 1e-9) <= seconds(job) <= 60 * 10 ** LONG_MINUTES[1] * (1 + 1e-9)
        assert job.weight in (1.0, 5.0)
        assert (job.entity in entities) if entities else (job.entity is None)
        if factors:
            assert job.deadline_seconds is not None
            assert any(job.deadline_seconds == pytest.approx(factor * seconds(job)) for factor in factors)
        else:
            assert job.deadline_seconds is None


def test_shares_are_the_papers() -> None:
    jobs = workload(jobs=20_000, high_priority_share=0.2).jobs
    workers = Counter(job.workers for job in jobs)
    for count, share in WORKER_SHARES.items():
        assert workers[count] / len(jobs) == pytest.approx(share, abs=0.01)
    short = sum(seconds(job) < 60 * 10 ** LONG_MINUTES[0] for job in jobs)
    assert short / len(jobs) == pytest.approx(0.8, abs=0.01)
    assert sum(job.weight == 5.0 for job in jobs) / len(jobs) == pytest.approx(0.2, abs=0.01)
    gaps = np.diff([job.arrival for job in jobs])
    assert gaps.mean() == pytest.approx(900.0, rel=0.03)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # as of an exponential distribution


def test_logarithms_of_short_and_long_durations_are_uniform() -> None:
    minutes = np.log10([seconds(job) / 60 for job in workload(jobs=20_000).jobs])
    for low, high in (SHORT_MINUTES, LONG_MINUTES):
        inside = minutes[(minutes >= low) & (minutes < high)]
        assert np.quantile(inside, [0.25, 0.5, 0.75]) == pytest.approx(
            [low + (high - low) * q for q in (0.25, 0.5, 0.75)], abs=0.03
        )


def test_single_worker_jobs_draw_from_all_templates_and_others_from_those_that_can() -> None:
    jobs = workload(jobs=20_000).jobs
    single = Counter(job.template for job in jobs if job.workers == 1)
    several = Counter(job.template for job in jobs if job.workers > 1)
    assert set(single) == set(TABLE.templates)
    assert set(several) == set(V100.templates(8))
    assert max(single.values()) / min(single.values()) < 1.3
    assert max(several.values()) / min(several.values()) < 1.4


def test_a_seed_gives_the_same_jobs_at_every_load_with_gaps_scaled() -> None:
    slow, fast = workload(arrivals_per_hour=2.0).jobs, workload(arrivals_per_hour=8.0).jobs
    assert [(j.template, j.workers, j.steps) for j in slow] == [(j.template, j.workers, j.steps) for j in fast]
    assert [j.arrival for j in slow] == pytest.approx([4 * j.arrival for j in fast])


def test_asking_for_more_jobs_only_adds_some() -> None:
    assert workload(jobs=500).jobs[:200] == workload(jobs=200).jobs


def test_several_workers_change_neither_durations_nor_arrivals() -> None:
    one, several = workload(multi_worker=False).jobs, workload(multi_worker=True).jobs
    assert [seconds(j) for j in one] == pytest.approx([seconds(j) for j in several])
    assert [j.arrival for j in one] == [j.arrival for j in several]
    assert all(a == b for a, b in zip(one, several, strict=True) if b.workers == 1)


def test_different_seeds_differ() -> None:
    assert workload(seed=0) != workload(seed=1)


def test_a_static_workload_is_all_there_at_the_start() -> None:
    assert {job.arrival for job in workload(arrivals_per_hour=None).jobs} == {0.0}


def test_the_cost_experiment_of_the_paper() -> None:
    days = [86400.0 * count for count in (0.5, 1, 2, 4, 8)]
    jobs = workload(
        jobs=500, multi_worker=False, templates=["ResNet-50", "A3C"], durations=days, slo_factors=[1.2, 2, 10]
    ).jobs
    assert len({job.template for job in jobs}) == 5  # four batch sizes and A3C
    assert {round(seconds(job)) for job in jobs} == set(days)


def test_entities_take_turns() -> None:
    assert [job.entity for job in workload(jobs=5, entities=["a", "b"]).jobs] == ["a", "b", "a", "b", "a"]


def test_steps_are_by_the_reference_type() -> None:
    fast, slow = workload(multi_worker=False).jobs[0], workload(multi_worker=False, reference_type="k80").jobs[0]
    assert fast.template == slow.template
    k80 = Reference.of(TABLE, "k80")
    assert fast.steps / V100.rate(fast.template, 1) == pytest.approx(slow.steps / k80.rate(slow.template, 1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"jobs": 0}, "at least one job, not 0"),
        ({"seed": -1}, "the seed must be 0 or more, not -1"),
        ({"arrivals_per_hour": 0.0}, "the number of arrivals per hour must be greater than 0 and finite, not 0"),
        ({"arrivals_per_hour": float("inf")}, "and finite, not inf"),
        ({"high_priority_share": 1.5}, "between 0 and 1, not 1.5"),
        ({"high_priority_weight": 0.0}, "a high priority's weight must be greater than 0"),
        ({"slo_factors": [2.0, -1.0]}, "an SLO factor must be greater than 0 and finite, not -1"),
        ({"durations": [0.0]}, "a duration in seconds must be greater than 0"),
        ({"templates": ["ResNet50"]}, "there is no template 'ResNet50'; the closest known names are: 'ResNet-50 ("),
        ({"templates": []}, "the list of templates is empty"),
        ({"templates": ["A3C"]}, "none of 'A3C' has a rate with 2 workers on v100"),
        ({"reference_type": "h100"}, "accelerator type 'h100' has no throughputs; use one of: v100, p100, k80"),
    ],
)
def test_what_cannot_be_generated_is_refused_in_one_sentence(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refusal:
        workload(**changes)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
