"""A stage for agents: a scheduler that a test controls, and job scripts that speak the link protocol."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

from gavel.runtime.agent import Agent, AgentSettings, emulated
from gavel.wire import SERVER_OPTIONS
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelServicer, add_GavelServicer_to_server

T = TypeVar("T")

GAVEL = [sys.executable, "-c", "from gavel.cli.app import main; main()"]

LONGEST = 60.0
"""Nothing here takes this long unless it hangs."""

INTRODUCTIONS = ("agent ", "jobs run without control groups")
"""Beginnings of the sentences that every agent prints, or that depend on the machine."""

LINK = """
import json, os, signal, socket, sys, time
link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["GAVEL_SOCKET"])
lines = link.makefile("r")
def tell(op, **fields):
    link.sendall((json.dumps({"op": op, **fields}) + "\\n").encode())
def hear(op):
    for line in lines:
        message = json.loads(line)
        if message["op"] == op:
            return message
tell("hello", protocol=1, rank=int(os.environ["GAVEL_RANK"]))
"""
"""The job's side of the link, for scripts."""

LEAVES_WHEN_ASKED = LINK + 'print("running")\nhear("stop")\nprint("leaving")\ntell("stopped", steps=7)\n'


ESCAPES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        script = "import os, time; open(%r, 'w').write(str(os.getpid())); time.sleep(1000)"
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", script % (sys.argv[1] + ".new")], {})
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1] + ".new") or not os.path.getsize(sys.argv[1] + ".new"): time.sleep(0.01)
os.rename(sys.argv[1] + ".new", sys.argv[1])
print("running", flush=True)
time.sleep(1000)
"""
"""A job that starts a daemon which has nothing in common with it: no parent, no session, no environment."""


def play(scene: Coroutine[Any, Any, None]) -> None:
    """Run an asynchronous test."""
    asyncio.run(asyncio.wait_for(scene, LONGEST))


def runs(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


async def until(condition: Callable[[], object]) -> None:
    """Poll until something outside this process has happened."""
    while not condition():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.01)


def python(script: str) -> list[str]:
    """Make a command of a script that needs nothing but the standard library."""
    return [sys.executable, "-I", "-S", "-u", "-c", script]


def shell(script: str) -> list[str]:
    """Make a command of a shell script."""
    return ["/bin/sh", "-c", script]


def start(job: str, command: list[str], **fields: Any) -> pb.ToAgent:
    """Make an order to start a job with one worker on a v100, unless the fields say otherwise."""
    request = pb.JobRequest(name=job, command=command, **fields.pop("request", {}))
    order = {"attempt": 1, "ranks": 1, "workers": 1, "type": "v100", "lease_seconds": LONGEST, "consolidated": True}
    return pb.ToAgent(start=pb.Start(job=job, request=request, **{**order, **fields}))


def stop(job: str, *, attempt: int = 1, at_once: bool = False) -> pb.ToAgent:
    """Make an order to stop a job."""
    return pb.ToAgent(stop=pb.Stop(job=job, attempt=attempt, reason="preempted", at_once=at_once))


def lease(seconds: float, *jobs: str) -> pb.ToAgent:
    """Make a lease."""
    return pb.ToAgent(lease=pb.Lease(seconds=seconds, jobs=jobs))


@dataclass
class Session:
    """One stream of an agent as the scheduler sees it."""

    hello: pb.Hello
    heard: int
    """The highest number that came."""
    acknowledges: bool = True
    term: int = 0
    received: list[pb.FromAgent] = field(default_factory=list)
    outgoing: asyncio.Queue[pb.ToAgent | None] = field(default_factory=asyncio.Queue)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def send(self, message: pb.ToAgent, *, heard: int | None = None) -> None:
        """Say something to the agent."""
        message.heard = self.heard if heard is None else heard
        message.term = self.term
        self.outgoing.put_nowait(message)

    def hang_up(self) -> None:
        """End the stream."""
        self.outgoing.put_nowait(None)

    async def take(self, message: pb.FromAgent) -> None:
        """Note what the agent says."""
        self.heard = max(self.heard, message.number)
        if message.HasField("ended") and self.acknowledges:
            self.send(pb.ToAgent(ack=pb.Ack(number=message.number)))
        async with self.changed:
            self.received.append(message)
            self.changed.notify_all()

    async def until(self, look: Callable[[], T | None]) -> T:
        """Wait until a matching message has arrived."""
        async with self.changed:
            while (found := look()) is None:
                await self.changed.wait()
            return found

    async def started(self, job: str, rank: int = 0, attempt: int = 1) -> pb.TaskStarted:
        """Wait until a task runs."""
        wanted = (job, attempt, rank)
        return await self.until(
            lambda: next((m for m in self._all("started") if (m.job, m.attempt, m.rank) == wanted), None)
        )

    async def ended(self, job: str, rank: int = 0, attempt: int = 1) -> pb.TaskEnded:
        """Wait until a task has ended."""
        return await self.until(lambda: next(iter(self.endings(job, rank, attempt)), None))

    def endings(self, job: str, rank: int = 0, attempt: int = 1) -> list[pb.TaskEnded]:
        """All that was said of a task's end."""
        wanted = (job, attempt, rank)
        return [m for m in self._all("ended") if (m.status.job, m.status.attempt, m.status.rank) == wanted]

    def log(self, job: str, rank: int = 0, attempt: int = 1) -> str:
        """What came of a task's log."""
        logs = [m for m in self._all("log") if (m.job, m.attempt, m.rank) == (job, attempt, rank)]
        return b"".join(m.data for m in logs).decode()

    async def logged(self, job: str, text: str, rank: int = 0, attempt: int = 1) -> str:
        """Wait until a task has printed this."""

        def look() -> str | None:
            log = self.log(job, rank, attempt)
            return log if text in log else None

        return await self.until(look)

    async def status(self, job: str, look: Callable[[pb.TaskStatus], bool] = lambda _: True) -> pb.TaskStatus:
        """Wait for a heartbeat that says this of a job."""

        def found() -> pb.TaskStatus | None:
            statuses = [status for beat in self._all("heartbeat") for status in beat.tasks if status.job == job]
            return next((status for status in statuses if look(status)), None)

        return await self.until(found)

    async def heartbeat(self) -> pb.Heartbeat:
        """Wait for the next heartbeat."""
        seen = len(self._all("heartbeat"))
        return await self.until(lambda: next(iter(self._all("heartbeat")[seen:]), None))

    def _all(self, kind: str) -> list[Any]:
        return [getattr(message, kind) for message in self.received if message.WhichOneof("message") == kind]


