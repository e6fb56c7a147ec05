"""Logging of a service: one line per record on standard error, for people or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from gavel.cli.words import printable

LEVELS = ("debug", "info", "warning")
FORMATS = ("text", "json")
_USUAL = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}
"""Attributes of every record; all others were passed with `extra`."""


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Log records of our own modules at this level or above; from libraries, only warnings."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("gavel").setLevel(level.upper())
    logging.getLogger("grpc").setLevel(logging.CRITICAL)  # it logs a disconnecting client as an error


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class TextLines(logging.Formatter):
    """Time, level and message."""

    def format(self, record: logging.LogRecord) -> str:
        at = _moment(record).astimezone()
        line = f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} {record.levelname.lower():7} {_one_line(record)}"
        return f"{line}\n{printable(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """One object: time, level, logger, message, and all extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": _moment(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        document |= {name: value for name, value in record.__dict__.items() if name not in _USUAL}
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def _one_line(record: logging.LogRecord) -> str:
    """The message on one line without control characters: names of jobs and agents are arbitrary."""
    return printable(" ".join(record.getMessage().split()))
