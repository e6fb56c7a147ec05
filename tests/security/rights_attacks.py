"""Attacks on rights: roles, ownership, acting for others, and making more of what one has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
from attacked_cluster import Target, eventually, refusal
from attackers import Metadata, bearer, elsewhere, refused_and_audited
from attacks import attack
from identity_attacks import new_user

from gavel.security.certificates import new_key, signing_request
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

DENIED, INVALID = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT
ABSENT = grpc.StatusCode.NOT_FOUND
UNCHANGED = pb.Limits(unfinished_jobs=1)
CHAT = "chat.example.org"
"""Hosts below this one may be notified."""


def requests(target: Target) -> Mapping[str, Any]:
    """By method: a request that would do harm if it were allowed."""
    job = pb.JobRequest(command=["true"], types=["none"])
    return {
        "Submit": pb.SubmitRequest(jobs=[job]),
        "Cancel": pb.CancelRequest(ids=[target.job]),
        "Logs": pb.LogsRequest(id=target.job),
        "RemoveCheckpoints": pb.RemoveCheckpointsRequest(ids=[target.job]),
        "SetLimits": pb.LimitsOf(kind="user", name="ann", limits=UNCHANGED),
        "ShowNotifications": pb.NotificationsRequest(),
        "SetNotifications": pb.Notifications(urls=[f"https://x.{CHAT}/"]),
        "TestNotifications": pb.NotificationsRequest(),
        "Drain": pb.DrainRequest(agent="good", now=True),
        "Undrain": pb.DrainRequest(agent="good"),
        "RemoveServer": pb.DrainRequest(agent="good"),
        "ListAgents": pb.ListAgentsRequest(),
        "RevokeAgent": pb.RevokeAgentRequest(agent="good"),
        "ListUsers": pb.ListUsersRequest(),
        "AddUser": pb.User(name="mallory", role="admin"),
        "ChangeUser": pb.ChangeUserRequest(user=pb.User(name="vic", role="admin"), fields=["role"]),
        "Audit": pb.AuditQuery(),
        "RenewCertificate": pb.RenewRequest(signing_request=signing_request(new_key())),
    }


LEAST = {
    "user": (
        *("Submit", "Cancel", "Logs", "RemoveCheckpoints", "SetLimits"),
        *("ShowNotifications", "SetNotifications", "TestNotifications"),
    ),
    "operator": ("Drain", "Undrain", "RemoveServer", "ListAgents", "ListUsers", "Audit"),
    "admin": ("RevokeAgent", "AddUser", "ChangeUser"),
    "agent": ("RenewCertificate",),
}
"""By role: what only it and those above may call."""
HOLDERS = {"viewer": "vic", "user": "bob", "operator": "oda", "admin": "root"}
BELOW = {
    "user": ["viewer"],
    "operator": ["viewer", "user"],
    "admin": ["viewer", "user", "operator"],
    "agent": list(HOLDERS),
}


def _with_too_small_a_role(method: str, role: str) -> None:
    """Register one attack: every role that is too small calls a method."""

    def play(target: Target) -> None:
        before = users(target)
        for lesser in BELOW[role]:
            sentence = refused_and_audited(target, DENIED, method, requests(target)[method], HOLDERS[lesser])
            assert role in sentence or "agents" in sentence
        assert users(target) == before

    lesser = {"user": "a viewer", "operator": "a viewer or user", "admin": "anyone but an administrator"}
    play.__doc__ = f"{method} by {lesser.get(role, 'people instead of agents')}"
    attack("rights")(play)


for least, methods in LEAST.items():
    for name in methods:
        _with_too_small_a_role(name, least)


def users(target: Target) -> list[pb.User]:
    return list(target.call("ListUsers", pb.ListUsersRequest(), "root").users)


@attack("rights")
def users_token_on_attach(target: Target) -> None:
    """A user's token on the agents' stream"""
    target.refused(DENIED, "Attach", iter([pb.FromAgent()]), "ann")
    target.refused(DENIED, "Attach", iter([pb.FromAgent()]), "root")


@attack("rights")
def unknown_method(target: Target) -> None:
    """Methods that the protocol does not have, of our service and of those that libraries add"""
    paths = (
        "/gavel.v1.Gavel/Shutdown",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/",
        "/a/b/c",
    )
    with target.channel() as channel:
        for path in paths:
            call: Any = channel.unary_unary(path)  # type: ignore[call-arg] # bytes as they are
            refusal(
                grpc.StatusCode.UNIMPLEMENTED,
                partial(call, b"", metadata=bearer(target.tokens["root"]), timeout=9),
            )


@attack("rights")
def lesser_token_of_an_administrator(target: Target) -> None:
    """An administrator's token with the role viewer, on calls for users and administrators"""
    token = target.call("CreateToken", pb.CreateTokenRequest(role="viewer"), "root").token
    assert target.call("WhoAmI", pb.WhoAmIRequest(), token=token).role == "viewer"
    for method in ("AddUser", "Cancel", "Drain", "Audit", "Logs"):
        target.refused(DENIED, method, requests(target)[method], token=token)
    target.refused(DENIED, "WhoAmI", pb.WhoAmIRequest(), token=token, acting_for="ann")


