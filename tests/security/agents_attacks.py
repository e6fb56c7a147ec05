"""Attacks by an enrolled agent: messages about jobs of others, forged figures, and offers that no server has."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
from attack_tools import events_after, last_event, log_of, untouched
from attacked_cluster import AgentKeys, Stream, Target, eventually, hello_of, refusal
from attacks import attack

from gavel.wire import PROTOCOL
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

DONE, LEFT, CRASHED = pb.TaskEnded.DONE, pb.TaskEnded.LEFT, pb.TaskEnded.CRASHED
LARGEST = 2**32 - 1
PROMPT_SECONDS = 5.0
"""How long an answer to another user may take while an agent misbehaves."""


# ---- tools ----


def submitted(target: Target, kind: str, user: str = "bob", **fields: Any) -> str:
    """Submit a job that runs only on this type."""
    job = pb.JobRequest(**{"command": ["true"], "workers": 1, "weight": 1.0, "types": [kind], **fields})
    return str(target.call("Submit", pb.SubmitRequest(jobs=[job]), user).ids[0])


def view_of(target: Target, job: str) -> pb.JobView:
    return target.call("Describe", pb.DescribeRequest(id=job), "root").job  # type: ignore[no-any-return]


@contextmanager
def serving(target: Target, kind: str, keys: AgentKeys | None = None, **hello: Any) -> Iterator[Stream]:
    """A hostile agent with an accelerator of a type of its own, so that it gets the jobs that ask for it."""
    offered = [pb.Accelerators(type=kind, count=1)]
    with target.attached(keys or target.enrolled(), **{"draining": False, "accelerators": offered, **hello}) as stream:
        yield stream


@contextmanager
def holding(target: Target, keys: AgentKeys | None = None, **hello: Any) -> Iterator[tuple[Stream, str]]:
    """A hostile agent that holds the first attempt of a job of bob's."""
    kind = f"x{uuid4().hex[:8]}"
    with serving(target, kind, keys, **hello) as stream:
        job = submitted(target, kind)
        assert stream.hear("start").job == job
        try:
            yield stream, job
        finally:
            target.call("Cancel", pb.CancelRequest(ids=[job]), "root")


@contextmanager
def idle(target: Target) -> Iterator[Stream]:
    """A hostile agent without jobs."""
    with target.attached(target.enrolled()) as stream:
        yield stream


def status(job: str, attempt: Any = 1, **figures: Any) -> pb.TaskStatus:
    return pb.TaskStatus(job=job, attempt=attempt, **figures)


def is_closed(stream: Stream) -> bool:
    """Whether the scheduler ends a stream; reads it to its end."""
    try:
        for message in stream._call:
            assert message.WhichOneof("message") != "ack"
    except grpc.RpcError as error:
        return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
    return True


def prompt(target: Target) -> None:
    """Another user is answered soon."""
    before = time.monotonic()
    target.call("List", pb.JobQuery(), "vic")
    assert time.monotonic() - before < PROMPT_SECONDS


def types_of(target: Target) -> set[str]:
    return {view.name for view in target.call("Cluster", pb.ClusterRequest(), "root").types}


def servers(target: Target) -> dict[str, pb.ServerView]:
    return {view.name: view for view in target.call("Cluster", pb.ClusterRequest(), "root").servers}


# ---- who speaks ----


@attack("agents")
def identity_of_another(target: Target) -> None:
    """A hello with the identity of another agent"""
    good = servers(target)["good"].agent
    with untouched(target):
        assert "the certificate is for agent" in target.attach_refused(target.enrolled(), agent=good)


@attack("agents")
def name_of_another(target: Target) -> None:
    """A hello with the name of another agent"""
    with untouched(target):
        assert "the certificate is for the name" in target.attach_refused(target.enrolled(), name="good")
    assert servers(target)["good"].state == "connected"


@attack("agents")
def no_identity(target: Target) -> None:
    """A hello without an identity, as agents of old versions sent it, with the name of another agent"""
    assert "the certificate is for agent" in target.attach_refused(target.enrolled(), agent="", name="good")
    assert "the certificate is for agent" in target.attach_refused(target.enrolled(), agent="")


