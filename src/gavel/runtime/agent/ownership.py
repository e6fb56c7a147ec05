"""Ownership of checkpoint directories: a marker names cluster and job, and no job ever loads another job's files.

Job ids are unique only within a cluster, and directories outlive clusters.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from gavel.client.field_checks import shortened
from gavel.runtime.agent.identity import sync_directory
from gavel.runtime.agent.run_as import SystemAccount, on_behalf
from gavel.runtime.ids import is_job_id
from gavel.runtime.privacy import make_directory

MARKER = ".gavel-owner.json"
_OURS = ".gavel-"
"""Prefix of our own small files: markers being written, probes of the disk."""

TRIES = 10
"""How often to check whether a directory is empty: agents that share it may be removing it at the same time."""
_LARGEST_MARKER = 64 * 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS}
"""Errors of file systems without hard links."""


class NotOursError(Exception):
    """A job must not use this checkpoint directory; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A job with a globally unique name."""

    cluster: str
    """Empty: the scheduler's version names no cluster, and nothing can be checked."""
    job: str


def claim(directory: Path, owner: Owner, attempt: int, umask: int | None = None) -> None:
    """Create and mark a checkpoint directory, or verify that it is this job's own; else NotOursError.

    A later attempt adopts a directory without a marker: an agent of a version without markers made it.
    Modes are those that the umask of jobs gives; None: that of the process.
    """
    make_directory(directory, umask)
    if not owner.cluster or _is_marked(directory, owner):
        return
    # Agents of one gang may do this at the same time: a marker that has appeared meanwhile settles it.
    if attempt <= 1 and _is_used(directory) and not _is_marked(directory, owner):
        raise NotOursError(
            f"the checkpoint directory {directory} is not empty and nothing says whose it is, so this new job must "
            f"not continue from it; {_REMEDY}"
        )
    _mark(directory, owner, umask)
    _is_marked(directory, owner)


def make_for(directory: Path, account: SystemAccount) -> None:
    """Make a checkpoint directory that belongs to an account and is closed to others.

    The account itself does so if it may. Otherwise it cannot have prepared anything there, and we may do it.
    """
    try:
        on_behalf(account, lambda: directory.mkdir(mode=0o700, exist_ok=True))
    except PermissionError:
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
            os.chown(directory, *account.owner, follow_symlinks=False)


def check_private(directory: Path, account: SystemAccount) -> None:
    """Refuse a directory that others could have prepared for an account's job, or can change; close it to readers.

    Where users may create directories, ids of later jobs can be guessed, and checkpoints can be programs.
    """
    try:
        descriptor = os.open(directory, _DIRECTORY)
    except OSError as error:
        raise NotOursError(f"{directory} is not a directory ({error.strerror}); {_REMEDY}") from error
    try:
        found = os.fstat(descriptor)
        if found.st_uid != account.uid or found.st_mode & 0o022:
            raise NotOursError(f"{directory} does not belong to account {account.name} alone; {_REMEDY}")
        if found.st_mode & 0o077:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def hand_over(directory: Path, owner: Owner, account: SystemAccount) -> None:
    """Give an account the job's directory if earlier attempts ran as this agent's own user, and so own it.

    What others can write to is left alone: they may have planted links there.
    """
    try:
        descriptor = os.open(directory, _DIRECTORY)
    except OSError:  # not a directory, or a link
        return
    try:
        with contextlib.suppress(NotOursError):  # to claim it says so, and names it
            if _only_ours(descriptor) and _is_marked(Path(f"/proc/self/fd/{descriptor}"), owner):
                _give(descriptor, account)
    finally:
        os.close(descriptor)


def _give(descriptor: int, account: SystemAccount) -> None:
    """Give away what is in a directory, then the directory itself: before that, no other user can change it."""
    with os.scandir(descriptor) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _give_folder(entry.name, descriptor, account)
            elif (found := entry.stat(follow_symlinks=False)).st_uid == os.geteuid() and found.st_nlink == 1:
                os.chown(entry.name, *account.owner, dir_fd=descriptor, follow_symlinks=False)
    os.fchown(descriptor, *account.owner)
    os.fchmod(descriptor, 0o700)