# ---- acting for others ----


@attack("rights")
def acting_as_a_user(target: Target) -> None:
    """A user acts for another"""
    assert "only operators" in refused_and_audited(target, DENIED, "WhoAmI", pb.WhoAmIRequest(), "bob", "ann")
    assert "only operators" in refused_and_audited(target, DENIED, "Cancel", requests(target)["Cancel"], "bob", "ann")


@attack("rights")
def acting_for_an_administrator(target: Target) -> None:
    """An operator acts for an administrator"""
    assert "above your own" in refused_and_audited(target, DENIED, "AddUser", pb.User(name="mallory"), "oda", "root")


@attack("rights")
def acting_for_a_disabled_user(target: Target) -> None:
    """An operator acts for a disabled user, and for one that never was"""
    name, _ = new_user(target)
    change = pb.ChangeUserRequest(user=pb.User(name=name, disabled=True), fields=["disabled"])
    target.call("ChangeUser", change, "root")
    for who in (name, "never-was", "*", "ANN"):
        assert "there is no user" in refused_and_audited(
            target, DENIED, "Submit", requests(target)["Submit"], "oda", who
        )


@attack("rights")
def chain_of_acting(target: Target) -> None:
    """Acting for two users at once, the second through the first"""
    with elsewhere(target) as caller:
        chain = [*bearer(target.tokens["oda"]), ("x-gavel-as", "ann"), ("x-gavel-as", "bob")]
        caller.refused(grpc.StatusCode.UNAUTHENTICATED, "WhoAmI", pb.WhoAmIRequest(), chain)
    for together in ("ann,bob", "ann bob", "ann;bob"):
        target.refused(DENIED, "WhoAmI", pb.WhoAmIRequest(), "oda", acting_for=together)


@attack("rights")
def operator_beyond_the_user(target: Target) -> None:
    """An operator keeps an operator's rights while acting for a user"""
    assert target.call("WhoAmI", pb.WhoAmIRequest(), "oda", acting_for="bob").role == "user"
    for method in ("Drain", "Audit", "ListUsers", "Cancel", "Logs"):
        refused_and_audited(target, DENIED, method, requests(target)[method], "oda", "bob")


@attack("rights")
def token_by_acting(target: Target) -> None:
    """An operator acts for a user to create a token of that user, which the audit could not tell from the user's own"""
    before = tokens_of(target, "bob")
    request = pb.CreateTokenRequest()
    assert "acting for others" in refused_and_audited(target, DENIED, "CreateToken", request, "oda", "bob")
    assert tokens_of(target, "bob") == before