@attack("agents")
def second_connection(target: Target) -> None:
    """A second connection with the same certificate, while the first one holds a job"""
    keys = target.enrolled()
    with holding(target, keys) as (stream, job):
        stream.say(heartbeat=pb.Heartbeat(tasks=[status(job)]))
        stream.settle()
        assert "attached already" in target.attach_refused(keys)
        stream.say(heartbeat=pb.Heartbeat(tasks=[status(job)]))
        stream.settle()
        view = view_of(target, job)
        assert (view.state, view.attempts) == (pb.RUNNING, 1)


@attack("agents")
def message_before_hello(target: Target) -> None:
    """An end of another agent's job as the first message, before the hello"""
    keys = target.enrolled()
    with untouched(target), target.channel(keys=keys) as channel:
        stream = Stream(GavelStub(channel))  # type: ignore[no-untyped-call]
        stream.say(ended=pb.TaskEnded(status=status(target.job), how=DONE))
        told = refusal(grpc.StatusCode.INVALID_ARGUMENT, lambda: stream.hear("ack"))
        stream.close()
    assert "hello" in told


@attack("agents")
def second_hello(target: Target) -> None:
    """A second hello on the same stream, with another agent's name and more accelerators"""
    keys = target.enrolled()
    with target.attached(keys) as stream:
        more = [pb.Accelerators(type="v100", count=4000)]
        stream.say(hello=hello_of(keys, name="good", agent=servers(target)["good"].agent, accelerators=more))
        stream.settle()
        assert (servers(target)["good"].accelerators, servers(target)[keys.name].accelerators) == (1, 1)


@attack("agents")
def wrong_protocols(target: Target) -> None:
    """Protocol numbers of the past and of the future"""
    keys = target.enrolled()
    for number in (0, PROTOCOL - 1, PROTOCOL + 1, LARGEST):
        assert f"speaks protocol {number} " in target.attach_refused(keys, protocol=number)
    assert keys.name not in servers(target)


@attack("agents")
def later_term(target: Target) -> None:
    """A hello that claims to have seen a later scheduler, to make this one resign"""
    term = target.call("Cluster", pb.ClusterRequest(), "root").term
    assert "a later scheduler" in target.attach_refused(target.enrolled(), term=2**64 - 1)
    assert target.call("Cluster", pb.ClusterRequest(), "root").term == term
    submitted(target, "k80")


@attack("agents")
def tasks_of_another_cluster(target: Target) -> None:
    """A hello with tasks that another cluster gave"""
    told = target.attach_refused(target.enrolled(), cluster="f" * 16, tasks=[status(target.job)])
    assert "another cluster" in told


@attack("agents")
def escapes_in_a_hello(target: Target) -> None:
    """Terminal escapes in the version, address, incarnation and cluster id of a hello"""
    keys = target.enrolled()
    for name in ("version", "address", "incarnation", "cluster"):
        told = target.attach_refused(keys, **{name: "\x1b]0;owned\x07"})
        assert "cannot be printed" in told
        assert told.isprintable()


@attack("agents")
def drains_another(target: Target) -> None:
    """An agent that says it leaves, hoping that others are drained"""
    keys = target.enrolled()
    with untouched(target), target.attached(keys, draining=False) as stream:
        stream.say(draining=pb.Draining())
        eventually(lambda: servers(target)[keys.name].state in {"draining", "drained"}, "the agent itself is drained")
        assert servers(target)["good"].state == "connected"


# ---- words about jobs of others ----


@attack("agents")
def progress_of_anothers_job(target: Target) -> None:
    """Heartbeats with progress of a job that another agent holds"""
    with untouched(target), idle(target) as stream:
        for rank in (0, 1):
            figures = {"counts": True, "steps": 1e12, "measured_steps": 1e12, "measured_seconds": 60.0}
            stream.say(heartbeat=pb.Heartbeat(tasks=[status(target.job, rank=rank, **figures)]))
        stream.settle()
        assert stream.number
        assert view_of(target, target.job).steps_done < 1e9


