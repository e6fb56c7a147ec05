"""What is told about many jobs at once: arrays together, floods in summaries, and never without a bound."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

from gavel.client.requests import Submission
from gavel.client.views import JobState, Transition
from gavel.core.facts import JobEnded, JobQueued, JobRequeued
from gavel.core.jobs import JobSpec
from gavel.journal.accounts import read_documents
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.notify import outbox as bounds
from gavel.runtime.notify.courier import Courier, DeliveryResult, Pauses
from gavel.runtime.notify.deliveries import Delivery
from gavel.runtime.notify.memos import KIND, Memos
from gavel.runtime.notify.occasions import Occasions
from gavel.runtime.notify.outbox import MOST_IN_A_LANE, MOST_OF_A_USER, SUMMARY_SECONDS, Happening, Outbox
from journal_places import Place

URL = "https://chat.example.org/hook"
REQUEST = Submission(command=("train",), user="ann", notify=(URL,), retries=3)


def happening(number: int = 0, target: str = URL, **changed: Any) -> Happening:
    given = {"event": "failed", "user": "ann", "time": 10.0, "subject": str(number), "about": {}, **changed}
    return Happening(targets=(target,), **given)


# ---- floods ----


def test_ten_thousand_failures_are_told_in_a_few_notifications_and_a_summary(place: Place) -> None:
    outbox = Outbox()
    with place.open() as journal:
        additions = [outbox.add([happening(number)]) for number in range(10_000)]
        journal.write([write for each in additions[:60] for write in each.writes])
        journal.write(additions[-1].writes)
        assert outbox.due(1e9) == []  # it may contain what is not written yet
        sent = outbox.written(additions)
        assert outbox.due(10.0 + SUMMARY_SECONDS - 1) == []
        sent += outbox.due(10.0 + SUMMARY_SECONDS)
        assert len(sent) == MOST_IN_A_LANE + 1
        assert sent[-1].about["events"] == {"failed": 10_000 - MOST_IN_A_LANE}
        assert sent[-1].about["jobs"] == [str(number) for number in range(MOST_IN_A_LANE, MOST_IN_A_LANE + 20)]
        again = Outbox()
        assert {each.id for each in again.take_up(journal.notifications())} == {each.id for each in sent}
        assert again.lanes == outbox.lanes
        journal.write(outbox.remove(sent))
        assert (journal.notifications(), outbox.lanes, outbox.of_user) == ({}, {}, {})


def test_a_user_with_ever_new_urls_has_a_bound_and_takes_nothing_from_others() -> None:
    outbox = Outbox()
    for number in range(MOST_OF_A_USER + 100):
        outbox.add([happening(number, f"{URL}/{number}")])
    assert (outbox.of_user["ann"], outbox.dropped["ann"]) == (MOST_OF_A_USER, 100)
    assert outbox.add([happening(user="bob")]).deliveries


def test_what_arrives_after_a_summary_was_sent_is_told_again() -> None:
    outbox = Outbox()
    for number in range(bounds.MOST_IN_A_LANE + 1):
        outbox.written([outbox.add([happening(number)])])
    assert [each.event for each in outbox.due(1e9)] == ["summary"]
    outbox.written([outbox.add([happening()])])
    assert [each.about["events"] for each in outbox.due(1e9)] == [{"failed": 1}]


# ---- arrays ----


class Jobs:
    """Jobs as the state would have them."""

    def __init__(self, request: Submission = REQUEST) -> None:
        self.request = request
        self.records: dict[str, LiveJobRecord] = {}
        self.memos = Memos()
        self.occasions = Occasions(self.records.get, self.targets_of, self.memos)

    def targets_of(self, job: Submission, event: str = "") -> tuple[str, ...]:  # noqa: ARG002
        return job.notify

    def queued(self, job: str) -> list[Happening]:
        first = Transition(1.0, JobState.QUEUED, "waiting", "")
        self.records[job] = LiveJobRecord(id=job, request=self.request, submitted=1.0, history=(first,))
        return self.occasions.of([JobQueued(1.0, JobSpec.of(job, self.request), self.request)])

    def ended(self, job: str, outcome: Any, by: str = "") -> list[Happening]:
        last = Transition(2.0, JobState(outcome), "why", outcome)
        record = self.records[job]
        self.records[job] = replace(record, history=(*record.history, last))
        return self.occasions.of([JobEnded(2.0, job, outcome, "why", by=by)])

    def failed(self, job: str, steps: float = 0.0, *, counts: bool = True) -> list[Happening]:
        self.records[job] = replace(self.records[job], steps_done=steps)
        return self.occasions.of([JobRequeued(2.0, job, "why", crashed=True, counts=counts)])


def test_an_array_is_told_its_first_failure_and_its_end(place: Place) -> None:
    jobs = Jobs(replace(REQUEST, array_id="1"))
    ids = [str(number) for number in range(1, 11)]
    assert [each for job in ids for each in jobs.queued(job)] == []
    told = jobs.ended("1", "completed") + jobs.ended("2", "failed") + jobs.ended("3", "failed")
    assert [(each.event, each.about["array"]["over"]) for each in told] == [("failed", False)]
    with place.open() as journal:
        journal.write(jobs.memos.writes())
        again = Jobs(jobs.request)
        again.records = jobs.records
        again.memos.load(journal.documents(KIND))
        again.occasions = Occasions(again.records.get, again.targets_of, again.memos)
        told = [each for job in ids[3:] for each in again.ended(job, "completed")]
        assert [(each.event, each.about["array"]) for each in told] == [
            ("failed", {"id": "1", "jobs": 10, "completed": 8, "failed": 2, "cancelled": 0, "over": True})
        ]
        assert told[0].about["text"] == "array 1 has ended: 8 completed, 2 failed"
        journal.write(again.memos.writes())
        with journal.reading() as connection:
            assert read_documents(connection, KIND) == {}


def test_an_array_that_its_user_cancels_is_not_told_and_one_that_another_cancels_is() -> None:
    for by, events in (("ann", []), ("olga", ["cancelled"])):
        jobs = Jobs(replace(REQUEST, array_id="1"))
        for job in ("1", "2"):
            jobs.queued(job)
        told = [each for job in ("1", "2") for each in jobs.ended(job, "cancelled", by)]
        assert [each.event for each in told] == events


def test_a_job_that_another_cancels_is_told_with_the_name_of_who_did() -> None:
    jobs = Jobs()
    jobs.queued("1")
    assert [each.about["text"] for each in jobs.ended("1", "cancelled", "olga")] == ["job 1 was cancelled by olga"]
    jobs.queued("2")
    assert [each.about["text"] for each in jobs.ended("2", "cancelled")] == ["job 2 was cancelled by the scheduler"]
    jobs.queued("3")
    assert jobs.ended("3", "cancelled", "ann") == []


def test_failures_with_progress_between_them_or_of_servers_do_not_make_a_job_stuck() -> None:
    jobs = Jobs()
    jobs.queued("1")
    steps = [0.0, 0.0, 5.0, 5.0, 6.0, 6.0]
    assert [each for done in steps for each in jobs.failed("1", done)] == []
    assert jobs.failed("1", 6.0, counts=False) == []
    assert [each.about["code"] for each in jobs.failed("1", 6.0)] == ["failing"]
    assert jobs.failed("1", 6.0) == []


def test_jobs_that_nobody_is_told_about_leave_no_memo() -> None:
    jobs = Jobs(replace(REQUEST, notify=(), array_id="1"))
    for job in ("1", "2", "3"):
        jobs.queued(job)
    for _ in range(3):
        jobs.failed("1")
    jobs.ended("1", "failed")
    assert jobs.memos.writes() == []


# ---- the courier ----


def deliveries(count: int, user: str = "ann", target: str = URL) -> list[Delivery]:
    return [
        Delivery(id=f"{user}{target}{number}", user=user, target=target, event="failed", time=0.0, about={})
        for number in range(count)
    ]


class Post:
    """A courier, and what it has done."""

    def __init__(self, **options: Any) -> None:
        self.under_way: list[Delivery] = []
        self.most: dict[str, int] = {}
        self.done: list[str] = []
        self.left = threading.Semaphore(0)
        pauses = Pauses(first_seconds=0.001, longest_seconds=0.001)
        self.courier = Courier(self.attempt, lambda each: each.target, self.settled, pauses, **options)
        self.fails: set[str] = set()

    async def attempt(self, delivery: Delivery) -> DeliveryResult:
        self.under_way.append(delivery)
        for key in (delivery.target, "all", f"{delivery.user} {delivery.target}"):
            here = [each for each in self.under_way if key in ("all", each.target, f"{each.user} {each.target}")]
            self.most[key] = max(self.most.get(key, 0), len(here))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.under_way.remove(delivery)
        if delivery.id in self.fails:
            self.fails.discard(delivery.id)
            return DeliveryResult(over=False, trouble="away")
        return DeliveryResult(over=True)

    def settled(self, delivery: Delivery, outcome: DeliveryResult) -> None:
        if outcome.over:
            self.done.append(delivery.id)
            self.left.release()

    def carry(self, work: list[Delivery]) -> None:
        self.courier.start()
        self.courier.accept(work)
        for _ in work:
            assert self.left.acquire(timeout=30)
        self.courier.stop()


def test_one_receiver_gets_one_notification_at_a_time_in_order_and_one_host_only_a_few() -> None:
    post = Post(at_places={"few": 2})
    work = [each for user in "abcdefghij" for target in (URL, "few") for each in deliveries(5, user, target)]
    post.carry(work)
    assert (post.most[URL], post.most["few"]) == (4, 2)
    assert {count for key, count in post.most.items() if " " in key} == {1}
    for user in "abcdefghij":
        mine = [key for key in post.done if key.startswith(user + URL)]
        assert mine == sorted(mine)


def test_a_notification_that_fails_lets_the_others_of_its_receiver_pass() -> None:
    post = Post()
    work = deliveries(3)
    post.fails.add(work[0].id)
    post.carry(work)
    assert post.done == [work[1].id, work[2].id, work[0].id]
