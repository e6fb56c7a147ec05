"""Every call declares what it needs, and roles include each other in one order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.client.requests import Submission
from gavel.runtime.service import Service
from gavel.security.ownership import NotAllowedError, owned
from gavel.security.roles import NEEDS, Caller, Need, Role, may_change, may_read
from gavel.wire import gavel_pb2 as pb

METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["Gavel"].methods]
PEOPLE = [Role.VIEWER, Role.USER, Role.OPERATOR, Role.ADMIN]
TEAMS = st.sampled_from(["research", "research/nlp", "research/vision", "product", "researchers"])
CALLERS = st.builds(
    Caller,
    user=st.sampled_from(["ann", "bob"]),
    role=st.sampled_from(PEOPLE),
    teams=st.lists(TEAMS, max_size=2).map(tuple),
    leads=st.lists(TEAMS, max_size=1).map(tuple),
)
JOBS = st.builds(
    Submission,
    command=st.just(("train",)),
    user=st.sampled_from(["ann", "bob", ""]),
    entity=st.one_of(st.none(), TEAMS),
    private=st.booleans(),
    weight=st.sampled_from([0.5, 1.0, 2.0]),
)


def test_every_call_of_the_protocol_declares_what_it_needs() -> None:
    assert set(NEEDS) == set(METHODS)


def test_every_call_of_the_protocol_is_answered() -> None:
    assert [name for name in METHODS if name not in dir(Service) or not _own(name)] == []


def _own(method: str) -> bool:
    """Whether our own code answers it, not the generated refusal."""
    return bool(getattr(Service, method).__module__.startswith("gavel.runtime"))


def test_only_enrolment_needs_no_identity() -> None:
    assert [name for name, need in NEEDS.items() if need is Need.NOTHING] == ["Enrol"]


def test_only_agents_attach_and_renew() -> None:
    assert {name for name, need in NEEDS.items() if need is Need.AGENT} == {"Attach", "RenewCertificate"}


@pytest.mark.parametrize("role", PEOPLE)
def test_a_higher_role_may_do_all_that_a_lower_one_may(role: Role) -> None:
    below = PEOPLE[: PEOPLE.index(role) + 1]
    assert [other for other in Role if role.includes(other)] == below


@pytest.mark.parametrize("role", [Role.AGENT, Role.METRICS])
def test_roles_of_programs_stand_apart(role: Role) -> None:
    assert [other for other in Role if role.includes(other)] == [role]
    assert not any(person.includes(role) for person in PEOPLE)


@given(CALLERS, JOBS)
def test_jobs_are_changed_by_their_user_leads_and_operators_only(caller: Caller, job: Submission) -> None:
    leads = any(job.entity == led or (job.entity or "").startswith(led + "/") for led in caller.leads)
    assert may_change(caller, job) == (caller.user == job.user or leads or caller.role in {Role.OPERATOR, Role.ADMIN})


@given(CALLERS, JOBS)
def test_private_jobs_are_read_by_those_who_may_change_them(caller: Caller, job: Submission) -> None:
    if job.private:
        assert may_read(caller, job) == (may_change(caller, job) and caller.role is not Role.VIEWER)


AMY = Caller(user="amy", role=Role.USER, teams=("research",))


@pytest.mark.parametrize(
    ("team", "private", "reads"),
    [
        ("research", False, True),
        ("research/nlp", False, True),
        ("research", True, False),
        ("researchers", False, False),
        (None, False, False),
    ],
)
def test_logs_of_a_colleague_are_read_unless_they_are_private(team: str | None, private: bool, reads: bool) -> None:
    assert may_read(AMY, Submission(command=("train",), user="ann", entity=team, private=private)) == reads


@given(CALLERS, JOBS)
def test_viewers_read_no_logs(caller: Caller, job: Submission) -> None:
    if caller.role is Role.VIEWER:
        assert not may_read(caller, job)


@given(CALLERS, JOBS)
def test_a_job_gets_the_callers_name_and_one_of_the_callers_teams(caller: Caller, job: Submission) -> None:
    try:
        found = owned(job, caller)
    except NotAllowedError:
        assert caller.role in {Role.VIEWER, Role.USER}
        return
    assert found.user == caller.user
    if caller.role in {Role.VIEWER, Role.USER} and found.entity:
        own = (*caller.teams, *caller.leads)
        assert any(found.entity == team or found.entity.startswith(team + "/") for team in own)
    if not job.entity and caller.teams:
        assert found.entity == caller.teams[0]


def test_a_user_cannot_give_a_job_more_weight_than_others_have() -> None:
    ann = Caller(user="ann", role=Role.USER, teams=("nlp",))
    with pytest.raises(NotAllowedError, match="above 1"):
        owned(Submission(command=("train",), weight=1.5), ann)
    lead = Caller(user="ann", role=Role.USER, teams=("nlp",), leads=("nlp",))
    assert owned(Submission(command=("train",), weight=1.5), lead).weight == 1.5
