"""Microsoft's Philly trace: `cluster_job_log`, a JSON list of jobs with their attempts to run."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass
from typing import Any

from gavel.core.errors import InputError
from gavel.core.strict_json import read_json
from gavel.workload.recorded import NEVER_RAN, NO_END, Record, RecordedLog
from gavel.workload.rows import Source, seconds_of


def read_philly(source: Source) -> RecordedLog:
    """Read the log. A job's run time is the sum over its attempts; its GPUs are those of its largest attempt."""
    try:
        data = read_json(source.text, repeated_keys=True)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source.name}, line {error.lineno}, column {error.colno}: not valid JSON ({error.msg.lower()})"
        ) from None
    except RecursionError:
        raise InputError(f"{source.name}: not a cluster_job_log; its brackets are nested too deeply") from None
    log = RecordedLog(source.name)
    for number, entry in enumerate(_LogValue(source.name, data).list(), start=1):
        _add(_LogValue(f"{source.name}, job {number}", entry.raw), log)
    return log


@dataclass(frozen=True, slots=True)
class _LogValue:
    """A JSON value and its location for messages."""

    where: str
    raw: Any

    def get(self, key: str, *, required: bool = False) -> _LogValue:
        if not isinstance(self.raw, dict):
            raise InputError(f"{self.where}: {reprlib.repr(self.raw)} is not an object; see docs/traces.md")
        if required and self.raw.get(key) is None:
            raise InputError(f"{self.where}: {key!r} is missing")
        return _LogValue(f"{self.where}, {key!r}", self.raw.get(key))

    def list(self) -> list[_LogValue]:
        if self.raw is None:
            return []
        if not isinstance(self.raw, list):
            raise InputError(f"{self.where}: {reprlib.repr(self.raw)} is not a list; see docs/traces.md")
        return [_LogValue(f"{self.where} {number}", value) for number, value in enumerate(self.raw, start=1)]

    def text(self) -> str:
        return "" if self.raw is None or self.raw == "None" else str(self.raw)

    def time(self) -> float:
        return seconds_of(
            self.text(), lambda wanted: InputError(f"{self.where}: {reprlib.repr(self.raw)} is not {wanted}")
        )


def _add(entry: _LogValue, log: RecordedLog) -> None:
    attempts = entry.get("attempts").list()
    spans = [_seconds(attempt) for attempt in attempts]
    if not attempts:
        log.leave_out(NEVER_RAN)
    elif all(span is None for span in spans):
        log.leave_out(NO_END)
    else:
        log.add(
            Record(
                id=entry.get("jobid", required=True).text(),
                submitted=entry.get("submitted_time", required=True).time(),
                run_seconds=sum(span for span in spans if span is not None),
                gpus=max(_gpus(attempt) for attempt in attempts),
                entity=entry.get("vc").text() or entry.get("user").text() or None,
            )
        )


def _seconds(attempt: _LogValue) -> float | None:
    """How long an attempt ran; None if the log lacks its start or end, or it was still running."""
    start, end = attempt.get("start_time"), attempt.get("end_time")
    return max(end.time() - start.time(), 0.0) if start.text() and end.text() else None


def _gpus(attempt: _LogValue) -> int:
    return sum(len(server.get("gpus").list()) for server in attempt.get("detail").list())
