"""Which jobs a user means: ids, ranges and arrays, narrowed by name, tag, state and user. It asks no scheduler."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol

from gavel.client.dependencies import is_array_id
from gavel.client.field_checks import check_label, nearest, shortened
from gavel.client.views import JobState
from gavel.errors import InputError

STATES = tuple(str(state) for state in JobState if state is not JobState.UNKNOWN)
FORMS = "write ids (38), ranges (38-1037), arrays (a38) or members of arrays (a38.5)"
_ID = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
_RANGE = re.compile(r"([1-9][0-9]{0,17})-([1-9][0-9]{0,17})", re.ASCII)
_MEMBER = re.compile(r"(a[1-9][0-9]{0,17})\.([0-9]{1,10})(?:-([0-9]{1,10}))?", re.ASCII)


class RequestLike(Protocol):
    """What a selection looks at in a request; both forms of a request have it."""

    @property
    def name(self) -> str: ...
    @property
    def tags(self) -> Mapping[str, str]: ...
    @property
    def user(self) -> str: ...
    @property
    def array_id(self) -> str: ...
    @property
    def index(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class ArrayPart:
    """Some jobs of an array, by their indices."""

    array: str
    first: int
    last: int

    def has(self, request: RequestLike) -> bool:
        """Whether a job is one of them."""
        return request.array_id == self.array and request.index is not None and self.first <= request.index <= self.last

    def __str__(self) -> str:
        return f"{self.array}.{self.first}" + (f"-{self.last}" if self.last > self.first else "")


@dataclass(frozen=True, slots=True)
class Selection:
    """Jobs at any of the named places that also have the name, the tags, the state and the user.

    >>> selection = Selection.of(["38-40", "a7", "12"])
    >>> selection.ids, selection.ranges, selection.arrays
    (('12',), ((38, 40),), ('a7',))
    """

    ids: tuple[str, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    arrays: tuple[str, ...] = ()
    members: tuple[ArrayPart, ...] = ()
    names: tuple[str, ...] = ()
    """Patterns as in a shell; one of them must match."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """All of them."""
    states: tuple[JobState, ...] = ()
    user: str = ""

    @classmethod
    def of(
        cls,
        places: Iterable[str] = (),
        *,
        names: Iterable[str] = (),
        tags: Iterable[str] = (),
        states: Sequence[JobState] = (),
        user: str = "",
    ) -> Selection:
        """Read what a user wrote; raises InputError for what is no selector."""
        given = list(dict.fromkeys(places))
        for text in given:
            _check_place(text)
        patterns = tuple(dict.fromkeys(names))
        for pattern in patterns:
            check_label("--name", pattern)
        return cls(
            ids=tuple(text for text in given if _ID.fullmatch(text)),
            ranges=tuple((int(found[1]), int(found[2])) for text in given if (found := _RANGE.fullmatch(text))),
            arrays=tuple(text for text in given if is_array_id(text)),
            members=tuple(_member(found) for text in given if (found := _MEMBER.fullmatch(text))),
            names=patterns,
            tags=tags_of("--tag", tags),
            states=tuple(states),
            user=user,
        )

    @property
    def placed(self) -> bool:
        """Whether it says where to look."""
        return bool(self.ids or self.ranges or self.arrays or self.members)

    @property
    def narrows(self) -> bool:
        """Whether it leaves any job out."""
        return self.placed or bool(self.names or self.tags or self.states or self.user)

    @property
    def one(self) -> str:
        """The text of the only place, if it is that of one job or one array and nothing else is said."""
        texts = [*self.ids, *self.arrays, *(str(member) for member in self.members)]
        return texts[0] if len(texts) == 1 and not self.ranges else ""

    def wants(self, id: str, request: RequestLike, state: JobState) -> bool:  # noqa: A002 - the word for it everywhere
        """Whether a job is selected."""
        return self.test()(id, request, state)

    def test(self) -> Test:
        """A test for many jobs: whether each is selected."""
        here, named = _place_test(self), _name_test(self.names)

        def wanted(id: str, request: RequestLike, state: JobState) -> bool:  # noqa: A002
            return (
                (not self.states or state in self.states)
                and (not self.user or request.user == self.user)
                and here(id, request)
                and named(request.name)
                and has_tags(request.tags, self.tags)
            )

        return wanted

    def names_job(self, id: str, request: RequestLike) -> bool:  # noqa: A002
        """Whether a job is named by itself, and not only one of a range, an array or a pattern."""
        return id in self.ids or any(member.has(request) for member in self.members if member.first == member.last)


Test = Callable[[str, RequestLike, JobState], bool]
"""Takes the id, the request and the state of a job."""


def _place_test(selection: Selection) -> Callable[[str, RequestLike], bool]:
    """Whether a job is at one of the places, of which there may be many."""
    if not selection.placed:
        return lambda _id, _request: True
    ids, arrays, members = set(selection.ids), set(selection.arrays), selection.members
    ranges = merged(selection.ranges)
    starts = [first for first, _ in ranges]

    def here(id: str, request: RequestLike) -> bool:  # noqa: A002
        if id in ids or request.array_id in arrays:
            return True
        number = int(id) if id.isdecimal() else -1
        at = bisect_right(starts, number) - 1 if starts else -1
        return (at >= 0 and number <= ranges[at][1]) or any(member.has(request) for member in members)

    return here


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers in ranges that ascend and do not touch.

    >>> merged([(5, 9), (1, 2), (3, 3), (8, 12)])
    [(1, 3), (5, 12)]
    """
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def _name_test(patterns: Sequence[str]) -> Callable[[str], bool]:
    return lambda name: not patterns or any(matches(name, pattern) for pattern in patterns)


