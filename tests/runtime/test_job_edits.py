"""Edits of jobs and their repetition: what the scheduler accepts, what it refuses, and what it writes about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_peers import Site, play, site

from gavel.client import job_changes
from gavel.client.messages import from_submission, to_submission
from gavel.client.requests import JobRequest, Submission
from gavel.client.views import JobState, Transition
from gavel.core.errors import InputError
from gavel.core.events import FieldChange, JobEdited, StopAsked
from gavel.runtime.events import EditAsked
from gavel.runtime.facts import document_of
from gavel.runtime.job_edits import EDITABLE, Edits, edits
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.resubmission import resubmission
from gavel.runtime.steps import all_steps
from gavel.runtime.timeline import sentence
from gavel.wire import gavel_pb2 as pb

PLAIN = Submission(command=("train",), template="mine", steps=1000.0, retries=3)


def record(job: str, request: Submission = PLAIN, state: JobState = JobState.QUEUED, **known: Any) -> LiveJobRecord:
    history = (Transition(0.0, state, "", ""),)
    return LiveJobRecord(id=job, request=request, submitted=0.0, history=history, **known)


@dataclass
class Situation:
    """What an edit finds in the cluster."""

    running: tuple[str, ...] = ()
    seconds: float = 0.0

    def runs(self, job: str) -> bool:
        return job in self.running

    def types_of(self, job: str, request: Submission) -> tuple[str, ...] | None:  # noqa: ARG002
        return request.types or None

    def time_used(self, job: str, time: float) -> float:  # noqa: ARG002
        return self.seconds


def decided(
    records: list[LiveJobRecord], *jobs: str, fields: tuple[str, ...] = (), running: tuple[str, ...] = (), **new: Any
) -> Edits:
    changes = Submission(command=("x",), **new)
    asked = EditAsked(5.0, jobs, changes, fields or tuple(new), "ann")
    return all_steps(edits(asked, {each.id: each for each in records}, Situation(running)))


# ---- decisions ----


def test_an_edit_replaces_the_named_fields_and_no_others() -> None:
    (edited,) = decided([record("1")], "1", fields=("weight", "types"), weight=2.0, types=("v100",), name="x").edited
    assert edited.request == Submission(
        command=("train",), template="mine", steps=1000.0, retries=3, weight=2.0, types=("v100",)
    )
    assert (edited.job.weight, edited.job.types, edited.job.steps) == (2.0, ("v100",), 1000.0)
    assert edited.changes == (FieldChange("weight", "1", "2"), FieldChange("types", "", "v100"))
    assert edited.by == "ann"


def test_an_edit_to_what_is_already_so_changes_nothing() -> None:
    assert decided([record("1")], "1", steps=1000.0) == Edits((), ())


def test_the_steps_left_are_the_new_total_without_those_made() -> None:
    (edited,) = decided([record("1", steps_done=400.0)], "1", steps=500.0).edited
    assert edited.steps_left == 100.0


def test_a_running_job_with_a_new_number_of_steps_starts_again_and_a_waiting_one_does_not() -> None:
    """A process learns its number of steps when it starts."""
    records = [record("1", state=JobState.RUNNING), record("2")]
    found = list(decided(records, "1", "2", running=("1",), steps=2000.0).events(5.0))
    assert isinstance(found[0], StopAsked)
    assert found[0].jobs == ("1",)
    assert [each.job.id for each in found[1:] if isinstance(each, JobEdited)] == ["1", "2"]
    assert decided(records, "1", running=("1",), weight=2.0).stopped == ()


def test_at_once_applies_to_every_unfinished_job_of_the_array_and_other_fields_only_to_the_named_one() -> None:
    member = Submission(command=("train",), array_id="1", index=0, at_once=2)
    records = [record("1", member), record("2", member), record("3", member, JobState.COMPLETED), record("4")]
    found = {each.job.id: each.request for each in decided(records, "2", at_once=5, name="x").edited}
    assert {job: (request.at_once, request.name) for job, request in found.items() if request} == {
        "1": (5, ""),
        "2": (5, "x"),
    }


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no field": ({"fields": ()}, "names no field"),
    "an unknown field": (
        {"fields": ("wieght",)},
        "the field 'wieght' of a job cannot be changed; did you mean 'weight'?",
    ),
    "a field that stays": ({"fields": ("workers",)}, "cannot be changed"),
    "its user": ({"fields": ("user",)}, "cannot be changed"),
    "no weight": ({"weight": 0.0}, "job 1: weight must be greater than 0"),
    "a weight that is no number": ({"weight": float("nan")}, "job 1: weight must be a finite number"),
    "too many retries": ({"retries": 10**9}, "job 1: retries must be at most 1,000,000"),
    "fewer steps than made": (
        {"steps": 399.0},
        "job 1 has made 400 steps, more than 399; give more steps, or cancel it",
    ),
    "negative steps": ({"steps": -1.0}, "job 1: steps must be greater than 0"),
    "a type twice": ({"types": ("a", "a")}, "job 1: types names 'a' twice"),
    "a preference outside": ({"types": ("k80",), "prefer": ("v100",)}, "prefer names 'v100', which is not one of"),
    "at once without an array": ({"at_once": 3}, "job 1: at_once limits the jobs of an array"),
    "a time limit of 0": ({"time_limit_seconds": -5.0}, "job 1: time_limit must be greater than 0"),
    "a time limit that has passed": (
        {"time_limit_seconds": 3600.0},
        "job 1 has run for 2h, so a time limit of 1h would end it now; give a longer one, or cancel it",
    ),
    "ages": ({"idle_timeout_seconds": 1e300}, "job 1: idle_timeout must be at most"),
    "an escape": ({"name": "\x1b[2J"}, "cannot be printed"),
    "a notification by mail": ({"notify": ("mailto:a@b",)}, "is not a URL that begins with"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_edits_are_refused_in_a_sentence(what: str) -> None:
    new, told = BAD[what]
    fields = new.get("fields", tuple(new))
    changes = Submission(command=("x",), **{name: value for name, value in new.items() if name != "fields"})
    asked = EditAsked(5.0, ("1",), changes, fields, "ann")
    with pytest.raises(InputError) as error:
        all_steps(edits(asked, {"1": record("1", steps_done=400.0)}, Situation(seconds=7200.0)))
    assert told in str(error.value)
    assert len(str(error.value)) < 300


def test_types_that_leave_out_a_preferred_one_are_refused_until_the_preference_changes_too() -> None:
    prefers = [record("1", Submission(command=("train",), types=("v100", "k80"), prefer=("v100",)))]
    with pytest.raises(InputError, match="prefer names 'v100', which is not one of its types"):
        decided(prefers, "1", types=("k80",))
    (edited,) = decided(prefers, "1", types=("k80",), prefer=()).edited
    assert edited.job.types == ("k80",)


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
def test_an_edit_with_a_finished_or_unknown_job_changes_none_of_the_others(state: JobState) -> None:
    with pytest.raises(InputError, match=r"job 2 has .* and cannot be changed; `gavel resubmit 2` runs it again"):
        decided([record("1"), record("2", state=state)], "1", "2", weight=2.0)
    with pytest.raises(InputError, match="there is no unfinished job '9'"):
        decided([record("1")], "1", "9", weight=2.0)


@given(
    weight=st.none() | st.floats(0.1, 100.0),
    steps=st.none() | st.floats(500.0, 1e9),
    types=st.none() | st.lists(st.sampled_from(["v100", "k80", "p100"]), unique=True),
    limit=st.none() | st.floats(1.0, 1e6),
)
def test_an_edit_gives_the_request_that_a_submission_with_those_values_would_have(
    weight: float | None, steps: float | None, types: list[str] | None, limit: float | None
) -> None:
    new: dict[str, Any] = {"weight": weight, "steps": steps, "types": types, "time_limit": limit}
    given = {name: value for name, value in new.items() if value is not None}
    if not given:
        return
    before = JobRequest(["train"], template="mine", steps=1000.0, retries=3)
    after = JobRequest(["train"], **{"template": "mine", "steps": 1000.0, "retries": 3, **given})
    packed, fields = job_changes.packed_changes(given, job_changes.EDITABLE)
    asked = EditAsked(5.0, ("1",), from_submission(packed), tuple(fields), "ann")
    found = all_steps(edits(asked, {"1": record("1", before.submission())}, Situation()))
    assert [each.request for each in found.edited] in ([after.submission()], [])
    if not found.edited:
        assert before.submission() == after.submission()


def test_clients_and_the_scheduler_agree_on_what_can_be_edited() -> None:
    assert {job_changes.IN_PROTOCOL.get(name, name) for name in job_changes.EDITABLE} == {*EDITABLE}
    assert set(EDITABLE) <= {each.name for each in pb.JobRequest.DESCRIPTOR.fields}


def test_the_timeline_says_who_changed_what_and_shows_no_url() -> None:
    new: dict[str, Any] = {
        "weight": 2.0,
        "time_limit_seconds": 43200.0,
        "notify": ("https://host/secret",),
        "tags": {"a": "b"},
    }
    (edited,) = decided([record("1")], "1", **new).edited
    document = document_of(edited)
    assert sentence(document["kind"], document["fact"]) == (
        "job 1 was changed by ann: weight 1 → 2, time limit none → 12h, tags none → a=b, notify none → 1 URL"
    )


# ---- calls ----


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code(), error.value.details() or ""


def edit(*ids: str, **new: Any) -> pb.EditRequest:
    fields = [job_changes.IN_PROTOCOL.get(name, name) for name in new]
    changes = to_submission(Submission(command=("x",), **dict(zip(fields, new.values(), strict=True))))
    return pb.EditRequest(ids=ids, changes=changes, fields=fields)


async def views(here: Site) -> dict[str, pb.JobView]:
    return {job.id: job for job in (await here.stub.List(pb.JobQuery())).jobs}


def test_an_edit_through_the_protocol_is_written_audited_and_all_or_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            one, two = await here.submit(), await here.submit()
            reply = await here.stub.Edit(edit(one, two, weight=2.0, name="new", types=("nothing-like-it",)))
            assert [(job.request.weight, job.request.name) for job in reply.jobs] == [(2.0, "new")] * 2
            await here.stub.Cancel(pb.CancelRequest(ids=[two]))
            for ids, code in (((one, two), "FAILED_PRECONDITION"), ((one, "77"), "NOT_FOUND")):
                told = await refused(here.stub.Edit(edit(*ids, name="other")))
                assert told[0].name == code
            assert {job: view.request.name for job, view in (await views(here)).items()} == {one: "new", two: "new"}
            events = [line async for line in here.stub.Events(pb.EventsRequest(job=one))]
            assert [line.text for line in events if line.kind == "job_edited"] == [
                f"job {one} was changed by you: name none → new, weight 1 → 2, types none → nothing-like-it"
            ]
            lines = [line async for line in here.stub.Audit(pb.AuditQuery())]
            assert [(line.object, line.what) for line in lines if line.method == "Edit"] == [
                (job, "name none → new, weight 1 → 2, types none → nothing-like-it") for job in (one, two)
            ]

    play(scene())


def test_a_policy_that_needs_steps_refuses_their_removal(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, policy="finish_time_fairness") as here:
            job = await here.submit()
            code, told = await refused(here.stub.Edit(edit(job, steps=None)))
            assert code == grpc.StatusCode.FAILED_PRECONDITION
            assert told.startswith(f"job {job}: ")
            assert "needs to know" in told
            assert (await views(here))[job].request.steps == 1e6

    play(scene())


def test_an_edited_request_survives_a_restart(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            job = await here.submit()
            await here.stub.Edit(edit(job, weight=3.0, time_limit=60.0, tags={"a": "b"}))
        async with site(tmp_path) as here:
            request = (await views(here))[job].request
            assert (request.weight, request.time_limit_seconds, dict(request.tags)) == (3.0, 60.0, {"a": "b"})

    play(scene())


def test_more_jobs_of_an_array_may_run_after_its_limit_was_raised_through_one_of_them(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            array = pb.JobRequest(command=["train"], workers=1, weight=1.0, array="0-3", at_once=1)
            jobs = (await here.stub.Submit(pb.SubmitRequest(jobs=[array]))).ids
            scheduler = here.running.engine.scheduler
            assert sum(not scheduler.on_hold(job) for job in jobs) == 1
            await here.stub.Edit(edit(jobs[2], at_once=3))
            assert {view.request.at_once for view in (await views(here)).values()} == {3}
            assert sum(not scheduler.on_hold(job) for job in jobs) == 3

    play(scene())


def test_what_jobs_wait_for_is_edited_for_all_of_them_or_none_and_finished_jobs_count(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            first, gone, one, two = [await here.submit() for _ in range(4)]
            await here.stub.Cancel(pb.CancelRequest(ids=[gone]))
            here.running.engine.keep_state()  # what has finished leaves memory
            reply = await here.stub.Edit(edit(one, two, after=(first,), weight=2.0))
            assert [(list(job.request.after), job.code) for job in reply.jobs] == [([f"{first}:ok"], "dependency")] * 2
            for ids, after in (((first, one), two), ((one, two), gone), ((two,), "77")):
                await refused(here.stub.Edit(edit(*ids, after=(after,), weight=3.0)))
            assert {view.request.weight for job, view in (await views(here)).items() if job in (one, two)} == {2.0}
            (freed,) = (await here.stub.Edit(edit(one, after=(f"{gone}:failed",)))).jobs
            assert freed.code != "dependency"
            lines = [line.what async for line in here.stub.Audit(pb.AuditQuery()) if line.object == one]
            assert lines[-1] == f"after {gone}:failed"

    play(scene())


# ---- again ----


def test_resubmitted_jobs_have_the_old_requests_and_what_was_changed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            old = await here.submit(name="x", environment={"TOKEN": "hidden"}, types=["v100"])
            await here.stub.Cancel(pb.CancelRequest(ids=[old]))
            again = pb.ResubmitRequest(ids=[old], key="k", changes=pb.JobRequest(workers=2), fields=["workers"])
            (new,) = (await here.stub.Resubmit(again)).ids
            assert (await here.stub.Resubmit(again)).ids == [new], "the same call"
            records = here.running.engine.records
            assert records[new].request.environment == {"TOKEN": "hidden"}
            assert (records[new].request.workers, records[old].request.workers) == (2, 1)
            assert (records[new].request.name, records[new].request.types) == ("x", ("v100",))

    play(scene())


def test_a_job_of_an_array_is_submitted_again_alone_with_its_index_and_parameters() -> None:
    member = Submission(command=("train",), array_id="3", index=4, parameters={"lr": "0.1"}, at_once=2, user="bob")
    [job], _ = resubmission(pb.ResubmitRequest(ids=["7"]), {"7": member})
    assert (job.array_id, job.at_once, job.user) == ("", 0, "")
    assert (job.index, dict(job.parameters)) == (4, {"lr": "0.1"})


def test_an_array_submitted_again_is_an_array_again_and_its_members_keep_their_indices(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            array = pb.JobRequest(command=["train", "{index}"], workers=1, weight=1.0, array="2-4", at_once=2)
            old = (await here.stub.Submit(pb.SubmitRequest(jobs=[array]))).ids
            alone = await here.submit()
            new = (await here.stub.Resubmit(pb.ResubmitRequest(ids=[*old, alone]))).ids
            found = {job: here.running.engine.records[job].request for job in new}
            assert [each.array_id for each in found.values()] == [f"a{new[0]}"] * 3 + [""]
            assert [each.index for each in found.values()] == [2, 3, 4, None]
            assert [each.command for each in found.values()][:3] == [("train", str(index)) for index in (2, 3, 4)]
            (single,) = (await here.stub.Resubmit(pb.ResubmitRequest(ids=[old[1]]))).ids
            request = here.running.engine.records[single].request
            assert (request.array_id, request.index, request.command) == ("", 3, ("train", "3"))

    play(scene())


REPEATS: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown job": ({"ids": ["77"]}, "NOT_FOUND", "there is no job '77'"),
    "no job": ({"ids": []}, "INVALID_ARGUMENT", "give at least one id"),
    "an unknown field": ({"fields": ["weigth"]}, "INVALID_ARGUMENT", "did you mean 'weight'"),
    "a field of the scheduler": ({"fields": ["array_id"]}, "INVALID_ARGUMENT", "cannot be changed"),
    "a bad value": ({"fields": ["weight"]}, "INVALID_ARGUMENT", "weight must be greater than 0"),
    "a secret without a value": ({"secrets": {}}, "INVALID_ARGUMENT", "give --secret TOKEN"),
    "a secret too many": (
        {"secrets": {"TOKEN": "a", "B": "b"}},
        "INVALID_ARGUMENT",
        "none of the jobs has a secret 'B'",
    ),
}


def test_repetitions_that_do_not_fit_are_refused_and_submit_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            secret = pb.SubmitRequest(
                jobs=[pb.JobRequest(command=["train"], workers=1, weight=1.0, secrets=["TOKEN"])],
                secrets=[pb.Secrets(values={"TOKEN": "old"})],
            )
            (old,) = (await here.stub.Submit(secret)).ids
            for what, (request, code, sentence_part) in REPEATS.items():
                asked = pb.ResubmitRequest(**{"ids": [old], "secrets": {"TOKEN": "new"}, **request})
                status, told = await refused(here.stub.Resubmit(asked))
                assert status.name == code, what
                assert sentence_part in told, what
            assert [*await views(here)] == [old]
            asked = pb.ResubmitRequest(ids=[old], secrets={"TOKEN": "new"})
            (new,) = (await here.stub.Resubmit(asked)).ids
            assert here.running.engine.executor.secrets.of(new, ["TOKEN"]) == {"TOKEN": "new"}  # type: ignore[attr-defined]

    play(scene())
