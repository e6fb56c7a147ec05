"""What the service answers is in the journal, and of an agent's connections only the newest is heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest
from silent_notifier import silent
from test_safety_driver import SECONDS, FailingJournal, Live, journal

from gavel.client.messages import to_request
from gavel.client.requests import JobRequest
from gavel.journal.errors import TemporaryJournalError
from gavel.policies.registry import find_policy
from gavel.runtime import driver as driving
from gavel.runtime.access import Access
from gavel.runtime.agent_wire import pack_from_agent
from gavel.runtime.logs import Logs
from gavel.runtime.messages import FromAgentFrame, Heartbeat
from gavel.runtime.service import AgentStream, Service
from gavel.security.gate import Identities
from gavel.wire import gavel_pb2 as pb

__all__ = ["journal"]


class Context:
    """A call that is never refused."""

    async def abort(self, code: object, details: str) -> None:
        raise AssertionError(code, details)


def service_of(live: Live, folder: Path) -> Service:
    access = Access(Identities(), live.engine.journal, live.engine.clock, live.driver.write)
    logs = Logs(folder / "logs", limit=1000)
    notifier = silent(live.driver, folder, logs)
    return Service(live.driver, live.fleet, logs, find_policy("max_min_fairness"), access, notifier=notifier)


async def answered_once_written(live: Live, call: Coroutine[Any, Any, Any]) -> Any:
    """Make a call while nothing can be written; it has no answer until that is possible."""
    live.attempts = 0
    live.tried.clear()
    live.journal.error = TemporaryJournalError("the disk is full")
    calling = asyncio.ensure_future(call)
    await asyncio.wait({calling, asyncio.ensure_future(live.tried.wait())}, return_when=asyncio.FIRST_COMPLETED)
    assert not calling.done()
    live.journal.error = None
    return await asyncio.wait_for(calling, SECONDS)


def test_submissions_and_cancels_are_answered_once_they_are_written(
    journal: FailingJournal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driving, "RETRY_SECONDS", (0.01, 0.01))
    context: Any = Context()

    async def story() -> None:
        live = Live(journal, tmp_path)
        service = service_of(live, tmp_path)
        await asyncio.sleep(0)  # the driver begins
        submit = pb.SubmitRequest(jobs=[to_request(JobRequest(["train"], template="mine", steps=100.0))], key="k")
        reply = await answered_once_written(live, service.Submit(submit, context))
        assert list(reply.ids) == ["1"]
        cancelled = await answered_once_written(live, service.Cancel(pb.CancelRequest(ids=["1"]), context))
        assert [job.state for job in cancelled.jobs] == [pb.CANCELLED]
        unwanted = service.RemoveCheckpoints(pb.RemoveCheckpointsRequest(ids=["1"]), context)
        (view,) = (await answered_once_written(live, unwanted)).jobs
        assert (view.state, view.reason) == ("waiting", "there is no agent")
        live.driver.stop()
        await live.work

    asyncio.run(story())


def test_a_submission_brings_back_what_the_journals_table_has_of_its_template(
    journal: FailingJournal, tmp_path: Path
) -> None:
    context: Any = Context()
    learned = {
        "template": "mine",
        "time": 1.0,
        "restart_seconds": 40.0,
        "estimates": [["mine", 1, "v100", True, None, 7.0, 1, 7.0, 0.0]],
        "failures": [],
    }

    async def story() -> None:
        live = Live(journal, tmp_path)
        journal.keep(live.engine.state.document(), journal.last, learned={"mine": learned})
        submit = pb.SubmitRequest(jobs=[to_request(JobRequest(["train"], template="mine", steps=100.0))], key="k")
        await asyncio.wait_for(service_of(live, tmp_path).Submit(submit, context), SECONDS)
        scheduler = live.engine.scheduler
        assert scheduler.rates_of("1")["v100"] == 7.0
        assert scheduler.measured_restarts() == {"mine": 40.0}
        live.driver.stop()
        await live.work

    asyncio.run(story())


def test_an_agent_is_not_heard_over_a_connection_that_was_replaced(
    journal: FailingJournal,
    tmp_path: Path,
) -> None:
    async def heartbeat() -> AsyncIterator[pb.FromAgent]:
        yield pack_from_agent(FromAgentFrame(1, Heartbeat()))

    async def story() -> None:
        live = Live(journal, tmp_path)
        await live.attach()
        member = live.fleet.members["id-a"]
        member.heard_at = -1.0
        await service_of(live, tmp_path)._listen("id-a", heartbeat(), AgentStream(1))
        assert member.heard_at == -1.0
        live.driver.stop()
        await live.work

    asyncio.run(story())


def test_an_agent_that_is_gone_before_its_hello_is_no_error(
    journal: FailingJournal,
    tmp_path: Path,
) -> None:
    context: Any = Context()

    async def silence() -> AsyncIterator[pb.FromAgent]:
        nothing: list[pb.FromAgent] = []
        for packed in nothing:
            yield packed

    async def story() -> None:
        live = Live(journal, tmp_path)
        assert [message async for message in service_of(live, tmp_path).Attach(silence(), context)] == []
        assert not live.fleet.members
        live.driver.stop()
        await live.work

    asyncio.run(story())


def test_a_watcher_is_told_as_many_finished_jobs_as_it_asks_for_and_all_others(
    journal: FailingJournal, tmp_path: Path
) -> None:
    context: Any = Context()

    async def story() -> None:
        live = Live(journal, tmp_path)
        service = service_of(live, tmp_path)
        await asyncio.sleep(0)  # the driver begins
        jobs = [to_request(JobRequest(["train"], template="mine", steps=100.0))] * 7
        await service.Submit(pb.SubmitRequest(jobs=jobs, key="k"), context)
        for job in ("3", "1", "6", "2"):
            await service.Cancel(pb.CancelRequest(ids=[job]), context)
        assert await told(service, pb.JobQuery(most_finished=2)) == ["2", "4", "5", "6", "7"]
        assert await told(service, pb.JobQuery()) == ["1", "2", "3", "4", "5", "6", "7"]
        assert await told(service, pb.JobQuery(most_finished=3, without_unfinished=True)) == ["1", "2", "6"]
        page = await service.List(pb.JobQuery(limit=1, without_unfinished=True, most_finished=3), context)
        assert [job.id for job in page.jobs] == ["2"]
        live.driver.stop()
        await live.work

    asyncio.run(story())


def test_a_watcher_that_shares_the_answer_of_an_earlier_one_hears_what_changed_since(
    journal: FailingJournal, tmp_path: Path
) -> None:
    context: Any = Context()

    async def story() -> None:
        live = Live(journal, tmp_path)
        service = service_of(live, tmp_path)
        await asyncio.sleep(0)  # the driver begins
        job = to_request(JobRequest(["train"], template="mine", steps=100.0))
        await service.Submit(pb.SubmitRequest(jobs=[job], key="k"), context)
        assert await told(service, pb.JobQuery(ids=["1"])) == ["1"]
        await service.Cancel(pb.CancelRequest(ids=["1"]), context)

        async def hears_of_the_end() -> None:
            caller: Any = Watched()
            async for update in service.Watch(pb.JobQuery(ids=["1"]), caller):
                if any(view.state == pb.CANCELLED for view in update.jobs):
                    return

        await asyncio.wait_for(hears_of_the_end(), SECONDS)
        live.driver.stop()
        await live.work

    asyncio.run(story())


async def told(service: Service, query: pb.JobQuery) -> list[str]:
    """The ids of the jobs that a watcher hears of before it is caught up."""
    context: Any = Watched()
    found: list[str] = []
    async for update in service.Watch(query, context):
        if update.caught_up:
            break
        found += [job.id for job in update.jobs]
    return found


class Watched(Context):
    """A call whose caller wants to know at once that it is heard."""

    async def send_initial_metadata(self, metadata: object) -> None:
        assert metadata == ()
