"""Simulations in which the scheduler does not know all throughputs: profiled, estimated, measured."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from artefact_table import write_artefact_table
from gavel.core.cluster import parse_cluster
from gavel.core.errors import InputError
from gavel.core.events import Event, JobFailed, RateMeasured, RatesProfiled, ServerJoined, ServerLost
from gavel.core.throughputs import Condition, builtin_table
from gavel.estimator.learned import LearnedTable
from gavel.scheduler.machine import check_invariants
from gavel.sim.experiment import Experiment, prepare, run
from gavel.sim.profiling import known_part, profile
from gavel.sim.report import Report
from gavel.sim.view import View
from gavel.workload.trace import Trace, TraceJob

TABLE = builtin_table()
BUSY = Experiment(
    cluster="v100=4,p100=4,k80=4", jobs=80, arrivals_per_hour=0.7, space_sharing=True, throughputs_known=0.2
)


class Watcher:
    """Records what happens, and what the scheduler believes in the end."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.table: LearnedTable | None = None

    def after(self, event: Event, view: View) -> None:
        check_invariants(view._scheduler)
        self.events.append(event)
        assert isinstance(view.table, LearnedTable)
        self.table = view.table


def watched(experiment: Experiment) -> tuple[Report, Watcher, LearnedTable]:
    watcher = Watcher()
    report = run(experiment, observers=[watcher])
    assert watcher.table is not None
    return report, watcher, watcher.table


def seconds(experiment: Experiment) -> float:
    return float(run(experiment).document()["average_jct_seconds"])


def test_the_same_seed_gives_the_same_run_and_another_one_knows_other_templates() -> None:
    first, again = run(BUSY), run(BUSY)
    assert first.completion_seconds() == again.completion_seconds()
    assert known_part(TABLE, 0.2, 0).templates == known_part(TABLE, 0.2, 0).templates
    assert known_part(TABLE, 0.2, 0).templates != known_part(TABLE, 0.2, 1).templates


@pytest.mark.parametrize(("share", "count"), [(0.01, 1), (0.2, 5), (0.5, 13), (0.99, 26)])
def test_the_share_says_how_many_templates_are_known(share: float, count: int) -> None:
    assert len(known_part(TABLE, share, 3).templates) == count


def test_all_jobs_finish_and_beliefs_about_what_ran_are_true() -> None:
    report, watcher, table = watched(BUSY)
    assert report.outcome.drained
    measured = [event for event in watcher.events if isinstance(event, RateMeasured)]
    assert measured
    for condition, rate in table.measured().items():
        if condition.beside is None:
            true = TABLE.rates([(condition.template, condition.workers)], [condition.type])[0, 0, 0]
        else:
            beside = (condition.beside, condition.workers)
            true = TABLE.together((condition.template, condition.workers), beside, condition.type)[0]
        assert rate == pytest.approx(true)
    assert not any(condition.template not in TABLE.templates for condition in table.measured())


def test_a_job_reports_its_rate_once_for_each_launch_or_change() -> None:
    _, watcher, _ = watched(BUSY)
    reports = Counter(event.job for event in watcher.events if isinstance(event, RateMeasured))
    assert max(reports.values()) < 60
    assert len(reports) > 60


def test_a_pair_that_does_not_fit_fails_once_and_is_not_tried_again() -> None:
    tried: Counter[tuple[str, str, frozenset[str]]] = Counter()
    failures = 0
    for seed in (2, 3):
        report, watcher, table = watched(replace(BUSY, seed=seed, arrivals_per_hour=1.5))
        failed = [event for event in watcher.events if isinstance(event, JobFailed)]
        failures += len(failed)
        assert report.outcome.drained
        assert all(event.crashed and event.retry for event in failed)
        for condition, count in table.measurements.failures.items():
            tried[str(seed), condition.type, frozenset({condition.template, condition.beside or ""})] += count
    assert failures
    assert max(tried.values()) <= 2  # two such pairs may have been launched in the same round


def test_space_sharing_by_estimates_is_nearly_as_good_as_by_the_truth_and_better_than_none() -> None:
    base = Experiment(cluster="v100=4,p100=4,k80=4", jobs=160, window=(40, 120), arrivals_per_hour=0.65, seed=2)
    shared = replace(base, space_sharing=True)
    alone, known, estimated = map(seconds, (base, shared, replace(shared, throughputs_known=0.2)))
    assert estimated < 0.97 * alone
    assert estimated < 1.05 * known


