"""The codec of views: clients read exactly what the scheduler sends, field by field."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.client.messages import from_cluster, from_detail, from_job, from_states, to_cluster, to_detail, to_job
from gavel.client.requests import JobRequest, Submission
from gavel.client.views import (
    ClusterView,
    JobDetail,
    JobState,
    JobView,
    Place,
    ServerView,
    Transition,
    TypeView,
)
from gavel.core.serialization import from_plain, plain_record
from gavel.wire import gavel_pb2 as pb

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
numbers = st.floats(allow_nan=False, allow_infinity=False, min_value=0.0)
counts = st.integers(0, 2**31 - 1)
amounts = st.dictionaries(texts, numbers, max_size=3)
names = st.lists(texts, max_size=3).map(tuple)
states = st.sampled_from(JobState)
requests = st.builds(
    Submission,
    command=names,
    name=texts,
    steps=st.none() | numbers.filter(bool),
    workers=counts,
    weight=numbers,
    entity=st.none() | texts.filter(bool),
    types=names,
    environment=st.dictionaries(texts, texts, max_size=2),
    retries=counts,
    prefer=names,
    launcher=st.sampled_from(["per-device", "per-server"]),
    grace_seconds=st.none() | numbers.filter(bool),
    time_limit_seconds=st.none() | numbers.filter(bool),
    idle_timeout_seconds=st.none() | numbers.filter(bool),
    hold=st.booleans(),
    after=names,
    tags=st.dictionaries(texts, texts, max_size=2),
    gpu_memory_bytes=st.integers(0, 2**50),
    cpus=st.none() | numbers.filter(bool),
    memory_bytes=st.integers(0, 2**50),
    notify=names,
    venv=texts,
    modules=names,
    container=texts,
    terminal=st.booleans(),
    array=texts,
    grid=st.dictionaries(texts, names, max_size=2),
    at_once=counts,
    array_id=texts,
    index=st.none() | counts,
    parameters=st.dictionaries(texts, texts, max_size=2),
).map(Submission.request)
jobs = st.builds(
    JobView,
    id=texts,
    request=requests,
    state=states,
    reason=texts,
    submitted=numbers,
    changed=numbers,
    ended=st.none() | numbers.filter(bool),
    steps_done=numbers,
    type=texts,
    places=st.lists(st.builds(Place, texts, counts), max_size=3).map(tuple),
    beside=texts,
    attempts=counts,
    failures=counts,
    restarts=counts,
    received=amounts,
    code=texts,
    exit_code=st.none() | st.integers(-64, 255),
    warning=texts,
)
transitions = st.builds(Transition, numbers, states, texts, texts)
details = st.builds(
    JobDetail,
    job=jobs,
    history=st.lists(transitions, max_size=3).map(tuple),
    shares=amounts,
    limit=texts,
    rates=amounts,
)
servers = st.builds(
    ServerView,
    *(texts, texts, texts, counts, counts, texts, names, numbers, numbers, texts),
    *(numbers, numbers, counts, counts, counts),
)
types = st.builds(TypeView, texts, counts, counts, numbers, numbers)
clusters = st.builds(
    ClusterView,
    servers=st.lists(servers, max_size=2).map(tuple),
    types=st.lists(types, max_size=2).map(tuple),
    policy=texts,
    objective=numbers,
    round_seconds=numbers,
    round_ends=numbers,
    queued=counts,
    running=counts,
    time=numbers,
    started=numbers,
    version=texts,
    trouble=texts,
    ignored=names,
    cluster=texts,
    term=counts,
    alarms=names,
)


@given(jobs)
def test_a_job_is_read_as_it_was_told(job: JobView) -> None:
    assert from_job(pb.JobView.FromString(to_job(job).SerializeToString())) == job


@given(details)
def test_everything_about_a_job_is_read_as_it_was_told(detail: JobDetail) -> None:
    assert from_detail(pb.JobDetail.FromString(to_detail(detail).SerializeToString())) == detail


@given(clusters)
def test_a_cluster_is_read_as_it_was_told(cluster: ClusterView) -> None:
    assert from_cluster(pb.ClusterView.FromString(to_cluster(cluster).SerializeToString())) == cluster


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (JobView, pb.JobView),
        (JobDetail, pb.JobDetail),
        (Transition, pb.Transition),
        (Place, pb.Place),
        (ServerView, pb.ServerView),
        (TypeView, pb.TypeView),
        (ClusterView, pb.ClusterView),
        (Submission, pb.JobRequest),
    ],
)
def test_every_field_of_a_message_is_a_field_of_its_record(view: Any, message: Any) -> None:
    assert {field.name for field in fields(view)} == {field.name for field in message.DESCRIPTOR.fields}


def test_a_state_of_a_newer_scheduler_is_unknown_and_that_of_a_newer_client_is_left_out() -> None:
    assert from_job(pb.JobView(state=99)).state is JobState.UNKNOWN  # type: ignore[arg-type] # from the future
    assert from_states([pb.QUEUED, 99]) == {JobState.QUEUED}
    assert from_states([]) == frozenset()


@pytest.mark.parametrize("hours", [0.5, 2.0, 24.0])
def test_a_submission_is_the_request_in_other_units(hours: float) -> None:
    request = JobRequest(["train"], steps=10, entity="lab", deadline_hours=hours, types=["v100"])
    assert request.submission().deadline_seconds == hours * 3600
    assert request.submission().request() == request


def test_what_a_journal_leaves_out_of_a_submission_is_read_as_it_was_meant() -> None:
    """The defaults of users differ, and may change; those of journals must not."""
    assert from_plain(Submission, {"command": ["train"]}) == Submission(
        command=("train",),
        name="",
        template="",
        steps=None,
        workers=1,
        weight=1.0,
        entity=None,
        deadline_seconds=None,
        types=(),
        environment={},
        retries=0,
        working_directory="",
    )
    assert plain_record(JobRequest(["train"]).submission()) == {"command": ["train"], "retries": 3}