@attack("agents")
def end_of_anothers_job(target: Target) -> None:
    """Ends of a job that another agent holds: done, left and crashed without hope"""
    with untouched(target), idle(target) as stream:
        for how in (DONE, LEFT, CRASHED, pb.TaskEnded.HOW_UNSPECIFIED):
            stream.say(ended=pb.TaskEnded(status=status(target.job), how=how, reason="owned", hopeless=True))
        stream.settle()


@attack("agents")
def end_of_every_attempt(target: Target) -> None:
    """Ends of attempts that another agent's job has not had yet, and of attempt 0"""
    with untouched(target), idle(target) as stream:
        for attempt in (0, 2, 3, LARGEST):
            stream.say(ended=pb.TaskEnded(status=status(target.job, attempt), how=DONE))
        stream.settle()


@attack("agents")
def output_of_anothers_job(target: Target) -> None:
    """Output in the name of a job that another agent holds"""
    with untouched(target), idle(target) as stream:
        for attempt, rank in ((1, 0), (2, 0), (0, 0), (1, 1), (LARGEST, LARGEST)):
            stream.say(log=pb.TaskLog(job=target.job, attempt=attempt, rank=rank, data=b"owned", begin=0))
        stream.settle()
        assert b"owned" not in log_of(target, target.job)
        assert "owned" not in target.gavel("logs", target.job).stdout


@attack("agents")
def start_of_anothers_job(target: Target) -> None:
    """A rendezvous for a job that another agent holds"""
    with untouched(target), idle(target) as stream:
        stream.say(started=_rendezvous(target.job))
        stream.settle()


def _rendezvous(job: str, **fields: Any) -> pb.TaskStarted:
    given = {
        "attempt": 1,
        "master_address": "203.0.113.6",
        "master_port": 6666,
        "gang_port": 6667,
        "gang_token": "false",
    }
    return pb.TaskStarted(job=job, **{**given, **fields})


@attack("agents")
def strays_of_anothers_job(target: Target) -> None:
    """A hello and heartbeats that claim to run another agent's attempt as well"""
    tasks = [status(target.job, attempt) for attempt in (1, 2, 0)]
    with untouched(target), target.attached(target.enrolled(), tasks=tasks) as stream:
        assert stream.hear("stop").job == target.job  # the liar is told to stop, the holder is not
        stream.say(heartbeat=pb.Heartbeat(tasks=tasks))
        stream.settle()


@attack("agents")
def strays_that_block_a_start(target: Target) -> None:
    """Claims to run a job that has not started yet, so that it would never start elsewhere"""
    kind = f"x{uuid4().hex[:8]}"
    with idle(target) as stream:
        job = submitted(target, kind)
        tasks = [status(job, attempt) for attempt in range(4)]
        stream.say(heartbeat=pb.Heartbeat(tasks=tasks))
        stream.settle()
        with serving(target, kind) as honest:
            assert honest.hear("start").job == job
            honest.say(ended=pb.TaskEnded(status=status(job), how=DONE))
            eventually(lambda: view_of(target, job).state == pb.COMPLETED, "the job finishes elsewhere")


@attack("agents")
def future_jobs(target: Target) -> None:
    """An end and output for jobs that will be submitted next"""
    with idle(target) as stream:
        following = int(submitted(target, "nowhere")) + 1
        for job in map(str, range(following, following + 20)):
            stream.say(ended=pb.TaskEnded(status=status(job), how=DONE))
            stream.say(log=pb.TaskLog(job=job, attempt=1, data=b"owned"))
        stream.settle()
        job = submitted(target, "nowhere")
        assert following <= int(job) < following + 20
        assert (view_of(target, job).state, log_of(target, job)) == (pb.QUEUED, b"")


@attack("agents")
def finished_jobs(target: Target) -> None:
    """Output, progress and another end for a job that finished at another agent"""
    with holding(target) as (honest, job):
        honest.say(log=pb.TaskLog(job=job, attempt=1, data=b"the truth\n"))
        honest.say(ended=pb.TaskEnded(status=status(job), how=DONE))
        eventually(lambda: view_of(target, job).state == pb.COMPLETED, "the job finishes")
        with idle(target) as stream:
            before = view_of(target, job)
            stream.say(log=pb.TaskLog(job=job, attempt=1, data=b"a lie\n", begin=10))
            stream.say(log=pb.TaskLog(job=job, attempt=2, data=b"a lie\n"))
            stream.say(heartbeat=pb.Heartbeat(tasks=[status(job, counts=True, steps=7.0)]))
            stream.say(ended=pb.TaskEnded(status=status(job), how=CRASHED, reason="a lie"))
            stream.settle()
            assert (view_of(target, job), log_of(target, job)) == (before, b"the truth\n")


