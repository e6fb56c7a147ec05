"""Attacks on terminals: control characters in every field that a command prints, from a scheduler that is evil.

A scheduler that answers with control characters in every text stands for all ways in which they could get into one.
"""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from attacked_cluster import GAVEL, PATIENCE_SECONDS, Target, refusal
from attackers import PATH
from attacks import attack
from google.protobuf.descriptor import FieldDescriptor

from gavel.wire import gavel_pb2 as pb

EVIL = "x\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b31m\r\x08\x00\u202eevil\u2066"
"""Sets the title, clears the screen, colours, returns, deletes, turns text around."""
DEEP = 5
_TEXT, _BYTES, _MESSAGE, _ENUM = (
    FieldDescriptor.CPPTYPE_STRING,
    FieldDescriptor.TYPE_BYTES,
    FieldDescriptor.CPPTYPE_MESSAGE,
    FieldDescriptor.CPPTYPE_ENUM,
)


# ---- a scheduler whose every text is evil ----


def fill(message: Any, depth: int = 0) -> Any:
    """Put evil into every text of a message, and into messages within it."""
    for field in message.DESCRIPTOR.fields:
        if field.cpp_type == _MESSAGE and depth >= DEEP:
            continue
        repeated = field.is_repeated
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(getattr(message, field.name), field.message_type.fields_by_name["value"])
        elif field.cpp_type == _MESSAGE:
            fill(getattr(message, field.name).add() if repeated else getattr(message, field.name), depth + 1)
        elif repeated:
            getattr(message, field.name).append(_value(field))
        else:
            setattr(message, field.name, _value(field))
    return message


def _fill_map(entries: Any, value: FieldDescriptor) -> None:
    if value.cpp_type != _MESSAGE:
        entries[EVIL] = _value(value)


def _value(field: FieldDescriptor) -> Any:
    if field.type == _BYTES:
        return EVIL.encode()
    if field.full_name.endswith("CheckpointsView.state"):
        return "kept"  # then the reason is printed
    if field.name == "document":
        return json.dumps({EVIL: EVIL}, ensure_ascii=False)
    if field.cpp_type == _TEXT:
        return "1" if field.name in {"id", "ids", "job"} else EVIL
    return 2 if field.cpp_type == _ENUM else 1


class _Evil(grpc.GenericRpcHandler):  # type: ignore[type-arg] # generic only in its stubs
    """Answers every call with evil, or refuses it with evil."""

    def __init__(self, refuses: grpc.StatusCode | None) -> None:
        self._refuses = refuses
        self._methods = pb.DESCRIPTOR.services_by_name["Gavel"].methods_by_name

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        method = self._methods[call.method.removeprefix(PATH)]
        reply = getattr(pb, method.output_type.name)

        def answer(_request: bytes, context: grpc.ServicerContext) -> bytes:
            if self._refuses is not None:
                context.abort(self._refuses, EVIL.replace("\0", ""))
            return bytes(fill(reply()).SerializeToString())

        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(lambda request, context: iter([answer(request, context)]))
        return grpc.unary_unary_rpc_method_handler(answer)


