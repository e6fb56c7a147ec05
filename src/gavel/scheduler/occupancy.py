"""Who runs where: the server pools, the runs in them, and which runs began or ended since the mechanism was told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gavel.core.cluster import Server
from gavel.scheduler.placement import ServerPool, Where
from gavel.scheduler.roster import Roster
from gavel.scheduler.rounds import Elapsed, Run


class Occupancy:
    """The runs in the server pools of all types. Starts and stops are noted in the roster, too."""

    def __init__(
        self, roster: Roster, server_pools: Iterable[ServerPool], placed: Mapping[Run, Where] | None = None
    ) -> None:
        self._roster = roster
        self.server_pools = list(server_pools)
        self.placed: dict[Run, Where] = dict(placed or {})
        """What runs, and where: no accelerator twice, no job twice."""
        self.run_of = {slot: run for run in self.placed for slot in run.members}
        """The same by slot."""
        self._begun: dict[Run, None] = {}
        self._ended: dict[Run, None] = {}
        """Runs of which the mechanism has not been told yet; none are left when an event has been handled."""

    @property
    def capacity(self) -> list[int]:
        """Accelerators by type."""
        return [pool.capacity for pool in self.server_pools]

    @property
    def untold(self) -> bool:
        """Whether runs have begun or ended of which the mechanism has not been told."""
        return bool(self._begun or self._ended)

    def told(self, seconds: float) -> Elapsed:
        """What to tell the mechanism after these seconds; from now on it counts as told."""
        elapsed = Elapsed(seconds, self.placed.keys(), tuple(self._begun), tuple(self._ended))
        self._begun.clear()
        self._ended.clear()
        return elapsed

    def servers(self, types: Sequence[str]) -> Iterator[Server]:
        """Every server that is counted on."""
        for type_name, pool in zip(types, self.server_pools, strict=True):
            for name, size, _ in pool.servers():
                yield Server(name, type_name, size)

    def pool_of(self, server: str) -> ServerPool | None:
        """The pool that a server is in; None if there is no such server."""
        return next((pool for pool in self.server_pools if server in pool), None)

    def runs_on(self, server: str) -> list[Run]:
        """What runs on a server."""
        pool = self.pool_of(server)
        return [
            run for run, where in self.placed.items() if self.server_pools[run.type_index] is pool and server in where
        ]

    def closed(self) -> list[str]:
        """The servers that start nothing new, by name."""
        return sorted(name for pool in self.server_pools for name in pool.closed)

    def start(self, run: Run, where: Where) -> None:
        """Let a run have these accelerators, which must be free."""
        self._seat(run, self.server_pools[run.type_index].take_exactly(where))

    def stop(self, run: Run) -> None:
        """Take a run off its accelerators."""
        self.server_pools[run.type_index].give_back(self._clear(run))

    def move(self, places: Mapping[Run, Where]) -> None:
        """Runs that move within a type stay the same runs; all leave before any sits down."""
        for run in places:
            self.server_pools[run.type_index].give_back(self.placed[run])
        for run, where in places.items():
            self.placed[run] = self.server_pools[run.type_index].take_exactly(where)

    def vacate(self, slot: int) -> None:
        """Take a job off its accelerators; whoever shared them goes on alone until the round ends."""
        run = self.run_of[slot]
        where = self._clear(run)
        rest = tuple(member for member in run.members if member != slot)
        if rest:
            self._seat(Run(rest, run.type_index, run.workers), where)
        else:
            self.server_pools[run.type_index].give_back(where)

    def _seat(self, run: Run, where: Where) -> None:
        self.placed[run] = where
        for slot in run.members:
            self.run_of[slot] = run
        self._begun[run] = None
        self._roster.starts(run.members, run.type_index)

    def _clear(self, run: Run) -> Where:
        """Take a run off its accelerators, and say which they were."""
        for slot in run.members:
            del self.run_of[slot]
        if run in self._begun:
            del self._begun[run]
        else:
            self._ended[run] = None
        self._roster.stops(run.members)
        return self.placed.pop(run)
