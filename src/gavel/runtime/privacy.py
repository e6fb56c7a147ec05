"""Who may read what a service writes: its own user only, except for what belongs to jobs."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

OTHERS = 0o077
_PR_SET_DUMPABLE = 4


def private_umask() -> int:
    """Let only this user read what this process creates from now on; returns the umask before."""
    return os.umask(OTHERS)


def forbid_inspection() -> None:
    """Keep other processes of the same user from reading this one's memory, environment and descriptors.

    It also gives up core dumps. Programs that this process starts are not affected.
    """
    control = getattr(ctypes.CDLL(None), "prctl", None)
    if control is not None:
        control(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def open_to_others(directory: Path) -> list[str]:
    """A sentence for each file that other users can reach; the directory's own mode may protect all of them."""
    if not _is_open(directory):
        return []
    found = [directory, *sorted(directory.iterdir())]
    return [
        f"{path} is open to other users (mode {path.lstat().st_mode & 0o777:03o}); close it with: chmod go= {path}"
        for path in found
        if _is_open(path)
    ]


def _is_open(path: Path) -> bool:
    with suppress(OSError):  # it has just been removed
        return not path.is_symlink() and bool(path.stat().st_mode & OTHERS)
    return False


def make_directory(path: Path, umask: int | None) -> None:
    """Make a directory and its parents with the modes that another umask gives; None: with the process's own."""
    missing = [] if umask is None else [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        with suppress(FileExistsError):  # another agent was faster
            each.mkdir()
            each.chmod(0o777 & ~(umask or 0))
    path.mkdir(parents=True, exist_ok=True)


def write_private(path: Path, text: str, owner: tuple[int, int] | None = None) -> None:
    """Write a new file that only its owner can read, a user and a group; None: our own user."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        if owner is not None:
            os.fchown(descriptor, *owner)
        file.write(text)