class Scheduler(GavelServicer):
    """Listens at one port; may go away and come back."""

    def __init__(self) -> None:
        self.welcome = pb.Welcome(heartbeat_seconds=0.05, checkpoint_grace_seconds=30, terminate_grace_seconds=5)
        self.refusal: pb.Refused | None = None
        self.refusals = 0
        self.acknowledges = True
        self.term = 0
        self.port = 0
        self._server: grpc.aio.Server | None = None
        self._sessions: asyncio.Queue[Session] = asyncio.Queue()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.appear()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.vanish()

    async def appear(self) -> None:
        """Listen."""
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        add_GavelServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def vanish(self) -> None:
        """Break all connections and listen no more."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def session(self) -> Session:
        """Wait for the next agent that attaches."""
        return await self._sessions.get()

    async def Attach(
        self,
        requests: AsyncIterator[pb.FromAgent],
        context: grpc.aio.ServicerContext[Any, Any],  # noqa: ARG002 - as gRPC calls it
    ) -> AsyncIterator[pb.ToAgent]:
        """Serve one stream."""
        first = await anext(aiter(requests))
        if self.refusal is not None:
            self.refusals += 1
            yield pb.ToAgent(refused=self.refusal, term=self.term)
            return
        session = Session(first.hello, first.number, self.acknowledges, self.term)
        yield pb.ToAgent(welcome=self.welcome, term=self.term)
        listening = asyncio.create_task(_listen(requests, session))
        self._sessions.put_nowait(session)
        try:
            while (message := await session.outgoing.get()) is not None:
                yield message
        finally:
            listening.cancel()


async def _listen(requests: AsyncIterator[pb.FromAgent], session: Session) -> None:
    async for message in requests:
        await session.take(message)


def settings_for(scheduler: Scheduler, directory: Path, text: str = "v100=2", **fields: Any) -> AgentSettings:
    """Make settings of an agent with emulated accelerators."""
    accelerators, emulation = emulated(text)
    told = {
        "accelerators": accelerators,
        "state": directory / "state",
        "checkpoints": directory / "checkpoints",
        "scheduler": scheduler.address,
        "name": "here",
        "emulation": emulation,
        "longest_pause_seconds": 0.2,
    }
    return AgentSettings(**{**told, **fields})


@asynccontextmanager
async def running(settings: AgentSettings) -> AsyncIterator[tuple[Agent, list[str]]]:
    """Run an agent to the end of the block, and stop it at once; what it says after its introduction."""
    said: list[str] = []
    agent = Agent(settings, lambda sentence: None if sentence.startswith(INTRODUCTIONS) else said.append(sentence))
    run = asyncio.create_task(agent.run())
    try:
        yield agent, said
        await agent.stop(at_once=True)
        await run
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)


@asynccontextmanager
async def attached(
    directory: Path,
    text: str = "v100=2",
    *,
    checkpoint_grace: float = 30.0,
    terminate_grace: float = 5.0,
    cluster: str = "",
    **fields: Any,
) -> AsyncIterator[tuple[Scheduler, Session]]:
    """Run a scheduler and an agent that has attached to it."""
    async with Scheduler() as scheduler:
        scheduler.welcome.checkpoint_grace_seconds = checkpoint_grace
        scheduler.welcome.terminate_grace_seconds = terminate_grace
        scheduler.welcome.cluster = cluster
        async with running(settings_for(scheduler, directory, text, **fields)):
            yield scheduler, await scheduler.session()


@dataclass
class Worker:
    """A `gavel worker` and what it printed."""

    process: asyncio.subprocess.Process

    async def says(self, text: str) -> str:
        """Wait for a line with this text."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            if text in line.decode():
                return line.decode()
        raise AssertionError(f"it ended without saying {text!r}")

    async def rest(self) -> str:
        """Wait for its end, and return what it printed to stderr since."""
        _, errors = await self.process.communicate()
        return errors.decode()


@asynccontextmanager
async def worker(
    scheduler: Scheduler,
    directory: Path,
    *options: str,
    prefix: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> AsyncIterator[Worker]:
    """Run `gavel worker`, perhaps through another program, and kill it at the end if it still runs."""
    told = ["--scheduler", scheduler.address, "--state", f"{directory}/state", "--checkpoints", f"{directory}/saved"]
    process = await asyncio.create_subprocess_exec(
        *[*prefix, *GAVEL, "worker", *told, "--emulate", "v100=2", "--name", "here", *options],
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(variables or {})},
    )
    try:
        yield Worker(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
