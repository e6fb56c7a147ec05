"""Which runs occupy which accelerators, and which runs began or ended since the mechanism was last told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gavel.core.cluster import Server
from gavel.scheduler.placement import ServerPool, Where
from gavel.scheduler.roster import Roster
from gavel.scheduler.rounds import Elapsed, Run


class Occupancy:
    """The runs in the server pools of all types. Starts and stops are passed on to the roster."""

    def __init__(
        self, roster: Roster, server_pools: Iterable[ServerPool], placed: Mapping[Run, Where] | None = None
    ) -> None:
        self._roster = roster
        self.server_pools = list(server_pools)
        self.placed: dict[Run, Where] = dict(placed or {})
        """Every run with its placement. No accelerator and no job occurs twice."""
        self.run_of = {slot: run for run in self.placed for slot in run.members}
        """The same by slot."""
        self._begun: dict[Run, None] = {}
        self._ended: dict[Run, None] = {}
        """Ended runs that the mechanism has not been told about; empty once an event has been handled."""

    @property
    def capacity(self) -> list[int]:
        """By type: the number of accelerators."""
        return [pool.capacity for pool in self.server_pools]

    @property
    def untold(self) -> bool:
        """Whether runs have begun or ended that the mechanism has not been told about."""
        return bool(self._begun or self._ended)

    def told(self, seconds: float) -> Elapsed:
        """Return the report of these seconds for the mechanism, and count its runs as told."""
        elapsed = Elapsed(seconds, self.placed.keys(), tuple(self._begun), tuple(self._ended))
        self._begun.clear()
        self._ended.clear()
        return elapsed

    def servers(self, types: Sequence[str]) -> Iterator[Server]:
        """Iterate over all servers."""
        for type_name, pool in zip(types, self.server_pools, strict=True):
            for name, size, _ in pool.servers():
                figures = pool.figures(name)
                yield Server(
                    name,
                    type_name,
                    size,
                    figures.millicores / 1000,
                    figures.memory,
                    figures.accelerator_memory,
                )

    def pool_of(self, server: str) -> ServerPool | None:
        """The pool that a server is in; None if there is no such server."""
        return next((pool for pool in self.server_pools if server in pool), None)

    def runs_on(self, server: str) -> list[Run]:
        """The runs on a server."""
        pool = self.pool_of(server)
        return [
            run for run, where in self.placed.items() if self.server_pools[run.type_index] is pool and server in where
        ]

    def closed(self) -> list[str]:
        """The names of the servers that accept no new runs."""
        return sorted(name for pool in self.server_pools for name in pool.closed)

    def start(self, run: Run, where: Where) -> None:
        """Give a run these accelerators, which must be free."""
        self._seat(run, self.server_pools[run.type_index].take_exactly(where))

    def stop(self, run: Run) -> None:
        """Stop a run and free its accelerators."""
        self.server_pools[run.type_index].give_back(self._clear(run))

    def move(self, places: Mapping[Run, Where]) -> None:
        """Move runs within their type. All leave before any is placed; they remain the same runs."""
        for run in places:
            self.server_pools[run.type_index].give_back(self.placed[run])
        for run, where in places.items():
            self.placed[run] = self.server_pools[run.type_index].take_exactly(where)

    def renew(self, slot: int) -> None:
        """Let the run of a job continue as another run, which the mechanism knows nothing about yet."""
        run = self.run_of[slot]
        self._seat(Run(run.members, run.type_index, run.workers), self._clear(run))

    def vacate(self, slot: int) -> None:
        """Remove a job from its accelerators; a job that shared them continues alone until the round ends."""
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
        """Free the accelerators of a run and return which they were."""
        for slot in run.members:
            del self.run_of[slot]
        if run in self._begun:
            del self._begun[run]
        else:
            self._ended[run] = None
        self._roster.stops(run.members)
        return self.placed.pop(run)
