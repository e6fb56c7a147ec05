"""Events, problems and allocations as plain data: strict JSON, exact to the last bit; errors name the wrong part."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.allocation import Allocation
from gavel.core.cluster import AcceleratorType, Server
from gavel.core.codec import (
    EVENTS,
    decode_allocation,
    decode_event,
    decode_problem,
    encode_allocation,
    encode_command,
    encode_event,
    encode_problem,
)
from gavel.core.errors import InputError
from gavel.core.events import (
    AllocationReady,
    Event,
    JobCancelled,
    JobFailed,
    JobFinished,
    JobsProgressed,
    JobSubmitted,
    Launch,
    RestartMeasured,
    RoundDue,
    ServerJoined,
    ServerLost,
    Solve,
    SolveFailed,
)
from gavel.core.jobs import Job, JobSpec, Pair
from gavel.core.problem import Floats, Ints, Problem
from gavel.core.serialization import from_plain, plain_record, to_plain
from gavel.policies.registry import allocate
from strategies import Case, cases

SPEC = JobSpec("j", "A3C", 1, 1e6)
TWO_JOBS = Case(
    (AcceleratorType("v100", 1),),
    (Job("a", {"v100": 2.0}, steps=10.0), Job("b", {"v100": 1.0}, steps=10.0)),
    (Pair(("a", "b"), {"v100": (1.5, 0.9)}),),
)
texts = st.text(max_size=8)
numbers = st.floats(allow_nan=False) | st.just(float("nan"))  # JSON knows no sign of NaN
times = st.floats(allow_nan=False, allow_infinity=False)
specs = st.builds(
    JobSpec,
    id=texts,
    template=texts,
    workers=st.integers(1, 64),
    steps=numbers,
    weight=numbers,
    entity=st.none() | texts,
    deadline_seconds=st.none() | numbers,
)
progress = st.lists(st.tuples(texts, numbers), max_size=30).map(
    lambda rows: JobsProgressed(1.5, [name for name, _ in rows], np.array([steps for _, steps in rows], dtype=float))
)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(JobSubmitted, time=times, job=specs),
    st.builds(JobCancelled, time=times, job=texts),
    progress,
    st.builds(JobFinished, time=times, job=texts),
    st.builds(JobFailed, time=times, job=texts, reason=texts, retry=st.booleans()),
    st.builds(ServerJoined, time=times, server=st.builds(Server, texts, texts, st.integers(0, 1000))),
    st.builds(RestartMeasured, time=times, job=texts, seconds=times),
    st.builds(ServerLost, time=times, server=texts),
    st.builds(SolveFailed, time=times, number=st.integers(0), reason=texts),
    st.builds(RoundDue, time=times),
)


def through_json(document: Any) -> Any:
    return json.loads(json.dumps(document, allow_nan=False))


def no_problem(number: int) -> Problem:
    raise AssertionError(f"problem {number} should not be needed")


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit, field by field."""
    if isinstance(one, np.ndarray):
        return (one.shape, one.dtype, one.tobytes()) == (other.shape, other.dtype, other.tobytes())
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        return type(one) is type(other) and all(same(getattr(one, n), getattr(other, n)) for n in names)
    if isinstance(one, float):
        return repr(one) == repr(float(other))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(event=events)
def test_every_event_survives_strict_json_to_the_last_bit(event: Event) -> None:
    assert same(event, decode_event(through_json(encode_event(event)), no_problem))


def test_every_kind_of_event_is_known() -> None:
    assert set(EVENTS.values()) == set(get_args(Event))


@given(case=cases(), policy=st.sampled_from(["max_min_fairness", "makespan", "gandiva", "isolated", "allox"]))
def test_problems_and_allocations_survive_strict_json_to_the_last_bit(case: Case, policy: str) -> None:
    problem = case.problem()
    assert same(problem, decode_problem(through_json(encode_problem(problem))))
    allocation = _allocated(problem, policy)
    assert same(allocation, decode_allocation(through_json(encode_allocation(allocation))))


@given(case=cases())
def test_an_answer_is_stored_without_its_problem_and_read_with_it(case: Case) -> None:
    problem = case.problem()
    event = AllocationReady(3.5, 7, _allocated(problem, "max_min_fairness"))
    document = encode_event(event)
    assert "problem" not in document["allocation"]
    again = decode_event(through_json(document), {7: problem}.__getitem__)
    assert same(event, again)
    assert isinstance(again, AllocationReady)
    assert again.allocation.problem is problem
    assert same(event.allocation.class_throughput, again.allocation.class_throughput)


def _allocated(problem: Problem, policy: str) -> Allocation:
    if policy == "allox" and (problem.profiles.workers > 1).any():
        policy = "fifo"
    return allocate(problem, policy)


