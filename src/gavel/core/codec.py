"""Events, facts, commands, problems and allocations as plain data for journals and dumps, and back, exactly.

An event or fact is an object with its `kind` (job_submitted, round_planned …) and its fields. An allocation that
answers a Solve is stored without its problem, which the reader has: the same facts lead to the same problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

from gavel.core.allocation import Allocation
from gavel.core.errors import InputError
from gavel.core.events import AllocationReady, Command, Event
from gavel.core.facts import AllocationAdopted, Fact
from gavel.core.problem import Problem
from gavel.core.serialization import MisfitError, from_plain, plain_record

ProblemOf = Callable[[int], Problem]
"""The problem of the Solve of that number."""


def kind_of(thing: type) -> str:
    """The `kind` of an event or command in plain data.

    >>> kind_of(AllocationReady)
    'allocation_ready'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", thing.__name__).lower()


EVENTS: dict[str, type[Event]] = {kind_of(event): event for event in get_args(Event)}
FACTS: dict[str, type[Fact]] = {kind_of(fact): fact for fact in get_args(Fact)}


def encode_event(event: Event | Fact) -> dict[str, Any]:
    """An event or a fact as plain data."""
    document = {"kind": kind_of(type(event)), **plain_record(event, without={"allocation"})}
    if isinstance(event, AllocationReady | AllocationAdopted):
        document["allocation"] = plain_record(event.allocation, without={"problem"})
    return document


def decode_event(document: Any, problem_of: ProblemOf) -> Event:
    """Read an event; `problem_of` provides the problem that an allocation answers."""
    event: Event = _decode("event", EVENTS, document, problem_of)
    return event


def decode_fact(document: Any, problem_of: ProblemOf) -> Fact:
    """Read a fact; `problem_of` provides the problem that an allocation answers."""
    fact: Fact = _decode("fact", FACTS, document, problem_of)
    return fact


def _decode(what: str, kinds: Mapping[str, type[Any]], document: Any, problem_of: ProblemOf) -> Any:
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"there is no {what} of kind {kind!r}; known: {', '.join(kinds)}")
    fields = {name: part for name, part in document.items() if name != "kind"}
    try:
        if "allocation" in fields:
            allocation = fields.pop("allocation")
            number = from_plain(int, fields.get("number"))
            return from_plain(kinds[kind], fields, allocation=_answer(allocation, problem_of(number)))
        return from_plain(kinds[kind], fields)
    except MisfitError as misfit:
        raise InputError(f"{what} {kind}: {misfit}") from None


def encode_command(command: Command) -> dict[str, Any]:
    """A command as plain data, for logs and to compare the commands of two schedulers."""
    return {"kind": kind_of(type(command)), **plain_record(command)}


def encode_problem(problem: Problem) -> dict[str, Any]:
    """A problem as plain data."""
    return plain_record(problem)


def decode_problem(document: Any) -> Problem:
    """Read a problem."""
    return from_plain(Problem, document)


def encode_allocation(allocation: Allocation) -> dict[str, Any]:
    """An allocation as plain data, including its problem."""
    return plain_record(allocation)


def decode_allocation(document: Any) -> Allocation:
    """Read an allocation with its problem."""
    if not isinstance(document, dict) or "problem" not in document:
        raise MisfitError("an allocation lacks its problem")
    rest = {name: part for name, part in document.items() if name != "problem"}
    return _answer(rest, decode_problem(document["problem"]))


def _answer(document: Any, problem: Problem) -> Allocation:
    allocation = from_plain(Allocation, document, problem=problem)
    jobs, columns = len(problem.jobs), len(problem.columns)
    if len(allocation.classes.of_job) != jobs or allocation.instances.shape[1:] != (columns,):
        raise MisfitError(f"the allocation does not answer this problem of {jobs} jobs and {columns} columns")
    return allocation
