"""What a job can do to its agent and to other jobs: real agents, real accounts, and jobs that try."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from agent_stage import (
    GAVEL,
    LEAVES_WHEN_ASKED,
    Scheduler,
    Session,
    Worker,
    play,
    runs,
    shell,
    start,
    stop,
    until,
    worker,
)

from gavel.errors import InputError
from gavel.runtime.agent.containers import offered
from gavel.runtime.agent.inherited import DENIED, inherited_by_jobs
from gavel.runtime.agent.ownership import NotOursError, Owner, claim, hand_over, make_for
from gavel.runtime.agent.run_as import NoAccountError, RunAs, SystemAccount, on_behalf, run_as
from gavel.runtime.agent.state import StateDirectory, closed_above
from gavel.wire import gavel_pb2 as pb
from needs import NEEDS_GROUPS, PREFIX, needs_root

ALICE, BOB = "nobody", "daemon"
"""Accounts that every Linux has: those of two users of the scheduler."""
CREDENTIALS = {
    "GAVEL_TOKEN": "gvl_5ecret",
    "GAVEL_JOIN_TOKEN": "gvj_5ecret",
    "GAVEL_FINGERPRINT": "sha256:5ecret",
    "GAVEL_CA": "5ecret.crt",
    "CREDENTIALS_DIRECTORY": "/run/credentials/5ecret",
}


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that all accounts can enter, unlike that of a test, and the usual umask."""
    before = os.umask(0o022)
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    path.chmod(0o755)
    yield path
    os.umask(before)
    if (path / "state").is_dir():
        with StateDirectory(path / "state"):  # ends what a killed agent left
            pass
    shutil.rmtree(path)