@attack("rights")
def revoking_by_acting(target: Target) -> None:
    """An operator acts for a user to revoke the user's tokens"""
    mine = tokens_of(target, "bob")[0]
    refused_and_audited(target, DENIED, "RevokeToken", pb.RevokeTokenRequest(id=mine.id), "oda", "bob")
    assert target.call("WhoAmI", pb.WhoAmIRequest(), "bob").user == "bob"


# ---- tokens and users ----


def tokens_of(target: Target, user: str) -> list[pb.TokenView]:
    """All that does not change by using them."""
    found = target.call("ListTokens", pb.ListTokensRequest(user=user), "root").tokens
    return [pb.TokenView(id=token.id, role=token.role, user=token.user, revoked=token.revoked) for token in found]


@attack("rights")
def escalation_by_a_token(target: Target) -> None:
    """A token with more rights than its user has"""
    for user, roles in {"vic": ("user", "admin"), "bob": ("operator", "admin"), "oda": ("admin",)}.items():
        for role in roles:
            sentence = refused_and_audited(target, DENIED, "CreateToken", pb.CreateTokenRequest(role=role), user)
            assert "a token cannot have more" in sentence


@attack("rights")
def escalation_from_a_lesser_token(target: Target) -> None:
    """A viewer's token of a user makes itself a user's token"""
    token = target.call("CreateToken", pb.CreateTokenRequest(role="viewer"), "bob").token
    for role in ("user", ""):
        sentence = target.refused(DENIED, "CreateToken", pb.CreateTokenRequest(role=role), token=token)
        assert "you called with a token of the role viewer" in sentence


@attack("rights")
def token_for_another(target: Target) -> None:
    """A token for another user, by a user and by an operator"""
    for user in ("bob", "oda"):
        for owner in ("ann", "root"):
            refused_and_audited(target, DENIED, "CreateToken", pb.CreateTokenRequest(user=owner), user)


@attack("rights")
def join_token_as_a_user(target: Target) -> None:
    """A join token created by a user"""
    refused_and_audited(target, DENIED, "CreateToken", pb.CreateTokenRequest(role="agent"), "bob")


@attack("rights")
def join_token_in_another_name(target: Target) -> None:
    """A join token in another user's name, who would answer for the agents that use it"""
    request = pb.CreateTokenRequest(role="agent", user="bob")
    assert "your own name" in refused_and_audited(target, DENIED, "CreateToken", request, "oda")


@attack("rights")
def metrics_token_as_an_operator(target: Target) -> None:
    """A token for metrics created by an operator, and one with a role that does not exist"""
    refused_and_audited(target, DENIED, "CreateToken", pb.CreateTokenRequest(role="metrics"), "oda")
    target.refused(INVALID, "CreateToken", pb.CreateTokenRequest(role="root"), "root")
    target.refused(INVALID, "CreateToken", pb.CreateTokenRequest(role="ADMIN\0"), "root")


@attack("rights")
def tokens_that_never_expire(target: Target) -> None:
    """A token that is valid for ever, for a negative time, or for no number of seconds"""
    for seconds in (float("inf"), float("nan"), -1.0, 1e300, 0.001):
        target.refused(INVALID, "CreateToken", pb.CreateTokenRequest(seconds=seconds), "ann")
    target.refused(INVALID, "CreateToken", pb.CreateTokenRequest(role="agent", uses=2**32 - 1), "root")


@attack("rights")
def join_token_of_a_demoted_operator(target: Target) -> None:
    """A join token whose creator is no longer an operator, or was disabled"""
    for change in (pb.User(role="user"), pb.User(disabled=True)):
        name, token = new_user(target, "operator")
        join = target.call("CreateToken", pb.CreateTokenRequest(role="agent"), token=token).token
        change.name = name
        fields = ["disabled"] if change.disabled else ["role"]
        target.call("ChangeUser", pb.ChangeUserRequest(user=change, fields=fields), "root")
        with elsewhere(target) as caller:
            request = pb.EnrolRequest(
                join_token=join, agent="a1", name=f"of-{name}", signing_request=signing_request(new_key())
            )
            caller.refused(grpc.StatusCode.UNAUTHENTICATED, "Enrol", request)
        agents = target.call("ListAgents", pb.ListAgentsRequest(), "root").agents
        assert f"of-{name}" not in {agent.name for agent in agents}