@attack("agents")
def end_again_and_again(target: Target) -> None:
    """A thousand repetitions of a job's end with other outcomes, by the agent that held it"""
    with holding(target) as (stream, job):
        before = last_event(target)
        stream.say(ended=pb.TaskEnded(status=status(job), how=DONE))
        for how in (CRASHED, LEFT) * 500:
            stream.say(ended=pb.TaskEnded(status=status(job), how=how, reason="a lie"))
        stream.settle()
        eventually(lambda: view_of(target, job).state == pb.COMPLETED, "the job finishes")
        closed = [line for line in events_after(target, before) if line.kind == "attempt_closed"]
        assert len(closed) == 1
        assert "lie" not in view_of(target, job).reason


@attack("agents")
def holder_of_an_earlier_attempt(target: Target) -> None:
    """The agent of an earlier attempt, which speaks for the attempt that runs elsewhere now"""
    kind = f"x{uuid4().hex[:8]}"
    with serving(target, kind) as first:
        job = submitted(target, kind)
        first.hear("start")
        with serving(target, kind) as second:
            first.say(draining=pb.Draining())
            first.say(ended=pb.TaskEnded(status=status(job), how=LEFT))
            assert second.hear("start").attempt == 2
            first.say(ended=pb.TaskEnded(status=status(job, 2), how=DONE))
            first.say(log=pb.TaskLog(job=job, attempt=2, data=b"a lie"))
            first.settle()
            view = view_of(target, job)
            assert (view.state, view.attempts, log_of(target, job)) == (pb.RUNNING, 2, b"")
            target.call("Cancel", pb.CancelRequest(ids=[job]), "root")


# ---- gangs ----


@contextmanager
def gang(target: Target) -> Iterator[tuple[Stream, Stream, str]]:
    """Two hostile agents with one rank each of a job: the leader has been told to start, the other waits."""
    kind, keys = f"x{uuid4().hex[:8]}", [target.enrolled() for _ in range(2)]
    with ExitStack() as stack:
        streams = {each.name: stack.enter_context(serving(target, kind, each)) for each in keys}
        job = submitted(target, kind, workers=2)
        eventually(lambda: view_of(target, job).state == pb.RUNNING, "the gang is placed")
        leader, other = [streams[place.server] for place in view_of(target, job).places]
        assert leader.hear("start").first_rank == 0
        try:
            yield leader, other, job
        finally:
            target.call("Cancel", pb.CancelRequest(ids=[job]), "root")


@attack("agents")
def redirected_rendezvous(target: Target) -> None:
    """A rendezvous from an agent of the gang that does not hold its first rank"""
    with gang(target) as (leader, other, job):
        for rank in (0, 1):
            other.say(started=_rendezvous(job, rank=rank))
        other.settle()
        leader.say(started=_rendezvous(job, master_address="192.0.2.1", master_port=1000))
        start = other.hear("start")
        assert (start.master_address, start.master_port) == ("192.0.2.1", 1000)


@attack("agents")
def rendezvous_that_is_none(target: Target) -> None:
    """A rendezvous with ports beyond all ports and an address with escapes"""
    forged: list[dict[str, Any]] = [
        {"master_port": 70_000},
        {"gang_port": LARGEST},
        {"master_address": "\x1b[2J"},
        {"gang_token": "x" * 9999},
    ]
    with gang(target) as (leader, other, job):
        for fields in forged:
            message = _rendezvous(job)
            message.MergeFrom(pb.TaskStarted(**fields))
            leader.say(started=message)
        leader.settle()
        leader.say(started=_rendezvous(job, master_address="192.0.2.1"))
        assert other.hear("start").master_address == "192.0.2.1"