@contextmanager
def evil_scheduler(refuses: grpc.StatusCode | None = None) -> Iterator[str]:
    """The address of an evil scheduler."""
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((_Evil(refuses),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def printed(address: str, *arguments: str) -> str:
    """What a command prints about an evil scheduler, on both channels."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "XDG_CONFIG_HOME": folder,
            "GAVEL_SCHEDULER": address,
            "GAVEL_PATIENCE": "0",
            "COLUMNS": "",
        }
        found = subprocess.run([*GAVEL, *arguments], env=environment, capture_output=True, timeout=60, check=False)
    return (found.stdout + found.stderr).decode()


def check(text: str) -> None:
    """Assert that a text has no control character but the newline, and that it is about the evil."""
    bad = {character for character in text if not character.isprintable() and character != "\n"}
    assert not bad, (bad, text)
    assert "bug in Gavel" not in text, text


# ---- what commands print ----

COMMANDS = {
    "jobs": "The list of jobs",
    "job 1": "The description of a job",
    "cluster": "The view of the cluster",
    "events": "The timeline of events",
    "user list": "The list of users",
    "token list --all": "The list of tokens",
    "token create": "The receipt of a new token",
    "agent list": "The list of agents",
    "limits": "The list of limits",
    "audit": "The audit",
    "whoami": "Who the scheduler takes the caller for",
    "checkpoints remove 1": "The answer to removing checkpoints",
    "cancel 1": "The answer to a cancellation",
    "worker drain evil": "The answer to draining an agent",
    "submit -- true": "The answer to a submission",
}
ONLY_IDS = {"cancel 1", "submit -- true"}
"""Commands that print ids and nothing else."""


def _evil_answers(command: str, what: str) -> None:
    def play(target: Target) -> None:  # noqa: ARG001 - the scheduler is the attacker's
        with evil_scheduler() as address:
            text = printed(address, *command.split())
        check(text)
        assert "gavel: " not in text, text
        assert ("1" if command in ONLY_IDS else "evil") in text, text  # it printed what it was told

    play.__doc__ = f"{what} by a scheduler that sends control characters in every text (`gavel {command}`)"
    attack("terminals")(play)


for line, described in COMMANDS.items():
    _evil_answers(line, described)


@attack("terminals")
def evil_documents(target: Target) -> None:  # noqa: ARG001 - the scheduler is the attacker's
    """Documents of --json from a scheduler that sends control characters in every text"""
    with evil_scheduler() as address:
        for command in ("jobs", "cluster", "events", "audit", "logs 1"):
            text = printed(address, *command.split(), "--json")
            check(text)
            assert "evil" in text


@attack("terminals")
def evil_refusals(target: Target) -> None:  # noqa: ARG001 - the scheduler is the attacker's
    """Refusals with control characters in their sentences"""
    for code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INTERNAL):
        with evil_scheduler(code) as address:
            text = printed(address, "jobs")
        check(text)
        assert "evil" in text


@attack("terminals")
def evil_local_login(target: Target) -> None:  # noqa: ARG001 - the scheduler is the attacker's
    """A local socket that refuses logins with control characters"""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/s.login")
        listening.listen()

        def answer() -> None:
            connection = listening.accept()[0]
            connection.sendall(json.dumps({"error": EVIL}, ensure_ascii=False).encode() + b"\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        text = printed(f"unix:{folder}/s", "jobs")
    check(text)
    assert "evil" in text


@attack("terminals")
def evil_arguments(target: Target) -> None:
    """Control characters in the arguments of commands, which errors repeat"""
    for command in (
        ["job", EVIL],
        ["logs", EVIL],
        ["cancel", EVIL],
        ["token", "revoke", EVIL],
        ["job", "1", f"--{EVIL}"],
    ):
        found = target.gavel(*(part.replace("\0", "") for part in command), user="ann", check=False)
        assert found.returncode != 0
        check(found.stdout + found.stderr)


@attack("terminals")
def evil_in_the_audit(target: Target) -> None:
    """Control characters in refused calls, which the audit of a real scheduler lists"""
    codes = [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT]
    requests = {
        "RevokeToken": pb.RevokeTokenRequest(id=EVIL),
        "ListTokens": pb.ListTokensRequest(user=EVIL),
        "CreateToken": pb.CreateTokenRequest(user=EVIL),
        "Submit": pb.SubmitRequest(jobs=[pb.JobRequest(command=["true"], entity=EVIL)]),
        "SetLimits": pb.LimitsOf(kind="user", name=EVIL),
    }
    for method, request in requests.items():
        refusal(codes, partial(target.call, method, request, "bob"))
    found = target.gavel("audit", user="oda")
    check(found.stdout + found.stderr)
    assert "ListTokens" in found.stdout


@attack("terminals")
def evil_in_service_logs(target: Target) -> None:
    """Control characters in what the services print about callers and agents"""
    for field in ("version", "address", "incarnation", "name", "cluster"):
        target.attach_refused(target.enrolled(), **{field: EVIL})
    with target.attached(target.enrolled()) as stream:
        stream.say(ended=pb.TaskEnded(status=pb.TaskStatus(job=EVIL), reason=EVIL))
        stream.settle()
    for name in target.processes:
        log = target.log(name)
        assert log
        check(log)


@attack("terminals")
def evil_output_of_a_job(target: Target) -> None:  # noqa: ARG001 - the scheduler is the attacker's
    """The output of another user's job, shown on a terminal"""
    with evil_scheduler() as address:
        shown = on_a_terminal(address, "logs", "1")
        raw = on_a_terminal(address, "logs", "1", "--raw")
    assert b"evil" in shown
    assert not {byte for byte in shown if byte < 32 or byte == 127} - set(b"\r\n\t"), shown
    assert b"\x1b[31m" in raw  # who asks for it gets it


def on_a_terminal(address: str, *arguments: str) -> bytes:
    """What a command prints on a terminal."""
    leader, follower = pty.openpty()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CONFIG_HOME": folder, "GAVEL_SCHEDULER": address}
        process = subprocess.Popen([*GAVEL, *arguments], env=environment, stdout=follower, stderr=follower)
        os.close(follower)
        found = b""
        try:
            while data := os.read(leader, 65536):
                found += data
        except OSError:  # the other end is closed
            pass
        process.wait(PATIENCE_SECONDS)
        os.close(leader)
    return found


@attack("terminals")
def evil_context(target: Target) -> None:
    """A configuration file whose names and addresses have control characters"""
    folder = target.folder / "config-evil" / "gavel"
    folder.mkdir(parents=True, mode=0o700)
    found = next(path for path in (target.folder / "config-ann" / "gavel").iterdir() if path.is_file())
    text = found.read_text().replace("127.0.0.1", "x\\u001b[2J")
    place = Path(folder / found.name)
    place.write_text(text)
    place.chmod(0o600)
    for command in (["context", "list"], ["jobs"]):
        shown = target.gavel(*command, user="evil", check=False)
        assert shown.stdout + shown.stderr
        check(shown.stdout + shown.stderr)
