"""Limits through the protocol: who may see and set them, and what a client is told when it exceeds one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from raw_peers import Site, play, site

from gavel.runtime.limits_service import LimitsService, set_fault
from gavel.security.caller import as_caller
from gavel.security.quotas import EVERYBODY, Kind, Limits, Quotas, Subject
from gavel.security.roles import Caller, Role
from gavel.wire import gavel_pb2 as pb

LAB, VISION = Subject(Kind.TEAM, "lab"), Subject(Kind.TEAM, "lab/vision")
ANN = Subject(Kind.USER, "ann")
LEAD = Caller(user="lea", role=Role.USER, teams=("lab",), leads=("lab",))
OPERATOR = Caller(user="olga", role=Role.OPERATOR)


def quotas(**limits: Limits) -> Quotas:
    made = Quotas()
    for name, each in limits.items():
        made.change(LAB if name == "lab" else Subject(Kind.USER, name), each)
    return made


# ---- rights ----


@pytest.mark.parametrize("subject", [EVERYBODY, ANN, LAB, VISION])
def test_operators_set_all_limits(subject: Subject) -> None:
    assert set_fault(OPERATOR, subject, Limits(), quotas(), ()) is None
    assert set_fault(Caller(user="root", role=Role.ADMIN), subject, Limits(), quotas(), ()) is None


@pytest.mark.parametrize("subject", [EVERYBODY, ANN, LAB, VISION, Subject(Kind.USER, "eve")])
@pytest.mark.parametrize("role", [Role.USER, Role.VIEWER, Role.AGENT])
def test_others_set_no_limits_not_even_their_own(subject: Subject, role: Role) -> None:
    eve = Caller(user="eve", role=role, teams=("lab",))
    assert set_fault(eve, subject, Limits(unfinished_jobs=1), quotas(), ("lab",))


def test_a_lead_lowers_limits_of_its_team_the_teams_below_and_their_users() -> None:
    known = quotas(lab=Limits(running_accelerators=8))
    for subject in (LAB, VISION, ANN):
        assert set_fault(LEAD, subject, Limits(running_accelerators=8), known, ("lab/vision",)) is None
        for limits in (Limits(running_accelerators=9), Limits(), Limits(unfinished_jobs=3)):
            told = set_fault(LEAD, subject, limits, known, ("lab/vision",))
            assert told == (
                "a lead may only lower limits: 8 accelerators in force for team lab; ask an operator to raise them"
            )


def test_a_lead_does_not_raise_what_an_operator_gave_a_user() -> None:
    known = quotas(ann=Limits(unfinished_jobs=5))
    assert set_fault(LEAD, ANN, Limits(unfinished_jobs=5), known, ("lab",)) is None
    assert set_fault(LEAD, ANN, Limits(unfinished_jobs=6), known, ("lab",))
    known.change(EVERYBODY, Limits(running_accelerators=4))
    assert set_fault(LEAD, ANN, Limits(unfinished_jobs=5), known, ("lab",))


def test_a_lead_has_no_say_about_other_teams_their_users_and_the_default() -> None:
    for subject, teams in ((EVERYBODY, ()), (Subject(Kind.TEAM, "club"), ()), (ANN, ("club",)), (ANN, ())):
        assert set_fault(LEAD, subject, Limits(unfinished_jobs=1), quotas(), teams)
    assert set_fault(LEAD, Subject(Kind.TEAM, "labour"), Limits(unfinished_jobs=1), quotas(), ())


# ---- calls ----


def of(kind: str, name: str = "", **limits: Any) -> pb.LimitsOf:
    return pb.LimitsOf(kind=kind, name=name, limits=pb.Limits(**limits))


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code(), error.value.details() or ""


BAD_LIMITS = {
    "an unknown kind": (of("planet", "x"), "limits are of a user, a team or default, not of 'planet'"),
    "no name": (of("user"), "name the user whose limits are set"),
    "a default with a name": (of("default", "x"), "leave out the name 'x'"),
    "an escape": (of("user", "a\x1b[2J"), "cannot be printed"),
    "a long name": (of("team", "x" * 10_000), "10,000 characters"),
    "an empty part": (of("team", "lab//vision"), "cannot name a team"),
    "a negative rate": (of("user", "ann", submissions_per_minute=-1.0), "it must be 0"),
    "a rate that is no number": (of("user", "ann", submissions_per_minute=float("nan")), "it must be 0"),
}


@pytest.mark.parametrize("what", BAD_LIMITS)
def test_limits_that_make_no_sense_are_refused(tmp_path: Path, what: str) -> None:
    request, sentence = BAD_LIMITS[what]

    async def scene() -> None:
        async with site(tmp_path) as here:
            code, told = await refused(here.stub.SetLimits(request))
            assert code == grpc.StatusCode.INVALID_ARGUMENT
            assert sentence in told
            assert len(told) < 400
            assert not here.running.engine.state.quotas.limits

    play(scene())


def test_a_submission_beyond_a_limit_is_refused_as_exhausted_and_leaves_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            await here.stub.SetLimits(of("team", "lab", unfinished_jobs=2, running_accelerators=4))
            await here.submit(entity="lab/vision")
            two = [pb.JobRequest(command=["train"], workers=1, entity="lab")] * 2
            assert await refused(here.stub.Submit(pb.SubmitRequest(jobs=two, key="k"))) == (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                (
                    "team lab may have 2 unfinished jobs, has 1, and submits 2 more; wait until some have finished, "
                    "cancel some, or ask an operator for a higher limit"
                ),
            )
            large = pb.JobRequest(command=["train"], workers=5, entity="lab")
            code, told = await refused(here.stub.Submit(pb.SubmitRequest(jobs=[large])))
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert told.startswith("a job needs 5 accelerators, but team lab may run 4 at a time")
            assert len((await here.stub.List(pb.JobQuery())).jobs) == 1
            assert (await here.stub.Submit(pb.SubmitRequest(jobs=two[:1], key="k"))).ids == ["2"]
            assert (await here.stub.Submit(pb.SubmitRequest(jobs=two[:1], key="k"))).ids == ["2"]  # the same call

    play(scene())


def test_a_job_over_the_limit_says_why_it_waits_and_until_when_in_lists_and_history(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            await here.stub.SetLimits(of("team", "lab", running_accelerators=1))
            await here.agent("a", count=4)
            first, second = [await here.submit(entity="lab") for _ in range(2)]
            detail = await here.stub.Describe(pb.DescribeRequest(id=second))
            assert detail.job.reason == "team lab may run 1 accelerator at a time, and uses 1"
            assert detail.history[0].code == "over_limit"
            assert await used(here) == {"lab": (2, 1)}
            await here.stub.Cancel(pb.CancelRequest(ids=[first]))
            detail = await here.stub.Describe(pb.DescribeRequest(id=second))
            assert "may run" not in detail.job.reason
            assert [each.code for each in detail.history][:2] == ["over_limit", "released"]

    play(scene())


def test_a_limit_that_is_set_later_holds_jobs_that_do_not_run_the_latest_first(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            jobs = [await here.submit(entity="lab") for _ in range(3)]
            await here.stub.SetLimits(of("team", "lab", running_accelerators=1))
            reasons = [(await here.stub.Describe(pb.DescribeRequest(id=job))).job.reason for job in jobs]
            over = "team lab may run 1 accelerator at a time, and uses 1"
            assert [reason == over for reason in reasons] == [False, True, True]
            await here.stub.SetLimits(of("team", "lab"))
            reasons = [(await here.stub.Describe(pb.DescribeRequest(id=job))).job.reason for job in jobs]
            assert over not in reasons

    play(scene())


def test_limits_survive_a_restart(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            await here.stub.SetLimits(of("team", "lab", running_accelerators=1))
            await here.stub.SetLimits(of("default", unfinished_jobs=9))
            for _ in range(2):
                await here.submit(entity="lab")
        async with site(tmp_path) as here:
            limits = (await here.stub.ListLimits(pb.ListLimitsRequest())).limits
            assert [(each.kind, each.name) for each in limits] == [("default", ""), ("team", "lab"), ("user", "you")]
            assert limits[0].limits.unfinished_jobs == 9
            assert await used(here) == {"lab": (2, 1)}

    play(scene())


def test_callers_see_their_own_limits_those_of_their_teams_and_the_default(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here:
            for request in (of("user", "ann"), of("user", "bob"), of("team", "lab"), of("team", "club")):
                request.limits.unfinished_jobs = 5
                await here.stub.SetLimits(request)
            service: LimitsService = here.running.service
            ann = Caller(user="ann", role=Role.USER, teams=("lab/vision",))
            assert seen(service, ann) == ["every user", "team lab", "ann"]
            assert seen(service, LEAD) == ["every user", "team lab", "lea"]
            assert seen(service, OPERATOR) == ["every user", "team club", "team lab", "ann", "bob", "olga"]

    play(scene())


def seen(service: LimitsService, caller: Caller) -> list[str]:
    with as_caller(caller):
        return [str(Subject(Kind(each.kind), each.name)) for each in service._limits().limits]


async def used(here: Site) -> dict[str, tuple[int, int]]:
    """By team: unfinished jobs and accelerators."""
    limits = (await here.stub.ListLimits(pb.ListLimitsRequest())).limits
    teams = [each for each in limits if each.kind == "team"]
    return {each.name: (each.used.unfinished_jobs, each.used.running_accelerators) for each in teams}