@attack("rights")
def tokens_of_others(target: Target) -> None:
    """Listing the tokens of others, by name and with the asterisk"""
    for wanted in ("ann", "root", "*"):
        refused_and_audited(target, DENIED, "ListTokens", pb.ListTokensRequest(user=wanted), "bob")


@attack("rights")
def revoking_tokens_of_others(target: Target) -> None:
    """Revoking the tokens of others, by a user and by an operator"""
    views = {
        token.user: token.id for user in ("ann", "root") for token in tokens_of(target, user) if token.role != "agent"
    }
    for user, owner in (("bob", "ann"), ("oda", "root"), ("oda", "ann"), ("vic", "root")):
        refused_and_audited(target, DENIED, "RevokeToken", pb.RevokeTokenRequest(id=views[owner]), user)
    assert target.call("WhoAmI", pb.WhoAmIRequest(), "root").user == "root"


@attack("rights")
def the_last_administrator(target: Target) -> None:
    """Disabling or demoting the last administrator"""
    for change, field in (
        (pb.User(name="root", disabled=True), "disabled"),
        (pb.User(name="root", role="user"), "role"),
    ):
        request = pb.ChangeUserRequest(user=change, fields=[field])
        assert "only administrator" in target.refused(INVALID, "ChangeUser", request, "root")
    assert target.call("WhoAmI", pb.WhoAmIRequest(), "root").role == "admin"


@attack("rights")
def fields_that_do_not_change(target: Target) -> None:
    """Changing fields of a user that are not for changing, and roles that people cannot have"""
    for field in ("name", "created", "__class__", "digest", ""):
        request = pb.ChangeUserRequest(user=pb.User(name="bob"), fields=[field])
        assert "cannot be changed" in target.refused(INVALID, "ChangeUser", request, "root")
    for role in ("agent", "metrics", "god", ""):
        request = pb.ChangeUserRequest(user=pb.User(name="bob", role=role), fields=["role"])
        target.refused(INVALID, "ChangeUser", request, "root")


@attack("rights")
def users_that_look_alike(target: Target) -> None:
    """A user whose name looks like another's: other case, blanks, letters of other alphabets, invisible ones"""
    before = users(target)
    for name in (
        "Ann",
        "ANN",
        "ann ",
        " ann",
        "\u0430nn",
        "\uff41nn",
        "ann\u3164",
        "ann\u200b",
        "ann\u2800",
        "a\u0308nn",
    ):
        target.refused(INVALID, "AddUser", pb.User(name=name, role="user"), "root")
    assert users(target) == before


@attack("rights")
def names_that_mean_something_else(target: Target) -> None:
    """A user with a name that means more: all tokens, another user's keys, an option, a path, nothing"""
    for name in ("*", "ann:key", "-rf", "--as", "../root", "/", "", ".", "a b", "a,b", "x" * 10_000, "\0", "a\nb"):
        target.refused(INVALID, "AddUser", pb.User(name=name, role="user"), "root")


# ---- jobs of others ----


@attack("rights")
def cancelling_jobs_of_others(target: Target) -> None:
    """Cancelling another user's job, alone and hidden among one's own"""
    mine = target.call("Submit", requests(target)["Submit"], "bob").ids[0]
    for ids in ([target.job], [mine, target.job], [target.job, mine]):
        sentence = refused_and_audited(target, DENIED, "Cancel", pb.CancelRequest(ids=ids), "bob")
        assert "ann's" in sentence
    assert target.call("Describe", pb.DescribeRequest(id=mine), "bob").job.state == pb.QUEUED  # all or nothing
    target.call("Cancel", pb.CancelRequest(ids=[mine]), "bob")


