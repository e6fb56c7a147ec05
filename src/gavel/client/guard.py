"""Runs one command and makes sure that no process of it survives its own end or that of the agent.

`python -I -S guard.py [--pipe FD] [--grace SECONDS] [--output FD] [--container DIR] [--account FD] [--terminal FD]
[--last WORDS] -- COMMAND…`. The command gets its own session. SIGTERM, SIGINT and SIGHUP are passed on to its process
group. When the other end of the pipe is closed: SIGTERM, grace, SIGKILL. A line "k" in the pipe: SIGKILL at once. A
line "t": only SIGTERM. A line with a number: the same as closing, that many seconds from now unless another number
arrives, so that a frozen agent keeps no job running beyond its lease. If the pipe is also writable (a socket), the
guard finally writes "asked" if that is why the command ended. With an output, what the command prints is copied there,
and dropped where it cannot be written: a full disk must not end a job. With a container, the guard enters that control
group first. With an account, read from a descriptor, the command runs as that user with another environment, but the
guard does not: the command can neither signal nor trace it, and the guard takes nothing from the command's
environment. With a terminal, a socket of packets, the command gets a terminal, on which the agent types (see
`JobTerminal`). The words of `--last`, one a line, are run as a command in the same way after the first one has ended,
however it ended: they remove its container. Exit code: the command's, 128 + n if signal n ended it, 127 if there is no
such command, 126 if it cannot be executed. Imports little, because every job start waits for it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing it takes longer than all of the guard
    from collections.abc import Callable

KILL = b"k\n"
TERMINATE = b"t\n"
ASKED = b"asked\n"
GRACE_SECONDS = 10.0
FAREWELL_SECONDS = 0.5
"""Time between SIGTERM and SIGKILL for processes that outlive the command: often they clean up after it."""
GIVE_UP_SECONDS = 10.0
LAST_SECONDS = 30.0
"""A last command that takes longer is stuck."""
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_CHUNK = 64 * 1024
RATE = 4 * 2**20
"""Bytes per second that a terminal prints at most: more than anyone reads, and a loop that prints fills no network."""
_ROWS, _COLUMNS = 24, 80
"""The size of a terminal to which no user has been connected yet."""
_MOST_CHUNKS = 64
"""More than a pipe holds: everything the command printed before its end fits."""


def argv(
    command: list[str],
    *,
    pipe: int | None = None,
    grace_seconds: float = GRACE_SECONDS,
    output: int | None = None,
    container: str | None = None,
    account: int | None = None,
    terminal: int | None = None,
    last: list[str] | None = None,
) -> list[str]:
    """Return the command line that runs a command under a guard; the descriptors must be inherited."""
    given = {
        "--pipe": pipe,
        "--grace": grace_seconds,
        "--output": output,
        "--container": container,
        "--account": account,
        "--terminal": terminal,
        "--last": "\n".join(last) if last else None,
    }
    options = [text for name, value in given.items() if value is not None for text in (name, str(value))]
    return [sys.executable, "-I", "-S", __file__, *options, "--", *command]


def main(arguments: list[str]) -> int:
    options, command = _split(arguments)
    try:
        given = dict(zip(options[::2], options[1::2], strict=True))
        pipe, grace = int(given.pop("--pipe", "-1")), float(given.pop("--grace", GRACE_SECONDS))
        output, container = int(given.pop("--output", "-1")), given.pop("--container", "")
        account, terminal = int(given.pop("--account", "-1")), int(given.pop("--terminal", "-1"))
        last = given.pop("--last", "")
    except ValueError:
        given = {"": ""}
    if given or not command:
        print(
            "usage: guard.py [--pipe FD] [--grace SECONDS] [--output FD] [--container DIR] [--account FD] "
            "[--terminal FD] [--last WORDS] -- COMMAND...",
            file=sys.stderr,
        )
        return 2
    for group in filter(None, container.split("\n")):
        _enter(group)
    user = AssumedUser.read(account) if account >= 0 else None
    return Guard(pipe, grace, output, terminal, last.splitlines()).run(command, user)


class AssumedUser:
    """The operating-system user that a command runs as, where it starts, and its whole environment."""

    def __init__(self, numbers: list[int], directory: str, needed: str, environment: dict[str, str]) -> None:
        """The numbers are those of the user and of its groups, the main one first; it must be able to use `needed`."""
        self.numbers = numbers
        self.directory = directory
        self.needed = needed
        self.environment = environment

    @classmethod
    def read(cls, descriptor: int) -> AssumedUser:
        """Read what `packed` wrote to an inherited file, and close it."""
        with open(descriptor, "rb") as file:
            numbers, directory, needed, *variables = map(os.fsdecode, file.read().split(b"\0"))
        pairs = (text.partition("=") for text in variables)
        environment = {name: value for name, _, value in pairs if name}
        return cls([int(number) for number in numbers.split()], directory, needed, environment)

    def packed(self) -> bytes:
        """What a guard reads."""
        texts = [" ".join(map(str, self.numbers)), self.directory, self.needed]
        texts += [f"{name}={value}" for name, value in self.environment.items()]
        if any("\0" in text for text in texts):
            raise ValueError("embedded null byte")
        return b"\0".join(map(os.fsencode, texts))

    def assume(self) -> str:
        """Become that user, for good; return why the command cannot start there, or an empty string."""
        user, *groups = self.numbers
        os.setgroups(groups)
        os.setresgid(groups[0], groups[0], groups[0])
        os.setresuid(user, user, user)
        name = self.environment.get("USER") or user
        try:
            os.chdir(self.directory)
        except OSError as error:
            return f"account {name} cannot enter the directory {self.directory}: {error.strerror}"
        if self.needed and not os.access(self.needed, os.R_OK | os.W_OK | os.X_OK):
            return unusable(str(name), self.needed)
        return ""


def unusable(account: str, directory: str) -> str:
    """Say that an account cannot use a directory, and what to do."""
    return f"account {account} cannot use {directory}: it must own it and be able to enter the directories above"


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


class Guard:
    """Watches one command, the pipe and the signals, in a single thread."""

    def __init__(
        self, pipe: int, grace_seconds: float, output: int = -1, terminal: int = -1, last: list[str] | None = None
    ) -> None:
        self._grace = grace_seconds
        self._last = last or []
        self._job = 0
        self._status: int | None = None
        self._kill_at: float | None = None
        """When SIGKILL is due."""
        self._lease_ends: float | None = None
        """When SIGTERM is due."""
        self._asked = False
        """Whether the command was told to leave while it ran."""
        self._would_die = False
        """Whether SIGTERM would have killed it; then exit code 0 means that it was ending by itself."""
        self._terminal = JobTerminal(output, terminal) if terminal >= 0 else None
        self._copier = self._terminal or (Copier(output) if output >= 0 else None)
        self._unread = b""
        self._poll = select.poll()
        self._pipe = pipe
        if pipe >= 0:
            os.set_inheritable(pipe, False)
            self._poll.register(pipe, select.POLLIN)
        self._signals, wakeup = os.pipe()
        os.set_blocking(wakeup, False)
        self._poll.register(self._signals, select.POLLIN)
        signal.set_wakeup_fd(wakeup)
        for number in (*_FORWARDED, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)  # the number arrives through the wake-up descriptor

    def run(self, command: list[str], account: AssumedUser | None = None) -> int:
        _control(_PR_SET_CHILD_SUBREAPER, 1)
        if self._terminal:
            self._terminal.belongs_to(account)
        output = self._copier.theirs if self._copier else -1
        self._job, error = _start(command, output, account, terminal=self._terminal is not None)
        if self._copier:
            self._copier.begin()
            self._poll.register(self._copier.ours, select.POLLIN)
        if error:
            os.waitpid(self._job, 0)
            return _refusal(command[0], error) if error.isdecimal() else _complaint(error)
        while self._status is None:
            due = min((at for at in (self._kill_at, self._lease_ends) if at is not None), default=None)
            self._wait(None if due is None else due - time.monotonic())
            if self._lease_ends is not None and time.monotonic() >= self._lease_ends:
                self._terminate()
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._asked = self._asked or not self._reaped()
                _signal_all(descendants(os.getpid()), signal.SIGKILL)
                self._kill_at = time.monotonic() + 0.1  # a process that had just forked may have been missed
        self._end_the_rest()
        if self._last:
            self._run_last(account)
        if self._copier:
            self._copier.finish()
        self._report()
        return os.waitstatus_to_exitcode(self._status) if os.WIFEXITED(self._status) else 128 + self._status % 128

    def _wait(self, seconds: float | None) -> None:
        """Wait for an event and handle it."""
        if self._terminal:
            seconds = self._terminal.prepare(self._poll, seconds)
        for descriptor, events in self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000):
            if descriptor == self._pipe:
                self._hear_agent()
            elif self._terminal and descriptor in {self._terminal.ours, self._terminal.channel}:
                self._terminal.handle(descriptor, events)
            elif self._copier and descriptor == self._copier.ours:
                if not self._copier.copy():
                    self._poll.unregister(descriptor)
            else:
                for number in os.read(self._signals, 1024):
                    if number in _FORWARDED:
                        self._signal_job(number)
        self._reap()

    def _hear_agent(self) -> None:
        try:
            said = os.read(self._pipe, 4096)
        except ConnectionError:
            said = b""
        if not said:
            self._poll.unregister(self._pipe)
            self._terminate()
        *lines, self._unread = (self._unread + said).split(b"\n")
        for line in lines:
            if line + b"\n" == KILL:
                self._kill_at = 0.0
            elif line + b"\n" == TERMINATE:
                self._ask()
            elif self._kill_at is None:
                self._lease_ends = time.monotonic() + float(line)

    def _terminate(self) -> None:
        self._lease_ends = None
        self._ask()
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace

    def _ask(self) -> None:
        """Send SIGTERM, unless the command has ended."""
        if not self._reaped():
            if not self._asked:
                self._asked, self._would_die = True, _dies_of(self._job, signal.SIGTERM)
            self._signal_job(signal.SIGTERM)
            if self._terminal and _ignores(self._job, signal.SIGTERM):  # as shells do while they talk to a user
                self._signal_job(signal.SIGHUP)

    def _signal_job(self, number: int) -> None:
        if self._status is None:
            try:
                os.killpg(self._job, number)
            except (ProcessLookupError, PermissionError):
                os.kill(self._job, number)

    def _report(self) -> None:
        """Tell the agent whether the command ended because it was told to."""
        if self._pipe >= 0 and made_to_leave(self._status, asked=self._asked, would_die=self._would_die):
            try:
                os.write(self._pipe, ASKED)
            except OSError:  # the agent is gone, or the pipe is read-only
                return

    def _reaped(self) -> bool:
        """Whether the command has ended."""
        self._reap()
        return self._status is not None

    def _reap(self) -> bool:
        """Reap children that have ended; return whether any is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._job:
                self._status = status

    def _end_the_rest(self) -> None:
        """End the processes that the command left behind; orphans have become our children, wherever they went."""
        began = time.monotonic()
        asked: set[int] = set()
        while self._reap():
            left = descendants(os.getpid())
            waited = time.monotonic() - began
            if waited > GIVE_UP_SECONDS:
                print(f"gavel: processes {left} of the job cannot be killed", file=sys.stderr)
                return
            if self._kill_at is not None or waited > FAREWELL_SECONDS:
                _signal_all(left, signal.SIGKILL)
            else:
                _signal_all([pid for pid in left if pid not in asked], signal.SIGTERM)
                asked.update(left)
            self._wait(0.02)

    def _run_last(self, account: AssumedUser | None) -> None:
        """Run the command that ends what the first one started beyond our reach, such as a container."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        _start(self._last, nowhere, account)
        os.close(nowhere)
        until = time.monotonic() + LAST_SECONDS
        while self._reap():
            if time.monotonic() > until:
                _signal_all(descendants(os.getpid()), signal.SIGKILL)
            self._wait(0.02)


class Copier:
    """Copies what the command prints; notes what could not be written as soon as writing works again."""

    def __init__(self, output: int, ends: tuple[int, int] | None = None) -> None:
        self._output = output
        self.ours, self.theirs = ends or os.pipe()
        self._lost = 0
        self._why = ""

    def begin(self) -> None:
        """Close our copy of the command's end."""
        os.close(self.theirs)
        os.set_blocking(self.ours, False)

    def copy(self) -> bool:
        """Copy what is available, at most one chunk; return whether more may follow."""
        try:
            data = os.read(self.ours, _CHUNK)
        except BlockingIOError:
            return True
        if data:
            self._write(self._note(), data)
        return bool(data)

    def _note(self) -> bytes:
        """What the log says about bytes that are not in it."""
        return f"\n[gavel: {self._lost} bytes of this log are lost: {self._why}]\n".encode() if self._lost else b""

    def finish(self) -> None:
        """Copy what the command left."""
        for _ in range(_MOST_CHUNKS):
            if not select.select([self.ours], [], [], 0)[0] or not self.copy():
                return

    def _write(self, note: bytes, data: bytes) -> None:
        left = note + data
        try:
            while left:
                left = left[os.write(self._output, left) :]
                if len(left) <= len(data):
                    self._lost = 0
        except OSError as error:
            self._lost += min(len(left), len(data))
            self._why = error.strerror or str(error)


