"""What selectors mean: they select exactly the jobs that a filter, written out, would keep."""

from __future__ import annotations

import itertools
import re
from fnmatch import translate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.client.requests import Submission
from gavel.client.selection import Selection, merged
from gavel.client.views import JobState
from gavel.errors import InputError

NAMES = st.sampled_from(["", "resnet", "resnet-50", "bert", "[a]", "ab"])
PATTERNS = st.sampled_from(["resnet*", "*", "b?rt", "[ab]*", "[a]", "RESNET", "", "*-[0-9]?"])
TAGS = st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"))
STATES = st.sampled_from([JobState.QUEUED, JobState.RUNNING, JobState.COMPLETED])
USERS = st.sampled_from(["", "ada", "bob"])
ARRAYS = st.sampled_from(["", "a1", "a5"])
Job = tuple[str, Submission, JobState]


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    found = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        array = draw(ARRAYS)
        request = Submission(
            command=("train",),
            name=draw(NAMES),
            tags=draw(TAGS),
            user=draw(USERS),
            array_id=array,
            index=draw(st.integers(0, 5)) if array else None,
        )
        found.append((str(number), request, draw(STATES)))
    return found


places = st.lists(
    st.one_of(
        st.integers(1, 14).map(str),
        st.tuples(st.integers(1, 8), st.integers(0, 5)).map(lambda pair: f"{pair[0]}-{pair[0] + pair[1]}"),
        st.sampled_from(["a1", "a5", "a9", "a1.0", "a5.3", "a1.2-4"]),
    ),
    max_size=4,
)


@given(
    known=jobs(),
    where=places,
    names=st.lists(PATTERNS, max_size=2),
    tags=TAGS,
    states=st.lists(STATES, max_size=2),
    user=USERS,
)
def test_a_selection_keeps_what_a_filter_written_out_keeps(
    known: list[Job], where: list[str], names: list[str], tags: dict[str, str], states: list[JobState], user: str
) -> None:
    pairs = [f"{name}={value}" for name, value in tags.items()]
    selection = Selection.of(where, names=names, tags=pairs, states=states, user=user)

    def at_a_place(job: Job) -> bool:
        number, request, _ = job
        for place in where:
            array, _, indices = place.partition(".")
            first, _, last = (indices or place).partition("-")
            if place.startswith("a"):
                inside = not indices or int(first) <= (request.index or 0) <= int(last or first)
                if request.array_id == array and inside:
                    return True
            elif int(first) <= int(number) <= int(last or first):
                return True
        return not where

    expected = [
        job
        for job in known
        if at_a_place(job)
        and (not names or any(job[1].name == p or re.match(translate(p), job[1].name) for p in names))
        and all(job[1].tags.get(name) == value for name, value in tags.items())
        and (not states or job[2] in states)
        and (not user or job[1].user == user)
    ]
    assert [job for job in known if selection.wants(*job)] == expected
    assert selection.narrows == bool(where or names or tags or states or user)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair)))))
def test_merged_ranges_hold_the_same_numbers_and_do_not_touch(ranges: list[tuple[int, int]]) -> None:
    found = merged(ranges)
    assert {n for first, last in found for n in range(first, last + 1)} == {
        n for first, last in ranges for n in range(first, last + 1)
    }
    assert all(one[1] + 1 < other[0] for one, other in itertools.pairwise(found))


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("x", "there is no job 'x'; write ids (38), ranges (38-1037), arrays (a38)"),
        ("038", "there is no job '038'"),
        ("0", "there is no job '0'"),
        ("", "there is no job ''"),
        ("-3", "there is no job '-3'"),
        ("9-3", "9-3: a range of ids goes up; write 3-9"),
        ("a1.7-3", "a1.7-3: a range of indices goes up; write a1.3-7"),
        ("1e3", "there is no job '1e3'"),
        ("\u0663", "there is no job"),
        ("9" * 5000, "there is no job '999"),
        ("a" + "9" * 5000, "there is no job 'a999"),
        ("38.5", "there is no job '38.5'"),
        ("3\n", "there is no job"),
    ],
)
def test_what_is_no_selector_is_refused_with_a_sentence(place: str, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        Selection.of([place])
    assert said in str(refusal.value)
    assert len(str(refusal.value)) < 250


def test_only_ids_and_single_members_name_a_job_by_itself() -> None:
    request = Submission(command=("train",), array_id="a1", index=2)
    named = {
        place: Selection.of([place]).names_job("3", request) for place in ("3", "a1.2", "a1.2-4", "a1", "1-5", "a1.1")
    }
    assert named == {"3": True, "a1.2": True, "a1.2-4": False, "a1": False, "1-5": False, "a1.1": False}