def _give_folder(name: str, parent: int, account: SystemAccount) -> None:
    descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        if _only_ours(descriptor):
            _give(descriptor, account)
    finally:
        os.close(descriptor)


def _only_ours(descriptor: int) -> bool:
    """Whether a directory belongs to this agent's own user, and no other can write to it."""
    found = os.fstat(descriptor)
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022


def remove(root: Path, owner: Owner) -> bool:
    """Remove a job's checkpoint directory; False if there is none. NotOursError unless it is certainly this job's.

    The marker goes last, so that an interrupted removal can be continued. Agents that share the directory may do this
    at the same time.
    """
    if not owner.cluster or not is_job_id(owner.job):  # it becomes part of a path
        named = f"checkpoints of job {shortened(owner.job)} of cluster {shortened(owner.cluster)}"
        raise NotOursError(f"{named} cannot be identified")
    directory = root / owner.job
    if directory.is_symlink():
        raise NotOursError(f"{directory} is a link, whose target is not removed; remove it by hand")
    try:
        descriptor = os.open(directory, _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Its user may put a link in its place meanwhile, and we may be root: from here on its name does not matter.
        pinned = Path(f"/proc/self/fd/{descriptor}")
        if not _is_marked(pinned, owner) and _is_used(pinned):
            raise NotOursError(f"nothing says whose {directory} is; remove it by hand")
        with contextlib.suppress(FileNotFoundError):  # another agent removed it first
            _clear(pinned, directory)
    finally:
        os.close(descriptor)
    return True


def _clear(pinned: Path, directory: Path) -> None:
    """Remove a directory and its contents without following links; the marker is the last file to go."""
    for _ in range(TRIES):
        left = [path for path in pinned.iterdir() if path.name != MARKER]
        if not left:
            (pinned / MARKER).unlink(missing_ok=True)
            directory.rmdir()  # follows no link
            return
        for path in left:
            with contextlib.suppress(FileNotFoundError):
                _delete(path)
    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(directory))


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


_REMEDY = "move it away, or give the agents another --checkpoints directory"


def _is_used(directory: Path) -> bool:
    return any(not path.name.startswith(_OURS) for path in directory.iterdir())


def _is_marked(directory: Path, owner: Owner) -> bool:
    """Whether there is a marker; NotOursError if it names another job."""
    marker = directory / MARKER
    try:
        document = json.loads(_small_text(marker))
        found = Owner(str(document["cluster"]), str(document["job"]))
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(document["made"])))
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise NotOursError(f"{marker} is a link, so nothing says whose {directory} is; {_REMEDY}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotOursError(
            f"{marker} cannot be read ({error!r}), so nothing says whose {directory} is; {_REMEDY}"
        ) from error
    if found != owner:
        raise NotOursError(
            f"the checkpoint directory {directory} belongs to job {found.job} of cluster {found.cluster} (made "
            f"{made}), not to job {owner.job} of cluster {owner.cluster}; {_REMEDY}"
        )
    return True


def _small_text(path: Path) -> str:
    """Read a small regular file: where jobs can write, its name may belong to a link, a pipe or something endless."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a file")
        return file.read(_LARGEST_MARKER)


def _mark(directory: Path, owner: Owner, umask: int | None) -> None:
    """Write the marker atomically, unless another agent was first."""
    document = {"cluster": owner.cluster, "job": owner.job, "made": time.time()}
    unfinished = directory / f"{_OURS}{uuid4().hex}"
    try:
        with unfinished.open("x") as file:
            json.dump(document, file)
            file.flush()
            if umask is not None:  # agents of other users may share the directory
                os.fchmod(file.fileno(), 0o666 & ~umask)
            os.fsync(file.fileno())
        try:
            os.link(unfinished, directory / MARKER)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            unfinished.replace(directory / MARKER)
        sync_directory(directory)
    finally:
        unfinished.unlink(missing_ok=True)
