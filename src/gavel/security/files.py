"""Files that hold keys: written atomically, readable by their owner alone, and refused when others can read them."""

from __future__ import annotations

import os
from pathlib import Path

from gavel.errors import InputError

_OTHERS = 0o077


class TooOpenError(InputError):
    """Other users of this machine could have read a key."""

    def __init__(self, path: Path, mode: int) -> None:
        super().__init__(
            f"{path} can be read by other users (mode {mode & 0o777:03o}), so its contents may be known to them; "
            f"close it with: chmod go= {path}"
        )


def private_directory(path: Path) -> None:
    """Make a directory, with its parents, that only its owner can enter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    check_private(path)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file atomically, with mode 0600: after a power cut, the old or the new one is there, complete."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_directory(path.parent)


def read_private(path: Path) -> bytes:
    """Read a file that only its owner may read."""
    check_private(path)
    return path.read_bytes()


def check_private(path: Path) -> None:
    """Refuse a file or directory that other users can reach."""
    found = path.stat()
    if found.st_uid not in {0, os.geteuid()}:
        raise InputError(f"{path} belongs to another user, who could replace it; take it over with: chown {path}")
    if found.st_mode & _OTHERS:
        raise TooOpenError(path, found.st_mode)


def sync_directory(directory: Path) -> None:
    """Flush the names in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
