"""Attacks by jobs on their agent and on other jobs, as far as an agent without root rights can prevent them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from agents_attacks import view_of
from attack_tools import log_of, untouched
from attacked_cluster import OWN_ACCOUNT, Target, eventually, spawn
from attacks import attack

from gavel.wire import gavel_pb2 as pb

KIND = "p100"
AGENTS_TOKEN = f"gvl_{uuid4().hex}"
"""In the environment of the agent that runs the jobs."""
FINISHED = {pb.COMPLETED, pb.FAILED, pb.CANCELLED}
LINK = """
import json, os, socket
link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["GAVEL_SOCKET"])
"""


# ---- tools ----


@contextmanager
def victim(target: Target) -> Iterator[None]:
    """A second agent, which runs the jobs of attackers."""
    joining = ["--join", target.address, "--token", target.join_token(), "--fingerprint", target.fingerprint]
    place = ["--state", str(target.folder / "victim"), "--checkpoints", str(target.folder / "checkpoints")]
    os.environ["GAVEL_TOKEN"] = AGENTS_TOKEN
    try:
        spawn(
            target, "victim", ["worker", *joining, "--name", "victim", "--emulate", f"{KIND}=4", *place, *OWN_ACCOUNT]
        )
    finally:
        del os.environ["GAVEL_TOKEN"]
    yield


def played(target: Target, code: str, secrets: dict[str, str] | None = None, **fields: Any) -> tuple[str, str]:
    """Run a program as bob's job at the victim; its id and what it printed."""
    given = {"command": [sys.executable, "-c", code], "workers": 1, "weight": 1.0, "types": [KIND], **fields}
    request = pb.SubmitRequest(jobs=[pb.JobRequest(secrets=list(secrets or ()), **given)])
    if secrets:
        request.secrets.add(values=secrets)
    job = str(target.call("Submit", request, "bob").ids[0])
    eventually(lambda: view_of(target, job).state in FINISHED, f"job {job} finishes")
    return job, log_of(target, job).decode(errors="replace")


def completes(target: Target, code: str, **fields: Any) -> str:
    """The same for a program that must succeed."""
    job, printed = played(target, code, **fields)
    assert view_of(target, job).state == pb.COMPLETED, printed
    return printed


# ---- attacks ----


@attack("jobs")
def credentials_in_the_environment(target: Target) -> None:
    """A job that searches its environment for credentials of the agent"""
    printed = completes(target, "import json, os; print(json.dumps(dict(os.environ)))")
    environment: dict[str, str] = json.loads(printed)
    assert environment["GAVEL_JOB_ID"]
    wanted = [AGENTS_TOKEN, *target.tokens.values(), "PRIVATE KEY", "gvj_", "gvl_", "gvs_"]
    assert not [name for name, value in environment.items() if any(secret in value for secret in wanted)]


@attack("jobs")
def variables_of_the_agent(target: Target) -> None:
    """A job whose environment replaces the variables that its agent sets"""
    names = ("GAVEL_SOCKET", "GAVEL_JOB_ID", "GAVEL_CHECKPOINT_DIR", "GAVEL_RANK", "GAVEL_DEVICES")
    code = f"import json, os; print(json.dumps([os.environ[name] for name in {names}]))"
    printed = completes(target, code, environment=dict.fromkeys(names, "of the attacker"))
    assert "of the attacker" not in printed


@attack("jobs")
def secret_on_a_command_line(target: Target) -> None:
    """A job that searches the command lines of all processes for a secret"""
    secret = uuid4().hex
    code = """
import os, pathlib
value = os.environ["KEY"].encode()
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        print("FOUND" if value in path.read_bytes() else ".", end="")
    except OSError:
        pass
print(len(value))
"""
    printed = completes(target, code, secrets={"KEY": secret})
    assert "32" in printed
    assert "FOUND" not in printed


@attack("jobs")
def garbage_on_its_link(target: Target) -> None:
    """A job that sends its agent garbage, lines without end and deep nesting"""
    code = """
import os, socket
texts = b"x" * 10**7, b"garbage\\n" * 1000, b"[" * 60_000 + b"\\n", b"\\xff\\0\\n", b"null\\n[]\\n1e999\\n"
for text in (*texts, b'{"op": 7}\\n'):
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(os.environ["GAVEL_SOCKET"])
        try:
            link.sendall(text)
        except OSError:
            pass
print("survived")
"""
    with untouched(target):
        assert "survived" in completes(target, code)
        assert target.processes["victim"].poll() is None
        assert "still here" in completes(target, "print('still here')")


@attack("jobs")
def words_about_another_job(target: Target) -> None:
    """A job that names another job on the link to its agent, with impossible progress"""
    code = f"""{LINK}
for message in (
    {{"op": "hello", "protocol": 1, "pid": 1, "rank": 0, "job": "{target.job}", "attempt": 1}},
    {{"op": "progress", "job": "{target.job}", "steps": 1e300, "saved": 1e300, "seconds": -5}},
    {{"op": "progress", "job": "{target.job}", "steps": float("nan"), "saved": "x", "seconds": None}},
    {{"op": "failed", "job": "{target.job}", "reason": "a lie"}},
    {{"op": "done", "job": "{target.job}"}},
):
    try:
        link.sendall(json.dumps(message).encode() + b"\\n")
    except OSError:
        break
"""
    with untouched(target):
        job, _ = played(target, code)
        assert view_of(target, job).steps_done < 1e15
        assert target.processes["victim"].poll() is None


@attack("jobs")
def process_left_behind(target: Target) -> None:
    """A job that leaves a process in another session behind, to keep the accelerator"""
    code = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("left", os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
time.sleep(0.5)
"""
    left = int(completes(target, code).split("left ")[1].split()[0])
    eventually(lambda: not _runs(left), "what the job left behind is ended")


def _runs(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@attack("jobs")
def output_without_end(target: Target) -> None:
    """A job that prints 40 megabytes, partly as one line and with terminal escapes"""
    code = "import sys; sys.stdout.write('\\x1b[2J' + 'x' * 20_000_000); sys.stdout.write('y\\n' * 10_000_000)"
    job, printed = played(target, code)
    assert view_of(target, job).state == pb.COMPLETED
    assert 0 < len(printed) <= 20 * 2**20
    kept = sum(path.stat().st_size for path in (target.folder / "state").rglob(f"logs/{job}/*"))
    assert kept <= 20 * 2**20


@attack("jobs")
def killed_process_group(target: Target) -> None:
    """A job that kills its own process group, hoping that its agent is part of it"""
    code = "import os, signal; os.killpg(0, signal.SIGKILL)"
    with untouched(target):
        job, _ = played(target, code)
        assert view_of(target, job).state == pb.FAILED
        assert target.processes["victim"].poll() is None
        assert "still here" in completes(target, "print('still here')")