@attack("rights")
def holding_releasing_and_requeueing_jobs_of_others(target: Target) -> None:
    """Holding, releasing and requeueing another user's job, alone and hidden among one's own"""
    mine = target.call("Submit", requests(target)["Submit"], "bob").ids[0]
    for method in ("Hold", "Release", "Requeue"):
        for ids in ([target.job], [mine, target.job]):
            assert "ann's" in refused_and_audited(target, DENIED, method, pb.JobsRequest(ids=ids), "bob")
    for job in (mine, target.job):
        assert target.call("Describe", pb.DescribeRequest(id=job), "bob").job.code != "held"
    held = target.call("Hold", pb.JobsRequest(ids=[mine]), "bob").jobs[0]
    assert (held.code, held.reason) == ("held", "held by bob")
    target.call("Cancel", pb.CancelRequest(ids=[mine]), "bob")


@attack("rights")
def logs_of_others(target: Target) -> None:
    """Reading the log of another team's job"""
    assert "its user, ann" in refused_and_audited(target, DENIED, "Logs", pb.LogsRequest(id=target.job), "bob")


@contextmanager
def terminal_of_ann(target: Target) -> Iterator[str]:
    """A job of ann's with a terminal, which waits."""
    job = pb.JobRequest(command=["sh"], types=["none"], terminal=True)
    found = str(target.call("Submit", pb.SubmitRequest(jobs=[job]), "ann").ids[0])
    yield found
    target.call("Cancel", pb.CancelRequest(ids=[found]), "ann")


def keys(job: str, **fields: Any) -> Iterator[pb.TerminalInput]:
    return iter([pb.TerminalInput(id=job, rows=24, columns=80, data=b"echo owned\n", **fields)])


@attack("rights")
def terminal_of_others(target: Target) -> None:
    """Typing at the terminal of another user's job, from another team, from the same team, and as its lead"""
    name, mate = new_user(target, team="nlp")
    with terminal_of_ann(target) as job:
        refused_and_audited(target, DENIED, "Terminal", keys(job), "vic")
        assert "its user, ann" in refused_and_audited(target, DENIED, "Terminal", keys(job), "bob")
        target.refused(DENIED, "Terminal", keys(job), token=mate)
        change = pb.ChangeUserRequest(user=pb.User(name=name, leads=["nlp"]), fields=["leads"])
        target.call("ChangeUser", change, "root")  # a lead may end the job, but not act with ann's rights
        target.refused(DENIED, "Terminal", keys(job), token=mate)


@attack("rights")
def terminal_of_a_job_without_one(target: Target) -> None:
    """Typing at a job that has no terminal"""
    told = target.refused(grpc.StatusCode.FAILED_PRECONDITION, "Terminal", keys(target.job), "ann")
    assert "has no terminal" in told


@attack("rights")
def operator_at_a_terminal(target: Target) -> None:
    """An operator at a user's terminal, unseen"""
    with terminal_of_ann(target) as job:
        target.call("Terminal", keys(job), "oda")
        eventually(
            lambda: any(
                (line.method, line.object, line.user) == ("Terminal", job, "oda")
                for line in target.call("Audit", pb.AuditQuery(), "root")
            ),
            "the audit names the operator",
        )


@attack("requests")
def windows_that_are_none(target: Target) -> None:
    """Terminals of absurd sizes, and ones that stay for absurd times"""
    with terminal_of_ann(target) as job:
        for rows, columns in ((2**32 - 1, 2**32 - 1), (0, 80), (24, 4097)):
            request = iter([pb.TerminalInput(id=job, rows=rows, columns=columns)])
            assert "1 to 4,096 rows" in target.refused(INVALID, "Terminal", request, "ann")
        for seconds in (float("nan"), float("inf"), -1.0, 1e300):
            assert "outlives" in target.refused(INVALID, "Terminal", keys(job, linger_seconds=seconds), "ann")