def test_space_sharing_by_estimates_also_works_with_noisy_throughputs(tmp_path: Path) -> None:
    file = str(write_artefact_table(tmp_path / "t.json", noise=0.03))
    test = replace(BUSY, jobs=160, window=(40, 120), arrivals_per_hour=0.65, seed=2, throughputs=file)
    known = replace(test, throughputs_known=1.0)
    assert seconds(test) < 1.05 * seconds(known)
    assert seconds(test) < 0.97 * seconds(replace(known, space_sharing=False))


def test_without_profiling_unknown_templates_are_not_packed() -> None:
    _, watcher, table = watched(replace(BUSY, profiling_share=0.0))
    assert not any(isinstance(event, RatesProfiled | ServerLost) for event in watcher.events)
    known = set(table.base.templates)
    assert all({c.template, c.beside} <= known for c in table.measured() if c.beside)


def arrivals(*jobs: tuple[str, float]) -> Trace:
    return Trace(tuple(TraceJob(str(number), name, 1, 1e4, time) for number, (name, time) in enumerate(jobs)))


def test_profiling_takes_accelerators_away_while_it_lasts_and_gives_them_back() -> None:
    known, new = TABLE.only(TABLE.templates[:20]), TABLE.templates[20]
    trace = arrivals((TABLE.templates[0], 0.0), (new, 100.0), (new, 5000.0))
    found = profile(trace, parse_cluster("v100=8,k80=4"), TABLE, known, share=0.2, seconds=60.0)
    sizes = {server.name: server.accelerators for server in found.cluster.servers}
    assert sizes == {"v100-0": 4, "v100-1": 2, "k80-0": 3, "v100-profiling": 2, "k80-profiling": 1}
    away = [(type(e), e.time) for e in found.events if isinstance(e, ServerLost) and e.server == "k80-profiling"]
    back = [e.time for e in found.events if isinstance(e, ServerJoined) and e.server.name == "k80-profiling"]
    figures = [e for e in found.events if isinstance(e, RatesProfiled) and e.type == "k80"]
    assert away == [(ServerLost, 100.0)]
    assert back == [100.0 + 60.0 * len(figures)]
    assert [e.beside for e in figures].count(None) == 1
    assert len(figures) > 2
    assert all(one.time <= other.time for one, other in pairwise(found.events))


def test_templates_that_come_together_are_profiled_one_after_the_other() -> None:
    known, first, second = TABLE.only(TABLE.templates[:20]), *TABLE.templates[20:22]
    found = profile(
        arrivals((first, 0.0), (second, 0.0)), parse_cluster("k80=4"), TABLE, known, share=0.1, seconds=60.0
    )
    times = [event.time for event in found.events if isinstance(event, RatesProfiled)]
    half = len(times) // 2
    assert times == [60.0 * half] * half + [120.0 * half] * half
    assert sum(isinstance(event, ServerLost) for event in found.events) == 1


def test_profiled_rates_are_believed_at_once() -> None:
    _, watcher, table = watched(replace(BUSY, jobs=12))
    for event in watcher.events:
        if isinstance(event, RatesProfiled) and event.beside is None:
            assert table.believed(Condition(event.template, 1, event.type)) == pytest.approx(event.rate)
    assert set(table.document()["resembles"]) >= {
        event.template for event in watcher.events if isinstance(event, RatesProfiled) and event.beside
    } - set(table.base.templates)


def test_with_everything_known_nothing_is_set_aside_or_measured() -> None:
    scene = prepare(replace(BUSY, throughputs_known=1.0))
    assert scene.known is None
    assert len(scene.cluster.servers) == 3


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"throughputs_known": 0.0}, "--throughputs-known 0: give the share of templates that are known"),
        ({"throughputs_known": 1.5}, "--throughputs-known 1.5: give the share"),
        ({"profiling_share": 1.0}, "--profiling-share 1: give the share of accelerators"),
        ({"profiling_minutes": 0.0}, "--profiling-minutes 0: give more than 0"),
        ({"ideal": True}, "--ideal knows all throughputs; leave out --throughputs-known"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        prepare(replace(BUSY, **settings))  # type: ignore[arg-type]
