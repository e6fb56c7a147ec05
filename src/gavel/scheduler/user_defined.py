"""User-defined mechanisms: calling `module.NAME` makes one, and its plans are checked before they take effect.

A checked mechanism sees the scheduler's arrays read-only. Built-in mechanisms are not wrapped and have no overhead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.errors import GavelError, InputError
from gavel.core.problem import Ints
from gavel.core.serialization import from_plain, plain_record
from gavel.core.user_code import find, misfit, told
from gavel.scheduler.rounds import Elapsed, Mechanism, Place, Plan, RoundInput, Run, RunNumbers, granted

NEEDED = ("adopt", "decide", "account", "leave")
WRITTEN_DOWN = ("dump", "restore")
"""Optional methods of a mechanism; without them a simulation cannot be resumed."""


def load(name: str, *, forgiving: bool = False) -> CheckedMechanism:
    """Make a mechanism by calling `module.NAME`; if `forgiving`, a plan that fails keeps everything as it runs."""
    make = find("mechanism", name, "a class or function that makes a mechanism")
    if make is None or not callable(make):
        raise misfit("mechanism", name, make, "a class or function that makes a mechanism")
    try:
        made = make()
    except Exception as error:
        raise InputError(f"mechanism {name}: cannot be made without arguments: {told(error, name)}") from error
    if missing := [method for method in NEEDED if not _has(made, method)]:
        raise InputError(f"mechanism {name}: a {type(made).__name__} has no method {missing[0]!r}; see gavel.Mechanism")
    return CheckedMechanism(name, made, forgiving=forgiving)


def _has(made: object, method: str) -> bool:
    """Whether an object defines a method itself, instead of inheriting the declaration of gavel.Mechanism."""
    found = getattr(made, method, None)
    return callable(found) and getattr(found, "__func__", None) is not getattr(Mechanism, method)


@dataclass(frozen=True, slots=True, eq=False)
class _CheckedState:
    """The state of a checked mechanism in a dump."""

    kind: str
    pairs: tuple[tuple[int, int, int], ...]
    """(slot, slot, type) for each pair."""
    own: Any


class CheckedMechanism:
    """A user's mechanism whose plans are checked. Errors name the mechanism and the line of its code that raised."""

    def __init__(self, name: str, mechanism: Mechanism, *, forgiving: bool = False) -> None:
        self.name = name
        self._mechanism = mechanism
        self._forgiving = forgiving
        """Whether an error is recorded instead of raised: one bad plan must not stop a live cluster."""
        self._pairs: frozenset[Place] = frozenset()
        """Pairs of jobs that the allocation lets share accelerators of a type."""
        self._troubles: dict[str, str] = {}
        """By method: the error of its last call; only for forgiving mechanisms."""

    @property
    def trouble(self) -> str:
        """The first error among the last calls; empty if all succeeded."""
        return next(iter(self._troubles.values()), "")

    @property
    def can_be_written_down(self) -> bool:
        return all(_has(self._mechanism, method) for method in WRITTEN_DOWN)

    def adopt(self, allocation: Allocation, slots: Ints) -> None:
        shares = granted(allocation, slots)
        self._pairs = frozenset(
            (tuple(sorted(members)), type_index) for members, type_index in shares if len(members) > 1
        )
        self._guarded("adopt", lambda: self._mechanism.adopt(allocation, slots))

    def decide(self, given: RoundInput) -> Plan:
        plan = self._guarded("decide", lambda: self._checked_plan(given))
        return Plan() if plan is None else plan

    def account(self, elapsed: Elapsed) -> None:
        shown = replace(elapsed, runs=tuple(elapsed.runs))
        self._guarded("account", lambda: self._mechanism.account(shown))

    def leave(self, slot: int) -> None:
        self._guarded("leave", lambda: self._mechanism.leave(slot))

    def dump(self, numbers: RunNumbers) -> dict[str, Any]:
        own = self._called(lambda: self._mechanism.dump(numbers))
        try:
            json.dumps(own, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise GavelError(f"mechanism {self.name} returned a state that JSON cannot hold: {error}") from None
        pairs = sorted((*members, type_index) for members, type_index in self._pairs)
        return plain_record(_CheckedState(self.name, tuple(pairs), own))  # type: ignore[arg-type] # two slots each

    def restore(self, document: Any, runs: Sequence[Run]) -> None:
        state = from_plain(_CheckedState, document)
        if state.kind != self.name:
            raise InputError(f"the state belongs to mechanism {state.kind}, not to {self.name}")
        self._pairs = frozenset(((one, other), type_index) for one, other, type_index in state.pairs)
        try:
            self._called(lambda: self._mechanism.restore(state.own, runs))
        except GavelError as error:
            raise InputError(f"{error}; this happened while it restored its state") from error

    def _checked_plan(self, given: RoundInput) -> Plan:
        answer = self._mechanism.decide(_read_only(given))
        if not isinstance(answer, Plan):
            raise GavelError(f"mechanism {self.name} returned a {type(answer).__name__} instead of a Plan")
        runs = answer.runs(given)
        if wrong := fault(given, runs, self._pairs):
            raise GavelError(f"mechanism {self.name} returned a plan that cannot run: {wrong}")
        return Plan.of(given, runs)

    def _guarded(self, method: str, call: Callable[[], Any]) -> Any:
        """Return the result of a call; None if it failed and the mechanism is forgiving."""
        try:
            result = self._called(call)
        except GavelError as error:
            if not self._forgiving:
                raise
            self._troubles[method] = str(error)
            return None
        self._troubles.pop(method, None)
        return result

    def _called(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except GavelError:
            raise
        except Exception as error:
            raise GavelError(f"mechanism {self.name} failed: {told(error, self.name)}") from error


def fault(given: RoundInput, runs: Sequence[Run], pairs: Collection[Place]) -> str | None:
    """Why these runs are not a valid plan, or None. Two jobs may share if they already do or if they are in `pairs`."""
    ready, running = given.ready(), {run.place for run in given.running}
    used, seen = [0] * len(given.capacity), set[int]()
    for run in runs:
        if wrong := _malformed(run, len(used)):
            return wrong
        continues = run.place in running
        if wrong := _unfit(run, given, ready) or (None if continues else _unsuitable(run, given, pairs)):
            return wrong
        if twice := seen.intersection(run.members):
            return f"the job in slot {min(twice)} would run twice"
        seen.update(run.members)
        used[run.type_index] += run.workers
    for type_index, (count, capacity) in enumerate(zip(used, given.capacity, strict=True)):
        if count > capacity:
            return f"{count} of {capacity} accelerators of type {type_index} would be in use"
    stopped = {slot for run in given.running for slot in run.members} - seen
    if given.mid_round and stopped:
        return f"the job in slot {min(stopped)} would be stopped during a round"
    return None


def _malformed(run: object, types: int) -> str | None:
    """Why an object is not a run of jobs on one of the types; None if it is."""
    if not isinstance(run, Run):
        return f"it contains a {type(run).__name__} instead of a gavel.Run"
    slots: Any = run.members
    if not (
        isinstance(slots, tuple)
        and 1 <= len(slots) <= 2
        and len(set(slots)) == len(slots)
        and all(map(_is_whole, slots))
    ):
        return f"the members of a run must be a tuple of one or two slots, not {run.members!r}"
    if not (_is_whole(run.type_index) and 0 <= run.type_index < types):
        return f"there is no type {run.type_index!r}; the types are 0 to {types - 1}"
    return None


def _unfit(run: Run, given: RoundInput, ready: Collection[int]) -> str | None:
    """Why these jobs cannot run now with this number of workers; None if they can."""
    for slot in run.members:
        if slot not in ready:
            return f"the job in slot {slot} neither runs nor waits"
        if run.workers != given.workers[slot]:
            return f"the job in slot {slot} would get {run.workers} workers, but it needs {given.workers[slot]}"
    return None


def _unsuitable(run: Run, given: RoundInput, pairs: Collection[Place]) -> str | None:
    """Why these jobs cannot run on this type; None if they can."""
    for slot in run.members:
        if not given.rates[slot, run.type_index] > 0:
            return f"the job in slot {slot} cannot run on type {run.type_index}"
    if len(run.members) > 1 and run.place not in pairs:
        one, other = run.members
        return (
            f"the jobs in slots {one} and {other} would share accelerators of type {run.type_index}, "
            "which the allocation does not allow"
        )
    return None


def _is_whole(number: object) -> bool:
    return isinstance(number, int | np.integer)


def _read_only(given: RoundInput) -> RoundInput:
    """The same input with read-only arrays."""
    shown: dict[str, Any] = {name: tuple(getattr(given, name)) for name in ("capacity", "free", "running")}
    for field in fields(given):
        value = getattr(given, field.name)
        if isinstance(value, np.ndarray):
            shown[field.name] = value.view()
            shown[field.name].flags.writeable = False
    return replace(given, **shown)