@attack("agents")
def rank_of_another(target: Target) -> None:
    """An end, output and progress for a rank of the same gang that another agent holds"""
    with gang(target) as (leader, other, job):
        leader.say(started=_rendezvous(job))
        other.hear("start")
        other.say(heartbeat=pb.Heartbeat(tasks=[status(job, counts=True, steps=1e9), status(job, rank=1)]))
        other.say(log=pb.TaskLog(job=job, attempt=1, rank=0, data=b"a lie"))
        for rank in (0, 2, LARGEST):
            other.say(ended=pb.TaskEnded(status=status(job, rank=rank), how=DONE))
        other.settle()
        view = view_of(target, job)
        assert (view.state, view.steps_done, log_of(target, job)) == (pb.RUNNING, 0.0, b"")


@attack("agents")
def gang_token_of_others(target: Target) -> None:
    """An agent outside a gang that claims a rank, to be told where the gang meets and its token"""
    with gang(target) as (leader, other, job), idle(target) as stream:
        leader.say(started=_rendezvous(job))
        other.hear("start")
        stream.say(heartbeat=pb.Heartbeat(tasks=[status(job, rank=1)]))
        stream.say(started=_rendezvous(job, rank=1))
        assert _all_heard(stream) == {"stop", "ack"}


def _all_heard(stream: Stream) -> set[str]:
    """Every kind of message that comes before the answer to a last one."""
    stream.say(ended=pb.TaskEnded(status=status("none")))
    kinds = set()
    for message in stream._call:
        kinds.add(message.WhichOneof("message"))
        if message.WhichOneof("message") == "ack" and message.ack.number == stream.number:
            break
    return kinds


@attack("agents")
def secrets_of_others(target: Target) -> None:
    """An agent that claims a job of another agent, to be sent its secrets"""
    kind = f"x{uuid4().hex[:8]}"
    request = pb.JobRequest(command=["true"], workers=1, weight=1.0, types=[kind], secrets=["KEY"])
    values = [pb.Secrets(values={"KEY": "not for you"})]
    job = target.call("Submit", pb.SubmitRequest(jobs=[request], secrets=values), "bob").ids[0]
    with target.attached(target.enrolled(), tasks=[status(job)]) as stream, serving(target, kind) as honest:
        assert honest.hear("start").secrets["KEY"] == "not for you"
        stream.say(heartbeat=pb.Heartbeat(tasks=[status(job)]))
        stream.say(started=_rendezvous(job))
        assert "start" not in _all_heard(stream)
        target.call("Cancel", pb.CancelRequest(ids=[job]), "root")


# ---- figures and offers ----


@attack("agents")
def impossible_figures(target: Target) -> None:
    """Progress and measured rates that are infinite, not numbers, negative or beyond all bounds"""
    with holding(target) as (stream, job):
        for wrong in (math.nan, math.inf, -math.inf, -1.0, 1e300):
            for name in ("steps", "saved_steps", "measured_steps", "measured_seconds"):
                figures = {"steps": 1.0, "measured_steps": 5.0, "measured_seconds": 5.0, name: wrong}
                stream.say(heartbeat=pb.Heartbeat(tasks=[status(job, counts=True, **figures)]))
        stream.settle()
        wrong_end = status(job, counts=True, steps=math.nan, saved_steps=math.inf)
        stream.say(ended=pb.TaskEnded(status=wrong_end, how=DONE))
        eventually(lambda: view_of(target, job).state == pb.COMPLETED, "the job's end counts")
        detail = target.call("Describe", pb.DescribeRequest(id=job), "root")
        assert detail.job.steps_done == 0.0
        assert all(math.isfinite(rate) for rate in detail.rates.values())


@attack("agents")
def fastest_server_of_all(target: Target) -> None:
    """A measured rate at the edge of what is allowed, for a job of its own, to draw others' jobs to itself"""
    with untouched(target), holding(target) as (stream, job):
        figures = {"counts": True, "steps": 1e15, "measured_steps": 1e15, "measured_seconds": 0.6}
        stream.say(heartbeat=pb.Heartbeat(tasks=[status(job, **figures)]))
        stream.settle()
        stream.say(ended=pb.TaskEnded(status=status(job), how=DONE))
        eventually(lambda: view_of(target, job).state == pb.COMPLETED, "the job's end counts")
        rates = target.call("Describe", pb.DescribeRequest(id=target.job), "root").rates
        assert all(math.isfinite(rate) for rate in rates.values())
        assert view_of(target, target.job).places[0].server == "good"