@attack("rights")
def private_logs_of_the_team(target: Target) -> None:
    """Reading the log and environment of a private job of one's own team"""
    _, mate = new_user(target, team="nlp")
    job = pb.JobRequest(command=["true"], types=["none"], private=True, environment={"KEY": "for-ann-alone"})
    mine = target.call("Submit", pb.SubmitRequest(jobs=[job]), "ann").ids[0]
    target.refused(DENIED, "Logs", pb.LogsRequest(id=mine), token=mate)
    assert "for-ann-alone" not in str(target.call("Describe", pb.DescribeRequest(id=mine), token=mate))
    assert "for-ann-alone" in str(target.call("Describe", pb.DescribeRequest(id=mine), "ann"))
    target.call("Cancel", pb.CancelRequest(ids=[mine]), "ann")


@attack("rights")
def checkpoints_of_others(target: Target) -> None:
    """Removing the checkpoints of another user's finished job"""
    mine = target.call("Submit", requests(target)["Submit"], "ann").ids[0]
    target.call("Cancel", pb.CancelRequest(ids=[mine]), "ann")
    request = pb.RemoveCheckpointsRequest(ids=[mine])
    refused_and_audited(target, DENIED, "RemoveCheckpoints", request, "bob")


@attack("rights")
def lead_of_a_similar_team(target: Target) -> None:
    """The lead of a team whose name begins like another's, or is below it, cancels that team's job"""
    name, token = new_user(target)
    for led in ("nl", "nlp2", "nlp/sub", "NLP", "vision"):
        change = pb.ChangeUserRequest(user=pb.User(name=name, leads=[led], teams=[led]), fields=["leads", "teams"])
        target.call("ChangeUser", change, "root")
        target.refused(DENIED, "Cancel", pb.CancelRequest(ids=[target.job]), token=token)
        target.refused(DENIED, "Logs", pb.LogsRequest(id=target.job), token=token)


@attack("rights")
def submitting_as_another(target: Target) -> None:
    """A submission that says it is another user's"""
    job = pb.JobRequest(command=["true"], types=["none"], user="ann")
    found = target.call("Submit", pb.SubmitRequest(jobs=[job]), "bob").ids[0]
    assert target.call("Describe", pb.DescribeRequest(id=found), "bob").job.request.user == "bob"
    target.call("Cancel", pb.CancelRequest(ids=[found]), "bob")


@attack("rights")
def submitting_for_another_team(target: Target) -> None:
    """A submission for a team that is not the user's"""
    for team in ("nlp", "nlp/sub", "vision2", "VISION", "nlp/vision", "/nlp", "*"):
        job = pb.JobRequest(command=["true"], entity=team)
        refusal([DENIED, INVALID], partial(target.call, "Submit", pb.SubmitRequest(jobs=[job]), "bob"))
    job = pb.JobRequest(command=["true"], entity="nlp")
    assert "your teams are vision" in refused_and_audited(target, DENIED, "Submit", pb.SubmitRequest(jobs=[job]), "bob")


@attack("rights")
def path_to_another_team(target: Target) -> None:
    """A submission for a path that begins at one's own team and leads to another"""
    job = pb.JobRequest(command=["true"], types=["none"], entity="vision/../nlp")
    found = target.call("Submit", pb.SubmitRequest(jobs=[job]), "bob").ids[0]
    names = [each.id for each in target.call("List", pb.JobQuery(entity="nlp"), "ann").jobs]
    assert found not in names  # dots mean nothing: it is a team below vision
    target.refused(DENIED, "Logs", pb.LogsRequest(id=found), "ann")
    target.call("Cancel", pb.CancelRequest(ids=[found]), "bob")


@attack("rights")
def weights_above_ones_own(target: Target) -> None:
    """A submission with more weight than a user may give, or with none that is a number"""
    for weight in (1.0001, 2.0, 1e300):
        job = pb.JobRequest(command=["true"], weight=weight)
        assert "weight" in refused_and_audited(target, DENIED, "Submit", pb.SubmitRequest(jobs=[job]), "ann")
    for weight in (-1.0, float("nan"), float("-inf"), 1e-300):
        target.refused(
            INVALID, "Submit", pb.SubmitRequest(jobs=[pb.JobRequest(command=["true"], weight=weight)]), "ann"
        )


