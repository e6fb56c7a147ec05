"""The scheduler between users and terminals of jobs: a real service, and an agent of which tests write the messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from gavel.runtime import terminals
from gavel.runtime.fleet import MOST_UNREAD_BY_TERMINAL, FleetSettings
from gavel.runtime.messages import TerminalKeys
from gavel.runtime.server import Running, ServeSettings, serving
from gavel.runtime.service import AgentStream
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

LONGEST = 60.0
PASSWORD = b"correct horse battery staple"


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, LONGEST))


@dataclass
class Site:
    """A scheduler, one agent, and a job with a terminal that runs there."""

    running: Running
    stub: Any
    job: str = ""
    typed: list[pb.Input] = field(default_factory=list)
    """What the agent was sent for terminals."""
    outgoing: asyncio.Queue[pb.FromAgent] = field(default_factory=asyncio.Queue)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    printed: int = 0

    async def attend(self) -> None:
        """Be the agent."""
        async for message in self.stub.Attach(self._said()):
            if message.HasField("start"):
                started = pb.TaskStarted(job=message.start.job, attempt=message.start.attempt)
                self.outgoing.put_nowait(pb.FromAgent(started=started))
                self.started.set()
            if message.HasField("input"):
                self.typed.append(message.input)

    async def _said(self) -> AsyncIterator[pb.FromAgent]:
        offer = [pb.Accelerators(type="v100", count=1)]
        yield pb.FromAgent(
            number=1,
            hello=pb.Hello(
                protocol=PROTOCOL, name="lab", agent="a", incarnation="1", accelerators=offer, abilities=["terminal"]
            ),
        )
        number = 1
        while True:
            message = pb.FromAgent(heartbeat=pb.Heartbeat(tasks=[pb.TaskStatus(job=self.job, attempt=1)]))
            if not self.job:
                message = pb.FromAgent(heartbeat=pb.Heartbeat())
            try:
                async with asyncio.timeout(0.2):
                    message = await self.outgoing.get()
            except TimeoutError:
                pass
            number += 1
            message.number = number
            yield message

    def prints(self, data: bytes) -> None:
        """Have the job print."""
        log = pb.TaskLog(job=self.job, attempt=1, rank=0, data=data, begin=self.printed)
        self.printed += len(data)
        self.outgoing.put_nowait(pb.FromAgent(log=log))

    def ends(self) -> None:
        status = pb.TaskStatus(job=self.job, attempt=1)
        self.outgoing.put_nowait(pb.FromAgent(ended=pb.TaskEnded(status=status, how=pb.TaskEnded.DONE, exit_code=0)))

    async def until_typed(self, wanted: bytes) -> bytes:
        """Wait until the agent was sent this; return all that it was sent."""
        while wanted not in (keys := b"".join(each.data for each in self.typed)):  # noqa: ASYNC110 - from another process
            await asyncio.sleep(0.01)
        return keys


class User:
    """A client's stream."""

    def __init__(self, site: Site, *metadata: tuple[str, str], **first: Any) -> None:
        self._said: asyncio.Queue[pb.TerminalInput | None] = asyncio.Queue()
        self._said.put_nowait(pb.TerminalInput(**{"id": site.job, "rows": 24, "columns": 80, **first}))
        self.call = site.stub.Terminal(self._sent(), metadata=metadata)

    async def _sent(self) -> AsyncIterator[pb.TerminalInput]:
        while (message := await self._said.get()) is not None:
            yield message

    def types(self, keys: bytes = b"", **fields: Any) -> None:
        self._said.put_nowait(pb.TerminalInput(data=keys, **fields))

    def leaves(self) -> None:
        self._said.put_nowait(None)

    async def sees(self, text: bytes) -> None:
        seen = b""
        while text not in seen:
            seen += (await self.call.read()).data

    async def rest(self) -> list[pb.TerminalOutput]:
        found = []
        while (message := await self.call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined] # its stubs lack it
            found.append(message)
        return found


@asynccontextmanager
async def site_with_terminal(folder: Path, **request: Any) -> AsyncIterator[Site]:
    settings = ServeSettings(
        listen="127.0.0.1:0",
        folder=folder / "state",
        round_seconds=1.0,
        fleet=FleetSettings(heartbeat_seconds=0.2, agent_timeout_seconds=5.0),
    )
    async with serving(settings) as running, grpc.aio.insecure_channel(running.address) as channel:
        site = Site(running, GavelStub(channel))  # type: ignore[no-untyped-call]
        agent = asyncio.create_task(site.attend())
        job = pb.JobRequest(**{"command": ["sh"], "workers": 1, "weight": 1.0, "terminal": True, **request})
        site.job = (await site.stub.Submit(pb.SubmitRequest(jobs=[job]))).ids[0]
        await site.started.wait()
        try:
            yield site
        finally:
            agent.cancel()
            await asyncio.gather(agent, return_exceptions=True)