@pytest.mark.parametrize("policy", ["isolated", "allox"])
def test_an_answer_refers_to_the_problem_as_it_was_asked(policy: str) -> None:
    problem = TWO_JOBS.problem()
    assert allocate(problem, policy).problem is problem


@dataclass(frozen=True, eq=False)
class Arrays:
    """A dataclass with arrays of any shape."""

    floats: Floats
    ints: Ints


shapes = st.sampled_from([(0,), (0, 2), (0, 2, 3), (1,), (9,), (40,), (3, 5), (4, 2, 3), (20, 0)])
elements = st.sampled_from([0.0, -0.0, 1.0, 1 / 3, math.nan, math.inf, -math.inf, 1e-320, 1.7976931348623157e308])


@given(shape=shapes, data=st.data(), few=st.booleans())
def test_arrays_of_every_shape_and_content_survive(shape: tuple[int, ...], data: st.DataObject, few: bool) -> None:
    size = math.prod(shape)
    chosen = elements if not few else st.just(0.0) | st.just(0.0) | elements
    floats = np.array(data.draw(st.lists(chosen, min_size=size, max_size=size)), dtype=float).reshape(shape)
    whole = np.array(data.draw(st.lists(st.integers(-1, 1), min_size=size, max_size=size)), dtype=np.intp).reshape(
        shape
    )
    arrays = Arrays(floats, whole)
    assert same(arrays, from_plain(Arrays, through_json(to_plain(arrays))))


def test_long_arrays_of_equal_or_few_values_are_short() -> None:
    document = plain_record(Arrays(np.full(1000, np.inf), np.eye(30, dtype=np.intp)))
    assert document["floats"] == {"shape": [1000], "all": "inf"}
    assert len(json.dumps(document["ints"])) < 400


def test_fields_with_defaults_are_left_out_and_missing_fields_get_defaults() -> None:
    assert encode_event(JobSubmitted(1.0, SPEC)) == {
        "kind": "job_submitted",
        "time": 1.0,
        "job": {"id": "j", "template": "A3C", "workers": 1, "steps": 1e6},
    }
    assert encode_event(JobFailed(2.0, "j", "crashed", retry=False))["retry"] is False


def test_encoded_commands_have_all_fields() -> None:
    assert encode_command(Launch("j", "v100", {"a": 1}, 460.0)) == {
        "kind": "launch",
        "job": "j",
        "type": "v100",
        "accelerators": {"a": 1},
        "until": 460.0,
    }
    problem = TWO_JOBS.problem()
    assert encode_command(Solve(1, problem))["problem"] == encode_problem(problem)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "job_gone"}, r"there is no event of kind 'job_gone'; known: job_submitted"),
        ({"time": 1.0}, r"there is no event of kind None"),
        ([], r"there is no event of kind None"),
        ({"kind": "round_due"}, r"event round_due: lacks 'time' of RoundDue"),
        ({"kind": "round_due", "time": "soon"}, r"event round_due: time is 'soon', not a number"),
        ({"kind": "round_due", "time": True}, r"time is True, not a number"),
        ({"kind": "round_due", "time": 1.0, "x": 1}, r"has a field 'x' that RoundDue does not have"),
        ({"kind": "job_finished", "time": 1.0, "job": 3}, r"job is 3, not a text"),
        ({"kind": "job_submitted", "time": 1.0, "job": {"id": "j"}}, r"job lacks 'steps', 'template', 'workers'"),
        ({"kind": "job_submitted", "time": 1.0, "job": []}, r"job is \[\], not an object of JobSpec's fields"),
        (
            {"kind": "server_joined", "time": 1.0, "server": {"name": "a", "type": "b", "accelerators": 1.5}},
            r"server.accelerators is 1.5, not a whole number",
        ),
        ({"kind": "job_failed", "time": 1.0, "job": "j", "reason": "", "retry": 1}, r"retry is 1, not true or false"),
        ({"kind": "jobs_progressed", "time": 1.0, "jobs": "j", "steps": []}, r"jobs is 'j', not a list"),
        ({"kind": "jobs_progressed", "time": 1.0, "jobs": [], "steps": [None]}, r"steps is \[None\], not an array"),
        ({"kind": "jobs_progressed", "time": 1.0, "jobs": [], "steps": {"at": []}}, r"steps is .*, not an array"),
        ({"kind": "allocation_ready", "time": 1.0, "number": 1}, r"lacks 'allocation'"),
    ],
)
def test_a_malformed_event_is_refused_and_the_wrong_part_named(document: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        decode_event(document, no_problem)


def test_an_answer_to_another_problem_is_refused() -> None:
    problem = TWO_JOBS.problem()
    document = encode_event(AllocationReady(1.0, 1, allocate(problem)))
    other = Problem.of(problem.types, [])
    with pytest.raises(InputError, match="does not answer this problem of 0 jobs and 1 columns"):
        decode_event(document, lambda _: other)
