"""What a user asks for: jobs, pairs of jobs that may share an accelerator, and the entities that jobs belong to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gavel.client.requests import Submission
from gavel.core.locality import FILE_NAMES, Locality


@dataclass(frozen=True, slots=True)
class PlacedRate:
    """Steps per second of a multi-worker job on one type, by placement."""

    consolidated: float
    """All workers on as few servers as possible."""
    unconsolidated: float
    """Workers spread over servers."""

    def at(self, locality: Locality) -> float:
        """The rate of workers that sit this close together."""
        rate: float = getattr(self, FILE_NAMES[locality])
        return rate


Rate = float | PlacedRate


@dataclass(frozen=True, slots=True)
class Job:
    """One training job as a policy sees it.

    `rates` are steps per second of the whole job (all of its workers together) by accelerator type; a type that is
    missing or 0 cannot run it. `steps` are the steps left. `deadline_seconds` counts from now.
    """

    id: str
    rates: Mapping[str, Rate]
    workers: int = 1
    weight: float = 1.0
    steps: float | None = None
    arrival: float = 0.0
    age_seconds: float = 0.0
    isolated_age_seconds: float = 0.0
    deadline_seconds: float | None = None
    entity: str | None = None
    template: str | None = None
    """The template in throughput tables; with a table, the job's pairs come from there."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two jobs that may share accelerators, with the rates of both while they do, by type."""

    jobs: tuple[str, str]
    rates: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Needs:
    """What each worker of a job needs beside its accelerator; 0: its user does not say."""

    gpu_memory: int = 0
    """Bytes of its accelerator."""
    millicores: int = 0
    """Thousandths of a CPU core, so that sums are exact."""
    memory: int = 0
    """Bytes of RAM."""

    @classmethod
    def of(cls, submission: Submission) -> Needs:
        """What a submission states."""
        cores = 0 if submission.cpus is None else max(round(submission.cpus * 1000), 1)
        needs = cls(submission.gpu_memory_bytes, cores, submission.memory_bytes)
        return NO_NEEDS if needs == NO_NEEDS else needs


NO_NEEDS = Needs()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job as it is submitted: its template, workers and steps. Its rates are looked up by template."""

    id: str
    template: str
    workers: int
    steps: float
    """NaN if unknown."""
    weight: float = 1.0
    entity: str | None = None
    deadline_seconds: float | None = None
    """Seconds after submission."""
    types: tuple[str, ...] | None = None
    """The types that the job may run on; None: all."""
    needs: Needs = NO_NEEDS

    @classmethod
    def of(cls, job: str, submission: Submission) -> JobSpec:
        """Extract what the scheduler needs to know from a submission."""
        return cls(
            job,
            submission.template,
            submission.workers,
            math.nan if submission.steps is None else submission.steps,
            submission.weight,
            submission.entity,
            submission.deadline_seconds,
            submission.prefer or submission.types or None,
            Needs.of(submission),
        )


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a decision was made; recorded with it, so that explanations never have to guess."""

    code: str
    """A short word for programs: yielded, moved, lost, drained, first, turn …"""
    text: str = ""
    """A clause for people."""
    jobs: tuple[str, ...] = ()
    """The other jobs that were involved."""


EntityPolicy = Literal["fairness", "fifo"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A team, user or department: a node of the hierarchy. Its path ("company/research") names its parent."""

    weight: float = 1.0
    policy: EntityPolicy = field(default="fairness")


def is_path(text: str) -> bool:
    """Whether a text can name an entity.

    >>> [is_path(text) for text in ("research", "company/research", "company//research", "")]
    [True, True, False, False]
    """
    return "" not in text.split("/")
