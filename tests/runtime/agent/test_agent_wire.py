"""The codec between messages and protobuf."""

from __future__ import annotations

import math
from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from gavel.client.messages import from_submission, to_submission
from gavel.client.requests import Submission
from gavel.client.secret_values import SecretValues
from gavel.core.jobs import JobSpec
from gavel.core.locality import Locality
from gavel.runtime import messages
from gavel.runtime.agent_wire import (
    pack_from_agent,
    pack_to_agent,
    unpack_from_agent,
    unpack_to_agent,
)
from gavel.runtime.messages import (
    Ack,
    AttachRefused,
    CheckpointsHandled,
    Draining,
    Ending,
    FromAgentFrame,
    Heartbeat,
    Hello,
    Lease,
    RemoveCheckpoints,
    StartAttempt,
    StopAttempt,
    TaskEnded,
    TaskLog,
    TaskStarted,
    TaskStatus,
    TerminalKeys,
    ToAgentFrame,
    Welcome,
)
from gavel.wire import gavel_pb2 as pb

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SMALL = st.integers(0, 2**32 - 1)
LARGE = st.integers(0, 2**64 - 1)
NUMBERS = st.floats(allow_nan=False, min_value=0)
GIVEN = st.none() | st.floats(min_value=0, exclude_min=True, allow_nan=False)
BYTES = st.binary(max_size=8)

REQUESTS = st.builds(
    Submission,
    command=st.lists(TEXTS, max_size=3).map(tuple),
    name=TEXTS,
    template=TEXTS,
    steps=GIVEN,
    workers=SMALL,
    weight=NUMBERS,
    entity=st.none() | TEXTS.filter(bool),
    deadline_seconds=GIVEN,
    types=st.lists(TEXTS, max_size=3).map(tuple),
    environment=st.dictionaries(TEXTS, TEXTS, max_size=3),
    retries=SMALL,
    working_directory=TEXTS,
    private=st.booleans(),
    user=TEXTS,
    secrets=st.lists(TEXTS, max_size=3).map(tuple),
    prefer=st.lists(TEXTS, max_size=2).map(tuple),
    launcher=st.sampled_from(["per-device", "per-server"]),
    grace_seconds=GIVEN,
    hold=st.booleans(),
    tags=st.dictionaries(TEXTS, TEXTS, max_size=2),
    gpu_memory_bytes=LARGE,
    cpus=GIVEN,
    memory_bytes=LARGE,
    venv=TEXTS,
    modules=st.lists(TEXTS, max_size=2).map(tuple),
    container=TEXTS,
    terminal=st.booleans(),
    array_id=TEXTS,
    index=st.none() | SMALL,
    parameters=st.dictionaries(TEXTS, TEXTS, max_size=2),
)
STATUSES = st.builds(
    TaskStatus,
    job=TEXTS,
    attempt=SMALL,
    rank=SMALL,
    counts=st.booleans(),
    steps=NUMBERS,
    saved_steps=NUMBERS,
    measured_steps=NUMBERS,
    measured_seconds=NUMBERS,
)
TASKS = st.lists(STATUSES, max_size=2).map(tuple)
FROM_AGENT = {
    Hello: st.builds(
        Hello,
        protocol=SMALL,
        version=TEXTS,
        name=TEXTS,
        agent=TEXTS,
        incarnation=TEXTS,
        accelerators=st.dictionaries(TEXTS, SMALL, max_size=3),
        address=TEXTS,
        tasks=TASKS,
        draining=st.booleans(),
        cluster=TEXTS,
        term=LARGE,
        encrypts_gangs=st.booleans(),
        cpus=NUMBERS,
        memory_bytes=LARGE,
        abilities=st.lists(TEXTS, max_size=3).map(tuple),
    ),
    Heartbeat: st.builds(Heartbeat, TASKS),
    TaskStarted: st.builds(
        TaskStarted,
        job=TEXTS,
        attempt=SMALL,
        rank=SMALL,
        master_address=TEXTS,
        master_port=SMALL,
        gang_port=SMALL,
        gang_token=TEXTS,
        gang_certificate=TEXTS,
    ),
    TaskEnded: st.builds(
        TaskEnded,
        status=STATUSES,
        ending=st.sampled_from(Ending),
        reason=TEXTS,
        log_tail=BYTES,
        hopeless=st.booleans(),
        blameless=st.booleans(),
        exit_code=st.none() | st.integers(-64, 255),
    ),
    TaskLog: st.builds(TaskLog, job=TEXTS, attempt=SMALL, rank=SMALL, data=BYTES, begin=LARGE),
    Draining: st.just(Draining()),
    CheckpointsHandled: st.builds(
        CheckpointsHandled,
        through=LARGE,
        removed=st.lists(TEXTS, max_size=3).map(tuple),
        kept=st.dictionaries(TEXTS, TEXTS, max_size=3),
    ),
}
TO_AGENT = {
    Welcome: st.builds(
        Welcome,
        cluster=TEXTS,
        heartbeat_seconds=NUMBERS,
        checkpoint_grace_seconds=NUMBERS,
        terminate_grace_seconds=NUMBERS,
    ),
    AttachRefused: st.builds(AttachRefused, reason=TEXTS, retry=st.booleans()),
    StartAttempt: st.builds(
        StartAttempt,
        job=TEXTS,
        attempt=SMALL,
        first_rank=SMALL,
        ranks=SMALL,
        workers=SMALL,
        type=TEXTS,
        request=REQUESTS,
        lease_seconds=NUMBERS,
        beside=TEXTS,
        locality=st.sampled_from(Locality),
        master_address=TEXTS,
        master_port=SMALL,
        gang_port=SMALL,
        gang_token=TEXTS,
        gang_certificate=TEXTS,
        plain_gang=st.booleans(),
        steps_done=NUMBERS,
        secrets=st.dictionaries(TEXTS, TEXTS, max_size=3).map(SecretValues),
        node=SMALL,
        nodes=SMALL,
    ),
    Lease: st.builds(Lease, seconds=NUMBERS, jobs=st.lists(TEXTS, max_size=3).map(tuple)),
    StopAttempt: st.builds(StopAttempt, job=TEXTS, attempt=SMALL, reason=TEXTS, at_once=st.booleans()),
    Ack: st.builds(Ack, LARGE),
    TerminalKeys: st.builds(TerminalKeys, job=TEXTS, attempt=SMALL, data=BYTES, rows=SMALL, columns=SMALL),
    RemoveCheckpoints: st.builds(RemoveCheckpoints, st.lists(st.tuples(LARGE, TEXTS), max_size=3).map(tuple)),
}


