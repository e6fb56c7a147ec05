"""A round served in order of priority where CPU cores, RAM or accelerator memory may bind.

A run keeps its place unless a combo of higher priority fits only if the run leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

from gavel.scheduler.room import Room, RunLoad
from gavel.scheduler.rounds import Members, Plan, RoundInput, Run


class TightService:
    """The plan of one round in the making."""

    def __init__(self, given: RoundInput, room: Room, order: Sequence[tuple[Members, int]]) -> None:
        self._given = given
        self._room = room
        self.ready = given.ready()
        self.taken: set[int] = set()
        """The jobs that run."""
        self._unserved = {run.place: run for run in given.running}
        """The runs of which it is not decided whether they continue."""
        self._unserved_of = {slot: run for run in given.running for slot in run.members}
        """The same by job."""
        self._kept: set[Run] = set()
        self._started: list[Run] = []
        rank = {(tuple(sorted(members)), at): number for number, (members, at) in reversed(list(enumerate(order)))}
        self._lowest_first: list[dict[Run, None]] = [{} for _ in given.capacity]
        """By type: these runs, those of lowest priority first."""
        for run in sorted(given.running, key=lambda run: -rank.get(run.place, len(rank))):
            self._lowest_first[run.type_index][run] = None
        self._hopeless: set[tuple[RunLoad, int, int]] = set()
        """Loads, types and workers that found no place although every unserved run might have left."""

    @property
    def free(self) -> list[int]:
        """By type: idle accelerators."""
        return [int(servers.accelerators.sum()) for servers in self._room.servers]

    def keep_all(self) -> None:
        """Let everything that runs continue."""
        for run in self._given.running:
            self.serve(run.members, run.type_index)

    def serve(self, members: Members, type_index: int) -> None:
        """Let a combo run if its jobs do not run yet and there is a place, or unserved runs can make one."""
        if not self.taken.isdisjoint(members) or not self.ready.issuperset(members):
            return
        running = self._unserved.get((tuple(sorted(members)), type_index))
        if running is not None:
            self._decide(running)
            self._kept.add(running)
            self.taken.update(members)
        elif self._make_place(members, type_index):
            self._start(members, type_index)

    def stop_unserved(self) -> None:
        """Stop the runs that were not served."""
        for run in [*self._unserved.values()]:
            self._decide(run)
            self._room.leave(run)

    def plan(self) -> Plan:
        """The finished plan."""
        stopped = [run for run in self._given.running if run not in self._kept]
        return Plan(stopped, self._started, {run: self._room.where[run] for run in self._started})

    def _make_place(self, members: Members, type_index: int) -> bool:
        """Stop the unserved runs of these jobs, and those of lowest priority that are in their way."""
        workers = int(self._given.workers[members[0]])
        kind = (self._room.load(members), type_index, workers)
        if kind in self._hopeless:
            return False
        own = [*dict.fromkeys(self._unserved_of[slot] for slot in members if slot in self._unserved_of)]
        others = (run for run in self._lowest_first[type_index] if run not in own)
        leaving = self._room.clearing(members, type_index, workers, others, own)
        if leaving is None:
            self._hopeless.add(kind)
            return False
        for run in (*own, *leaving):
            self._decide(run)
            self._room.leave(run)
        return True

    def _decide(self, run: Run) -> None:
        """Decide about a run that was unserved."""
        del self._unserved[run.place], self._lowest_first[run.type_index][run]
        for slot in run.members:
            del self._unserved_of[slot]

    def _start(self, members: Members, type_index: int) -> None:
        run = Run(members, type_index, int(self._given.workers[members[0]]))
        where = self._room.find(members, type_index, run.workers)
        assert where is not None, "the place that was made is gone"  # noqa: S101
        self._room.enter(run, where)
        self._started.append(run)
        self.taken.update(members)