def _offers(*counts: tuple[str, int]) -> list[pb.Accelerators]:
    return [pb.Accelerators(type=kind, count=count) for kind, count in counts]


@attack("agents")
def thousands_of_types(target: Target) -> None:
    """An offer of 20,000 types of accelerators"""
    before = types_of(target)
    told = target.attach_refused(target.enrolled(), accelerators=_offers(*((f"t{each}", 1) for each in range(20_000))))
    assert "at most 64 types" in told
    assert types_of(target) == before


@attack("agents")
def millions_of_accelerators(target: Target) -> None:
    """Offers of two million accelerators, of 4,294,967,295, and of 4,097 in two types"""
    keys = target.enrolled()
    for offer in ([("k80", 2_000_000)], [("k80", LARGEST)], [("k80", 4096), ("p100", 1)]):
        assert "at most 4,096 accelerators" in target.attach_refused(keys, accelerators=_offers(*offer))
    assert keys.name not in servers(target)


@attack("agents")
def offers_of_nothing(target: Target) -> None:
    """Offers without accelerators, of none of a type, and of a type without a name"""
    keys = target.enrolled()
    assert "at least one accelerator" in target.attach_refused(keys, accelerators=[])
    assert "no accelerator of type" in target.attach_refused(keys, accelerators=_offers(("k80", 0)))
    assert "has no name" in target.attach_refused(keys, accelerators=_offers(("", 1)))


@attack("agents")
def type_twice(target: Target) -> None:
    """An offer of the same type twice, with more accelerators in sum than an agent may have"""
    assert "twice" in target.attach_refused(target.enrolled(), accelerators=_offers(("k80", 4096), ("k80", 4096)))


@attack("agents")
def types_with_escapes(target: Target) -> None:
    """Types with terminal escapes, line breaks, and 10,000 characters"""
    keys = target.enrolled()
    for kind in ("\x1b[31mv100", "v100\n", "v\0", "\u202e001v", "x" * 10_000):
        told = target.attach_refused(keys, accelerators=_offers((kind, 1)))
        assert told.isprintable()
        assert len(told) < 1000


@attack("agents")
def new_types_with_every_connection(target: Target) -> None:
    """An agent that connects again and again, each time with 64 types that no one has seen"""
    keys = target.enrolled()
    before, tolds = types_of(target), []
    for _ in range(30):
        offered = _offers(*((f"t{uuid4().hex[:8]}", 1) for _ in range(64)))
        with target.channel(keys=keys) as channel:
            stream = Stream(GavelStub(channel))  # type: ignore[no-untyped-call]
            stream.say(hello=hello_of(keys, accelerators=offered, incarnation="same"))
            tolds.append(next(iter(stream._call)).refused.reason)
            stream.close()
    assert "types of accelerators" in tolds[-1]
    prompt(target)
    assert len(types_of(target)) <= len(before) + 256


# ---- messages that are too large, or none ----


@attack("agents")
def unknown_messages(target: Target) -> None:
    """Messages of kinds that do not exist, and without content"""
    with idle(target) as stream:
        strange = pb.FromAgent.FromString(b"\xa2\x06\x05hello" + b"\xf8\xff\xff\xff\x0f\x01")
        for message in (pb.FromAgent(), strange, pb.FromAgent(number=2**64 - 1)):
            stream._said.put(message)
        stream.settle()


@attack("agents")
def undecodable_message(target: Target) -> None:
    """Bytes that are no message at all"""
    keys = target.enrolled()
    with untouched(target), target.channel(keys=keys) as channel:
        attach = channel.stream_stream("/gavel.v1.Gavel/Attach", bytes, bytes)
        end = pb.FromAgent(number=3, ended=pb.TaskEnded(status=status("none"))).SerializeToString()
        sent = iter([hello_bytes(keys), b"\xff" * 1000, end])
        assert not any(pb.ToAgent.FromString(heard).HasField("ack") for heard in attach(sent, timeout=20))
    with target.attached(keys):
        pass


