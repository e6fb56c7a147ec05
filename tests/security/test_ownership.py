"""Jobs belong to their users: the table of rights, with a real scheduler, TLS and tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from secured_site import SecuredSite, play, secured_site

from gavel.wire import gavel_pb2 as pb

DENIED = grpc.StatusCode.PERMISSION_DENIED


async def code_of(call: Any) -> grpc.StatusCode:
    """How a call ended."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def logs_code(site: SecuredSite, user: str, job: str) -> grpc.StatusCode:
    async def read() -> None:
        async for _ in site.stub().Logs(pb.LogsRequest(id=job), metadata=site.metadata(user)):
            pass

    return await code_of(read())


def test_the_scheduler_records_who_submitted_whatever_the_request_says(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            forged = pb.JobRequest(command=["train"], workers=1, weight=1.0, user="max", entity="nlp")
            [job] = (await site.call("Submit", pb.SubmitRequest(jobs=[forged]), "ann")).ids
            found = (await site.call("List", pb.JobQuery(), "bob")).jobs
            assert [(view.id, view.request.user, view.request.entity) for view in found] == [(job, "ann", "nlp")]

    play(scene())


@pytest.mark.parametrize(
    ("user", "cancels", "reads", "reads_private"),
    [
        ("vic", False, False, False),
        ("ann", True, True, True),
        ("amy", False, True, False),
        ("bob", False, False, False),
        ("liz", True, True, True),
        ("oda", True, True, True),
        ("max", True, True, True),
    ],
)
def test_the_table_of_rights_over_a_job_of_ann(
    tmp_path: Path, user: str, cancels: bool, reads: bool, reads_private: bool
) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            job = await site.submit("ann", environment={"KEY": "hunter2"})
            private = await site.submit("ann", environment={"KEY": "hunter2"}, private=True)
            for each, allowed in ((job, reads), (private, reads_private)):
                detail = await site.call("Describe", pb.DescribeRequest(id=each), user)
                assert detail.job.request.environment["KEY"] == ("hunter2" if allowed else "(hidden)")
                assert (await logs_code(site, user, each) is DENIED) != allowed
            assert (await code_of(site.call("Cancel", pb.CancelRequest(ids=[job]), user)) is DENIED) != cancels
            state = (await site.call("Describe", pb.DescribeRequest(id=job), "ann")).job.state
            assert state == (pb.CANCELLED if cancels else pb.QUEUED)

    play(scene())


def test_a_batch_with_one_job_of_another_cancels_none(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            own, other = await site.submit("ann"), await site.submit("bob")
            assert await code_of(site.call("Cancel", pb.CancelRequest(ids=[own, other]), "ann")) is DENIED
            states = {view.id: view.state for view in (await site.call("List", pb.JobQuery(), "ann")).jobs}
            assert states == {own: pb.QUEUED, other: pb.QUEUED}

    play(scene())


@pytest.mark.parametrize("team", ["vision", "nlpx", "NLP", "/nlp"])
def test_a_job_for_a_team_of_others_is_refused(tmp_path: Path, team: str) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            jobs = pb.SubmitRequest(jobs=[pb.JobRequest(command=["train"], workers=1, weight=1.0, entity=team)])
            assert await code_of(site.call("Submit", jobs, "ann")) in {DENIED, grpc.StatusCode.INVALID_ARGUMENT}
            assert not (await site.call("List", pb.JobQuery(), "ann")).jobs

    play(scene())


def test_an_operator_submits_for_a_user_and_the_audit_names_both(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            job = pb.SubmitRequest(jobs=[pb.JobRequest(command=["train"], workers=1, weight=1.0)])
            [made] = (await site.call("Submit", job, "oda", acting_for="ann")).ids
            view = (await site.call("Describe", pb.DescribeRequest(id=made), "ann")).job
            assert (view.request.user, view.request.entity) == ("ann", "nlp")
            lines = [line async for line in site.stub().Audit(pb.AuditQuery(job=made), metadata=site.metadata("oda"))]
            assert [(line.user, getattr(line, "as"), line.method, line.outcome) for line in lines] == [
                ("oda", "ann", "Submit", "done")
            ]

    play(scene())


def test_a_repeated_key_of_another_user_is_another_submission(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            job = pb.SubmitRequest(jobs=[pb.JobRequest(command=["train"], workers=1, weight=1.0)], key="same")
            first = (await site.call("Submit", job, "ann")).ids
            assert (await site.call("Submit", job, "bob")).ids != first
            assert (await site.call("Submit", job, "ann")).ids == first

    play(scene())


def test_a_query_for_a_user_finds_unfinished_and_finished_jobs(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            kept, ended = await site.submit("ann"), await site.submit("ann")
            await site.submit("bob")
            await site.call("Cancel", pb.CancelRequest(ids=[ended]), "ann")
            site.running.engine.keep_state()  # finished jobs go to their table
            found = (await site.call("List", pb.JobQuery(user="ann"), "bob")).jobs
            assert sorted(view.id for view in found) == [kept, ended]

    play(scene())


def test_refused_and_done_calls_are_in_the_audit_with_their_address(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            job = await site.submit("ann")
            await code_of(site.call("Cancel", pb.CancelRequest(ids=[job]), "bob"))
            await site.call("Cancel", pb.CancelRequest(ids=[job]), "ann")
            stream = site.stub().Audit(pb.AuditQuery(job=job), metadata=site.metadata("oda"))
            lines = [(line.user, line.method, line.outcome[:7], line.address) async for line in stream]
            assert sorted(lines) == [
                ("ann", "Cancel", "done", "127.0.0.1"),
                ("ann", "Submit", "done", "127.0.0.1"),
                ("bob", "Cancel", "refused", "127.0.0.1"),
            ]

    play(scene())


@pytest.mark.parametrize("user", ["vic", "ann", "liz"])
def test_the_audit_is_for_operators(tmp_path: Path, user: str) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:

            async def read() -> None:
                async for _ in site.stub().Audit(pb.AuditQuery(), metadata=site.metadata(user)):
                    pass

            assert await code_of(read()) is DENIED

    play(scene())
