"""Detects full or read-only disks: failures because of them are not the fault of a job."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from uuid import uuid4

from gavel.client.errors import FULL

PROBE_BYTES = 64 * 1024
_LINES = 5
"""How many of the last log lines may name the error that ended a program."""


def is_full(error: OSError) -> bool:
    """Whether an error means that a disk is full or read-only."""
    return error.errno in FULL


def why_full(directory: Path, log: bytes) -> str | None:
    """Say why a crashed program could not save there; None if it could have, as far as we can tell.

    Either its last log lines name the error and the directory, or a small write fails now.
    """
    lines = log.decode(errors="replace").splitlines()[-_LINES:]
    for number in FULL:
        text = os.strerror(number)
        if any(text in line and str(directory) in line for line in lines):
            return text
    return _fails(directory)


def _fails(directory: Path) -> str | None:
    probe = directory / f".gavel-probe-{uuid4().hex}"
    try:
        try:
            with probe.open("xb") as file:
                file.write(b"\0" * PROBE_BYTES)
                file.flush()
                os.fsync(file.fileno())
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()
    except OSError as error:
        return os.strerror(error.errno or 0) if is_full(error) else None
    return None
