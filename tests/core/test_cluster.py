"""The notation of clusters on a command line and in problem files, and how many gangs their servers hold."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.cluster import AcceleratorType, parse_cluster
from gavel.core.errors import InputError
from gavel.core.problem_file import parse_problem


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("v100=2x8", {"v100": (8, 8)}),
        ("v100=10", {"v100": (4, 4, 2)}),
        ("v100=4x8+2x4,p100=6,k80=3x1", {"v100": (8, 8, 8, 8, 4, 4), "p100": (4, 2), "k80": (1, 1, 1)}),
        (" v100 = 1x2 + 1 x 4 , k80 = 1", {"v100": (2, 4), "k80": (1,)}),
        ("v100=1000000x1", {"v100": (1,) * 1_000_000}),
    ],
)
def test_a_type_is_a_number_of_accelerators_or_servers_of_given_sizes(
    text: str, sizes: dict[str, tuple[int, ...]]
) -> None:
    cluster = parse_cluster(text)
    assert {kind.name: kind.servers for kind in cluster.types()} == sizes
    assert {kind.name: kind.count for kind in cluster.types()} == {name: sum(each) for name, each in sizes.items()}


def test_servers_of_all_sizes_are_numbered_consecutively() -> None:
    names = [server.name for server in parse_cluster("v100=1x8+2x4,k80=1x1").servers]
    assert names == ["v100-0", "v100-1", "v100-2", "k80-0"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("v100", "'v100' is not of the form type=count, for example v100=4, or type=servers x size, for example "),
        ("v100=", "'v100=' is not of the form type=count"),
        ("=4", "'=4' is not of the form"),
        ("v100=-1", "'v100=-1' is not of the form"),
        ("v100=4x8,v100=2", "type 'v100' is given twice"),
        ("v100=4x", "'v100=4x': '4x' is not of the form servers x size, for example 4x8"),
        ("v100=x8", "'x8' is not of the form servers x size"),
        ("v100=4x8x2", "'4x8x2' is not of the form servers x size"),
        ("v100=4x8+", "'' is not of the form servers x size"),
        ("v100=4x8+16", "'16' is not of the form servers x size"),
        ("v100=4x-8", "'4x-8' is not of the form servers x size"),
        ("v100=٤x8", "'٤x8' is not of the form servers x size"),
        ("v100=0x8", "'0x8' has no accelerators; leave it out, or give 1 or more of each"),
        ("v100=2x4+4x0", "'4x0' has no accelerators"),
        ("v100=1000001", "'v100=1000001' is more than 1,000,000 accelerators; give fewer"),
        ("v100=1000x1000+1x1", "is more than 1,000,000 accelerators; give fewer"),
        (f"v100={'9' * 5000}x1", "is more than 1,000,000 accelerators; give fewer"),
    ],
)
def test_a_malformed_cluster_is_refused_and_the_wrong_part_named(text: str, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_cluster(text)
    assert str(refused.value).startswith(f"cluster {text!r}: ")
    assert problem in str(refused.value)


def read_type(**kind: Any) -> AcceleratorType:
    return parse_problem(json.dumps({"types": {"v100": kind}, "jobs": []})).types[0]


@pytest.mark.parametrize("count", [{}, {"count": 20}])
@pytest.mark.parametrize("servers", ["2x8+1x4", [8, 8, 4]])
def test_a_problem_file_lists_servers_or_writes_them_like_a_cluster(servers: Any, count: dict[str, int]) -> None:
    kind = read_type(servers=servers, **count)
    assert (kind.count, kind.servers, kind.price) == (20, (8, 8, 4), 2.48)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ({"servers": 4}, "types.v100: 'count' is missing"),
        ({"servers": "2x8", "count": 8}, "types.v100.servers add up to 16 accelerators, but the count is 8"),
        ({"servers": "8"}, "types.v100.servers: '8' is not of the form servers x size, for example 4x8"),
        ({"servers": "2x0"}, "types.v100.servers: '2x0' has no accelerators; leave it out, or give 1 or more of each"),
        ({"servers": "9999999x1"}, "types.v100.servers is more than 1,000,000 accelerators; give fewer"),
        ({"servers": [4, None]}, "types.v100.servers must be whole numbers from 1, not [4, null]"),
        ({"servers": [4, 0]}, "types.v100.servers[1] must be at least 1, not 0"),
        ({"servers": [10**9, 1]}, "types.v100.servers must be at most 1,000,000,000, not 1000000001"),
        ({"servers": "2x8", "count": True}, "types.v100.count must be a number, not true"),
    ],
)
def test_servers_of_a_problem_file_that_make_no_sense_are_refused(kind: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as refused:
        read_type(**kind)
    assert str(refused.value) == problem


def most_that_fit(left: tuple[int, ...], workers: int, few: int) -> int:
    """The most gangs that fit at once, each on this many servers with this room left, by trying everything."""
    best = 0
    for chosen in itertools.combinations(range(len(left)), few):
        for part in splits(tuple(left[at] for at in chosen), workers):
            after = list(left)
            for at, taken in zip(chosen, part, strict=True):
                after[at] -= taken
            best = max(best, 1 + most_that_fit(tuple(after), workers, few))
    return best


def splits(room: tuple[int, ...], workers: int) -> list[tuple[int, ...]]:
    """All ways to take a number of accelerators from servers with this much room."""
    if len(room) == 1:
        return [(workers,)] if 0 < workers <= room[0] else []
    return [
        (first, *rest) for first in range(1, min(room[0], workers) + 1) for rest in splits(room[1:], workers - first)
    ]


@given(servers=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple), workers=st.integers(2, 9))
def test_no_more_consolidated_gangs_fit_than_the_limit_says(servers: tuple[int, ...], workers: int) -> None:
    limit = AcceleratorType("t", sum(servers), servers=servers).gangs_on_one_server(workers)
    assert (limit is None) == (workers > max(servers))
    if limit is not None:
        assert most_that_fit(servers, workers, few=1) == limit


@pytest.mark.parametrize(
    ("servers", "workers", "gangs"),
    [
        ((8, 4, 4, 2), 8, 1),
        ((8, 4, 4, 2), 4, 4),
        ((8, 4, 4, 2), 2, 9),
        ((4, 4, 4, 2, 2), 8, None),  # a gang of whole servers
        ((4,), 1, None),
        ((), 4, None),
    ],
)
def test_the_number_of_gangs_that_fit_on_one_server_each(
    servers: tuple[int, ...], workers: int, gangs: int | None
) -> None:
    assert AcceleratorType("t", sum(servers), servers=servers).gangs_on_one_server(workers) == gangs
