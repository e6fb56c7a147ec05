"""A secured cluster of real processes, a job that runs beside every attack and must finish, and tools of attackers.

Attacks use hand-made messages over real connections. Each is a function that `attacks.attack` registers.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
from cryptography.hazmat.primitives.asymmetric import ec

from gavel.client.trust import pinned_authority, verified_name
from gavel.security.certificates import key_pem, new_key, signing_request
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

GAVEL = [sys.executable, "-c", "from gavel.cli.app import main; main()"]
PATIENCE_SECONDS = 60.0
OWN_ACCOUNT = ["--run-as", "root"] if os.geteuid() == 0 else []
"""The users of these tests have no accounts on this machine."""
USERS = {
    "vic": ("viewer", "nlp"),
    "ann": ("user", "nlp"),
    "bob": ("user", "vision"),
    "oda": ("operator", ""),
}
"""By name: role and team. The administrator is the account that runs the tests: `root` in `tokens`."""
BYSTANDER = """
import sys, time
from gavel import GavelIterator
steps = GavelIterator(range(10**9), load_checkpoint=lambda folder: None, save_checkpoint=lambda folder: None)
for _ in steps:
    time.sleep(0.05)
    if __import__("pathlib").Path(sys.argv[1]).exists():
        print("the bystander saw the end", flush=True)
        break