class JobTerminal(Copier):
    """The terminal of the command: what it prints is copied to the log; what the agent sends is typed.

    The agent sends packets: "k" and keys, "w" and the numbers of rows and columns, "n" and a line for the user. A
    packet in the other direction says that there is more in the log. What the command does not read waits here, and no
    further packet is read meanwhile; what it prints is copied no faster than `RATE`.
    """

    def __init__(self, output: int, channel: int) -> None:
        import termios  # noqa: PLC0415 - few jobs have a terminal

        super().__init__(output, os.openpty())
        self._resize = termios.tcsetwinsize
        self.channel = channel
        os.set_inheritable(channel, False)
        os.set_blocking(channel, False)
        self._resize(self.ours, (_ROWS, _COLUMNS))
        self._typed = b""
        """What the command has not taken yet."""
        self._hears = True
        """Whether the agent's end is open."""
        self._rests_until = 0.0
        """When output may be copied again."""

    def belongs_to(self, account: AssumedUser | None) -> None:
        """Give the command's end to its user, and to no one else."""
        os.fchmod(self.theirs, 0o600)
        if account is not None:
            user, group, *_ = account.numbers
            os.fchown(self.theirs, user, group)

    def begin(self) -> None:
        """Keep the command's end open: what it printed before it ended is not lost."""
        os.set_blocking(self.ours, False)

    def prepare(self, poll: select.poll, seconds: float | None) -> float | None:
        """Say what to wait for next; return how long, of at most `seconds`."""
        rest = self._rests_until - time.monotonic()
        poll.register(self.ours, (select.POLLIN if rest <= 0 else 0) | (select.POLLOUT if self._typed else 0))
        if self._hears:
            poll.register(self.channel, 0 if self._typed else select.POLLIN)
        elif self.channel >= 0:
            poll.unregister(self.channel)
            os.close(self.channel)
            self.channel = -1
        if rest <= 0:
            return seconds
        return rest if seconds is None else min(rest, seconds)

    def handle(self, descriptor: int, events: int) -> None:
        """Read a packet, type, or copy."""
        if descriptor == self.channel:
            self._hear(closed=not events & select.POLLIN)
            return
        if self._typed:
            self._type()
        if events & select.POLLIN:
            self.copy()

    def copy(self) -> bool:
        """Copy one chunk, and tell the agent."""
        try:
            data = os.read(self.ours, _CHUNK)
        except OSError:  # nothing is there, or the terminal was hung up
            return False
        self._rests_until = time.monotonic() + len(data) / RATE
        self._show(data)
        return bool(data)

    def _show(self, data: bytes) -> None:
        self._write(self._note(), data)
        try:
            os.write(self.channel, b"o")
        except OSError:  # it was told already, or is gone
            return

    def _hear(self, *, closed: bool) -> None:
        try:
            packet = b"" if closed else os.read(self.channel, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        kind, rest = packet[:1], packet[1:]
        if kind == b"k":
            self._typed = rest
            self._type()
        elif kind == b"w":
            rows, columns = (int(word) for word in rest.split())
            self._resize(self.ours, (rows, columns))
        elif kind == b"n":
            self._show(b"\r\n[gavel: " + rest + b"]\r\n")
        elif not packet:
            self._hears = False

    def _type(self) -> None:
        try:
            self._typed = self._typed[os.write(self.ours, self._typed) :]
        except BlockingIOError:
            return
        except OSError:  # the terminal was hung up
            self._typed = b""


def descendants(ancestor: int) -> list[int]:
    """Return all descendants of a process, from /proc; empty on systems without it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208 - pathlib takes long
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    # The program's name is in parentheses, and may contain anything.
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it has ended meanwhile
            children.setdefault(parent, []).append(int(name))
    found = list(children.get(ancestor, ()))
    for pid in found:  # `found` grows during the loop
        found += children.get(pid, ())
    return found


def _signal_all(processes: list[int], number: int) -> None:
    for pid in processes:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def made_to_leave(status: int | None, *, asked: bool, would_die: bool) -> bool:
    """Whether a command left because it was asked: not if it ended before, or survived a SIGTERM that kills.

    >>> made_to_leave(0, asked=True, would_die=True), made_to_leave(0, asked=True, would_die=False)
    (False, True)
    """
    return asked and not (status == 0 and would_die)


def _dies_of(pid: int, number: int) -> bool:
    """Whether a signal would kill a process (it neither handles, ignores nor blocks it), from /proc; else False."""
    masks = _signal_masks(pid)
    return bool(masks) and not any(mask >> (number - 1) & 1 for mask in masks.values())


def _ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal, from /proc; else False."""
    return bool(_signal_masks(pid).get(b"SigIgn:", 0) >> (number - 1) & 1)


def _signal_masks(pid: int) -> dict[bytes, int]:
    """The signals that a process blocks, ignores and catches."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
            lines = [line.split() for line in file if line.startswith((b"SigBlk:", b"SigIgn:", b"SigCgt:"))]
    except OSError:
        return {}
    return {name: int(mask, 16) for name, mask in lines}


def _enter(container: str) -> None:
    """Move this process into a control group; if that fails, the agent finds processes in other ways."""
    try:
        with open(f"{container}/cgroup.procs", "w") as file:  # noqa: PTH123
            file.write("0")
    except OSError:
        return


def _start(
    command: list[str], output: int = -1, account: AssumedUser | None = None, *, terminal: bool = False
) -> tuple[int, str]:
    """Start the command; return its process id and, if it could not be executed, the error number or a sentence."""
    parent = os.getpid()
    reading, writing = os.pipe()
    os.get_exec_path()  # imports what exec needs, while we are still the user who can read our library
    take_terminal = _terminal_taker() if terminal else None
    pid = os.fork()
    if pid == 0:
        _become(command, parent, writing, output, account, take_terminal)
    os.close(writing)
    error = os.read(reading, 4096)  # empty if exec succeeded and closed the other end
    os.close(reading)
    return pid, os.fsdecode(error)


def _terminal_taker() -> Callable[[int], object]:
    """What makes a terminal that of a session."""
    import fcntl  # noqa: PLC0415 - few jobs have a terminal
    import termios  # noqa: PLC0415

    return lambda descriptor: fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


def _become(
    command: list[str],
    parent: int,
    errors: int,
    output: int,
    account: AssumedUser | None,
    take_terminal: Callable[[int], object] | None,
) -> None:
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        problem = account.assume() if account else ""  # first: a change of user clears what follows
        # If the guard is killed, nothing watches the command any more; then at least the command itself must end.
        _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(_NOT_EXECUTABLE)
        for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and the command would inherit that
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if take_terminal is not None:
            take_terminal(output)
            os.dup2(output, 0)
        if output >= 0:
            os.dup2(output, 1)
            os.dup2(output, 2)
        if problem:
            os.write(errors, os.fsencode(problem)[:4096])
            os._exit(_NOT_EXECUTABLE)
        if account:
            os.execvpe(command[0], command, account.environment)  # noqa: S606 - running commands is what guards are for
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        os.write(errors, str(error.errno).encode())
    except Exception as error:  # noqa: BLE001 - a child that ends without a word would say "command not found"
        os.write(errors, os.fsencode(f"the command could not be started: {error!r}")[:4096])
    finally:
        os._exit(_NOT_FOUND)


def _complaint(sentence: str) -> int:
    print(f"gavel: {sentence}", file=sys.stderr)
    return _NOT_EXECUTABLE


def _refusal(program: str, number: str) -> int:
    """Say why a program could not be executed, and return the exit code that shells use for it."""
    error = int(number)
    missing = error in {2, 20}  # ENOENT, ENOTDIR
    if missing and not ("/" in program and os.path.exists(program)):  # noqa: PTH110
        print(f"gavel: command not found: {program}", file=sys.stderr)
        return _NOT_FOUND
    reason = "the interpreter in its first line does not exist" if missing else os.strerror(error)
    return _complaint(f"cannot execute {program}: {reason}")


def _control(option: int, value: int) -> None:
    """Set a property of this process where the system supports it."""
    control = getattr(ctypes.CDLL(None), "prctl", None)
    if control is not None:
        control(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
