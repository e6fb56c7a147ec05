"""Entities in whole simulations: weights and queues hold over time, and files that describe them are checked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gavel.core.errors import InputError
from gavel.core.events import Event, RoundDue
from gavel.core.problem import Floats, Ints
from gavel.core.throughputs import builtin_table
from gavel.policies.mechanisms import MechanismName
from gavel.sim.experiment import Experiment, prepare, run
from gavel.sim.view import View
from gavel.workload.formats import write_trace
from gavel.workload.trace import Trace, TraceJob

MECHANISMS: tuple[MechanismName, ...] = ("credits", "plain")
ENDLESS = 1e9
BACKLOG = Experiment(
    cluster="v100=6",
    policy="hierarchical",
    jobs=24,
    templates=("A3C",),
    durations=(ENDLESS,),
    restart_seconds=0.0,
    limit_days=10.0,
)


@pytest.fixture
def weights(tmp_path: Path) -> str:
    file = tmp_path / "teams.json"
    file.write_text('{"research": {"weight": 1}, "product": {"weight": 2}}')
    return str(file)


class Received:
    """Tracks what each entity has received so far."""

    def __init__(self) -> None:
        self.accelerator_seconds: Floats = np.zeros(0)
        """By entity, in alphabetical order."""
        self.normalised: Floats = np.zeros(0)

    def after(self, event: Event, view: View) -> None:
        if isinstance(event, RoundDue):
            scheduler = view._scheduler
            scheduler.account(event.time)
            roster, slots = scheduler.roster, scheduler.roster.active
            problem, entity = scheduler.problem(event.time), roster.entity[slots]
            self.accelerator_seconds = _by(entity, roster.received[slots].sum(axis=1) * roster.workers[slots])
            speed = problem.equal_share_rates[roster.profile[slots]]
            self.normalised = _by(entity, (roster.received[slots] * roster.rates[slots]).sum(axis=1) / speed)


def _by(entity: Ints, values: Floats) -> Floats:
    return np.bincount(entity, weights=values).astype(np.float64)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_entities_receive_accelerator_time_by_their_weights(mechanism: MechanismName, weights: str) -> None:
    received = Received()
    run(replace(BACKLOG, mechanism=mechanism, entities=weights), observers=[received])
    product, research = received.accelerator_seconds
    assert product / research == pytest.approx(2.0, rel=0.03)
    assert product + research == pytest.approx(6 * 10 * 86_400.0, rel=0.01)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_entities_receive_normalised_throughput_by_their_weights_where_types_and_models_differ(
    mechanism: MechanismName, weights: str
) -> None:
    received = Received()
    mixed = replace(BACKLOG, cluster="v100=3,p100=3,k80=3", templates=(), mechanism=mechanism, entities=weights)
    run(mixed, observers=[received])
    product, research = received.normalised
    assert product / research == pytest.approx(2.0, rel=0.05)


def test_without_a_file_entities_share_equally() -> None:
    received = Received()
    run(replace(BACKLOG, entities="product,research"), observers=[received])
    product, research = received.accelerator_seconds
    assert product / research == pytest.approx(1.0, rel=0.03)


def test_nested_entities_receive_their_part_of_their_parents_part(tmp_path: Path) -> None:
    file, received = tmp_path / "teams.json", Received()
    described = {"lab": {"weight": 2}, "nlp": {"parent": "lab", "weight": 3}, "lab/vision": {}, "product": {}}
    file.write_text(json.dumps(described))
    run(replace(BACKLOG, jobs=48, entities=str(file)), observers=[received])
    _, nlp, vision, product = received.accelerator_seconds  # lab itself has no jobs
    assert nlp / vision == pytest.approx(3.0, rel=0.06)
    assert (nlp + vision) / product == pytest.approx(2.0, rel=0.03)


@pytest.mark.parametrize("ideal", [False, True])
def test_a_first_in_first_out_entity_serves_in_order_of_arrival(ideal: bool, tmp_path: Path) -> None:
    file, trace = tmp_path / "teams.json", tmp_path / "trace.csv"
    file.write_text('{"queue": {"weight": 1, "policy": "fifo"}, "fair": {"weight": 2}}')
    rate = float(builtin_table().rates([("A3C", 1)], ["v100"])[0, 0, 0])
    # The queue's arrivals go against the order of its names; the others leave no accelerator idle.
    queue = [TraceJob(f"q{9 - n}", "A3C", 1, 5 * 3600.0 * rate, 60.0 * n, entity="queue") for n in range(6)]
    others = [TraceJob(f"f{n}", "A3C", 1, ENDLESS * rate, 0.0, entity="fair") for n in range(12)]
    write_trace(Trace.of([*others, *queue]), trace)
    experiment = Experiment(
        cluster="v100=3", policy="hierarchical", trace=str(trace), entities=str(file), ideal=ideal, limit_days=10.0
    )
    outcome = run(experiment).outcome
    ends = {name: job.arrival + job.seconds for name, job in outcome.jobs.items()}
    assert sorted(ends, key=ends.__getitem__) == ["q9", "q8", "q7", "q6", "q5", "q4"]
    assert all(ends[f"q{9 - n}"] == pytest.approx(5 * 3600.0 * (n + 1), rel=0.1) for n in range(6))


def test_a_trace_may_name_only_entities_that_the_file_describes(tmp_path: Path, weights: str) -> None:
    trace = tmp_path / "trace.csv"
    write_trace(Trace((TraceJob("j", "A3C", 1, 1.0, 0.0, entity="reserach"),)), trace)
    with pytest.raises(InputError, match="job 'j': there is no entity 'reserach'; did you mean 'research'"):
        prepare(Experiment(cluster="v100=1", trace=str(trace), entities=weights))
    assert prepare(Experiment(cluster="v100=1", trace=str(trace))).entities.keys() == {"reserach"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "teams.json: not valid JSON"),
        ("{}", "describes no entity"),
        ("[]", "entities must be an object"),
        ('{"a": {"wieght": 2}}', "entities.a: unknown field 'wieght'; did you mean 'weight'"),
        ('{"a": {"weight": 0}}', "entities.a.weight must be greater than 0"),
        ('{"a": {"policy": "sjf"}}', 'must be "fairness" or "fifo", not "sjf"'),
        ('{"a/b": {}, "a": {}, "b": {"parent": "a"}}', "'a/b' is already declared"),
        ('{"a": {}, "a": {}}', "'a' is given twice"),
        (None, "cannot read .*teams.json: no such file"),
    ],
)
def test_a_file_that_does_not_describe_entities_is_refused(content: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "teams.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InputError, match=said):
        prepare(replace(BACKLOG, entities=str(file)))


def test_names_alone_are_for_generated_jobs(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    write_trace(Trace((TraceJob("j", "A3C", 1, 1.0, 0.0),)), trace)
    with pytest.raises(InputError, match="the trace names the owners of its jobs"):
        prepare(Experiment(cluster="v100=1", trace=str(trace), entities="a,b"))
    with pytest.raises(InputError, match="no entity is named"):
        prepare(replace(BACKLOG, entities=" , "))
    with pytest.raises(InputError, match="'a//b' is not a path"):
        prepare(replace(BACKLOG, entities="a//b"))