"""


@dataclass(frozen=True)
class AgentKeys:
    """The credentials of an agent that a test enrolled."""

    agent: str
    name: str
    key: bytes = field(repr=False)
    chain: bytes = field(repr=False)


class Stream:
    """An Attach stream of which a test writes every message."""

    def __init__(self, stub: Any) -> None:
        self._said: queue.Queue[pb.FromAgent | None] = queue.Queue()
        self._call = stub.Attach(iter(self._said.get, None), timeout=PATIENCE_SECONDS)
        self.number = 0

    def say(self, **message: Any) -> None:
        self.number += 1
        self._said.put(pb.FromAgent(number=self.number, **message))

    def hear(self, kind: str) -> Any:
        """Read until a message of this kind comes; grpc.RpcError if the stream ends with an error."""
        for message in self._call:
            if message.WhichOneof("message") == kind:
                return getattr(message, kind)
        raise AssertionError(f"the stream ended without {kind}")

    def settle(self) -> None:
        """Wait until the scheduler has read everything: an end of an unknown task is acknowledged."""
        self.say(ended=pb.TaskEnded(status=pb.TaskStatus(job="none")))
        while self.hear("ack").number != self.number:
            pass

    def close(self) -> None:
        self._said.put(None)
        self._call.cancel()


@dataclass
class Target:
    """The cluster that is attacked."""

    folder: Path
    address: str
    tokens: dict[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    authority: bytes = b""
    server_name: str = ""
    job: str = ""
    """The job beside all attacks; it belongs to ann."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def agents_address(self) -> str:
        host, _, port = self.address.rpartition(":")
        return f"{host}:{int(port) + 1}"

    @property
    def socket(self) -> Path:
        return self.folder / "g.sock"

    # ---- calls ----

    @contextmanager
    def channel(
        self, address: str = "", *, roots: bytes = b"", name: str = "", keys: AgentKeys | None = None
    ) -> Iterator[grpc.Channel]:
        """A TLS channel that checks the scheduler as our clients do, unless told otherwise."""
        shown = (keys.key, keys.chain) if keys else (None, None)
        trusted = grpc.ssl_channel_credentials(roots or self.authority, *shown)
        options = (("grpc.ssl_target_name_override", name or self.server_name),)
        default = self.agents_address if keys else self.address
        with grpc.secure_channel(address or default, trusted, options=options) as channel:
            yield channel

    @contextmanager
    def plain(self, address: str = "") -> Iterator[grpc.Channel]:
        with grpc.insecure_channel(address or self.address) as channel:
            yield channel

    def call(self, method: str, request: Any, user: str = "", *, token: str = "", acting_for: str = "") -> Any:
        """Call with a user's token, any token, or none; the answer of a stream is a list."""
        with self.channel() as channel:
            return self.call_on(channel, method, request, user, token=token, acting_for=acting_for)

    def call_on(
        self,
        channel: grpc.Channel,
        method: str,
        request: Any,
        user: str = "",
        *,
        token: str = "",
        acting_for: str = "",
    ) -> Any:
        shown = token or (self.tokens[user] if user else "")
        metadata = [("authorization", f"Bearer {shown}")] if shown else []
        metadata += [("x-gavel-as", acting_for)] if acting_for else []
        reply = getattr(GavelStub(channel), method)(request, metadata=metadata, timeout=PATIENCE_SECONDS)  # type: ignore[no-untyped-call]
        return list(reply) if isinstance(reply, Iterator) else reply

    def refused(self, code: grpc.StatusCode, method: str, request: Any, user: str = "", **options: str) -> str:
        """Assert that a call is refused with this status; returns the sentence."""
        return refusal(code, lambda: self.call(method, request, user, **options))

    def gavel(self, *arguments: str, user: str = "root", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command as a user who is logged in."""
        environment = {**os.environ, "XDG_CONFIG_HOME": str(self.folder / f"config-{user}"), "COLUMNS": ""}
        return subprocess.run(
            [*GAVEL, *arguments], env=environment, capture_output=True, text=True, check=check, timeout=PATIENCE_SECONDS
        )

    # ---- agents ----

    def join_token(self, uses: int = 1) -> str:
        return str(self.call("CreateToken", pb.CreateTokenRequest(role="agent", uses=uses), "root").token)

    def enrolled(self, name: str = "", agent: str = "") -> AgentKeys:
        """Enrol an agent whose messages a test writes."""
        name, agent, key = name or f"evil-{uuid4().hex[:8]}", agent or uuid4().hex, new_key()
        request = pb.EnrolRequest(
            join_token=self.join_token(), agent=agent, name=name, signing_request=signing_request(key)
        )
        reply = self.call("Enrol", request)
        return AgentKeys(agent, name, key_pem(key), reply.certificate.encode())

    @contextmanager
    def attached(self, keys: AgentKeys, **hello: Any) -> Iterator[Stream]:
        """An agent's stream after its welcome."""
        with self.channel(keys=keys) as channel:
            stream = Stream(GavelStub(channel))  # type: ignore[no-untyped-call]
            stream.say(hello=hello_of(keys, **hello))
            stream.hear("welcome")
            try:
                yield stream
            finally:
                stream.close()

    def attach_refused(self, keys: AgentKeys, **hello: Any) -> str:
        """Assert that an agent is refused; returns the sentence."""
        with self.channel(keys=keys) as channel:
            stream = Stream(GavelStub(channel))  # type: ignore[no-untyped-call]
            stream.say(hello=hello_of(keys, **hello))
            try:
                return str(stream.hear("refused").reason)
            except grpc.RpcError as error:
                assert error.code() in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}  # noqa: PT017
                return str(error.details())
            finally:
                stream.close()

    # ---- what must not be disturbed ----

    def check_undisturbed(self) -> None:
        """The job runs in its first attempt, both processes live, and a call is answered."""
        view = self.call("Describe", pb.DescribeRequest(id=self.job), "ann").job
        assert (view.state, view.attempts) == (pb.RUNNING, 1), f"the job beside the attacks: {view}"
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} has ended: {self.log(name)[-2000:]}"

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def finish(self) -> None:
        """Let the job beside the attacks finish, and see that it did."""
        (self.folder / "the-end").touch()
        eventually(
            lambda: self.call("Describe", pb.DescribeRequest(id=self.job), "ann").job.state == pb.COMPLETED,
            "the job beside the attacks finishes",
        )


def hello_of(keys: AgentKeys, **fields: Any) -> pb.Hello:
    """An agent's first message; any field can be forged."""
    given = {
        "protocol": PROTOCOL,
        "name": keys.name,
        "agent": keys.agent,
        "incarnation": uuid4().hex,
        "accelerators": [pb.Accelerators(type="k80", count=1)],
        "draining": True,  # it gets no jobs, unless a test wants some
        **fields,
    }
    return pb.Hello(**given)