def interpreter() -> str:
    """A Python that all accounts can run."""
    candidates = [sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"]
    found = next((path for path in candidates if _can_be_run_by_all(Path(path))), None)
    return found or pytest.skip(f"{PREFIX}a Python that all users can run: install the system's package python3")


def _can_be_run_by_all(path: Path) -> bool:
    return path.exists() and closed_above(path) is None and closed_above(path.resolve()) is None


@asynccontextmanager
async def two_users(place: Path) -> AsyncIterator[tuple[Worker, Session]]:
    """An agent whose jobs run as the accounts of alice and bob."""
    table = place / "accounts.json"
    table.write_text(json.dumps({"alice": ALICE, "bob": BOB}))
    async with Scheduler() as scheduler:
        scheduler.welcome.cluster = "c"
        async with worker(scheduler, place, "--run-as", str(table), variables=CREDENTIALS) as agent:
            yield agent, await scheduler.session()


def of(user: str, **fields: object) -> dict[str, object]:
    return {"user": user, **fields}


async def printed(session: Session, job: str) -> str:
    """Wait for the end of a job that must succeed, and return what it printed."""
    end = await session.ended(job)
    assert end.how == pb.TaskEnded.DONE, (end.reason, end.log_tail)
    await session.until(lambda: session.log(job) == end.log_tail.decode() or None)
    return session.log(job)


def guard_of(place: Path, job: int) -> int:
    """The guard of the only task, and the process that it guards."""
    return int(sorted((place / "state" / "guards").iterdir())[job].name)


# ---- accounts ----


@needs_root
def test_a_terminal_belongs_to_the_account_of_its_user_alone(place: Path) -> None:
    script = 'stat -c "%u %a" "$(tty)"; echo this is me > /dev/tty; stty -echo; echo ready; read line; echo got $line'

    async def scene() -> None:
        async with two_users(place) as (_, session):
            session.send(start("1", shell(script), request=of("alice", terminal=True)))
            shown = await session.logged("1", "ready")
            assert f"{pwd.getpwnam(ALICE).pw_uid} 600\r\nthis is me\r\n" in shown
            session.send(pb.ToAgent(input=pb.Input(job="1", attempt=1, data=b"it\n")))
            assert "got it" in (await session.ended("1")).log_tail.decode()

    play(scene())


@needs_root
def test_a_job_runs_as_the_account_of_its_user(place: Path) -> None:
    script = 'id -u; id -g; id -G; echo $HOME $USER $LOGNAME; pwd; touch "$GAVEL_CHECKPOINT_DIR/saved"; umask'

    async def scene() -> None:
        async with two_users(place) as (_, session):
            session.send(start("1", shell(script), request=of("alice", working_directory="/usr")))
            uid, gid, groups, login, directory, umask = (await printed(session, "1")).splitlines()
            account = pwd.getpwnam(ALICE)
            assert (int(uid), int(gid)) == (account.pw_uid, account.pw_gid)
            assert set(map(int, groups.split())) == set(os.getgrouplist(ALICE, account.pw_gid))
            assert login == f"{account.pw_dir} {ALICE} {ALICE}"
            assert (directory, umask) == ("/usr", "0022")
            saved = place / "saved" / "1"
            assert (saved.stat().st_uid, saved.stat().st_mode & 0o777) == (account.pw_uid, 0o700)
            assert (saved / "saved").stat().st_uid == account.pw_uid
            log = place / "state" / "logs" / "1.1.0.log"
            assert (log.stat().st_uid, log.stat().st_mode & 0o777) == (0, 0o600)

    play(scene())


@needs_root
def test_a_command_is_found_by_its_name_even_if_its_account_cannot_read_our_library(place: Path) -> None:
    """Where Python is below root's home, nothing can be imported once the user has changed."""

    async def scene() -> None:
        async with two_users(place) as (_, session):
            session.send(start("1", ["id", "-un"], request=of("alice")))
            assert await printed(session, "1") == f"{ALICE}\n"

    play(scene())


@needs_root
def test_a_job_of_another_user_reaches_its_agent_over_its_link(place: Path) -> None:
    command = [interpreter(), "-I", "-S", "-u", "-c", LEAVES_WHEN_ASKED]

    async def scene() -> None:
        async with two_users(place) as (_, session):
            session.send(start("1", command, request=of("alice")))
            await session.logged("1", "running")
            session.send(stop("1"))
            end = await session.ended("1")
            assert (end.how, end.status.saved_steps) == (pb.TaskEnded.LEFT, 7), end

    play(scene())


@needs_root
@pytest.mark.parametrize(
    ("request_fields", "sentence"),
    [
        (of("carol"), "--run-as names no account for user 'carol'"),
        (of(""), "the job has no user, because it was submitted before"),
        (of("alice", working_directory="/root"), f"account {ALICE} cannot enter the directory /root"),
    ],
    ids=["unknown", "no name", "a closed directory"],
)
def test_a_job_that_no_account_can_run_fails_for_good_with_a_sentence(
    place: Path, request_fields: dict[str, object], sentence: str
) -> None:
    async def scene() -> None:
        async with two_users(place) as (_, session):
            session.send(start("1", shell("true"), request=request_fields))
            end = await session.ended("1")
            assert (end.how, end.hopeless, end.blameless) == (pb.TaskEnded.CRASHED, True, False)
            assert end.reason.startswith(sentence)

    play(scene())


@needs_root
def test_a_command_that_only_root_may_run_is_not_run(place: Path) -> None:
    (place / "tool").write_text("#!/bin/sh\n")
    (place / "tool").chmod(0o700)

    async def scene() -> None:
        async with two_users(place) as (_, session):
            session.send(start("1", [str(place / "tool")], request=of("alice")))
            end = await session.ended("1")
            assert end.hopeless
            assert end.reason == f"cannot execute {place / 'tool'}: Permission denied"

    play(scene())


@needs_root
def test_jobs_of_other_users_end_with_a_killed_agent_and_with_the_next_one(place: Path) -> None:
    async def scene() -> None:
        async with Scheduler() as scheduler:
            for frozen in (False, True):
                async with worker(scheduler, place, "--run-as", ALICE) as agent:
                    session = await scheduler.session()
                    session.send(start("1", shell("(setsid sleep 1000 &) & sleep 1000 & echo running; wait")))
                    await session.logged("1", "running")
                    inside = [pid for pid in _processes_of(ALICE) if runs(pid)]
                    assert len(inside) >= 3
                    if frozen:
                        os.kill(guard_of(place, 0), signal.SIGSTOP)
                    agent.process.kill()
                    await agent.rest()
                if frozen:
                    assert any(map(runs, inside))
                    with StateDirectory(place / "state") as state:
                        assert state.leftovers == 1
                await until(lambda: not any(map(runs, inside)))  # noqa: B023 - waited for in the loop

    play(scene())


def _proc(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


def _user_of(pid: str) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def _processes_of(account: str) -> list[int]:
    uid = pwd.getpwnam(account).pw_uid
    numbers = [path for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [int(path.name) for path in numbers if path.exists() and path.stat().st_uid == uid]


# ---- what a job of another user tries ----

BURGLAR = """
read_one() { if cat "$1" >/dev/null 2>&1; then echo "READ $1"; fi; }
list_one() { if ls "$1/" >/dev/null 2>&1; then echo "LISTED $1"; fi; }
for pid in $PIDS; do
    for name in environ mem maps auxv stack syscall; do read_one /proc/$pid/$name; done
    for name in fd map_files task/$pid/fd; do list_one /proc/$pid/$name; done
    for name in root cwd exe; do if readlink /proc/$pid/$name >/dev/null 2>&1; then echo "FOLLOWED $pid $name"; fi; done
    for number in 0 CONT TERM KILL; do if kill -$number $pid 2>/dev/null; then echo "SIGNALLED $pid $number"; fi; done
done
for file in $FILES; do
    read_one "$file"; list_one "$file"
    if (: >> "$file") 2>/dev/null; then echo "WROTE $file"; fi
    if rm -rf "$file" 2>/dev/null; then echo "REMOVED $file"; fi
done
echo tried
"""


@needs_root
def test_a_job_reaches_neither_its_agent_nor_another_users_job(place: Path) -> None:
    waits = 'echo mine > "$GAVEL_CHECKPOINT_DIR/model"; echo $$ $GAVEL_SOCKET; exec sleep 1000'

    async def scene() -> None:
        async with two_users(place) as (agent, session):
            session.send(start("1", shell(waits), request=of("alice", environment={"SECRET": "5ecret"})))
            await session.logged("1", "\n")
            job, socket = session.log("1").split()
            guard = guard_of(place, 0)
            pids = [agent.process.pid, guard, int(job)]
            state, saved = place / "state", place / "saved"
            files = [state, state / "identity.json", state / "logs" / "1.1.0.log", state / "guards", Path(socket)]
            files += [Path(socket).parent, saved / "1", saved / "1" / "model", saved / "1" / ".gavel-owner.json"]
            tried = {"PIDS": " ".join(map(str, pids)), "FILES": " ".join(map(str, files))}
            session.send(start("2", shell(BURGLAR), request=of("bob", environment=tried)))
            assert await printed(session, "2") == "tried\n"
            assert all(map(runs, pids))
            assert all(path.exists() for path in files)
            connects = f"import socket; socket.socket(socket.AF_UNIX).connect({socket!r})"
            session.send(start("3", [interpreter(), "-I", "-c", connects], request=of("bob")))
            assert b"PermissionError" in (await session.ended("3")).log_tail

    play(scene())


@needs_root
def test_a_guard_takes_nothing_from_the_environment_of_another_users_job(place: Path) -> None:
    given = {"LD_PRELOAD": str(place / "evil.so"), "PYTHONPATH": "/evil", "PATH": "/usr/bin:/bin", "SECRET": "5ecret"}

    async def scene() -> None:
        async with two_users(place) as (_, session):
            session.send(start("1", shell("echo running; sleep 1000"), request=of("alice", environment=given)))
            await session.logged("1", "running")
            guard = guard_of(place, 0)
            variables = _proc(guard, "environ").split(b"\0")
            assert {variable.split(b"=")[0] for variable in variables if variable} == {b"PATH", b"GAVEL_SOCKET"}
            assert os.fsencode(place / "evil.so") not in _proc(guard, "maps")

    play(scene())


@needs_root
def test_a_job_cannot_leave_its_control_group_or_write_to_it(place: Path) -> None:
    if (containers := offered("test-isolation")) is None:
        pytest.skip(NEEDS_GROUPS)
    containers.remove()
    script = """
    for group in $GROUPS_TO_TRY; do
        for file in cgroup.procs tasks cgroup.kill cgroup.freeze freezer.state notify_on_release; do
            if (echo 0 > $group/$file) 2>/dev/null; then echo "WROTE $group/$file"; fi
        done
        if mkdir $group/mine 2>/dev/null; then echo "MADE $group/mine"; fi
    done
    echo tried; sleep 1000
    """

    async def scene() -> None:
        async with two_users(place) as (_, session):
            session.send(start("1", shell("echo running; sleep 1000"), request=of("alice")))
            await session.logged("1", "running")
            mark = json.loads((place / "state" / "guards" / str(guard_of(place, 0))).read_text())
            group = Path(mark["container"])
            tried = {"GROUPS_TO_TRY": f"{group} {group.parent} {group.parent.parent}"}
            session.send(start("2", shell(script), request=of("alice", environment=tried)))
            assert await session.logged("2", "tried") == "tried\n"
            inside = (group / "cgroup.procs").read_text().split()
            assert set(map(_user_of, inside)) == {0, pwd.getpwnam(ALICE).pw_uid}

    play(scene())


# ---- credentials ----

NON_ROOT = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
"""Runs a program without any privileges: to itself, its user is not root."""


def as_an_ordinary_user() -> list[str]:
    if os.geteuid() != 0:
        return []
    if shutil.which("unshare") is None or subprocess.run([*NON_ROOT, "true"], check=False).returncode != 0:
        pytest.skip(f"{PREFIX}user namespaces: run as an ordinary user")
    return NON_ROOT


def test_a_job_of_the_same_user_cannot_read_the_agents_memory_environment_or_descriptors(tmp_path: Path) -> None:
    script = """
    for name in environ mem maps auxv; do if cat /proc/$AGENT/$name >/dev/null 2>&1; then echo READ $name; fi; done
    for number in 0 1 2 3 4 5 6 7 8 9; do
        if readlink /proc/$AGENT/fd/$number >/dev/null 2>&1; then echo FOLLOWED fd/$number; fi
    done
    if cat /proc/$$/environ >/dev/null; then echo "can read its own"; fi
    """

    async def scene() -> None:
        prefix = as_an_ordinary_user()
        async with Scheduler() as scheduler, worker(scheduler, tmp_path, prefix=prefix, variables=CREDENTIALS) as agent:
            sentence = await agent.says("jobs run as")
            assert "agent's own user and can read its files, including its key" in sentence
            session = await scheduler.session()
            tried = {"AGENT": str(agent.process.pid)}
            session.send(start("1", shell(script), request={"environment": tried}))
            assert await printed(session, "1") == "can read its own\n"

    play(scene())


@pytest.mark.parametrize("user", ["", pytest.param("alice", marks=needs_root)])
def test_a_job_finds_no_credentials_in_its_environment_and_no_descriptors(place: Path, user: str) -> None:
    async def scene() -> None:
        options = ["--run-as", ALICE] if user else []
        async with Scheduler() as scheduler, worker(scheduler, place, *options, variables=CREDENTIALS) as agent:
            await agent.says("agent here")
            session = await scheduler.session()
            script = "cat /proc/self/environ | tr '\\0' '\\n'; ls /proc/$$/fd"
            session.send(start("1", shell(script), request=of(user)))
            lines = (await printed(session, "1")).splitlines()
            assert "GAVEL_JOB_ID=1" in lines
            assert not any("5ecret" in line for line in lines)
            assert not {line.split("=")[0] for line in lines} & CREDENTIALS.keys()
            assert {line for line in lines if line.isdecimal()} == {"0", "1", "2"}

    play(scene())


def test_no_credential_of_ours_is_inherited() -> None:
    everything = {**CREDENTIALS, **dict.fromkeys(DENIED, "x"), "GAVEL_ANYTHING": "x", "HOME": "/h", "PATH": "/bin"}
    assert inherited_by_jobs(everything, other_user=False) == {"HOME": "/h", "PATH": "/bin"}
    operators = {**everything, "AWS_SECRET_ACCESS_KEY": "x", "SSH_AUTH_SOCK": "x", "LD_PRELOAD": "x", "LC_ALL": "C"}
    assert inherited_by_jobs(operators, other_user=True) == {"PATH": "/bin", "LC_ALL": "C"}


# ---- the setting ----


@needs_root
def test_the_setting_decides_the_account() -> None:
    assert run_as("root").account_of("alice") is None
    assert run_as(None).account_of("you") is None
    assert run_as(None).account_of("") is None
    for user in ("you", "", "root", "no such user", "a\0b", BOB):  # the last is an account of the system
        with pytest.raises(NoAccountError):
            run_as("same").account_of(user)
    account = run_as(ALICE).account_of("anyone")
    assert account is not None
    assert account.uid == pwd.getpwnam(ALICE).pw_uid


@needs_root
@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.json", '{"alice": "root"}', "is root"),
        ("a.toml", 'alice = "no such account"', "has no account 'no such account'"),
        ("a.json", "[]", "one account for each user"),
        ("a.toml", "alice = 3", "one account for each user"),
        ("a.json", "{", "cannot be read"),
        ("b.json", '{"alice": "nobody"}', "only root may be able to change it"),
    ],
)
def test_a_bad_table_of_accounts_is_refused(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / name).chmod(0o666 if name.startswith("b") else 0o644)
    with pytest.raises(InputError, match=sentence):
        run_as(str(tmp_path / name))


@needs_root
def test_a_table_of_accounts_has_a_default(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(f'alice = "{ALICE}"\n"*" = "{BOB}"\n')
    setting = run_as(str(tmp_path / "a.toml"))
    found = [setting.account_of(user) for user in ("alice", "carol")]
    assert [account.name for account in found if account is not None] == [ALICE, BOB]


def test_an_agent_without_root_refuses_other_accounts(tmp_path: Path) -> None:
    command = [*as_an_ordinary_user(), *GAVEL, "worker", "--emulate", "v100=1", "--run-as", ALICE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert f"--run-as {ALICE} needs an agent that runs as root" in done.stderr


@needs_root
def test_a_job_from_before_there_were_users_needs_an_account_that_is_named_for_it() -> None:
    with pytest.raises(NoAccountError, match="before the scheduler recorded users"):
        RunAs({"*": "same"}).account_of("")
    with pytest.raises(NoAccountError, match="before the scheduler recorded users"):
        RunAs({"ann": ALICE}).account_of("")
    assert RunAs({"*": "same", "": ALICE}).account_of("") == account(ALICE)
    assert RunAs({"*": "same"}, unnamed=True).account_of("") is None


# ---- files that jobs could prepare ----


def account(name: str) -> SystemAccount:
    found = RunAs({"*": name}).account_of(name)
    assert found is not None
    return found


@needs_root
def test_work_on_behalf_of_an_account_has_its_rights_and_only_there(place: Path) -> None:
    (place / "secret").write_text("5ecret")
    (place / "secret").chmod(0o600)
    (place / "link").symlink_to(place / "secret")
    with pytest.raises(PermissionError):
        on_behalf(account(ALICE), (place / "link").read_text)
    assert on_behalf(None, (place / "link").read_text) == "5ecret"
    assert (place / "secret").read_text() == "5ecret"


@needs_root
def test_a_checkpoint_directory_is_given_to_its_account_but_never_through_a_link(place: Path) -> None:
    make_for(place / "1", account(ALICE))
    assert (place / "1").stat().st_uid == account(ALICE).uid
    (place / "other").mkdir(mode=0o700)
    (place / "2").symlink_to(place / "other")
    make_for(place / "2", account(ALICE))
    assert (place / "other").stat().st_uid == 0
    make_for(place / "1", account(BOB))
    assert (place / "1").stat().st_uid == account(ALICE).uid


@needs_root
def test_checkpoints_of_attempts_that_ran_as_root_are_handed_to_the_account(place: Path) -> None:
    """As after an upgrade: agents of version 0.2 ran every job as themselves."""
    job, owner, alice = place / "1", Owner("c", "1"), account(ALICE)
    claim(job, owner, 1, 0o022)
    (job / "step-000000007").mkdir(mode=0o755)
    (job / "step-000000007" / "total").write_text("7")
    (place / "data").write_text("of root")
    (job / "data").symlink_to(place / "data")
    os.link(place / "data", job / "hard")
    hand_over(job, owner, alice)
    on_behalf(alice, lambda: (job / "step-000000007" / "total").write_text("8"))
    on_behalf(alice, (job / "step-000000008").mkdir)
    assert (place / "data").stat().st_uid == 0, "neither a link nor a second name gives away a file elsewhere"


@needs_root
@pytest.mark.parametrize("why", ["another job's", "unmarked", "writable by others", "a link"])
def test_a_directory_of_root_that_is_not_certainly_the_jobs_own_is_not_handed_over(place: Path, why: str) -> None:
    job = place / "1"
    job.mkdir()
    if why != "unmarked":
        claim(job, Owner("c", "2" if why == "another job's" else "1"), 1, 0o022)
    job.chmod(0o777 if why == "writable by others" else 0o755)
    if why == "a link":
        (place / "2").symlink_to(job)
    hand_over(place / "2" if why == "a link" else job, Owner("c", "1"), account(ALICE))
    assert job.stat().st_uid == 0


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_marker_that_is_not_a_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    marker = tmp_path / ".gavel-owner.json"
    marker.symlink_to("/dev/zero") if kind == "link" else os.mkfifo(marker)
    with pytest.raises(NotOursError):
        claim(tmp_path, Owner("c", "1"), 2)


def test_a_new_state_directory_is_for_its_own_user_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        with StateDirectory(tmp_path / "state"):
            assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


@needs_root
def test_checkpoints_that_an_account_cannot_reach_are_named_at_start_and_fail_its_job(place: Path) -> None:
    place.chmod(0o700)

    async def scene() -> None:
        async with Scheduler() as scheduler, worker(scheduler, place, "--run-as", ALICE) as agent:
            assert f"may not be able to enter {place}," in await agent.says("checkpoints are")
            session = await scheduler.session()
            session.send(start("1", shell("true"), request=of("alice")))
            end = await session.ended("1")
            assert end.hopeless
            assert end.reason.startswith(f"account {ALICE} cannot use {place}/saved/1")

    play(scene())


# ---- environments ----

RUNTIME = """#!/bin/sh
echo "$1 $(id -u)" >> {record}
[ "$1" = rm ] && exit 0
for word; do case "$word" in --env-file=*) cat "${{word#--env-file=}}";; --user=*) echo "$word";; esac; done
"""


@needs_root
def test_a_container_is_run_and_removed_by_the_account_of_its_user(place: Path) -> None:
    (place / "bin").mkdir(mode=0o755)
    (place / "bin" / "docker").write_text(RUNTIME.format(record=place / "record"))
    (place / "bin" / "docker").chmod(0o755)
    (place / "record").touch()
    (place / "record").chmod(0o666)
    account = pwd.getpwnam(ALICE)

    async def scene() -> None:
        async with Scheduler() as scheduler:
            scheduler.welcome.cluster = "c"
            path = {"PATH": f"{place / 'bin'}:/usr/bin:/bin", "GAVEL_CONTAINER_RUNTIME": "docker"}
            async with worker(scheduler, place, "--run-as", ALICE, variables=path):
                session = await scheduler.session()
                wanted = of("alice", container="image:1", environment={"HOME": "/inside"})
                session.send(start("1", shell("true"), request=wanted))
                assert await printed(session, "1") == f"--user={account.pw_uid}:{account.pw_gid}\nHOME=/inside\n"

    play(scene())
    assert (place / "record").read_text() == f"run {account.pw_uid}\nrm {account.pw_uid}\n"


@needs_root
def test_a_virtual_environment_is_looked_for_with_the_rights_of_the_account(place: Path) -> None:
    hidden = place / "hidden"
    (hidden / "bin").mkdir(parents=True)
    (hidden / "bin" / "python").symlink_to(interpreter())
    hidden.chmod(0o700)

    async def scene() -> None:
        async with two_users(place) as (_, session):
            session.send(start("1", shell("true"), request=of("alice", venv=str(hidden))))
            end = await session.ended("1")
            assert end.hopeless
            assert "no bin/python that can be run" in end.reason
            hidden.chmod(0o755)
            session.send(start("2", shell("command -v python"), request=of("alice", venv=str(hidden))))
            assert await printed(session, "2") == f"{hidden}/bin/python\n"

    play(scene())
