"""Turn a plan into the fact that records it: give every run its accelerators and every start and stop its cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gavel.core.facts import RoundPlanned, Started, Stopped
from gavel.core.jobs import Cause
from gavel.scheduler.beliefs import Beliefs
from gavel.scheduler.occupancy import Occupancy
from gavel.scheduler.placement import Where
from gavel.scheduler.room import Room
from gavel.scheduler.roster import Roster
from gavel.scheduler.rounds import Plan, Run
from gavel.scheduler.seating import Seating, TightSeating

SEATED = Cause("seated", "moves so that a gang can sit together")
REPAIRED = Cause("repaired", "shares its accelerators differently")
FIRST = Cause("first", "its first turn")
TURN = Cause("turn", "its turn has come")
TAKERS = 8
"""The most jobs that are recorded as those that a run yields to."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanRecorder:
    """Builds the facts that record plans; modifies nothing."""

    roster: Roster
    beliefs: Beliefs
    occupancy: Occupancy

    def with_places(self, planned: RoundPlanned, plan: Plan, room: Room | None = None) -> RoundPlanned:
        """Place every run; when a round begins, also consolidate spread-out gangs where possible.

        With `room`, the plan has a place for every run that starts, and what servers have beside accelerators counts.
        """
        gather, placed = not planned.mid_round, self.occupancy.placed
        seating = (
            Seating(self.occupancy.server_pools, placed, self._cares)
            if room is None
            else TightSeating(room, plan, placed, self._cares)
        )
        for run in plan.stopped:
            seating.stop(run)
        scattered = planned.scattered or any(run.workers > 1 for run in plan.started)
        if gather and scattered:
            stopped = set(plan.stopped)
            apart = [run for run, where in placed.items() if len(where) > 1 and run not in stopped]
            apart = [run for run in apart if self._cares(run)]
            scattered = bool(apart) or any(run.workers > 1 for run in plan.started)
            seating.gather(apart)
        places = {
            run: seating.seat(run, make_room=gather) for run in sorted(plan.started, key=lambda run: -run.workers)
        }
        return replace(
            planned,
            stopped=self._stopped(plan),
            moved=tuple(self._started(run, where, SEATED) for run, where in seating.moves().items()),
            started=tuple(self._started(run, where, self._why_started(run)) for run, where in places.items()),
            scattered=scattered,
        )

    def _cares(self, run: Run) -> bool:
        return self.beliefs.cares(run, self.roster)

    def _started(self, run: Run, where: Where, cause: Cause) -> Started:
        roster = self.roster
        attempts = tuple(int(roster.restarts[slot] + roster.started[slot]) + 1 for slot in run.members)
        locality = self.occupancy.server_pools[run.type_index].locality(where)
        return Started(self._names(run), attempts, self.beliefs.types[run.type_index], where, locality, cause)

    def _stopped(self, plan: Plan) -> tuple[Stopped, ...]:
        if not plan.stopped:
            return ()
        why = self._causes(plan)
        return tuple(Stopped(self._names(run), why.stopped(run)) for run in plan.stopped)

    def _causes(self, plan: Plan) -> _Causes:
        types = self.beliefs.types
        takers: list[list[str]] = [[] for _ in types]
        for run in plan.started:
            takers[run.type_index] += self._names(run)
        starts = {slot: (at, run.type_index) for at, run in enumerate(plan.started) for slot in run.members}
        return _Causes(starts, [Cause("moved", f"moves to {name}") for name in types], [*map(_yielded, takers)])

    def _why_started(self, run: Run) -> Cause:
        return FIRST if not any(self.roster.started[slot] for slot in run.members) else TURN

    def _names(self, run: Run) -> tuple[str, ...]:
        return tuple([self.roster.name(slot) for slot in run.members])


@dataclass(frozen=True, slots=True, eq=False)
class _Causes:
    """Why runs stop under one plan: their jobs move to another type, or other jobs take their accelerators."""

    starts: Mapping[int, tuple[int, int]]
    """By slot of a job that starts: the position of its run in the plan, and its type."""
    moved: Sequence[Cause]
    """By type: the cause of a job that moves to it."""
    yielded: Sequence[Cause]
    """By type: the cause of a run that yields its accelerators there."""

    def stopped(self, run: Run) -> Cause:
        """Why a run stops; if its jobs start again in separate runs, the first of these counts."""
        starts = [self.starts[slot] for slot in run.members if slot in self.starts]
        if not starts:
            return self.yielded[run.type_index]
        _, type_index = min(starts)
        return REPAIRED if type_index == run.type_index else self.moved[type_index]


def _yielded(takers: Sequence[str]) -> Cause:
    """The cause of a run that yields to these jobs."""
    if not takers:
        return Cause("yielded", "others are owed more time")
    shown = ", ".join(takers[:3]) + (" and others" if len(takers) > 3 else "")
    return Cause("yielded", f"yields to job {shown}", tuple(takers[:TAKERS]))