@given(st.builds(FromAgentFrame, LARGE, st.one_of(*FROM_AGENT.values())))
def test_what_an_agent_says_is_the_same_after_the_wire(frame: FromAgentFrame) -> None:
    sent = pb.FromAgent.FromString(pack_from_agent(frame).SerializeToString())
    assert unpack_from_agent(sent) == frame


@given(st.builds(ToAgentFrame, st.one_of(*TO_AGENT.values()), LARGE, LARGE))
def test_what_a_scheduler_says_is_the_same_after_the_wire(frame: ToAgentFrame) -> None:
    sent = pb.ToAgent.FromString(pack_to_agent(frame).SerializeToString())
    assert unpack_to_agent(sent) == frame


def test_the_properties_above_cover_every_message() -> None:
    assert set(FROM_AGENT) == set(messages.FromAgent.__args__)
    assert set(TO_AGENT) == set(messages.ToAgent.__args__)
    assert {kind.name for kind in pb.FromAgent.DESCRIPTOR.oneofs[0].fields} >= {"hello", "draining"}
    assert len(FROM_AGENT) == len(pb.FromAgent.DESCRIPTOR.oneofs[0].fields)
    assert len(TO_AGENT) == len(pb.ToAgent.DESCRIPTOR.oneofs[0].fields)


def test_every_field_of_the_protocol_has_a_field_in_its_message() -> None:
    renamed = {"how": "ending", "consolidated": "locality"}
    on_the_wire = {
        "AttachRefused": "Refused",
        "StartAttempt": "Start",
        "StopAttempt": "Stop",
        "Submission": "JobRequest",
        "TerminalKeys": "Input",
    }
    elsewhere: dict[type, set[str]] = {Hello: {"accelerator_memory"}}
    """Fields that are part of another one on the wire."""
    for message in (*FROM_AGENT, *TO_AGENT, TaskStatus, Submission):
        packed = getattr(pb, on_the_wire.get(message.__name__, message.__name__)).DESCRIPTOR.fields
        ours = {field.name for field in fields(message)} - elsewhere.get(message, set())
        assert {renamed.get(field.name, field.name) for field in packed} == ours


def test_what_is_not_given_is_0_or_empty_on_the_wire() -> None:
    packed = to_submission(Submission(command=("true",)))
    assert (packed.steps, packed.deadline_seconds, packed.entity) == (0.0, 0.0, "")
    request = from_submission(packed)
    assert (request.steps, request.deadline_seconds, request.entity) == (None, None, None)
    assert math.isnan(JobSpec.of("1", request).steps)


def test_messages_of_a_kind_that_is_not_known_are_none() -> None:
    assert unpack_from_agent(pb.FromAgent(number=3)) is None
    assert unpack_to_agent(pb.ToAgent(term=3)) is None


def test_an_end_of_a_kind_that_is_not_known_is_not_taken_for_success() -> None:
    frame = unpack_from_agent(pb.FromAgent(ended=pb.TaskEnded()))
    assert frame is not None
    assert isinstance(frame.message, TaskEnded)
    assert frame.message.ending is Ending.CRASHED


def test_the_memory_of_accelerators_travels_with_their_type() -> None:
    hello = Hello(protocol=1, name="n", agent="a", incarnation="i", accelerators={"v100": 2, "k80": 1})
    hello = replace(hello, accelerator_memory={"v100": 16 * 2**30})
    frame = unpack_from_agent(pack_from_agent(FromAgentFrame(1, hello)))
    assert frame is not None
    assert frame.message == hello