def refusal(code: grpc.StatusCode | Sequence[grpc.StatusCode], call: Callable[[], Any]) -> str:
    """Assert that a call is refused with one of these statuses; returns the sentence."""
    codes = [code] if isinstance(code, grpc.StatusCode) else list(code)
    try:
        reply = call()
    except grpc.RpcError as error:
        assert error.code() in codes, f"refused with {error.code()}: {error.details()}"  # noqa: PT017
        return str(error.details())
    raise AssertionError(f"it was not refused: {str(reply)[:500]}")


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"still not so: {what}"
        time.sleep(0.1)


@contextmanager
def attacked_cluster() -> Iterator[Target]:
    """Set up a cluster with users, an agent and a job; at the end the job must finish."""
    with tempfile.TemporaryDirectory(prefix="gavel-a-") as folder:
        target = Target(Path(folder), f"127.0.0.1:{_two_free_ports()}")
        try:
            _start(target)
            yield target
            target.check_undisturbed()
            target.finish()
        finally:
            _end(list(target.processes.values()))


def _start(target: Target) -> None:
    state = target.folder / "state"
    target.gavel("init", "--folder", str(state), "--listen", target.address)
    options = {
        "round-seconds": 2,
        "heartbeat-seconds": 0.3,
        "agent-timeout-seconds": 30,
        "lease-slack-seconds": 60,
        "notify-hosts": "*.chat.example.org",
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    place = ["--folder", str(state), "--listen", target.address, "--socket", str(target.socket)]
    spawn(target, "scheduler", ["serve", *place, *flags])
    eventually(lambda: "local users at" in target.log("scheduler"), "the scheduler is up")
    target.tokens["root"] = (state / "security" / "admin.token").read_text().strip()
    target.fingerprint = _fingerprint(state / "security" / "authority.crt")
    target.authority = pinned_authority(target.address, target.fingerprint).encode()
    target.server_name = verified_name(target.address, target.authority.decode())
    for name, (role, team) in USERS.items():
        user = pb.User(name=name, role=role, teams=[team] if team else [])
        target.call("AddUser", user, "root")
        target.tokens[name] = target.call("CreateToken", pb.CreateTokenRequest(user=name), "root").token
    for name in ("root", *USERS):
        token = target.tokens[name]
        target.gavel("login", target.address, "--token", token, "--fingerprint", target.fingerprint, user=name)
    _start_agent(target)
    (target.folder / "bystander.py").write_text(BYSTANDER)
    command = [sys.executable, str(target.folder / "bystander.py"), str(target.folder / "the-end")]
    job = pb.JobRequest(command=command, name="bystander", workers=1, weight=1.0, types=["v100"])
    target.job = target.call("Submit", pb.SubmitRequest(jobs=[job]), "ann").ids[0]
    eventually(
        lambda: target.call("Describe", pb.DescribeRequest(id=target.job), "ann").job.state == pb.RUNNING,
        "the job beside the attacks runs",
    )


def _start_agent(target: Target) -> None:
    joining = ["--join", target.address, "--token", target.join_token(), "--fingerprint", target.fingerprint]
    place = ["--state", str(target.folder / "agent"), "--checkpoints", str(target.folder / "checkpoints")]
    spawn(target, "agent", ["worker", *joining, "--name", "good", "--emulate", "v100=1", *place, *OWN_ACCOUNT])


def spawn(target: Target, name: str, arguments: Sequence[str]) -> None:
    environment = {**os.environ, "XDG_CONFIG_HOME": str(target.folder / "config-service")}
    with (target.folder / f"{name}.log").open("ab") as log:
        target.processes[name] = subprocess.Popen(
            [*GAVEL, *arguments], env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _two_free_ports() -> int:
    """A port that is free, as is the next one."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def _fingerprint(path: Path) -> str:
    import ssl  # noqa: PLC0415 - only here

    return "sha256:" + hashlib.sha256(ssl.PEM_cert_to_DER_cert(path.read_text())).hexdigest()


def weak_key() -> ec.EllipticCurvePrivateKey:
    """A key on a curve that is too small."""
    return ec.generate_private_key(ec.SECP192R1())


def session(path: Path) -> dict[str, Any]:
    """Log in at a scheduler's UNIX socket as this process's account."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(f"{path}.login")
        answer: dict[str, Any] = json.loads(connection.makefile().readline())
    return answer