@attack("rights")
def keys_of_others(target: Target) -> None:
    """The key of another user's submission, to learn its ids or to keep it from being submitted"""
    request = requests(target)["Submit"]
    request.key = "nightly"
    first = target.call("Submit", request, "ann").ids
    for key in ("nightly", "ann:nightly"):
        request.key = key
        assert set(target.call("Submit", request, "bob").ids).isdisjoint(first)
    request.key = "nightly"
    assert target.call("Submit", request, "ann").ids == first


# ---- limits ----


@attack("rights")
def limits_as_a_user(target: Target) -> None:
    """A user sets limits: one's own, another's, a team's, everyone's"""
    for kind, name in (("user", "bob"), ("user", "ann"), ("team", "vision"), ("default", "")):
        request = pb.LimitsOf(kind=kind, name=name, limits=UNCHANGED)
        refused_and_audited(target, DENIED, "SetLimits", request, "bob")
    assert not any(
        each.limits.unfinished_jobs for each in target.call("ListLimits", pb.ListLimitsRequest(), "root").limits
    )


@attack("rights")
def lead_raising_limits(target: Target) -> None:
    """A team's lead raises the team's limits, removes them, or sets those of another team"""
    name, token = new_user(target)
    change = pb.ChangeUserRequest(user=pb.User(name=name, leads=["lab"], teams=["lab"]), fields=["leads", "teams"])
    target.call("ChangeUser", change, "root")
    cap = pb.LimitsOf(kind="team", name="lab", limits=pb.Limits(unfinished_jobs=5))
    target.call("SetLimits", cap, "oda")
    for limit in (6, 0, 2**32 - 1):
        request = pb.LimitsOf(kind="team", name="lab", limits=pb.Limits(unfinished_jobs=limit))
        assert "may only lower" in target.refused(DENIED, "SetLimits", request, token=token)
        request = pb.LimitsOf(kind="team", name="lab/sub", limits=pb.Limits(unfinished_jobs=limit))
        target.refused(DENIED, "SetLimits", request, token=token)
    other = pb.LimitsOf(kind="team", name="nlp", limits=UNCHANGED)
    target.refused(DENIED, "SetLimits", other, token=token)
    limits = {each.name: each.limits for each in target.call("ListLimits", pb.ListLimitsRequest(), "root").limits}
    assert limits["lab"].unfinished_jobs == 5
    assert "nlp" not in limits or not limits["nlp"].unfinished_jobs


@attack("rights")
def limits_of_others_seen(target: Target) -> None:
    """Reading the limits and use of other users and teams"""
    seen = {(each.kind, each.name) for each in target.call("ListLimits", pb.ListLimitsRequest(), "bob").limits}
    assert ("user", "bob") in seen
    assert not seen & {("user", "ann"), ("team", "nlp")}


# ---- certificates of agents on calls of people ----


@attack("rights")
def agents_certificate_on_calls_of_people(target: Target) -> None:
    """An agent's certificate on calls of people, also together with an administrator's token"""
    keys = target.enrolled()
    with target.channel(keys=keys) as channel:
        for method in ("Submit", "List", "AddUser", "Logs", "Audit", "CreateToken"):
            request = (
                requests(target).get(method) or {"List": pb.JobQuery(), "CreateToken": pb.CreateTokenRequest()}[method]
            )
            for metadata in ([], bearer(target.tokens["root"])):
                call = getattr(GavelStub(channel), method)  # type: ignore[no-untyped-call]
                refusal(
                    DENIED,
                    partial(_answer, call, request, metadata),
                )


@attack("rights")
def agent_acting_for_a_user(target: Target) -> None:
    """An agent that acts for a user or an administrator"""
    keys = target.enrolled()
    with target.channel(keys=keys) as channel:
        for who in ("ann", "root", keys.name):
            metadata: Metadata = [("x-gavel-as", who)]
            call = GavelStub(channel).WhoAmI  # type: ignore[no-untyped-call]
            sentence = refusal(DENIED, partial(_answer, call, pb.WhoAmIRequest(), metadata))
            assert "only operators" in sentence


