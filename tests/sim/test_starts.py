"""What starts cost in simulation, by template, and how that is measured from the facts of a live run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gavel.core.cluster import parse_cluster
from gavel.core.events import Event, RestartMeasured
from gavel.core.facts import JobEnded, JobQueued, RoundPlanned, Started
from gavel.core.jobs import Cause, JobSpec
from gavel.core.locality import Locality
from gavel.core.throughputs import builtin_table
from gavel.policies.registry import allocate
from gavel.scheduler.machine import Settings
from gavel.scheduler.priorities import Priorities
from gavel.sim.outcome import Outcome
from gavel.sim.simulate import Underway, simulate
from gavel.sim.starts import StartCosts, measured_starts
from gavel.sim.view import View
from gavel.workload.trace import Trace, TraceJob

TABLE = builtin_table()
TEMPLATES = ("A3C", "CycleGAN")
COSTS = StartCosts(first_seconds=20.0, first_of={"A3C": 50.0}, restart_seconds=30.0, restart_of={"CycleGAN": 70.0})


def rate(template: str, kind: str = "v100") -> float:
    return float(TABLE.rates([(template, 1)], [kind])[0, 0, 0])


def taking(seconds: float, *templates: str) -> Trace:
    """One job of each template that takes this long on a V100."""
    return Trace(tuple(TraceJob(name, name, 1, seconds * rate(name), 0.0) for name in templates))


class Listener:
    """Records the restart costs that the scheduler is told, and what it then assumes."""

    def __init__(self) -> None:
        self.heard: set[tuple[str, float]] = set()
        self.believed: dict[str, float] = {}

    def after(self, event: Event, view: View) -> None:
        if isinstance(event, RestartMeasured):
            self.heard.add((event.job, event.seconds))
        self.believed = {name: view.restart_seconds(name) for name in TEMPLATES}


class Snapshots:
    """Saves a simulation after every event."""

    def __init__(self) -> None:
        self.documents: list[dict[str, Any]] = []

    def between(self, simulation: Underway) -> None:
        self.documents.append(json.loads(json.dumps(simulation.dump())))


def simulated(trace: Trace, **options: Any) -> Outcome:
    settings = Settings(restart_seconds=30.0)
    return simulate(trace, parse_cluster("v100=1"), TABLE, allocate, Priorities(), settings, starts=COSTS, **options)


@pytest.mark.parametrize(("template", "cost"), [("A3C", 50.0), ("CycleGAN", 20.0)])
def test_a_first_start_takes_as_long_as_measured_for_its_template(template: str, cost: float) -> None:
    outcome = simulated(taking(1000.0, template))
    assert outcome.jobs[template].seconds == pytest.approx(1000.0 + cost)
    assert outcome.restart_seconds == pytest.approx(cost)


def test_restarts_take_as_long_as_measured_and_the_scheduler_is_told() -> None:
    listener = Listener()
    outcome = simulated(taking(1000.0, *TEMPLATES), observers=[listener])
    assert listener.heard == {("A3C", 30.0), ("CycleGAN", 70.0)}
    assert listener.believed == {"A3C": 30.0, "CycleGAN": 70.0}
    restarts = {name: outcome.jobs[name].restarts for name in TEMPLATES}
    assert min(restarts.values()) > 0
    cost = 50.0 + 20.0 + 30.0 * restarts["A3C"] + 70.0 * restarts["CycleGAN"]
    assert outcome.restart_seconds == pytest.approx(cost)
    assert max(job.seconds for job in outcome.jobs.values()) == pytest.approx(2000.0 + cost)


def test_a_resumed_simulation_continues_with_restarts_in_progress() -> None:
    snapshots, trace = Snapshots(), taking(1000.0, *TEMPLATES)
    whole = simulated(trace, attendants=[snapshots])
    for start in snapshots.documents:
        rest = simulated(trace, start=start)
        assert {job: rest.jobs[job].seconds for job in rest.jobs} == {
            job: whole.jobs[job].seconds for job in whole.jobs
        }


def queued(job: str, template: str) -> JobQueued:
    return JobQueued(0.0, JobSpec(job, template, 1, 1000.0 * rate(template)))


def test_the_cost_of_a_first_start_is_the_time_held_beyond_the_steps() -> None:
    facts = [
        queued("1", "A3C"),
        queued("2", "A3C"),
        queued("3", "CycleGAN"),
        JobEnded(2000.0, "1", "completed", "", {"v100": 1002.0}),
        JobEnded(2000.0, "2", "completed", "", {"v100": 1004.0}),
        JobEnded(2000.0, "3", "completed", "", {"v100": 1009.0}),
    ]
    costs = measured_starts(facts, TABLE)
    assert costs.first_of == {"A3C": pytest.approx(3.0), "CycleGAN": pytest.approx(9.0)}
    assert costs.first_seconds == pytest.approx(5.0)


def test_jobs_that_restarted_shared_moved_or_failed_do_not_count_for_first_starts() -> None:
    pair = Started(("1", "2"), (1, 1), "v100", {"a": 1}, Locality.SERVER, Cause("first", ""))
    facts = [
        *(queued(job, "A3C") for job in "12345"),
        RoundPlanned(0.0, 1, 360.0, 360.0, started=(pair,)),
        JobEnded(2000.0, "1", "completed", "", {"v100": 1002.0}),
        JobEnded(2000.0, "3", "completed", "", {"v100": 1002.0}, restarts=1),
        JobEnded(2000.0, "4", "completed", "", {"v100": 500.0, "k80": 600.0}),
        JobEnded(2000.0, "5", "failed", "", {"v100": 1002.0}),
    ]
    assert measured_starts(facts, TABLE) == StartCosts()


def test_restarts_cost_their_mean_by_template_and_compressed_time_is_scaled_back() -> None:
    facts = [queued("1", "A3C"), queued("2", "CycleGAN")]
    facts += [RestartMeasured(1.0, job, cost) for job, cost in (("1", 2.0), ("1", 4.0), ("2", 9.0))]  # type: ignore[misc]
    costs = measured_starts(facts, TABLE).times(60.0)
    assert costs.restart_of == {"A3C": 180.0, "CycleGAN": 540.0}
    assert costs.of("LM (batch size 5)", restart=True) == 300.0