def hello_bytes(keys: AgentKeys) -> bytes:
    return pb.FromAgent(number=1, hello=hello_of(keys)).SerializeToString()


@attack("agents")
def message_beyond_the_limit(target: Target) -> None:
    """A message of five megabytes"""
    with idle(target) as stream:
        stream.say(log=pb.TaskLog(job=target.job, attempt=1, data=bytes(5 * 2**20)))
        refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: stream.hear("ack"))


@attack("agents")
def ids_of_ten_thousand_digits(target: Target) -> None:
    """Jobs whose ids have 10,000 digits, in every message"""
    job = "9" * 10_000
    with idle(target) as stream:
        stream.say(heartbeat=pb.Heartbeat(tasks=[status(job)]))
        stream.say(started=_rendezvous(job))
        stream.say(log=pb.TaskLog(job=job, attempt=1, data=b"x"))
        stream.say(checkpoints=pb.CheckpointsHandled(through=1, removed=[job], kept={job: job}))
        stream.say(ended=pb.TaskEnded(status=status(job), how=DONE))
        stream.settle()
    assert job not in target.log("scheduler")


@attack("agents")
def millions_of_tasks(target: Target) -> None:
    """A heartbeat of four megabytes, with a task in every two bytes"""
    with idle(target) as stream:
        stream.say(heartbeat=pb.Heartbeat(tasks=[pb.TaskStatus()] * 2_000_000))
        prompt(target)
        assert is_closed(stream)


@attack("agents")
def hello_with_millions_of_tasks(target: Target) -> None:
    """A hello of four megabytes, with a task in every two bytes"""
    keys = target.enrolled()
    with target.channel(keys=keys) as channel:
        stream = Stream(GavelStub(channel))  # type: ignore[no-untyped-call]
        stream.say(hello=hello_of(keys, tasks=[pb.TaskStatus()] * 1_900_000))
        prompt(target)
        assert "at most 16,384 tasks" in stream.hear("refused").reason
        stream.close()


# ---- logs ----


def _files(target: Target) -> set[Path]:
    """Every file of the scheduler apart from logs and its database, and whatever lies beside its folder."""
    found = {path for path in target.folder.rglob("*") if not path.is_relative_to(target.folder / "agent")}
    return {path for path in found if "journal" not in path.name and "checkpoints" not in str(path)}


@attack("agents")
def logs_elsewhere(target: Target) -> None:
    """Output for jobs whose ids are paths: with dots, absolute, with NUL, empty"""
    paths = (
        "..",
        "../../owned",
        str(target.folder / "owned"),
        "1/../../owned",
        "1\0",
        "",
        ".",
        "~",
        "*",
        "٣",
        " 1",
        "+1",
        "1\n",
    )
    before = _files(target)
    with holding(target) as (stream, _):
        for job in paths:
            for attempt in (0, 1):
                stream.say(log=pb.TaskLog(job=job, attempt=attempt, data=b"owned"))
        stream.settle()
        assert _files(target) == before


@attack("agents")
def log_of_a_rank_beyond(target: Target) -> None:
    """Output of ranks and attempts that its own job does not have"""
    with holding(target) as (stream, job):
        for attempt, rank in ((1, 1), (1, LARGEST), (2, 0), (LARGEST, 0), (0, 0)):
            stream.say(log=pb.TaskLog(job=job, attempt=attempt, rank=rank, data=b"owned"))
        stream.settle()
        assert not list((target.folder / "state").rglob(f"logs/{job}/*"))


@attack("agents")
def log_from_the_end_of_all_bytes(target: Target) -> None:
    """Output of its own job that begins at byte 18,446,744,073,709,551,615, then at 0 again"""
    with holding(target) as (stream, job):
        for begin in (2**64 - 1, 2**63, 0, 2**64 - 1):
            stream.say(log=pb.TaskLog(job=job, attempt=1, begin=begin, data=b"x"))
        stream.settle()
        kept = log_of(target, job)
        assert kept.endswith(b"x")
        assert len(kept) < 1000
        for offset in (0, 2**63, 2**64 - 1):
            assert len(target.call("Logs", pb.LogsRequest(id=job, offset=offset, tail=2**64 - 1), "root")) <= 1


