"""The ideal that mechanisms are compared with: every job receives its allocation exactly, at every instant.

No rounds, no placement, no restarts: between two arrivals or ends, each job runs at its effective throughput.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.cluster import Cluster
from gavel.core.events import Event, JobFinished, JobsProgressed, JobSubmitted, ServerJoined
from gavel.core.jobs import Entity
from gavel.core.problem import Floats
from gavel.core.serialization import from_plain, read_items, to_plain
from gavel.core.throughputs import ThroughputTable
from gavel.policies.mechanisms import mechanism_for
from gavel.policies.registry import find_policy
from gavel.scheduler import state
from gavel.scheduler.machine import Scheduler, Settings
from gavel.scheduler.rounds import Mechanism
from gavel.sim.outcome import Outcome, measure, measure_unfinished
from gavel.sim.simulate import Attendant, Stopwatch, counted
from gavel.sim.usage import UsageMeter
from gavel.sim.view import View
from gavel.sim.world import Solver
from gavel.workload.trace import Trace


def simulate_ideally(
    trace: Trace,
    cluster: Cluster,
    table: ThroughputTable,
    solver: Solver,
    settings: Settings,
    *,
    entities: Mapping[str, Entity] | None = None,
    prices: Mapping[str, float] | None = None,
    window: tuple[int, int] | None = None,
    until_seconds: float = np.inf,
    disturbances: Sequence[Event] = (),
    attendants: Sequence[Attendant] = (),
    start: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run a trace with exactly the time that the allocation grants, recomputed when a job or a server comes or goes.

    With `start`, a state that an attendant saved, continue from there; all other arguments must be the same as then.
    """
    joining = [ServerJoined(0.0, server) for server in cluster.servers]
    arriving = [JobSubmitted(job.arrival, job.spec()) for job in trace.jobs]
    coming: list[Event] = sorted((*joining, *disturbances, *arriving), key=lambda event: event.time)[::-1]
    if start is None:
        books = Scheduler(table, _any_mechanism(), settings, entities=entities, prices=prices)
        simulation = _Ideal(books, coming, Stopwatch(solver), UsageMeter(), counted(trace, window))
    else:
        books = state.restore(start["books"], table, _any_mechanism(), settings, entities=entities, prices=prices)
        coming = coming[: start["coming"]]
        simulation = _Ideal(
            books, coming, Stopwatch(solver), from_plain(UsageMeter, start["meter"]), counted(trace, window)
        )
        simulation.take_up(Outcome.restored(start["outcome"]), start["received"])
    return simulation.run(until_seconds, attendants)


def _any_mechanism() -> Mechanism:
    """A scheduler needs a mechanism, although this one plans no rounds."""
    return mechanism_for(find_policy("max_min_fairness"), "priorities")


@dataclass(slots=True)
class _Ideal:
    """An ideal simulation in progress."""

    books: Scheduler
    """Keeps the jobs and poses the problems; its rounds are not used."""
    coming: list[Event]
    """Events still to come from outside, the next one last."""
    stopwatch: Stopwatch
    meter: UsageMeter
    counted: frozenset[str]
    outcome: Outcome = field(default_factory=Outcome)
    received: dict[str, Floats] = field(default_factory=dict)
    """By active job: seconds on each type, which the scheduler does not know here."""
    view: View = field(init=False)

    def __post_init__(self) -> None:
        self.view = View(self.books)

    def take_up(self, outcome: Outcome, received: Any) -> None:
        """Continue from these figures."""
        self.outcome = outcome
        self.received = read_items(dict.fromkeys(received, Floats), received, "an ideal simulation")
        self.stopwatch.go_on(outcome)

    @property
    def jobs_done(self) -> tuple[int, int]:
        return len(self.counted & self.outcome.jobs.keys()), len(self.counted)

    def dump(self) -> dict[str, Any]:
        self.stopwatch.stop(self.outcome)
        return {
            "books": state.dump(self.books),
            "coming": len(self.coming),
            "meter": to_plain(self.meter),
            "outcome": self.outcome.dump(),
            "received": to_plain(self.received),
        }

    def run(self, until_seconds: float, attendants: Sequence[Attendant]) -> Outcome:
        """Run to the end."""
        outcome = self.outcome
        left = self.counted - outcome.jobs.keys()
        while left and outcome.stopped < until_seconds:
            self._hear(outcome.stopped)
            upcoming = min(self.coming[-1].time, until_seconds) if self.coming else until_seconds
            if self.view.job_count:
                allocation = self.stopwatch.solve(self.books.problem(outcome.stopped))
                outcome.solves += 1
                if not self.coming and not allocation.job_throughput.any():
                    break  # no job can run and none will arrive
                self._advance(allocation, upcoming)
                left -= outcome.jobs.keys()
            else:
                outcome.stopped = upcoming
            for attendant in attendants:
                attendant.between(self)
        self.meter.close(outcome.stopped)
        outcome.drained, outcome.offered_seconds = not left, self.meter.offered
        outcome.given_seconds = sum(outcome.given_by_type.values())
        outcome.unfinished = measure_unfinished(self.view, self.meter, outcome.stopped, self.received)
        self.stopwatch.stop(outcome)
        return outcome

    def _hear(self, now: float) -> None:
        while self.coming and self.coming[-1].time <= now:
            event = self.coming.pop()
            self._tell(event)
            if isinstance(event, JobSubmitted):
                self.received[event.job.id] = np.zeros(len(self.view.types))

    def _tell(self, event: Event) -> None:
        self.meter.hear(event)
        self.books.handle(event)

    def _advance(self, allocation: Allocation, upcoming: float) -> None:
        """Advance to the next event or the next end of a job, whichever is first."""
        now, names, pace = self.outcome.stopped, allocation.problem.jobs.ids, allocation.job_throughput
        for index in np.flatnonzero(pace).tolist():
            self.meter.start(names[index], now)
        left = self.view.steps_left(names)
        seconds = np.divide(left, pace, out=np.full(len(left), np.inf), where=pace > 0)
        end = min(now + float(seconds.min(initial=np.inf)), upcoming)
        self.books.handle(JobsProgressed(end, names, np.minimum(pace * (end - now), left)))
        self._grant(allocation, end - now)
        self.outcome.stopped = end
        for name in [name for name, needed in zip(names, seconds, strict=True) if now + needed <= end]:
            self._finish(JobFinished(end, name))

    def _grant(self, allocation: Allocation, seconds: float) -> None:
        """Account for the time that each job receives."""
        for name, share in zip(allocation.problem.jobs.ids, allocation.job_shares, strict=True):
            self.received[name] += share * seconds
        given = self.outcome.given_by_type
        self.outcome.given_by_type = {
            kind: given.get(kind, 0.0) + float(busy) * seconds
            for kind, busy in zip(self.view.types, allocation.busy, strict=True)
        }

    def _finish(self, event: JobFinished) -> None:
        received = self.received.pop(event.job)
        self.outcome.jobs[event.job] = measure(event, self.view, self.meter, received)
        self.outcome.end = event.time
        self._tell(event)
