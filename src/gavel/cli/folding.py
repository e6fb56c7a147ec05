"""Arrays and grids as one row: how many of their jobs are in which state, and what these have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gavel.cli.words import label, summary
from gavel.client.views import JobState, JobView

ORDER = (
    *(JobState.RUNNING, JobState.PREEMPTED, JobState.QUEUED),
    *(JobState.FAILED, JobState.CANCELLED, JobState.COMPLETED, JobState.UNKNOWN),
)
"""What a user wants to know first."""


@dataclass(frozen=True, slots=True)
class Fold:
    """The jobs of one array or grid, at least one, in the order of their ids."""

    id: str
    jobs: tuple[JobView, ...]

    @property
    def finished(self) -> bool:
        return all(job.finished for job in self.jobs)

    @property
    def submitted(self) -> float:
        return min(job.submitted for job in self.jobs)

    @property
    def ended(self) -> float | None:
        """When the last one ended, if all have."""
        return max(job.ended or 0.0 for job in self.jobs) if self.finished else None

    @property
    def state(self) -> JobState | None:
        """The state of all of them, if it is the same."""
        states = {job.state for job in self.jobs}
        return states.pop() if len(states) == 1 else None

    def counts(self) -> str:
        """How many are in which state; those that completed are in `done`, as long as there are others to come."""
        return summary(
            self.jobs, ORDER if self.finished else [each for each in ORDER if each is not JobState.COMPLETED]
        )

    def name(self) -> str:
        """What the names begin and end with."""
        names = list(dict.fromkeys(label(job) for job in self.jobs))
        if len(names) == 1:
            return names[0]
        first = _beginning(names)
        last = _beginning([name[len(first) :][::-1] for name in names])[::-1]
        return f"{first}*{last}"

    def done(self) -> str:
        """The mean of what is done; a job that does not count its steps is done when it has completed."""
        return f"{int(100 * sum(map(_done, self.jobs)) / len(self.jobs))}%"

    def where(self) -> str:
        """How many run on which type."""
        counts = Counter(job.type for job in self.jobs if job.type)
        return ", ".join(f"{count:,} on {name}" for name, count in sorted(counts.items()))

    def reason(self) -> str:
        """The most frequent reason of those that wait, or else of those that did not complete."""
        waiting = [job.reason for job in self.jobs if job.state in (JobState.QUEUED, JobState.PREEMPTED)]
        failed = [job.reason for job in self.jobs if job.state in (JobState.FAILED, JobState.CANCELLED)]
        reasons = Counter(waiting or failed)
        return reasons.most_common(1)[0][0] if reasons else ""

    def common(self, text: Callable[[JobView], str]) -> str:
        """A text that is the same for all; else empty."""
        texts = {text(job) for job in self.jobs}
        return texts.pop() if len(texts) == 1 else ""


def _beginning(texts: Sequence[str]) -> str:
    """What all texts begin with.

    >>> _beginning(["run-1", "run-20", "rung"])
    'run'
    """
    least, most = min(texts), max(texts)
    same = next((at for at, (one, other) in enumerate(zip(least, most, strict=False)) if one != other), len(least))
    return least[:same]


def _done(job: JobView) -> float:
    if job.state is JobState.COMPLETED:
        return 1.0
    return min(1.0, job.steps_done / job.request.steps) if job.request.steps else 0.0


Row = JobView | Fold


def folded(jobs: Iterable[JobView]) -> list[Row]:
    """Jobs, and arrays in the place of their first jobs."""
    arrays: dict[str, list[JobView]] = {}
    order: dict[str, JobView | None] = {}
    for job in jobs:
        key = job.request.array_id
        if key:
            arrays.setdefault(key, []).append(job)
            order.setdefault(key, None)
        else:
            order[job.id] = job
    return [job if job is not None else Fold(key, tuple(arrays[key])) for key, job in order.items()]


def arrays_of(jobs: Sequence[JobView]) -> list[str]:
    """The arrays that jobs belong to, the newest last."""
    return list(dict.fromkeys(job.request.array_id for job in jobs if job.request.array_id))
