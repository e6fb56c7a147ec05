"""The directory of one agent: its lock, identity, sockets and logs, and a record of processes to clean up."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gavel.errors import InputError
from gavel.runtime.agent.containers import Container, Containers, offered
from gavel.runtime.agent.identity import AgentIdentity
from gavel.runtime.ids import LONGEST_FILE_NAME, file_name

REMOVAL_SECONDS = 30.0
"""A container runtime that takes longer is stuck."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Identifies a process reliably, also for a later agent: process ids are reused."""

    pid: int
    started: int
    """Start time, in clock ticks since boot."""
    boot: str
    socket: str
    """In the environment of the task's processes, unless they changed it."""
    container: str = ""
    """The task's control group; empty: it has none."""
    removal: Mapping[str, Any] | None = None
    """How what runs outside of its processes is ended, as plain data of `Removal`; None: nothing does."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Ends what a task runs outside of its processes: a container, by its name, as the account that started it."""

    command: Sequence[str]
    environment: Mapping[str, str]
    account: Sequence[int] = ()
    """A user and its groups, the main one first; empty: our own."""

    def run(self) -> None:
        """Run the command; if it fails, there was nothing to end, or nothing more can be done."""
        user, *groups = self.account or [os.geteuid(), os.getegid()]
        rights: dict[str, Any] = {"user": user, "group": groups[0], "extra_groups": groups} if self.account else {}
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(  # noqa: S603 - the container runtime of this server
                list(self.command),
                env=dict(self.environment),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=REMOVAL_SECONDS,
                check=False,
                **rights,
            )


class StateDirectory:
    """Held by one agent at a time, for the duration of `with`."""

    identity: AgentIdentity
    containers: Containers | None
    """None: the machine supports none."""

    def __init__(self, path: Path, *, kept_logs: int = 500, contain: bool = True, others: bool = False) -> None:
        """A directory; with `others`, tasks of other users must reach their sockets."""
        self.path = path
        self._others = others
        self._contain = contain
        self._kept_logs = kept_logs
        self._lock = -1
        self.sockets = Path()

    def __enter__(self) -> Self:
        """Lock the directory, and end processes that an earlier agent left."""
        for directory in (self.path, self._guards, self._logs):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _locked(self.path / "lock")
        try:
            self._open()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def _open(self) -> None:
        self.identity = AgentIdentity.of(self.path)
        self.containers = offered(self.identity.agent) if self._contain else None
        self.leftovers = self._clean_up()
        self.sockets = _short_directory(others=self._others)
        (self.path / "sockets").write_text(str(self.sockets))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release it; marks of processes that still run stay for the next agent."""
        shutil.rmtree(self.sockets, ignore_errors=True)
        if self.containers is not None:
            self.containers.remove()
        os.close(self._lock)

    @property
    def _guards(self) -> Path:
        return self.path / "guards"

    @property
    def _logs(self) -> Path:
        return self.path / "logs"

    def log(self, job: str, attempt: int, rank: int) -> Path:
        """The path of a task's log."""
        return self._logs / f"{file_name(job)[:LONGEST_FILE_NAME]}.{attempt}.{rank}.log"

    def socket(self, number: int) -> Path:
        """The path of a task's link."""
        return self.sockets / str(number)

    def certificate(self, number: int) -> Path:
        """The path of a task's gang certificate."""
        return self.sockets / f"{number}.pem"

    def variables(self, number: int) -> Path:
        """The path of variables for a task's container."""
        return self.sockets / f"{number}.env"

    def remember(self, mark: Mark) -> None:
        """Record a task that was started."""
        (self._guards / str(mark.pid)).write_text(json.dumps(asdict(mark)))

    def forget(self, pid: int) -> None:
        """Record that a task is gone."""
        (self._guards / str(pid)).unlink(missing_ok=True)

    def prune_logs(self, live: set[Path]) -> None:
        """Delete the oldest logs of ended tasks."""
        logs = sorted(set(self._logs.glob("*.log")) - live, key=lambda path: path.stat().st_mtime)
        for path in logs[: max(0, len(logs) - self._kept_logs)]:
            path.unlink(missing_ok=True)

    def _clean_up(self) -> int:
        """Kill the processes that an earlier agent left; return how many tasks they belonged to."""
        killed = 0
        for file in self._guards.iterdir():
            with contextlib.suppress(ValueError, TypeError, OSError):
                killed += end_marked(Mark(**json.loads(file.read_text())))
            file.unlink(missing_ok=True)
        if self.containers is not None:
            killed += self.containers.clean_up()  # tasks without a mark: the disk was full
        with contextlib.suppress(OSError):
            old = Path((self.path / "sockets").read_text())
            if old.name.startswith(_PREFIX):
                shutil.rmtree(old, ignore_errors=True)
        return killed


