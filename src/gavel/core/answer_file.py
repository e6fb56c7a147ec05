"""Answers as JSON: what `gavel allocate --json` prints and `gavel verify` reads, by job and with every proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from gavel.core.allocation import Allocation, AllocationRow, Stage, StageKind
from gavel.core.errors import InputError
from gavel.core.locality import Locality
from gavel.core.problem import Floats
from gavel.core.serialization import MisfitError, from_plain, to_plain
from gavel.core.strict_json import read_json


@dataclass(frozen=True, slots=True)
class Asked:
    """The options with which the policy was asked."""

    space_sharing: bool = False
    agnostic: bool = False
    normalised: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """The shares of one job, or of two that share accelerators, by type."""

    jobs: tuple[str, ...]
    shares: Mapping[str, float]
    consolidated: Mapping[str, float] = field(default_factory=dict)

    def share(self, type_name: str, locality: Locality) -> float:
        """The part of the time on a type that assumes this locality."""
        together = self.consolidated.get(type_name, 0.0)
        return together if locality is Locality.SERVER else self.shares.get(type_name, 0.0) - together


@dataclass(frozen=True, slots=True)
class AnswerStage:
    """A stage by job; values that are not listed are 0."""

    kind: StageKind
    value: float
    bound: float
    gap: float
    prices: Mapping[str, float]
    stopped: tuple[str, ...]
    worth: Mapping[str, float]
    time_worth: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AnswerJob:
    """The result of one job."""

    stage: int | None
    """The stage in which the job stopped, counted from 0; None if it cannot run."""
    limit: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """An allocation with its certificate, as in the JSON."""

    policy: str
    asked: Asked
    objective: float
    bound: float
    gap: float
    allocation: tuple[AnswerRow, ...]
    throughput: Mapping[str, float]
    prices: Mapping[str, float]
    busy: Mapping[str, float]
    limits: Mapping[str, Mapping[str, str]]
    jobs: Mapping[str, AnswerJob]
    stages: tuple[AnswerStage, ...]
    unmet_deadlines: tuple[str, ...]
    notes: tuple[str, ...]
    solve_seconds: float


def document(answer: Allocation, asked: Asked, seconds: float) -> dict[str, Any]:
    """The answer as the JSON that other programs read."""
    certificate = answer.certificate
    limits = {
        name: {key: value for key, value in asdict(limit).items() if value is not None}
        for name, limit in answer.limits().items()
    }
    stage_of = answer.stage_of
    return {
        "policy": answer.policy,
        "asked": asdict(asked),
        "objective": to_plain(certificate.objective),
        "bound": to_plain(certificate.bound),
        "gap": certificate.gap,
        "allocation": [_row(row) for row in answer.rows()],
        "throughput": answer.throughput,
        "prices": dict(certificate.prices),
        "busy": dict(zip((t.name for t in answer.problem.types), answer.busy.tolist(), strict=True)),
        "limits": limits,
        "jobs": {
            name: {"stage": None if stage < 0 else stage, "limit": limits[name]}
            for name, stage in zip(answer.problem.jobs.ids, stage_of[answer.classes.of_job].tolist(), strict=True)
        },
        "stages": [_stage(answer, stage) for stage in certificate.stages],
        "unmet_deadlines": list(certificate.unmet),
        "notes": list(certificate.notes),
        "solve_seconds": seconds,
    }


def _row(row: AllocationRow) -> dict[str, Any]:
    shown: dict[str, Any] = {"jobs": list(row.jobs), "shares": dict(row.shares)}
    if row.consolidated:
        shown["consolidated"] = dict(row.consolidated)
    return shown


def _stage(answer: Allocation, stage: Stage) -> dict[str, Any]:
    ids, of_job = answer.problem.jobs.ids, answer.classes.of_job

    def by_job(values: Floats) -> dict[str, float]:
        each = values[of_job]
        return {ids[job]: float(each[job]) for job in each.nonzero()[0].tolist()}

    return {
        "kind": stage.kind,
        "value": stage.value,
        "bound": stage.bound,
        "gap": stage.gap,
        "prices": dict(stage.prices),
        "stopped": [ids[job] for job in np.isin(of_job, stage.stopped).nonzero()[0].tolist()],
        "worth": by_job(stage.worth),
        "time_worth": by_job(stage.time),
    }


def parse_answer(text: str) -> Answer:
    """Read an answer; raise InputError if the text is not one."""
    try:
        found = read_json(text)
    except ValueError as error:
        raise InputError(f"this is not JSON: {error}") from None
    if isinstance(found, dict) and "asked" not in found and "policy" in found:
        raise InputError("this answer has no stages: it was written by an older version; run gavel allocate again")
    try:
        return from_plain(Answer, found)
    except MisfitError as misfit:
        raise InputError(f"this is not an answer of gavel allocate --json: {misfit}") from None
