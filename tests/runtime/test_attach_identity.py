"""Attach lets an agent speak for itself only: identity and name are those of its certificate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from silent_notifier import silent
from test_safety_driver import FailingJournal, Live, journal

from gavel.journal.store import Write
from gavel.policies.registry import find_policy
from gavel.runtime.access import Access
from gavel.runtime.agent_wire import pack_from_agent
from gavel.runtime.enrolment_service import EnrolmentDesk
from gavel.runtime.events import StepsCounted
from gavel.runtime.logs import Logs
from gavel.runtime.messages import FromAgentFrame, Hello
from gavel.runtime.service import Service
from gavel.security.authority import Authority
from gavel.security.caller import as_caller
from gavel.security.certificates import new_key, signing_request
from gavel.security.enrolment import Enrolment
from gavel.security.gate import Identities
from gavel.security.roles import Caller, Role
from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb
from secure_stage import JoinBook

__all__ = ["journal"]

LAB1 = Caller(user="", role=Role.AGENT, agent="id-1", agent_name="lab1")
OWN = Caller(user="", role=Role.AGENT, agent_name="lab1")
PLAIN = Caller(user="", role=Role.AGENT)


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    made = Enrolment(Authority.create(tmp_path / "security", "0f3c", []))
    made.adopt(made.enrol("id-1", "lab1", signing_request(new_key()), "alice"))
    return made


def service_of(live: Live, folder: Path, enrolment: Enrolment | None) -> Service:
    async def write(writes: Sequence[Write]) -> None:
        await asyncio.to_thread(live.journal.write, writes)

    desk = None
    if enrolment is not None:
        clock = live.engine.clock
        desk = EnrolmentDesk(
            enrolment=enrolment, join_tokens=JoinBook(), write=write, agents_port=7078, clock=clock
        )  # fmt: skip
    logs = Logs(folder / "logs", limit=1000)
    access = Access(Identities(), live.journal, live.engine.clock, write)
    notifier = silent(live.driver, folder, logs)
    return Service(live.driver, live.fleet, logs, find_policy("max_min_fairness"), access, desk, notifier=notifier)


class Talk:
    """One stream of an agent."""

    def __init__(self, service: Service, caller: Caller, agent: str, name: str) -> None:
        hello = Hello(protocol=PROTOCOL, name=name, agent=agent, incarnation="1", accelerators={"v100": 1})
        self._hello = pack_from_agent(FromAgentFrame(1, hello))
        self._caller = caller
        context: Any = None
        self._answers: Any = service.Attach(self._said(), context)

    async def _said(self) -> AsyncIterator[pb.FromAgent]:
        yield self._hello
        await asyncio.Event().wait()

    async def answer(self) -> pb.ToAgent | None:
        with as_caller(self._caller):
            found: pb.ToAgent | None = await anext(self._answers, None)
        return found

    async def close(self) -> None:
        await self._answers.aclose()


def play(journal: FailingJournal, folder: Path, enrolment: Enrolment | None, story: Any) -> None:
    async def scene() -> None:
        live = Live(journal, folder)
        await asyncio.sleep(0)  # the driver begins
        await story(live, service_of(live, folder, enrolment))
        live.driver.stop()
        await live.work

    asyncio.run(asyncio.wait_for(scene(), 60.0))


@pytest.mark.parametrize(
    ("caller", "agent", "name", "sentence"),
    [
        (LAB1, "id-2", "lab1", "the certificate is for agent id-1"),
        (LAB1, "id-1", "lab2", "the certificate is for the name 'lab1'"),
        (LAB1, "", "lab1", "the certificate is for agent id-1"),
        (OWN, "id-9", "lab2", "the certificate is for the name 'lab1'"),
        (PLAIN, "id-1", "lab1", "must connect with its certificate"),
        (PLAIN, "id-2", "lab1", "belongs to an enrolled agent"),
    ],
)
def test_an_agent_that_claims_to_be_another_is_refused(
    journal: FailingJournal, tmp_path: Path, enrolment: Enrolment, caller: Caller, agent: str, name: str, sentence: str
) -> None:
    async def story(live: Live, service: Service) -> None:
        answer = await Talk(service, caller, agent, name).answer()
        assert answer is not None
        assert sentence in answer.refused.reason
        assert not answer.refused.retry
        assert not live.fleet.members

    play(journal, tmp_path, enrolment, story)


@pytest.mark.parametrize(
    ("caller", "agent", "name"), [(LAB1, "id-1", "lab1"), (OWN, "id-9", "lab1"), (PLAIN, "x", "y")]
)
def test_an_agent_that_is_who_it_says_is_welcomed(
    journal: FailingJournal, tmp_path: Path, enrolment: Enrolment, caller: Caller, agent: str, name: str
) -> None:
    async def story(live: Live, service: Service) -> None:
        talk = Talk(service, caller, agent, name)
        answer = await talk.answer()
        assert answer is not None
        assert answer.HasField("welcome")
        assert list(live.fleet.members) == [agent]
        await talk.close()

    play(journal, tmp_path, enrolment, story)


def test_the_operators_certificate_for_one_name_cannot_take_the_identity_of_another(
    journal: FailingJournal, tmp_path: Path, enrolment: Enrolment
) -> None:
    async def story(live: Live, service: Service) -> None:
        await live.attach()
        answer = await Talk(service, OWN, "id-a", "lab1").answer()
        assert answer is not None
        assert "agent id-a is known as 'a'" in answer.refused.reason
        assert live.fleet.members["id-a"].name == "a"

    play(journal, tmp_path, enrolment, story)


def test_a_stream_that_was_opened_before_the_revocation_is_refused_at_its_hello(
    journal: FailingJournal, tmp_path: Path, enrolment: Enrolment
) -> None:
    async def story(live: Live, service: Service) -> None:
        enrolment.adopt(enrolment.revoke("lab1"))
        answer = await Talk(service, LAB1, "id-1", "lab1").answer()
        assert answer is not None
        assert "was revoked" in answer.refused.reason
        assert not live.fleet.members

    play(journal, tmp_path, enrolment, story)


def test_a_revocation_closes_the_stream_and_shows_the_agent_as_away(
    journal: FailingJournal, tmp_path: Path, enrolment: Enrolment
) -> None:
    async def story(live: Live, service: Service) -> None:
        talk = Talk(service, LAB1, "id-1", "lab1")
        assert await talk.answer() is not None
        context: Any = None
        await live.driver.post(StepsCounted(live.engine.clock(), {}))  # after what the hello caused
        listed = await service.ListAgents(pb.ListAgentsRequest(), context)
        assert listed.agents[0].state == "connected"
        (revoked,) = (await service.RevokeAgent(pb.RevokeAgentRequest(agent="id-1"), context)).agents
        assert (revoked.revoked, revoked.state) == (True, "away")
        while await talk.answer() is not None:
            pass  # what was sent before
        assert live.fleet.members["id-1"].link is None

    play(journal, tmp_path, enrolment, story)


def test_an_open_scheduler_takes_any_agent(journal: FailingJournal, tmp_path: Path) -> None:
    async def story(live: Live, service: Service) -> None:
        talk = Talk(service, PLAIN, "id-1", "lab1")
        answer = await talk.answer()
        assert answer is not None
        assert answer.HasField("welcome")
        assert live.fleet.members
        await talk.close()

    play(journal, tmp_path, None, story)
