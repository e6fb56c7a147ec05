"""Who may edit a job and submit it again: the table of rights, with a real scheduler, TLS and tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from secured_site import play, secured_site

from gavel.wire import gavel_pb2 as pb

DENIED, OK = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.OK


async def outcome(call: Any) -> tuple[grpc.StatusCode, str]:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return OK, ""


def test_only_those_who_may_change_a_job_edit_it_and_only_leads_and_operators_raise_its_weight(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            request = pb.JobRequest(command=["train"], workers=1, weight=1.0, entity="nlp", environment={"A": "b"})
            [job] = (await site.call("Submit", pb.SubmitRequest(jobs=[request]), "ann")).ids
            name = pb.EditRequest(ids=[job], changes=pb.JobRequest(name="x"), fields=["name"])
            heavy = pb.EditRequest(ids=[job], changes=pb.JobRequest(weight=2.0), fields=["weight"])
            for user in ("vic", "amy", "bob"):
                assert (await outcome(site.call("Edit", name, user)))[0] == DENIED, user
            for user in ("ann", "liz", "oda"):
                assert await outcome(site.call("Edit", name, user)) == (OK, ""), user
            assert await outcome(site.call("Edit", heavy, "ann")) == (
                DENIED,
                "the weight 2 is above 1; only leads of the team and operators give jobs more weight",
            )
            for user in ("liz", "oda"):
                assert await outcome(site.call("Edit", heavy, user)) == (OK, ""), user
            light = pb.EditRequest(ids=[job], changes=pb.JobRequest(weight=0.5), fields=["weight"])
            assert await outcome(site.call("Edit", light, "ann")) == (OK, "")

    play(scene())


def test_a_job_with_an_environment_is_submitted_again_only_by_those_who_may_read_it_and_is_then_theirs(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            request = pb.JobRequest(command=["train"], workers=1, weight=1.0, entity="nlp", environment={"A": "b"})
            [job] = (await site.call("Submit", pb.SubmitRequest(jobs=[request]), "ann")).ids
            again = pb.ResubmitRequest(ids=[job])
            assert await outcome(site.call("Resubmit", again, "bob")) == (
                DENIED,
                f"job {job} is ann's and has an environment that you may not read",
            )
            [new] = (await site.call("Resubmit", again, "amy")).ids
            [view] = (await site.call("List", pb.JobQuery(ids=[new]), "amy")).jobs
            assert (view.request.user, view.request.entity) == ("amy", "nlp")

    play(scene())


def test_the_audit_names_the_caller_of_an_edit(tmp_path: Path) -> None:
    async def scene() -> None:
        async with secured_site(tmp_path) as site:
            request = pb.JobRequest(command=["train"], workers=1, weight=1.0)
            [job] = (await site.call("Submit", pb.SubmitRequest(jobs=[request]), "ann")).ids
            await site.call("Edit", pb.EditRequest(ids=[job], changes=pb.JobRequest(name="x"), fields=["name"]), "oda")
            lines = site.stub().Audit(pb.AuditQuery(), metadata=site.metadata("root"))
            edited = [line async for line in lines if line.method == "Edit"]
            assert [(line.user, line.object, line.what) for line in edited] == [("oda", job, "name none → x")]

    play(scene())
