"""Notifications of a real scheduler to real receivers: what is told, when, by whom, and what never delays what."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import grpc
import pytest
from raw_peers import RawAgent, Site, play, site

from gavel import verify_notification
from gavel.runtime.fleet import FleetSettings
from gavel.runtime.notify import courier
from gavel.runtime.notify.settings import NotifySettings
from gavel.wire import gavel_pb2 as pb
from receivers import Receiver, receiving


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "PAUSES", courier.Pauses(first_seconds=0.05, longest_seconds=0.1))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def notifying(folder: Path, *hosts: str, **settings: Any) -> AbstractAsyncContextManager[Site]:
    rest = {name: settings.pop(name) for name in ("round_seconds",) if name in settings}
    return site(folder, notify=NotifySettings(hosts=hosts, **settings), **rest)


async def arrived(receiver: Receiver, count: int = 1) -> list[dict[str, Any]]:
    return await asyncio.to_thread(receiver.wait, count)


async def ends(agent: RawAgent, job: str, *, attempt: int = 1, how: Any = pb.TaskEnded.DONE, **more: Any) -> None:
    """Let a job start and end."""
    await agent.hear("start", lambda start: (start.job, start.attempt) == (job, attempt))
    status = pb.TaskStatus(job=job, attempt=attempt)
    await agent.say(ended=pb.TaskEnded(status=status, how=how, **more))


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code(), error.value.details() or ""


# ---- what is told ----


def test_the_first_start_and_the_end_of_a_job_are_told_with_a_signature_of_its_users_key(
    tmp_path: Path, receiver: Receiver
) -> None:
    async def scene() -> None:
        async with notifying(tmp_path, receiver.host) as here:
            agent = await here.agent("a")
            job = await here.submit(name="train", notify=[receiver.url], environment={"TOKEN": "hush"})
            await ends(agent, job)
            started, completed = await arrived(receiver, 2)
            assert (started["event"], completed["event"]) == ("started", "completed")
            assert (completed["job"]["id"], completed["job"]["name"], completed["job"]["state"]) == (
                job,
                "train",
                "completed",
            )
            shown = await here.stub.ShowNotifications(pb.NotificationsRequest())
            for (path, headers, body), told in zip(receiver.requests, receiver.bodies, strict=True):
                assert path == "/hook?room=1"
                assert verify_notification(body, headers, shown.signing_key) == told
                assert (headers["Gavel-Event"], headers["Gavel-Delivery"]) == (told["event"], told["id"])
                assert b"hush" not in body

    play(scene())


def test_a_job_that_fails_is_told_and_one_that_its_user_cancels_is_not(tmp_path: Path, receiver: Receiver) -> None:
    async def scene() -> None:
        async with notifying(tmp_path, receiver.host) as here:
            await here.stub.Cancel(pb.CancelRequest(ids=[await here.submit(notify=[receiver.url])]))
            agent = await here.agent("a")
            job = await here.submit(notify=[receiver.url], retries=0)
            await ends(agent, job, how=pb.TaskEnded.CRASHED, reason="out of memory")
            await arrived(receiver, 2)
            assert [(each["event"], each["job"]["id"]) for each in receiver.bodies] == [
                ("started", job),
                ("failed", job),
            ]
            assert "out of memory" in receiver.bodies[-1]["text"]

    play(scene())


def test_urls_of_a_user_are_told_about_every_job_until_they_are_cleared(tmp_path: Path, receiver: Receiver) -> None:
    async def scene() -> None:
        async with notifying(tmp_path, receiver.host) as here:
            await here.stub.SetNotifications(pb.Notifications(urls=[receiver.url]))
        async with notifying(tmp_path, receiver.host) as here:  # it is a fact
            shown = await here.stub.ShowNotifications(pb.NotificationsRequest())
            assert (list(shown.urls), list(shown.allowed_hosts)) == ([receiver.url], [receiver.host])
            agent = await here.agent("a")
            await ends(agent, await here.submit(notify=[receiver.url]))
            assert [each["event"] for each in await arrived(receiver, 2)] == ["started", "completed"]
            await here.stub.SetNotifications(pb.Notifications())
            quiet = await here.submit()
            await ends(agent, quiet)
            last = await here.submit(notify=[receiver.url])
            await ends(agent, last)
            told = await arrived(receiver, 4)
            assert quiet not in [each["job"]["id"] for each in told]

    play(scene())


def test_a_test_tells_the_status_of_each_url_and_nothing_that_it_said(tmp_path: Path, receiver: Receiver) -> None:
    async def scene() -> None:
        async with notifying(tmp_path, receiver.host) as here:
            await here.stub.SetNotifications(pb.Notifications(urls=[receiver.url]))
            reply = await here.stub.TestNotifications(pb.NotificationsRequest())
            assert [(each.url, each.status, each.trouble) for each in reply.tests] == [(receiver.url, 204, "")]
            receiver.status, receiver.location = 302, "http://169.254.169.254/latest"
            reply = await here.stub.TestNotifications(pb.NotificationsRequest())
            told = "it answered with status 302; redirects are not followed"
            assert [(each.status, each.trouble) for each in reply.tests] == [(302, told)]
            assert receiver.events == ["test", "test"]

    play(scene())


# ---- who may ----


def test_a_job_whose_url_is_not_allowed_is_refused_with_all_others_of_its_batch(
    tmp_path: Path, receiver: Receiver
) -> None:
    async def scene() -> None:
        async with notifying(tmp_path, "chat.example.org") as here:
            jobs = [pb.JobRequest(command=["train"]), pb.JobRequest(command=["train"], notify=[receiver.url])]
            code, told = await refusal(here.stub.Submit(pb.SubmitRequest(jobs=jobs)))
            assert code == grpc.StatusCode.INVALID_ARGUMENT
            assert told == f"notify: {receiver.host} may not be called; the operator has listed chat.example.org"
            assert not here.running.engine.records
            code, again = await refusal(here.stub.SetNotifications(pb.Notifications(urls=[receiver.url])))
            assert (code, again) == (grpc.StatusCode.INVALID_ARGUMENT, told)
            assert not here.running.engine.state.notified
        async with notifying(tmp_path) as here:
            _, told = await refusal(here.stub.Submit(pb.SubmitRequest(jobs=jobs)))
            assert told.endswith("the operator of this scheduler has listed no hosts (gavel serve --notify-hosts)")

    play(scene())


def test_others_see_the_host_of_a_url_but_not_its_path(tmp_path: Path) -> None:
    async def scene() -> None:
        async with notifying(tmp_path, "chat.example.org") as here:
            url = "https://chat.example.org/T0/capability"
            await here.stub.SetNotifications(pb.Notifications(urls=[url]))
            job = await here.submit(notify=[url])
            listed = await here.stub.List(pb.JobQuery())
            seen = [str(listed), str(await here.stub.Describe(pb.DescribeRequest(id=job)))]
            seen += [str(line) async for line in here.stub.Events(pb.EventsRequest())]
            assert not [text for text in seen if "capability" in text]
            assert list(listed.jobs[0].request.notify) == ["https://chat.example.org/(hidden)"]

    play(scene())


def test_a_stranger_is_not_shown_another_users_urls_and_key(tmp_path: Path) -> None:
    async def scene() -> None:
        async with notifying(tmp_path, "chat.example.org") as here:
            code, told = await refusal(here.stub.ShowNotifications(pb.NotificationsRequest(user="nobody")))
            assert (code, told) == (grpc.StatusCode.NOT_FOUND, "there is no user 'nobody'")

    play(scene())


# ---- delivery ----


def test_what_a_receiver_misses_while_it_is_down_is_delivered_once_it_is_up_with_the_same_id(
    tmp_path: Path, receiver: Receiver
) -> None:
    async def scene() -> None:
        receiver.status = 503
        async with notifying(tmp_path, receiver.host) as here:
            await here.submit(types=["v100"], notify=[receiver.url])
            await here.agent("a")
            await arrived(receiver, 3)
            shown = await here.stub.ShowNotifications(pb.NotificationsRequest())
            assert (shown.pending, shown.trouble) == (1, f"{receiver.host}/(hidden): it answered with status 503")
            receiver.status = 204
            await settled(here)
            assert len({each["id"] for each in receiver.bodies}) == 1
            assert here.running.engine.journal.notifications() == {}

    play(scene())


async def settled(here: Site) -> None:
    """Wait until nothing is pending any more."""
    await eventually(lambda: not here.running.engine.journal.notifications())


async def eventually(what: Callable[[], object]) -> None:
    """Wait for something that happens in another thread."""
    async with asyncio.timeout(30):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def test_what_was_not_delivered_before_the_scheduler_ended_is_delivered_by_the_next_one(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(courier.Courier, "accept", lambda *_: None)  # it ends before it sends anything
            async with notifying(tmp_path, receiver.host) as here:
                await here.agent("a")
                await here.submit(notify=[receiver.url])
                await eventually(here.running.engine.journal.notifications)
        async with notifying(tmp_path, receiver.host) as here:
            assert [each["event"] for each in await arrived(receiver)] == ["started"]
            await settled(here)
        async with notifying(tmp_path, receiver.host) as here:
            await settled(here)
        assert receiver.events == ["started"]

    play(scene())


def test_a_receiver_that_never_answers_delays_no_lease(tmp_path: Path, receiver: Receiver) -> None:
    async def scene() -> None:
        receiver.open.clear()
        async with notifying(tmp_path, receiver.host, round_seconds=0.2) as here:
            agent = await here.agent("a", 4)
            for _ in range(4):
                await here.submit(notify=[f"{receiver.url}&{number}" for number in range(8)])
            await arrived(receiver)
            for _ in range(3):
                await agent.hear("lease")
            assert not receiver.open.is_set()

    play(scene())


COMMAND = """
import json, pathlib, sys
body = json.load(sys.stdin)
name = pathlib.Path(sys.argv[1]) / body["id"]
name.write_text(json.dumps([sys.argv[2:], body]))
"""


def test_the_sites_command_reads_every_notification_and_no_word_of_users_reaches_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def scene() -> None:
        told = tmp_path / "told"
        told.mkdir()
        command = (sys.executable, "-c", COMMAND, str(told), "$(id)")
        name = "$(touch hit); `touch hit`; \"; touch hit #'; touch hit"
        async with notifying(tmp_path, command=command, events=("failed",)) as here:
            agent = await here.agent("a")
            job = await here.submit(name=name, retries=0)
            await ends(agent, job, how=pb.TaskEnded.CRASHED, reason="$(touch hit)")
            await eventually(lambda: list(told.iterdir()))
            await settled(here)
        found = [json.loads(path.read_text()) for path in told.iterdir()]
        assert [(words, body["event"], body["job"]["name"]) for words, body in found] == [(["$(id)"], "failed", name)]
        assert not (tmp_path / "hit").exists()

    play(scene())


# ---- stuck ----


def later(here: Site, minutes: float) -> None:
    """Let time pass for the watch alone."""
    watch = here.running.service._notifier._stuck
    now = watch._clock()
    watch._clock = lambda: now + minutes * 60.0


def test_a_job_that_can_never_run_is_told_once_also_across_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    async def scene() -> None:
        for restart in range(2):
            async with notifying(tmp_path, receiver.host) as here:
                notifier = here.running.service._notifier
                if not restart:
                    await here.submit(name="big", notify=[receiver.url], types=["h100"])
                for minutes in (0.0, 29.0, 2.0, 60.0):
                    later(here, minutes)
                    await notifier.look()
                await arrived(receiver)
                await settled(here)
        assert [(each["event"], each["code"]) for each in receiver.bodies] == [("stuck", "never")]
        assert receiver.bodies[0]["text"] == (
            "job 1 (big) cannot run: no accelerator that it may use has joined yet for 31 minutes"
        )

    play(scene())


def test_a_job_that_waits_for_what_can_no_longer_happen_is_told(tmp_path: Path, receiver: Receiver) -> None:
    async def scene() -> None:
        async with notifying(tmp_path, receiver.host) as here:
            notifier, agent = here.running.service._notifier, await here.agent("a")
            first = await here.submit(types=["v100"])
            await here.submit(notify=[receiver.url], after=[f"{first}:ok"])
            await ends(agent, first, how=pb.TaskEnded.CRASHED, reason="no", hopeless=True)
            await eventually(lambda: here.running.engine.records[first].finished)
            for minutes in (0.0, 31.0):
                later(here, minutes)
                await notifier.look()
            await arrived(receiver)
            assert [(each["event"], each["code"]) for each in receiver.bodies] == [("stuck", "never")]
            assert "it can never start" in receiver.bodies[0]["text"]

    play(scene())


def test_an_array_is_told_once_when_its_first_job_starts_and_once_when_all_have_ended(
    tmp_path: Path, receiver: Receiver
) -> None:
    async def scene() -> None:
        async with notifying(tmp_path, receiver.host) as here:
            agent = await here.agent("a", 3)
            job = pb.JobRequest(command=["train"], steps=1e6, workers=1, array="0-2", notify=[receiver.url])
            ids = (await here.stub.Submit(pb.SubmitRequest(jobs=[job]))).ids
            started = {(await agent.hear("start")).job for _ in ids}
            for each in started:
                await agent.say(ended=pb.TaskEnded(status=pb.TaskStatus(job=each, attempt=1), how=pb.TaskEnded.DONE))
            told = await arrived(receiver, 2)
            assert [each["event"] for each in told] == ["started", "completed"]
            assert (told[1]["array"]["completed"], told[1]["array"]["over"]) == (3, True)

    play(scene())


def test_a_running_job_without_a_step_or_output_is_told_again_only_after_a_sign_of_life(
    tmp_path: Path, receiver: Receiver
) -> None:
    async def scene() -> None:
        async with notifying(tmp_path, receiver.host) as here:
            notifier, agent = here.running.service._notifier, await here.agent("a")
            job = await here.submit(notify=[receiver.url])
            await agent.hear("start")
            await notifier.look()
            later(here, 60.0)
            await notifier.look()  # it has never shown anything: it has nothing to be judged by
            for data in (b"one", b"two"):
                log = pb.TaskLog(job=job, attempt=1, begin=0 if data == b"one" else 3, data=data)
                await agent.say(log=log)
                await agent.in_order()
                for minutes in (0.0, 31.0, 31.0):
                    later(here, minutes)
                    await notifier.look()
            await arrived(receiver, 3)
            await settled(here)
            assert [(each["event"], each["code"]) for each in receiver.bodies[1:]] == [("stuck", "silent")] * 2

    play(scene())


def test_a_job_that_fails_three_times_at_the_same_step_is_told_once(tmp_path: Path, receiver: Receiver) -> None:
    async def scene() -> None:
        fast = FleetSettings(
            heartbeat_seconds=30.0, agent_timeout_seconds=600.0, retry_seconds=0.01, longest_retry_seconds=0.02
        )
        settings = NotifySettings(hosts=(receiver.host,))
        async with site(tmp_path, notify=settings, fleet=fast, round_seconds=0.2) as here:
            agent = await here.agent("a")
            job = await here.submit(notify=[receiver.url], retries=4)
            for attempt in range(1, 6):
                await ends(agent, job, attempt=attempt, how=pb.TaskEnded.CRASHED, reason="out of memory")
            await arrived(receiver, 3)
            assert [(each["event"], each["code"]) for each in receiver.bodies] == [
                ("started", receiver.bodies[0]["code"]),
                ("stuck", "failing"),
                ("failed", "failed"),
            ]
            assert "has failed 3 times in a row before its first saved step" in receiver.bodies[1]["text"]

    play(scene())
