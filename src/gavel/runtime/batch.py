"""From the requests of one submission to its jobs: arrays and grids unfold, names become ids, dependencies are checked.

Pure: it gets the next id and what is known about earlier jobs. It gives all the jobs, or says why there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from gavel.client.arrays import expanded, size_of
from gavel.client.dependencies import Dependency
from gavel.client.field_checks import label_fault, shortened
from gavel.client.messages import to_submission
from gavel.client.requests import Submission
from gavel.core.errors import InputError
from gavel.limits import MOST_AFTER, MOST_JOBS_IN_A_CALL, MOST_UNFOLDED_BYTES, MOST_WAITS_IN_A_CALL
from gavel.runtime.gates import Arrival
from gavel.runtime.prerequisites import Ends, lost
from gavel.runtime.steps import Steps

AT_ONCE = 100
"""Jobs that are made in one step."""
Known = Callable[[str], Ends | None]
"""How the jobs of an id or array id have ended; None if there is no such job or array."""


class UnknownReferenceError(InputError):
    """A job waits for something that does not exist, as far as was known."""


@dataclass(frozen=True, slots=True)
class Waits:
    """What a job waits for, by ids."""

    after: tuple[str, ...]
    met: tuple[str, ...]


def arrivals(requests: Sequence[Submission], first: int, known: Known) -> Steps[list[Arrival]]:
    """The jobs that requests stand for, with consecutive ids from the first; InputError if any cannot be accepted.

    In steps, during which what is known must not change.
    """
    sizes = sizes_of(requests)
    whos = [_who(request, number, len(requests)) for number, request in enumerate(requests)]
    starts = list(accumulate(sizes, initial=first))[:-1]
    names = _Names.of(requests, starts)
    _check_cycles(requests, whos, names)
    jobs: list[Arrival] = []
    total = 0
    for request, who, size, start in zip(requests, whos, sizes, starts, strict=True):
        dependencies = _by_id(request, who, names)
        total += size * len(dependencies)
        _check_total(total)
        waits = waits_of(dependencies, who, lambda text: Ends(unfinished=1) if text in names.own else known(text))
        for job in _unfolded(replace(request, after=waits.after), size, start, who, waits.met):
            if len(jobs) % AT_ONCE == 0:
                yield
            jobs.append(job)
    return jobs


def waits_of(dependencies: Iterable[Dependency], who: str, known: Known) -> Waits:
    """Check dependencies on ids, and tell those that are met; InputError if one can never be met."""
    wanted = dict.fromkeys(dependencies)
    if len(wanted) > MOST_AFTER:
        raise InputError(
            f"{who} would wait for {len(wanted):,} jobs, at most {MOST_AFTER:,} are allowed; make those jobs an array, "
            "and wait for it"
        )
    met = []
    for each in wanted:
        if each.condition == "ok" and Dependency(each.reference, "failed") in wanted:
            raise InputError(
                f"{who} can never start: it would wait until {each.reference} has completed and has failed"
            )
        ends = known(each.reference)
        if ends is None:
            raise _unknown(each, who)
        answer = ends.meets(each.condition)
        if answer is False:
            raise InputError(f"{who} can never start: {lost(each, ends)}")
        if answer:
            met.append(str(each))
    return Waits(tuple(map(str, wanted)), tuple(met))


def _unknown(dependency: Dependency, who: str) -> UnknownReferenceError:
    what = "array" if dependency.reference.startswith("a") else "job"
    return UnknownReferenceError(
        f"{who} waits for {what} {shortened(dependency.reference)}, but there is none; `gavel jobs --all` lists them"
    )


def references(requests: Iterable[Submission]) -> set[str]:
    """The ids of jobs and arrays that requests wait for."""
    found = (Dependency.of(text) for request in requests for text in request.after)
    return {each.reference for each in found if each.by_id}


# ---- arrays and grids ----


def sizes_of(requests: Sequence[Submission]) -> list[int]:
    """How many jobs each request stands for; InputError if they are too many together."""
    sizes = [size_of(request) for request in requests]
    if sum(sizes) > MOST_JOBS_IN_A_CALL:
        raise InputError(f"{sum(sizes):,} jobs in one call; submit at most {MOST_JOBS_IN_A_CALL:,} at a time")
    return sizes


def _check_total(dependencies: int) -> None:
    if dependencies > MOST_WAITS_IN_A_CALL:
        raise InputError(
            f"these jobs would have more than {MOST_WAITS_IN_A_CALL:,} dependencies; make the jobs that they wait for "
            "an array, and wait for it"
        )


def _unfolded(request: Submission, size: int, start: int, who: str, met: tuple[str, ...]) -> Iterator[Arrival]:
    if size > 1 and (total := size * to_submission(request).ByteSize()) > MOST_UNFOLDED_BYTES:
        raise InputError(
            f"{who} stands for {size:,} jobs of together {total / 2**20:,.0f} MiB, at most "
            f"{MOST_UNFOLDED_BYTES / 2**20:.0f} MiB are allowed; keep data in files, not in the request"
        )
    for offset, job in enumerate(expanded(request, f"a{start}")):
        if (fault := label_fault(job.name)) is not None:
            raise InputError(f"{who}: with its values filled in, the name {fault}: {shortened(job.name)}")
        yield Arrival(str(start + offset), job, met)


# ---- names ----


@dataclass(frozen=True, slots=True)
class _Names:
    """What jobs of a submission are called."""

    places: Mapping[str, Sequence[tuple[str, int]]]
    """By name: ids of the jobs and arrays called so, each with the number of its request."""
    own: frozenset[str]
    """All of these ids."""

    @classmethod
    def of(cls, requests: Sequence[Submission], starts: Sequence[int]) -> _Names:
        """The names that some request refers to."""
        wanted = {each.reference for request in requests for each in _named(request)}
        places: dict[str, list[tuple[str, int]]] = {name: [] for name in wanted}
        if not wanted:
            return cls({}, frozenset())
        for number, (request, start) in enumerate(zip(requests, starts, strict=True)):
            many = bool(request.array or request.grid)
            if request.name in wanted:
                places[request.name].append((f"a{start}" if many else str(start), number))
            elif many and "{" in request.name:
                for offset, job in enumerate(expanded(request, "")):
                    if job.name in wanted:
                        places[job.name].append((str(start + offset), number))
        return cls(places, frozenset(reference for found in places.values() for reference, _ in found))


def _named(request: Submission) -> list[Dependency]:
    return [each for each in map(Dependency.of, request.after) if not each.by_id]


def _by_id(request: Submission, who: str, names: _Names) -> list[Dependency]:
    """The dependencies of a request, by ids."""
    found: list[Dependency] = []
    for each in map(Dependency.of, request.after):
        if each.by_id and each.reference in names.own:
            raise _unknown(each, who)  # the id is not given yet
        if each.by_id:
            found.append(each)
        elif places := names.places.get(each.reference):
            found += [Dependency(reference, each.condition) for reference, _ in places]
        else:
            raise InputError(
                f"{who} waits for {shortened(each.reference)}, but no job of this submission has that name; write an "
                "id, or a name from the same submission"
            )
    return found


def _who(request: Submission, number: int, count: int) -> str:
    if request.name:
        return f"job {shortened(request.name)}"
    return "the job" if count == 1 else f"job {number + 1} of the submission"


# ---- cycles ----


def _check_cycles(requests: Sequence[Submission], whos: Sequence[str], names: _Names) -> None:
    """Refuse jobs that wait for each other. The jobs of an array wait for the same, so requests stand for them."""
    waits = [
        list(dict.fromkeys(number for each in _named(request) for _, number in names.places.get(each.reference, ())))
        for request in requests
    ]
    way = _cycle(waits)
    if len(way) == 1:
        raise InputError(f"{whos[way[0]]} waits for itself")
    if way:
        told = " → ".join(whos[number].removeprefix("job ") for number in (*way, way[0]))
        raise InputError(f"these jobs wait for each other, so none could ever start: {told}")


def _cycle(waits: Sequence[Sequence[int]]) -> list[int]:
    """A cycle in a graph, given what each node points to; empty if there is none."""
    done = [False] * len(waits)
    for start in range(len(waits)):
        if done[start]:
            continue
        path, here = [start], {start: iter(waits[start])}
        while path:
            following = next((node for node in here[path[-1]] if not done[node]), None)
            if following is None:
                node = path.pop()
                done[node] = True
                del here[node]
            elif following in here:
                return path[path.index(following) :]
            else:
                path.append(following)
                here[following] = iter(waits[following])
    return []