def _answer(call: Any, request: Any, metadata: Metadata) -> Any:
    reply = call(request, metadata=metadata)
    return list(reply) if hasattr(reply, "__next__") else reply


# ---- notifications ----

INNER_HOSTS = (
    *(
        "http://169.254.169.254/latest/meta-data",
        "https://169.254.169.254/",
        "https://2852039166/",
        "https://0xa9fea9fe/",
    ),
    *("https://[::ffff:169.254.169.254]/", "https://[::1]:7077/", "http://127.0.0.1:7077/", "https://localhost/"),
    *(f"https://x.{CHAT}@127.0.0.1/", f"https://127.0.0.1\\@x.{CHAT}/", f"https://127.0.0.1#.{CHAT}/"),
    *(f"https://{CHAT}/", f"https://evil{CHAT}/", f"https://x.{CHAT}.evil.example/", f"http://x.{CHAT}/"),
    *(f"https://x.{CHAT}:7077/", f"https://x.{CHAT}/\r\nHost: evil", f"https://x%2e{CHAT}/", "file:///etc/passwd"),
)


@attack("requests")
def notifications_to_hosts_that_are_not_listed(target: Target) -> None:
    """A job or a user has the scheduler call hosts that the operator has not listed, in many spellings"""

    def jobs_of_bob() -> list[str]:
        return [job.id for job in target.call("List", pb.JobQuery(user="bob"), "bob").jobs]

    own, before = requests(target)["Submit"].jobs[0], jobs_of_bob()
    for url in INNER_HOSTS:
        job = pb.JobRequest(command=own.command, types=own.types, notify=[f"https://x.{CHAT}/", url])
        sentence = target.refused(INVALID, "Submit", pb.SubmitRequest(jobs=[own, job]), "bob")
        assert len(sentence) < 400
        target.refused(INVALID, "SetNotifications", pb.Notifications(urls=[url]), "bob")
    assert not target.call("ShowNotifications", pb.NotificationsRequest(), "bob").urls
    assert jobs_of_bob() == before


@attack("rights")
def notifications_of_another_user(target: Target) -> None:
    """A user reads another's notification URLs and signing key, redirects them to itself, and tests them"""
    for method, request in (
        ("ShowNotifications", pb.NotificationsRequest(user="ann")),
        ("SetNotifications", pb.Notifications(user="ann", urls=[f"https://bob.{CHAT}/"])),
        ("TestNotifications", pb.NotificationsRequest(user="ann")),
    ):
        assert "for that user and operators" in refused_and_audited(target, DENIED, method, request, "bob")
    keys = {target.call("ShowNotifications", pb.NotificationsRequest(), user).signing_key for user in ("ann", "bob")}
    assert len(keys) == 2


@attack("secrets")
def paths_of_notification_urls(target: Target) -> None:
    """Reading the paths of another user's notification URLs, by which a chat knows its senders, in jobs and events"""
    url = f"https://x.{CHAT}/capability"
    target.call("SetNotifications", pb.Notifications(urls=[url]), "ann")
    job = pb.JobRequest(command=["true"], types=["none"], notify=[url])
    (made,) = target.call("Submit", pb.SubmitRequest(jobs=[job]), "ann").ids
    for user in ("bob", "vic"):
        seen = [target.call("Describe", pb.DescribeRequest(id=made), user), target.call("List", pb.JobQuery(), user)]
        seen += target.call("Events", pb.EventsRequest(), user)
        assert "(hidden)" in str(seen)
        assert "capability" not in str(seen)
    assert "capability" not in str(list(target.call("Audit", pb.AuditQuery(), "oda")))
    target.call("Cancel", pb.CancelRequest(ids=[made]), "ann")
    target.call("SetNotifications", pb.Notifications(), "ann")
