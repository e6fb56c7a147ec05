"""New facts for readers that follow them: packed once, with a bounded queue for each reader.

A reader that is too slow loses nothing: its queue is emptied, and it reads the journal until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gavel.runtime.engine import Engine
from gavel.runtime.event_lines import Wanted
from gavel.runtime.facts import Fact
from gavel.wire import gavel_pb2 as pb

MOST_WAITING = 500
"""Most lines that wait in memory for one reader."""

Pack = Callable[[int, Fact], pb.EventLine]


class Follower:
    """One reader of new facts."""

    def __init__(self, wanted: Wanted) -> None:
        self.behind = False
        """Whether it must read the journal before it follows again."""
        self._wanted = wanted
        self._after = 0
        self._lines: deque[pb.EventLine] = deque()
        self._something = asyncio.Event()

    def begin(self, after: int) -> None:
        """Follow the facts after a number; the reader reads those up to it from the journal."""
        self.behind, self._after = False, after
        self._lines.clear()

    def offer(self, number: int, fact: Fact, line: Callable[[], pb.EventLine]) -> None:
        """A fact was written."""
        if self.behind or number <= self._after or not self._wanted.includes(fact):
            return
        if len(self._lines) >= MOST_WAITING:
            self.behind = True
            self._lines.clear()
        else:
            self._lines.append(line())
        self._something.set()

    async def next(self) -> pb.EventLine | None:
        """The next line; None if it must read the journal first."""
        while not self._lines and not self.behind:
            self._something.clear()
            await self._something.wait()
        return None if self.behind else self._lines.popleft()


class Following:
    """All readers of new facts."""

    def __init__(self, engine: Engine, pack: Pack) -> None:
        self._engine = engine
        self._pack = pack
        self._followers: list[Follower] = []

    @contextmanager
    def follower(self, wanted: Wanted) -> Iterator[Follower]:
        """A reader, until it leaves."""
        follower = Follower(wanted)
        if not self._followers:
            self._engine.witnesses.append(self._notice)
        self._followers.append(follower)
        try:
            yield follower
        finally:
            self._followers.remove(follower)
            if not self._followers:
                self._engine.witnesses.remove(self._notice)

    def _notice(self, facts: Sequence[Fact]) -> None:
        first = self._engine.witnessed - len(facts) + 1
        for number, fact in enumerate(facts, start=first):
            line = self._packed_once(number, fact)
            for follower in self._followers:
                follower.offer(number, fact, line)

    def _packed_once(self, number: int, fact: Fact) -> Callable[[], pb.EventLine]:
        packed: list[pb.EventLine] = []

        def line() -> pb.EventLine:
            if not packed:
                packed.append(self._pack(number, fact))
            return packed[0]

        return line