@contextmanager
def held(path: Path) -> Iterator[AgentIdentity]:
    """Hold the directory of an agent that does not run, to change what it is."""
    path.mkdir(parents=True, exist_ok=True)
    lock = _locked(path / "lock")
    try:
        yield AgentIdentity.of(path)
    finally:
        os.close(lock)


_PREFIX = "gavel-"


def _short_directory(*, others: bool) -> Path:
    """Make a private directory where socket paths stay within the kernel's limit.

    With `others`, other users can enter it but not see what is inside, and reach what belongs to them.
    """
    own = Path(tempfile.mkdtemp(prefix=_PREFIX))
    if len(os.fsencode(own)) > 80 or (others and closed_above(own)):
        own.rmdir()
        own = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))
    if others:
        own.chmod(0o711)
    return own


def closed_above(path: Path) -> Path | None:
    """The uppermost directory above a path that other users cannot enter; None if they can enter all."""
    return next((each for each in reversed(path.absolute().parents) if not each.stat().st_mode & 0o001), None)


def _locked(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(lock, 20).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise InputError(
            f"directory {path.parent} is in use by another agent (process {holder}); give each agent its own"
        ) from None
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock


def boot_id() -> str:
    """An id of this boot of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; None if there is no such process."""
    stat = _stat(pid)
    return int(stat[19]) if stat else None


def end_marked(mark: Mark) -> bool:
    """Kill the processes of a task, however they are related; return whether there were any."""
    if mark.boot != boot_id():
        return False
    found = bool(mark.started) and start_time(mark.pid) == mark.started
    if found:
        # The guard goes first: otherwise it would take the death of its job for the job's own end.
        for pid in [mark.pid, *descendants(mark.pid)]:
            _kill(pid)
    if mark.container:
        found |= Container(Path(mark.container)).end()
    found |= kill_all_with(mark.socket)
    if mark.removal is not None:
        Removal(**mark.removal).run()
    return found


def mark_of(pid: int, socket: str, container: Container | None, removal: Removal | None = None) -> Mark:
    """Describe a task by its guard."""
    group = str(container.path) if container else ""
    return Mark(pid, start_time(pid) or 0, boot_id(), socket, group, None if removal is None else asdict(removal))


def descendants(pid: int) -> list[int]:
    """Find all descendants of a process."""
    children: dict[int, list[int]] = {}
    for process in _processes():
        stat = _stat(process)
        if stat:
            children.setdefault(int(stat[1]), []).append(process)
    found = list(children.get(pid, ()))
    for process in found:  # `found` grows during the loop
        found += children.get(process, ())
    return found


def kill_all_with(socket: str) -> bool:
    """Kill every process with this GAVEL_SOCKET in its environment; return whether there was one."""
    wanted = b"GAVEL_SOCKET=" + os.fsencode(socket)
    found = False
    # Repeat until none is left: a process that forks while we look may be missed once.
    for _ in range(100):
        pids = [pid for pid in _processes() if wanted in _environment(pid).split(b"\0")]
        for pid in pids:
            _kill(pid)
        if not pids:
            break
        found = True
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _processes() -> list[int]:
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in numbers if pid != os.getpid()]


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat, starting with the state; empty if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The command's name is in parentheses and may contain anything.
    return stat.rpartition(")")[2].split()


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
