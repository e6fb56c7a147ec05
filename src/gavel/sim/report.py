"""The report of one simulation: its figures, and its jobs and rounds as records or data frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gavel.core.cluster import LIST_PRICES, parse_prices
from gavel.core.errors import GavelError, InputError
from gavel.sim import records, rounds
from gavel.sim.frames import frame
from gavel.sim.outcome import FinishedJob, Outcome, dollars
from gavel.sim.recorder import Recorder
from gavel.sim.records import JobRecord
from gavel.sim.rounds import RoundLog, RoundRecord

if TYPE_CHECKING:
    import pandas as pd

    from gavel.sim.experiment import Experiment, Scene


@dataclass(frozen=True, slots=True)
class Figures:
    """What a simulation measured. Averages cover the finished jobs of the window; None if there are none."""

    jobs_completed: int
    average_jct_seconds: float | None
    median_jct_seconds: float | None
    p99_jct_seconds: float | None
    restarts_per_job: float | None
    average_finish_time_fairness: float | None
    """The average of a job's completion time divided by the time it would have taken with 1/n of the cluster."""
    high_priority_jct_seconds: float | None
    """The average of the jobs with a higher weight than others; None if all weights are equal."""
    low_priority_jct_seconds: float | None
    makespan_seconds: float | None
    """When the last job finished."""
    utilization: float
    """Accelerator time given to jobs divided by that of all servers while they were up."""
    busy_accelerator_hours: float
    restart_accelerator_hours: float
    idle_accelerator_hours: float
    rounds: int
    allocations: int
    """The number of allocations that the policy computed."""
    cost_dollars: float
    """The cost of everything that ran, including jobs outside the window."""
    jobs_with_deadline: int
    slo_violations: int
    """The number of jobs that missed their deadline."""
    slo_violation_share: float | None
    simulated_seconds: float
    solver_seconds: float
    wall_seconds: float
    drained: bool
    """Whether all jobs of the window finished before the time limit."""
    notes: Sequence[str]
    """What was assumed or went wrong, as sentences."""

    def document(self) -> dict[str, Any]:
        """The figures as JSON."""
        return asdict(self) | {"notes": list(self.notes)}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Report:
    """What an experiment measured over the jobs of its window."""

    experiment: Experiment
    outcome: Outcome
    scene: Scene
    """What the simulation started from."""
    window: tuple[str, ...]
    """The jobs that figures are averaged over, in order of arrival."""
    notes: tuple[str, ...] = ()
    deadlines: int = 0
    """The number of jobs in the window with a deadline."""
    overdue: int = 0
    """The number of jobs in the window that missed their deadline."""
    heavy: frozenset[str] = frozenset()
    """Jobs with a higher weight than others."""
    round_log: RoundLog | None = None
    """The records of all rounds, if requested."""
    recorder: Recorder | None = None
    """The data for plots, if requested."""

    def __repr__(self) -> str:
        seconds = self.completion_seconds()
        average = f", average JCT {np.mean(seconds) / 3600:.2f} h" if seconds else ""
        where = f"{self.experiment.policy} on {self.experiment.cluster}"
        return f"<Report of {where}: {len(seconds):,} of {len(self.window):,} jobs done{average}>"

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the cluster."""
        return tuple(accelerator_type.name for accelerator_type in self.scene.cluster.types())

    def completion_seconds(self) -> list[float]:
        """The completion times of the window's jobs, in order of arrival, without jobs that did not finish."""
        return [job.seconds for job in self._finished()]

    @property
    def figures(self) -> Figures:
        """The figures, computed from what was measured."""
        outcome, finished = self.outcome, self._finished()
        return Figures(
            jobs_completed=len(finished),
            **_averages(finished),
            **self._by_priority(finished),
            makespan_seconds=outcome.end if finished else None,
            utilization=outcome.given_seconds / outcome.offered_seconds if outcome.offered_seconds else 0.0,
            busy_accelerator_hours=(outcome.given_seconds - outcome.restart_seconds) / 3600.0,
            restart_accelerator_hours=outcome.restart_seconds / 3600.0,
            idle_accelerator_hours=(outcome.offered_seconds - outcome.given_seconds) / 3600.0,
            rounds=outcome.rounds,
            allocations=outcome.solves,
            cost_dollars=dollars(outcome, LIST_PRICES | parse_prices(self.experiment.prices)),
            jobs_with_deadline=self.deadlines,
            slo_violations=self.overdue,
            slo_violation_share=self.overdue / self.deadlines if self.deadlines else None,
            simulated_seconds=outcome.stopped,
            solver_seconds=outcome.solver_seconds,
            wall_seconds=outcome.wall_seconds,
            drained=outcome.drained,
            notes=self.notes,
        )

    def document(self) -> dict[str, Any]:
        """The figures and the settings as JSON, as `gavel simulate --json` prints them."""
        settings = asdict(self.experiment)
        return {"policy": self.experiment.policy, **self.figures.document(), "experiment": settings}

    def jobs(self) -> list[JobRecord]:
        """A record of every job that arrived, in order of arrival, including those outside the window."""
        scene = self.scene
        return records.job_records(scene.trace.jobs, self.outcome, scene.cluster, scene.table)

    def rounds(self) -> list[RoundRecord]:
        """A record of every plan of the scheduler, if the simulation kept them."""
        if self.round_log is None:
            raise GavelError("the rounds were not recorded; ask for them with gavel.simulate(..., rounds=True)")
        return list(self.round_log.records)

    def to_frame(self, what: Literal["jobs", "rounds"] = "jobs") -> pd.DataFrame:
        """The records of jobs or of rounds as a pandas data frame, with a column for each field and type."""
        if what == "jobs":
            names = self.job_columns()
            return frame((job.row() for job in self.jobs()), names, [n for n in names if n.endswith("_seconds")])
        if what == "rounds":
            return frame((each.row() for each in self.rounds()), rounds.columns(self.types), ["time_seconds"])
        raise InputError(f"there are no records of {what!r}; give 'jobs' or 'rounds'")

    def job_columns(self) -> list[str]:
        """The columns of the jobs, in data frames and CSV files."""
        return records.columns(self.scene.cluster)

    def _finished(self) -> list[FinishedJob]:
        """The jobs of the window that finished, in order of arrival."""
        return [self.outcome.jobs[name] for name in self.window if name in self.outcome.jobs]

    def _by_priority(self, finished: list[FinishedJob]) -> dict[str, float | None]:
        """Average completion times of jobs with a higher weight and of the others; None if all weights are equal."""
        high, low = ([job.seconds for job in finished if (job.id in self.heavy) is heavy] for heavy in (True, False))
        return {
            "high_priority_jct_seconds": float(np.mean(high)) if self.heavy and high else None,
            "low_priority_jct_seconds": float(np.mean(low)) if self.heavy and low else None,
        }


def _averages(finished: list[FinishedJob]) -> dict[str, float | None]:
    """The averages over finished jobs; None if there are none."""
    names = ("average_jct_seconds", "median_jct_seconds", "p99_jct_seconds", "restarts_per_job")
    fairness = [job.fairness for job in finished if np.isfinite(job.fairness)]
    average = {"average_finish_time_fairness": float(np.mean(fairness)) if fairness else None}
    if not finished:
        return {**dict.fromkeys(names), **average}
    seconds = np.array([job.seconds for job in finished])
    restarts = np.array([job.restarts for job in finished])
    values = (seconds.mean(), np.median(seconds), np.percentile(seconds, 99), restarts.mean())
    return {**dict(zip(names, map(float, values), strict=True)), **average}
