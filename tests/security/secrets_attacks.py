"""Attacks on secrets: values, tokens and keys searched for in files, answers, processes and environments."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import grpc
from attacked_cluster import GAVEL, PATIENCE_SECONDS, USERS, Target, eventually
from attacks import attack
from identity_attacks import database

from gavel.wire import gavel_pb2 as pb

INVALID = grpc.StatusCode.INVALID_ARGUMENT
JOB = """
import hashlib, json, os, pathlib, sys, time
seen = {name: hashlib.sha256(value.encode()).hexdigest() for name, value in os.environ.items()}
text = "\\n".join(f"{name}={value}" for name, value in os.environ.items() if name not in ("HUSH", "OPEN"))
pathlib.Path(sys.argv[1]).write_text(json.dumps({"seen": seen, "rest": text}))
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.05)
"""
PATIENT = {"GAVEL_TOKEN": "gvl_of-the-agent", "GAVEL_SCHEDULER": "127.0.0.1:1", "AWS_PROFILE": "kept"}
"""Of the agent that runs the job."""


class SecretJob:
    """A job with a secret and a variable, on an agent of its own."""

    def __init__(self, target: Target) -> None:
        self.secret, self.value = f"hush-{uuid4().hex}", f"open-{uuid4().hex}"
        self.join = target.join_token()
        self.folder = target.folder / "jobs-own"
        self.folder.mkdir()
        self._target = target
        self._start_agent()
        (self.folder / "job.py").write_text(JOB)
        command = [sys.executable, str(self.folder / "job.py"), str(self.folder / "seen"), str(self.folder / "end")]
        job = pb.JobRequest(command=command, types=["p100"], environment={"OPEN": self.value}, secrets=["HUSH"])
        request = pb.SubmitRequest(jobs=[job], secrets=[pb.Secrets(values={"HUSH": self.secret})])
        self.id = target.call("Submit", request, "ann").ids[0]
        eventually((self.folder / "seen").exists, "the job with a secret runs")

    @property
    def seen(self) -> dict[str, Any]:
        """What the job saw in its environment."""
        found: dict[str, Any] = json.loads((self.folder / "seen").read_text())
        return found

    def finish(self) -> None:
        (self.folder / "end").touch()
        eventually(lambda: self._state() == pb.COMPLETED, "the job with a secret finishes")

    def _state(self) -> int:
        return int(self._target.call("Describe", pb.DescribeRequest(id=self.id), "ann").job.state)

    def _account(self) -> list[str]:
        """As whom jobs run, if the other agent was told."""
        told = [str(part) for part in cast("list[str]", self._target.processes["agent"].args)]
        return told[told.index("--run-as") :][:2] if "--run-as" in told else []

    def _start_agent(self) -> None:
        target = self._target
        joining = ["--join", target.address, "--token", self.join, "--fingerprint", target.fingerprint]
        place = ["--state", str(target.folder / "agent2"), "--checkpoints", str(target.folder / "checkpoints")]
        arguments = ["worker", *joining, "--name", "second", "--emulate", "p100=1", *place, *self._account()]
        environment = {**os.environ, **PATIENT, "XDG_CONFIG_HOME": str(target.folder / "config-service")}
        with (target.folder / "agent2.log").open("ab") as log:
            process = subprocess.Popen([*GAVEL, *arguments], env=environment, stdout=log, stderr=log)
        target.processes["agent2"] = process


_jobs: dict[Path, SecretJob] = {}
"""By the folder of their cluster."""


def secret_job(target: Target) -> SecretJob:
    """The job with a secret; the first attack that needs it starts it."""
    if target.folder not in _jobs:
        _jobs[target.folder] = SecretJob(target)
    return _jobs[target.folder]


# ---- searching ----


def files_below(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path


def holding(folder: Path, *texts: str) -> set[str]:
    """The files that have one of these texts, by their place below the folder."""
    found = set()
    for path in files_below(folder):
        try:
            data = path.read_bytes()
        except OSError:  # it was removed meanwhile
            continue
        if any(text.encode() in data for text in texts):
            found.add(str(path.relative_to(folder)))
    return found


def answers(target: Target, user: str, job: str) -> str:
    """Everything that a user is told by calls that only read; a refusal counts as an answer."""
    requests: dict[str, Any] = {
        "List": pb.JobQuery(),
        "Describe": pb.DescribeRequest(id=job),
        "Logs": pb.LogsRequest(id=job),
        "Cluster": pb.ClusterRequest(),
        "Events": pb.EventsRequest(routine=True),
        "WhoAmI": pb.WhoAmIRequest(),
        "ListAgents": pb.ListAgentsRequest(),
        "ListUsers": pb.ListUsersRequest(),
        "ListTokens": pb.ListTokensRequest(user="*"),
        "ListLimits": pb.ListLimitsRequest(),
        "Audit": pb.AuditQuery(),
    }
    return "\n".join(_told(target, method, request, user) for method, request in requests.items())


def _told(target: Target, method: str, request: Any, user: str) -> str:
    try:
        return str(target.call(method, request, user))
    except grpc.RpcError as error:
        return str(error.details())


def watched(target: Target, user: str) -> str:
    """What a watcher is told until it has caught up."""
    from attackers import bearer  # noqa: PLC0415

    from gavel.wire.gavel_pb2_grpc import GavelStub  # noqa: PLC0415

    with target.channel() as channel:
        metadata = bearer(target.tokens[user])
        call = GavelStub(channel).Watch(pb.JobQuery(), metadata=metadata, timeout=PATIENCE_SECONDS)  # type: ignore[no-untyped-call]
        told = ""
        for update in call:
            told += str(update)
            if update.caught_up:
                break
        call.cancel()
    return told


# ---- secrets of jobs ----


@attack("secrets")
def secret_in_files(target: Target) -> None:
    """A secret searched for in every file of the scheduler, the agents and the users while its job runs"""
    job = secret_job(target)
    hidden = job.seen["seen"]
    from hashlib import sha256  # noqa: PLC0415

    assert hidden["HUSH"] == sha256(job.secret.encode()).hexdigest()  # the job has it
    assert holding(target.folder, job.secret) == set()
    assert holding(target.folder, job.id.encode().hex(), job.value)  # the search finds what is there


@attack("secrets")
def secret_in_answers(target: Target) -> None:
    """A secret searched for in every answer to every user, its own included"""
    job = secret_job(target)
    for user in ("root", *USERS):
        assert job.secret not in answers(target, user, job.id) + watched(target, user)


@attack("secrets")
def environment_in_answers(target: Target) -> None:
    """The value of a job's variable in every answer to users of other teams and to viewers"""
    job = secret_job(target)
    for user in ("vic", "bob"):
        assert job.value not in answers(target, user, job.id) + watched(target, user)
    assert job.value in answers(target, "ann", job.id)