def _check_place(text: str) -> None:
    found, member = _RANGE.fullmatch(text), _MEMBER.fullmatch(text)
    if found is not None and int(found[2]) < int(found[1]):
        raise InputError(f"{text}: a range of ids goes up; write {found[2]}-{found[1]}")
    if member is not None and int(member[3] or member[2]) < int(member[2]):
        raise InputError(f"{text}: a range of indices goes up; write {member[1]}.{member[3]}-{member[2]}")
    if not (_ID.fullmatch(text) or found or member or (is_array_id(text) and len(text) <= 20)):
        raise InputError(f"there is no job {shortened(text)}; {FORMS}")


def _member(found: re.Match[str]) -> ArrayPart:
    return ArrayPart(found[1], int(found[2]), int(found[3] or found[2]))


def matches(name: str, pattern: str) -> bool:
    """Whether a name is the pattern or matches it, as in a shell.

    >>> matches("resnet-50", "resnet*"), matches("[a]", "[a]"), matches("Resnet", "resnet")
    (True, True, False)
    """
    return name == pattern or fnmatchcase(name, pattern)


def has_tags(tags: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether all wanted tags are there, with their values."""
    return all(tags.get(name) == value for name, value in wanted.items())


def tags_of(option: str, pairs: Iterable[str]) -> dict[str, str]:
    """Read NAME=VALUE.

    >>> tags_of("--tag", ["team=vision", "paper=a=b"])
    {'team': 'vision', 'paper': 'a=b'}
    """
    tags: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise InputError(f"{option} {shortened(pair)}: write NAME=VALUE")
        check_label(option, name)
        check_label(option, value)
        if name in tags:
            raise InputError(f"{option} {name} is given twice; keep one")
        tags[name] = value
    return tags


def parse_states(text: str | None) -> list[JobState]:
    """Read a list of states.

    >>> [str(state) for state in parse_states("queued, running")]
    ['queued', 'running']
    """
    names = [] if text is None else [name.strip().lower() for name in text.split(",")]
    for name in names:
        if name not in STATES:
            raise InputError(f"--state {text}: there is no state {name!r}; {nearest(name, STATES)}")
    return [JobState(name) for name in dict.fromkeys(names)]