def test_keys_go_to_the_agent_in_order_and_are_written_nowhere(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site_with_terminal(tmp_path) as site:
            user = User(site, data=b"first ")
            user.types(PASSWORD)
            user.types(rows=50, columns=132)
            paste = bytes(range(256)) * 4096  # a megabyte
            for start in range(0, len(paste), 65_536):
                user.types(paste[start : start + 65_536])
            user.types(b"the end")
            assert await site.until_typed(b"the end") == b"first " + PASSWORD + paste + b"the end"
            assert max(len(each.data) for each in site.typed) <= terminals.KEYS_BYTES
            sizes = list(dict.fromkeys((each.rows, each.columns) for each in site.typed))
            assert sizes == [(24, 80), (50, 132)]
            user.leaves()

    play(scene())
    written = [path for path in tmp_path.rglob("*") if path.is_file() and PASSWORD in path.read_bytes()]
    assert not written


def test_output_wakes_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminals, "LOOK_SECONDS", 1000.0)

    async def scene() -> None:
        async with site_with_terminal(tmp_path) as site:
            user = User(site)
            await user.sees(b"")
            for line in (b"one\r\n", b"two\r\n"):
                site.prints(line)
                await user.sees(line)
            user.call.cancel()

    play(scene())


def test_a_stream_ends_with_the_last_output_when_the_job_does(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site_with_terminal(tmp_path) as site:
            user = User(site)
            site.prints(b"before ")
            site.ends()
            await asyncio.sleep(0.1)
            site.prints(b"after")  # agents report an end before the last output
            found = await user.rest()
            assert b"".join(each.data for each in found) == b"before after"
            assert [each.ended for each in found].count(True) == 1
            assert found[-1].ended

    play(scene())


def test_one_who_returns_sees_the_last_part(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site_with_terminal(tmp_path) as site:
            site.prints(b"x" * 100_000 + b"prompt")
            await User(site).sees(b"prompt")
            returned = User(site, tail=8)
            first = await returned.call.read()
            assert (first.data, first.offset) == (b"xxprompt", 99_998)
            returned.leaves()
            assert not [each for each in await returned.rest() if each.ended]

    play(scene())


def test_the_agent_hears_that_a_user_is_there_until_the_user_leaves(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site_with_terminal(tmp_path) as site:
            user = User(site, linger_seconds=1.5)
            await user.sees(b"")
            while len(site.typed) < 3:  # noqa: ASYNC110 - from another process
                await asyncio.sleep(0.05)
            assert {each.linger_seconds for each in site.typed} == {1.5}
            user.leaves()
            await user.rest()
            heard = len(site.typed)
            await asyncio.sleep(0.8)
            assert len(site.typed) == heard

    play(scene())


def test_a_stranger_at_the_terminal_is_announced(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site_with_terminal(tmp_path) as site:
            User(site, ("x-gavel-as", "bob"))
            while not site.typed:  # noqa: ASYNC110 - from another process
                await asyncio.sleep(0.01)
            assert site.typed[0].notice == "you is connected to this terminal"

    play(scene())


def test_keys_wait_while_their_agent_does_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with site_with_terminal(tmp_path) as site:
            unread = MOST_UNREAD_BY_TERMINAL
            monkeypatch.setattr(AgentStream, "unread", lambda _: unread)
            user = User(site)
            for _ in range(50):
                user.types(b"x" * 65_536)
            await asyncio.sleep(0.3)
            assert not site.typed
            unread = 0
            await site.until_typed(b"x" * 50 * 65_536)
            user.leaves()

    play(scene())


def test_a_job_without_a_terminal_takes_no_keys(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site_with_terminal(tmp_path, terminal=False) as site:
            user = User(site, data=b"keys")
            with pytest.raises(grpc.aio.AioRpcError, match="has no terminal; `gavel logs 1 --follow`"):
                await user.rest()
            assert not site.typed

    play(scene())


def test_keys_for_one_attempt_do_not_reach_another(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site_with_terminal(tmp_path) as site:
            assert not site.running.fleet.typed(TerminalKeys(job=site.job, attempt=2, data=b"keys"))
            assert site.running.fleet.typed(TerminalKeys(job=site.job, attempt=1, data=b"keys"))

    play(scene())


def test_a_bad_size_in_the_middle_ends_the_stream_with_a_sentence(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site_with_terminal(tmp_path) as site:
            user = User(site)
            user.types(rows=5000, columns=80)
            with pytest.raises(grpc.aio.AioRpcError, match="a terminal has 1 to 4,096 rows and columns"):
                await user.rest()

    play(scene())