@attack("agents")
def log_in_thousands_of_files(target: Target) -> None:
    """Output of its own job with a gap before every byte, so that each gets a file of its own"""
    with holding(target) as (stream, job):
        for number in range(1200):
            stream.say(log=pb.TaskLog(job=job, attempt=1, begin=10 * number + 5, data=b"x"))
        stream.settle()
        assert len(list((target.folder / "state").rglob(f"logs/{job}/*"))) <= 510
        assert log_of(target, job).endswith(b"x")


@attack("agents")
def log_without_end(target: Target) -> None:
    """Fifty megabytes of output of one job"""
    with holding(target) as (stream, job):
        for number in range(50):
            stream.say(log=pb.TaskLog(job=job, attempt=1, begin=number * 2**20, data=bytes(2**20)))
        stream.settle()
        kept = sum(path.stat().st_size for path in (target.folder / "state").rglob(f"logs/{job}/*"))
        assert 0 < kept <= 20 * 2**20


@attack("agents")
def reason_with_escapes(target: Target) -> None:
    """A reason for the end of its own job that clears the screen and is longer than any screen"""
    with holding(target) as (stream, job):
        reason = "\x1b[2J\x1b]0;owned\x07" + "x" * 100_000
        stream.say(ended=pb.TaskEnded(status=status(job), how=CRASHED, reason=reason, hopeless=True))
        eventually(lambda: view_of(target, job).state == pb.FAILED, "the job fails")
        assert len(view_of(target, job).reason) < 5000
        for command in (("job", job), ("jobs", "--all"), ("events", "--job", job)):
            shown = target.gavel(*command)
            assert "\x1b" not in shown.stdout + shown.stderr
            assert "\x07" not in shown.stdout


# ---- checkpoints ----


@attack("agents")
def checkpoints_that_it_was_not_asked_for(target: Target) -> None:
    """Claims to have removed, or to keep, checkpoints of jobs that it was not asked about"""
    with holding(target) as (honest, job), untouched(target), idle(target) as stream:
        honest.say(ended=pb.TaskEnded(status=status(job), how=DONE))
        eventually(lambda: view_of(target, job).state == pb.COMPLETED, "the job finishes")
        before = last_event(target)
        with ExitStack() as stack:
            channel = stack.enter_context(target.channel())
            asked = GavelStub(channel).RemoveCheckpoints.future(  # type: ignore[no-untyped-call]
                pb.RemoveCheckpointsRequest(ids=[job]),
                metadata=[("authorization", f"Bearer {target.tokens['root']}")],
                timeout=30,
            )
            order = stream.hear("remove_checkpoints").removals[-1]
            lies = {target.job: "a lie", "../x": "a lie", "999": "a lie"}
            handled = pb.CheckpointsHandled(through=order.number, removed=[target.job, "999"], kept=lies)
            stream.say(checkpoints=handled)
            stream.settle()
            honest.hear("remove_checkpoints")
            honest.say(checkpoints=pb.CheckpointsHandled(through=order.number))
            assert asked.result().jobs
        eventually(lambda: _removals(target, before) != [], "the removal is in the journal")
        assert not any("a lie" in line or target.job in _named(line) for line in _removals(target, before))


def _removals(target: Target, after: int) -> list[str]:
    return [line.document for line in events_after(target, after) if line.kind == "checkpoints_removed"]


def _named(document: str) -> set[str]:
    import json  # noqa: PLC0415 - only here

    fact = json.loads(document)["fact"]
    return {*fact.get("removed", ()), *fact.get("kept", ())}


@attack("agents")
def checkpoints_beyond_all_orders(target: Target) -> None:
    """A claim to have carried out removals that were never ordered"""
    before = last_event(target)
    with idle(target) as stream:
        for through in (2**64 - 1, 2**63, 10**6):
            stream.say(checkpoints=pb.CheckpointsHandled(through=through, removed=[target.job]))
        stream.settle()
        # A later change of the journal comes after what the claim would have led to.
        with holding(target) as (other, job):
            other.say(ended=pb.TaskEnded(status=status(job), how=DONE))
            eventually(lambda: view_of(target, job).state == pb.COMPLETED, "the job finishes")
    assert _removals(target, before) == []
