"""Attacks by requests: ids and names that are paths, numbers or controls, figures out of range, messages too large."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
from attacked_cluster import PATIENCE_SECONDS, Target, refusal
from attackers import PATH, bearer, elsewhere
from attacks import attack

from gavel.security.certificates import new_key, signing_request
from gavel.wire import gavel_pb2 as pb

ABSENT, INVALID = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT
EXHAUSTED, RANGE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OUT_OF_RANGE
LARGEST_32, LARGEST_64 = 2**32 - 1, 2**64 - 1
NAN, INFINITE = float("nan"), float("inf")
BAD_IDS = {
    "of 10,000 digits": ["9" * 10_000, "0" * 10_000 + "1"],
    "that are negative or not whole": ["-1", "+1", "1.0", "1e0", "0x1", "1_0", " 1", "1 ", "01"],
    "in digits of other alphabets": ["\uff11", "\u0661", "\u00b9", "\u2460", "\u09e7"],
    "that are paths": [
        "../1",
        "1/../1",
        "/etc/passwd",
        "..",
        ".",
        "logs/1",
        "%2e%2e",
        "1\\..\\1",
        "file:///etc/passwd",
    ],
    "with NUL and control characters": ["1\0", "\0", "1\n", "1\r\n2", "\x1b[2J1", "1\u202e"],
}
JOB_CALLS: dict[str, Callable[[str], Any]] = {
    "Logs": lambda job: pb.LogsRequest(id=job),
    "Terminal": lambda job: iter([pb.TerminalInput(id=job)]),
    "Describe": lambda job: pb.DescribeRequest(id=job),
    "Cancel": lambda job: pb.CancelRequest(ids=[job]),
    "RemoveCheckpoints": lambda job: pb.RemoveCheckpointsRequest(ids=[job]),
    "List": lambda job: pb.JobQuery(ids=[job]),
    "Watch": lambda job: pb.JobQuery(ids=[job]),
}


def plain(sentence: str) -> None:
    """Assert that a refusal is short, can be printed, and is a sentence of ours."""
    assert sentence.isprintable(), repr(sentence)
    assert len(sentence) < 500, len(sentence)
    assert "Unexpected" not in sentence, sentence
    assert "Traceback" not in sentence


def _bad_ids(kind: str, ids: list[str]) -> None:
    def play(target: Target) -> None:
        for method, request in JOB_CALLS.items():
            for job in ids:
                plain(target.refused(ABSENT, method, request(job), "ann"))

    play.__doc__ = f"Ids of jobs {kind}, in every call that takes one"
    attack("requests")(play)


for what, bad in BAD_IDS.items():
    _bad_ids(what, bad)


@attack("requests")
def ids_of_events(target: Target) -> None:
    """Ids and names in queries of events and of the audit that are paths, controls or SQL"""
    for text in (*BAD_IDS["that are paths"], "\0", "9" * 10_000, "' OR 1=1 --", '"; DROP TABLE facts; --', "%", "*"):
        assert target.call("Events", pb.EventsRequest(job=text), "ann") == []
        assert target.call("Events", pb.EventsRequest(server=text), "ann") == []
        assert target.call("Audit", pb.AuditQuery(job=text), "oda") == []
        assert target.call("Audit", pb.AuditQuery(user=text), "oda") == []
    assert target.call("Events", pb.EventsRequest(job=target.job), "ann")
    assert target.call("Audit", pb.AuditQuery(job=target.job), "oda")


@attack("requests")
def queries_as_sql(target: Target) -> None:
    """Names, teams and users in queries of jobs that are SQL or patterns"""
    for text in ("' OR '1'='1", "bystander' --", "%", "_", "*", "\0", "x" * 100_000):
        for query in (pb.JobQuery(names=[text]), pb.JobQuery(entity=text), pb.JobQuery(user=text)):
            assert not target.call("List", query, "ann").jobs
    assert target.call("List", pb.JobQuery(names=["bystander"]), "ann").jobs


@attack("requests")
def figures_of_queries(target: Target) -> None:
    """Numbers at the ends of their ranges, infinite ones and none at all, in queries"""
    queries = [pb.JobQuery(limit=LARGEST_32), pb.JobQuery(ended_after=NAN), pb.JobQuery(ended_after=-INFINITE)]
    queries += [
        pb.JobQuery(after=text) for text in ("1:" + "9" * 4_000, f"1:{LARGEST_64}", "nan:1", "inf:-1", "x", ":")
    ]
    queries += [
        pb.JobQuery.FromString(b"\x12\x01\x63"),  # a state that the protocol does not have
        pb.JobQuery(states=[pb.COMPLETED] * 50_000),
        pb.JobQuery(most_finished=LARGEST_32),
    ]
    for query in queries:
        assert isinstance(target.call("List", query, "ann"), pb.JobList)
    for after in (LARGEST_64, 2**63, 2**63 - 1):
        assert target.call("Events", pb.EventsRequest(after=after), "ann") == []
    for since in (NAN, INFINITE, -INFINITE, 1e308):
        target.call("Events", pb.EventsRequest(since=since, limit=1), "ann")
        target.call("Audit", pb.AuditQuery(since=since, limit=LARGEST_32), "oda")


@attack("requests")
def figures_of_logs(target: Target) -> None:
    """Ranks and places in a log that do not exist"""
    plain(target.refused(RANGE, "Logs", pb.LogsRequest(id=target.job, rank=1), "ann"))
    plain(target.refused(RANGE, "Logs", pb.LogsRequest(id=target.job, rank=LARGEST_32), "ann"))
    for request in (pb.LogsRequest(offset=LARGEST_64), pb.LogsRequest(offset=2**63), pb.LogsRequest(tail=LARGEST_64)):
        request.id = target.job
        assert sum(len(chunk.data) for chunk in target.call("Logs", request, "ann")) < 1_000_000


def refused_jobs(target: Target, jobs: list[pb.JobRequest], code: grpc.StatusCode = INVALID) -> None:
    before = len(target.call("List", pb.JobQuery(), "ann").jobs)
    for job in jobs:
        if not job.command:
            job.command.append("true")
        plain(target.refused(code, "Submit", pb.SubmitRequest(jobs=[job]), "ann"))
    assert len(target.call("List", pb.JobQuery(), "ann").jobs) == before


@attack("requests")
def options_in_environments(target: Target) -> None:
    """An image, a module or a virtual environment that would be an option, a command or a file of the server"""
    images = ["--privileged", "-v/:/host", "a --privileged", "a;id", "$(id)", "file:///etc", "http://169.254.169.254/"]
    modules = ["--help", "-f", "a;id", "$(id)", "`id`", "a b", "a\nb", "../*"]
    refused_jobs(target, [pb.JobRequest(container=image) for image in images])
    refused_jobs(target, [pb.JobRequest(modules=[module]) for module in modules])
    refused_jobs(target, [pb.JobRequest(venv="--system-site-packages"), pb.JobRequest(launcher="per-cluster")])


@attack("requests")
def endless_grace(target: Target) -> None:
    """A job that asks for so much time to save that a server could not be drained"""
    refused_jobs(target, [pb.JobRequest(grace_seconds=seconds) for seconds in (3601.0, 1e9, INFINITE, NAN, -1.0)])


@attack("requests")
def control_characters_in_a_job(target: Target) -> None:
    """Control characters, NUL and text that runs backwards in every name of a job"""
    for bad in ("a\x1b[31m", "a\0", "a\nb", "a\rb", "\u202ea", "a\u2028", "\x9b31m", "\x07"):
        refused_jobs(
            target,
            [
                pb.JobRequest(name=bad),
                pb.JobRequest(template=bad),
                pb.JobRequest(types=[bad]),
                pb.JobRequest(working_directory=bad),
                pb.JobRequest(environment={bad: "1"}),
                pb.JobRequest(secrets=[bad]),
            ],
        )
        team = pb.SubmitRequest(jobs=[pb.JobRequest(command=["true"], entity=f"nlp/{bad}")])
        plain(target.refused(INVALID, "Submit", team, "ann"))


@attack("requests")
def commands_with_nul(target: Target) -> None:
    """A command that is missing, empty, or has a NUL that would cut it"""
    before = len(target.call("List", pb.JobQuery(), "ann").jobs)
    for command in ([], [""], ["true\0rm"], ["true", "a\0b"], ["\0"]):
        plain(target.refused(INVALID, "Submit", pb.SubmitRequest(jobs=[pb.JobRequest(command=command)]), "ann"))
    assert len(target.call("List", pb.JobQuery(), "ann").jobs) == before


@attack("requests")
def figures_of_a_job(target: Target) -> None:
    """Figures of a job that are negative, infinite, no numbers, or beyond any cluster"""
    jobs = [pb.JobRequest(steps=value) for value in (-1.0, NAN, INFINITE, 1e300)]
    jobs += [pb.JobRequest(deadline_seconds=value) for value in (-1.0, NAN, INFINITE, 1e300)]
    jobs += [pb.JobRequest(workers=value) for value in (LARGEST_32, 2**31)]
    refused_jobs(target, [*jobs, pb.JobRequest(retries=LARGEST_32)])


@attack("requests")
def too_much_of_everything(target: Target) -> None:
    """A job with too many types or variables, or with names that are too long"""
    many = [pb.JobRequest(types=[f"t{number}" for number in range(20_000)]), pb.JobRequest(types=["a", "a"])]
    many += [pb.JobRequest(environment={f"V{number}": "" for number in range(20_000)})]
    long = "x" * 100_000
    many += [pb.JobRequest(name=long), pb.JobRequest(template=long), pb.JobRequest(working_directory=f"/{long}")]
    refused_jobs(target, [*many, pb.JobRequest(types=[long]), pb.JobRequest(secrets=[long])])


@attack("requests")
def variables_that_are_two(target: Target) -> None:
    """Names of variables and secrets that would set another one, or none"""
    refused_jobs(
        target,
        [
            pb.JobRequest(environment={"A=B": "1"}),
            pb.JobRequest(environment={"": "1"}),
            pb.JobRequest(environment={"A": "x\0B=1"}),
            pb.JobRequest(secrets=["A=B"]),
            pb.JobRequest(secrets=[""]),
            pb.JobRequest(secrets=["A", "A"]),
        ],
    )


@attack("requests")
def secrets_that_do_not_match(target: Target) -> None:
    """Secrets that the job does not name, without values, or for another number of jobs"""
    named = pb.JobRequest(command=["true"], secrets=["A"])
    requests = [
        pb.SubmitRequest(jobs=[named]),
        pb.SubmitRequest(jobs=[named], secrets=[pb.Secrets(values={"B": "hush-hush"})]),
        pb.SubmitRequest(jobs=[named], secrets=[pb.Secrets(values={"A": "hush-hush"})] * 2),
        pb.SubmitRequest(jobs=[pb.JobRequest(command=["true"])], secrets=[pb.Secrets(values={"A": "hush-hush"})]),
        pb.SubmitRequest(jobs=[named], secrets=[pb.Secrets(values={"A": "hush-hush\0"})]),
    ]
    for request in requests:
        sentence = target.refused(INVALID, "Submit", request, "ann")
        plain(sentence)
        assert "hush-hush" not in sentence


@attack("requests")
def keys_of_submissions(target: Target) -> None:
    """Keys of submissions that are too long or cannot be printed"""
    for key in ("x" * 100_000, "a\0", "\x1b[2J", "a\nb"):
        request = pb.SubmitRequest(jobs=[pb.JobRequest(command=["true"])], key=key)
        plain(target.refused(INVALID, "Submit", request, "ann"))


@attack("requests")
def too_many_at_once(target: Target) -> None:
    """More jobs or ids in one call than a call may have"""
    few = pb.SubmitRequest(jobs=[pb.JobRequest(command=["true"])] * 20_001)
    plain(target.refused(INVALID, "Submit", few, "ann"))
    many = [str(number) for number in range(200_001)]
    for method, request in (("Cancel", pb.CancelRequest(ids=many)), ("List", pb.JobQuery(ids=many))):
        plain(target.refused(INVALID, method, request, "ann"))


@attack("requests")
def messages_that_are_too_large(target: Target) -> None:
    """A message larger than any request"""
    job = pb.JobRequest(command=["x" * 100_000_000])
    sentence = target.refused(EXHAUSTED, "Submit", pb.SubmitRequest(jobs=[job]), "ann")
    assert "larger than max" in sentence


@attack("requests")
def bytes_that_are_no_message(target: Target) -> None:
    """Bytes that are no message, fields of wrong types, and fields that the protocol does not have"""
    with target.channel() as channel:
        for data in (b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"\x08\x01" * 10, b"\x0a\x02\xc3\x28"):
            call: Any = channel.unary_unary(f"{PATH}Describe")  # type: ignore[call-arg] # bytes as they are
            codes = [INVALID, ABSENT]  # some are messages without an id
            refusal(codes, partial(call, data, metadata=bearer(target.tokens["ann"]), timeout=30))


@attack("requests")
def bytes_before_a_login(target: Target) -> None:
    """Bytes that are no message without a login, to reach the parser: the caller is refused before they are parsed"""
    with elsewhere(target) as caller:
        for method in ("Describe", "Submit", "Events"):
            call: Any = caller.channel.unary_unary(f"{PATH}{method}")  # type: ignore[call-arg] # bytes as they are
            refusal(grpc.StatusCode.UNAUTHENTICATED, partial(call, b"\xff" * 100, timeout=30))
        assert {line.method for line in caller.audited()} == {"Describe", "Submit", "Events"}


@attack("requests")
def names_of_agents(target: Target) -> None:
    """Names of agents that are paths, controls or nothing, in every call that takes one"""
    for text in ("", "..", "../agent", "/", "9" * 10_000, "a\0", "a\x1b[2J", "' OR 1=1 --", "*", "GOOD", "good "):
        for method in ("Drain", "Undrain", "RemoveServer"):
            plain(refusal([ABSENT, INVALID], partial(target.call, method, pb.DrainRequest(agent=text), "oda")))
        plain(
            refusal([ABSENT, INVALID], partial(target.call, "RevokeAgent", pb.RevokeAgentRequest(agent=text), "root"))
        )
    assert [each.state for each in target.call("Cluster", pb.ClusterRequest(), "ann").servers if each.agent == "good"]


@attack("requests")
def ids_of_tokens(target: Target) -> None:
    """Ids of tokens that are paths, controls, prefixes of an id, or the token itself"""
    mine = target.call("ListTokens", pb.ListTokensRequest(), "ann").tokens[0].id
    token = target.tokens["ann"]
    for text in ("", "..", "*", "9" * 10_000, mine[:-1], mine.upper() + " ", f"{mine}\0", "\x1b[2J", token):
        sentence = target.refused(ABSENT, "RevokeToken", pb.RevokeTokenRequest(id=text), "ann")
        plain(sentence)
        assert token not in sentence
    assert target.call("WhoAmI", pb.WhoAmIRequest(), "ann").user == "ann"


@attack("requests")
def names_of_tokens(target: Target) -> None:
    """Names of tokens, users and teams that are too long or cannot be printed"""
    for text in ("x" * 100_000, "a\0", "\x1b[31m", "a\nb", "\u202e"):
        plain(target.refused(INVALID, "CreateToken", pb.CreateTokenRequest(name=text), "ann"))
        plain(target.refused(INVALID, "AddUser", pb.User(name=f"u{text}"), "root"))
        plain(target.refused(INVALID, "AddUser", pb.User(name="mallory", teams=[text]), "root"))
        plain(target.refused(INVALID, "AddUser", pb.User(name="mallory", leads=[text]), "root"))
        change = pb.ChangeUserRequest(user=pb.User(name="bob", teams=[text]), fields=["teams"])
        plain(target.refused(INVALID, "ChangeUser", change, "root"))
        plain(target.refused(INVALID, "SetLimits", pb.LimitsOf(kind="user", name=text), "oda"))
        plain(target.refused(INVALID, "SetLimits", pb.LimitsOf(kind=text), "oda"))


@attack("requests")
def figures_of_limits(target: Target) -> None:
    """Limits that are negative, infinite, no numbers, or a fraction of a job"""
    for value in (NAN, INFINITE, -1.0, 0.5):
        request = pb.LimitsOf(kind="user", name="bob", limits=pb.Limits(submissions_per_minute=value))
        plain(target.refused(INVALID, "SetLimits", request, "oda"))


@attack("requests")
def enrolment_without_proof(target: Target) -> None:
    """The one call without a login, with tokens that prove nothing and requests that are none"""
    request = signing_request(new_key())
    for token in ("", target.tokens["root"], "gvj_" + "A" * 43, "\0"):
        asked = pb.EnrolRequest(join_token=token, agent="a1", name="mallory", signing_request=request)
        codes = [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, INVALID]
        sentence = refusal(codes, partial(target.call, "Enrol", asked))
        plain(sentence)
        assert "gvl_" not in sentence
    names = {agent.name for agent in target.call("ListAgents", pb.ListAgentsRequest(), "root").agents}
    assert "mallory" not in names


@attack("requests")
def deadline_of_the_past(target: Target) -> None:
    """A submission whose caller is gone before it is answered, sent again with its key"""
    job = pb.JobRequest(command=["true"], types=["none"], name="impatient")
    request = pb.SubmitRequest(jobs=[job], key="impatient")
    with target.channel() as channel:
        call: Any = channel.unary_unary(f"{PATH}Submit", pb.SubmitRequest.SerializeToString, pb.SubmitReply.FromString)
        for _ in range(5):
            call.future(request, metadata=bearer(target.tokens["ann"]), timeout=PATIENCE_SECONDS).cancel()
    target.call("Submit", request, "ann")
    assert len(target.call("List", pb.JobQuery(names=["impatient"]), "ann").jobs) == 1