@attack("secrets")
def secret_in_processes(target: Target) -> None:
    """A secret, a token or a key in the arguments of any process, as `ps` shows them"""
    job = secret_job(target)
    texts = [job.secret, job.join, *target.tokens.values(), "PRIVATE KEY"]
    lines = [_arguments(path) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    assert any("job.py" in line for line in lines)  # it is among them
    mine = [line for line in lines if str(target.folder) in line]
    assert mine
    assert not [line for line in mine for text in texts if text in line]


@attack("secrets")
def secret_in_the_agents_environment(target: Target) -> None:
    """A job's secret in the environment of the agent and the scheduler"""
    job = secret_job(target)
    for process in target.processes.values():
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        assert environment
        assert job.secret.encode() not in environment


@attack("secrets")
def secret_in_logs_of_services(target: Target) -> None:
    """Secrets and tokens in what the services print"""
    job = secret_job(target)
    for name in target.processes:
        log = target.log(name)
        assert log
        assert not [text for text in (job.secret, job.value, job.join, *target.tokens.values()) if text in log]


@attack("secrets")
def credentials_in_a_jobs_environment(target: Target) -> None:
    """Tokens, keys and places of credentials in the environment of a job whose agent has them in its own"""
    rest = secret_job(target).seen["rest"]
    assert "AWS_PROFILE=kept" in rest  # it has the agent's environment otherwise
    for text in ("gvl_", "gvj_", "gvs_", "PRIVATE KEY", "GAVEL_TOKEN", "GAVEL_FINGERPRINT", "agent2/", ".key"):
        assert text not in rest, text


@attack("secrets")
def secrets_that_replace_ours(target: Target) -> None:
    """Secrets with the names of variables that Gavel sets for a job"""
    for name in ("GAVEL_JOB", "GAVEL_TOKEN", "GAVEL_SOCKET"):
        request = pb.SubmitRequest(
            jobs=[pb.JobRequest(command=["true"], secrets=[name])], secrets=[pb.Secrets(values={name: "x"})]
        )
        assert "reserved" in target.refused(INVALID, "Submit", request, "ann")


@attack("secrets")
def secret_in_the_database(target: Target) -> None:
    """A secret in a copy of the database: it is sealed there"""
    job = secret_job(target)
    assert [name for name, _ in sealed(target, job.id)] == ["HUSH"]
    assert all(job.secret.encode() not in value for _, value in sealed(target, job.id))


@attack("secrets")
def secret_after_its_job(target: Target) -> None:
    """A secret after its job has finished: it is in no file, no answer, and its sealed form is gone"""
    job = secret_job(target)
    assert sealed(target, job.id)
    job.finish()
    eventually(lambda: not sealed(target, job.id), "the sealed secret is removed")
    assert holding(target.folder, job.secret) == set()
    for user in ("ann", "root"):
        assert job.secret not in answers(target, user, job.id)


def sealed(target: Target, job: str) -> list[tuple[str, bytes]]:
    """What the database has of a job's secrets."""
    with sqlite3.connect(f"file:{database(target)}?mode=ro", uri=True) as connection:
        tables = [
            name
            for (name,) in connection.execute(
                "select name from sqlite_master where type = 'table' and name like '%secret%'"
            )
        ]
        assert tables
        rows = [row for table in tables for row in connection.execute(f'select * from "{table}"')]  # noqa: S608
    found = [(row, [cell for cell in row if isinstance(cell, bytes)]) for row in rows if str(row[0]) == job]
    return [(next(cell for cell in row[1:] if isinstance(cell, str)), values[0]) for row, values in found]


def _arguments(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


# ---- tokens and keys ----


@attack("secrets")
def tokens_in_files(target: Target) -> None:
    """Tokens searched for in every file: they are where their users keep them, and nowhere else"""
    own = {user: f"config-{user}/gavel/" for user in target.tokens}
    for user, token in target.tokens.items():
        places = holding(target.folder, token)
        allowed = {place for place in places if place.startswith(own[user])}
        allowed |= {"state/security/admin.token"} if user == "root" else set()
        assert places, user
        assert places == allowed, places


@attack("secrets")
def join_tokens_in_files(target: Target) -> None:
    """A join token searched for in every file after an agent has used it"""
    assert holding(target.folder, secret_job(target).join) == set()


@attack("secrets")
def tokens_in_answers(target: Target) -> None:
    """Tokens and their digests searched for in lists of tokens and in the audit, by an administrator"""
    from gavel.security.accounts import digest_of  # noqa: PLC0415

    told = answers(target, "root", target.job)
    for token in target.tokens.values():
        assert token not in told
        assert token.removeprefix("gvl_") not in told
        assert digest_of(token) not in told


@attack("secrets")
def keys_in_files(target: Target) -> None:
    """Private keys searched for in every file: each is in its own file, which its owner alone can read"""
    places = holding(target.folder, "PRIVATE KEY")
    assert {"state/security/authority.key", "state/security/server.key"} <= places
    for place in places:
        assert place.startswith(("state/security/", "agent/", "agent2/")), place
        assert stat.S_IMODE((target.folder / place).stat().st_mode) == 0o600, place


@attack("secrets")
def the_authoritys_key_beyond_the_scheduler(target: Target) -> None:
    """The authority's key or the scheduler's own in what agents keep"""
    folder = target.folder / "state" / "security"
    for name in ("authority.key", "server.key"):
        key = (folder / name).read_text().splitlines()[1]
        assert holding(target.folder, key) == {f"state/security/{name}"}


@attack("secrets")
def files_of_others(target: Target) -> None:
    """Files and folders of the scheduler, agents and logins that other accounts can open"""
    places = [target.folder / name for name in ("state", "agent", *(f"config-{user}/gavel" for user in target.tokens))]
    found = [path for place in places for path in (place, *place.rglob("*"))]
    assert len(found) > 20
    wide = [path for path in found if not path.is_symlink() and not path.is_socket() and path.lstat().st_mode & 0o077]
    assert wide == []


@attack("secrets")
def a_key_that_others_could_read(target: Target) -> None:
    """A scheduler whose authority's key was readable for others: it does not start"""
    with copied_site(target) as site:
        key = site / "security" / "authority.key"
        key.chmod(0o644)
        found = subprocess.run(
            [*GAVEL, "serve", "--folder", str(site), "--listen", "127.0.0.1:0"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert found.returncode != 0
        assert "can be read by other users (mode 644)" in found.stderr
        assert "chmod go=" in found.stderr


@attack("secrets")
def files_that_others_could_read(target: Target) -> None:
    """A scheduler's folder and journal with wider modes: both are named at the start"""
    with copied_site(target) as site:
        site.chmod(0o755)
        journal = next(path for path in site.iterdir() if path.is_file() and path.suffix in {".db", ".sqlite"})
        journal.chmod(0o644)
        command = [*GAVEL, "serve", "--folder", str(site), "--listen", "127.0.0.1:0", "--socket", str(site / "s")]
        with (site / "out").open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            text = (site / "out").read_text
            for path, mode in ((site, "755"), (journal, "644")):
                said = f"{path} is open to other users (mode {mode})"
                eventually(partial(_said_or_ended, said, text, process), said)
                assert said in text()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)


def _said_or_ended(sentence: str, text: Callable[[], str], process: subprocess.Popen[bytes]) -> bool:
    return sentence in text() or process.poll() is not None


@contextmanager
def copied_site(target: Target) -> Iterator[Path]:
    """Another cluster, set up by `gavel init`."""
    with tempfile.TemporaryDirectory(prefix="gavel-a-") as folder:
        site = Path(folder) / "site"
        target.gavel("init", "--folder", str(site), "--listen", "127.0.0.1:0", user="other")
        yield site
        shutil.rmtree(site)
