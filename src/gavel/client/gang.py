"""Gangs: the ranks of a distributed job stop, save and end at the same step, whatever framework trains them.

Rank 0 leads. It grants steps ahead of need, the same for all: "run up to step L". To stop it only grants no more, and
everyone comes to L; there it says what happens. Nobody waits for anybody unless he is ahead by a whole window.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

from gavel.client.checkpoints import Checkpoints, Position, Randomness, explained, read_position, write_position
from gavel.client.company import AskedToLeaveError, Fill, Load, Verdict, Wish, newest, tried
from gavel.client.errors import CheckpointError, GangError
from gavel.client.gang_wire import Message, Peer, gather, join
from gavel.client.place import Place

WINDOW_SECONDS = 0.5
"""So much is granted at a time, about: how long it takes until all have stopped."""


class Leader:
    """Rank 0: decides for all."""

    def __init__(self, store: Checkpoints | None, steps: int | None, place: Place) -> None:
        self.look_at = 0.0
        self._store = store
        self._last = math.inf if steps is None else float(steps)
        self._place = place
        self._peers: dict[int, Peer] = {}
        self._limit = 0.0
        """Everyone may run up to this step."""
        self._window = 1
        self._looked: tuple[int, float] | None = None
        """The step and the time of the last look: what the window is measured by."""
        self._others_leave = False

    def begin(self, load: Load, wish: Wish) -> Position | None:
        place = self._place
        assert place.gang_address is not None  # noqa: S101 - who has none is not made a leader
        self._peers = gather(place.gang_address, place.gang_token, place.world_size, lambda: _stay(wish))
        if wish() is Verdict.LEAVE:
            self._tell({"leave": True})
            raise AskedToLeaveError
        if self._store is not None:
            self._store.prepare()
        position, unreadable = newest(self._store, lambda checkpoint, at: self._all_load(load, checkpoint, at))
        if self._store is not None:
            self._store.set_aside(unreadable)
        step = position.step if position is not None else 0
        self._extend(step + 2)
        self._tell({"begin": None if position is None else step, "limit": self._limit})
        return position

    def _all_load(self, load: Load, checkpoint: Path, position: Position) -> str:
        self._tell({"load": checkpoint.name})
        own = tried(load, checkpoint, position)
        return "; ".join(filter(None, [own, *(str(answer["why"]) for answer in self._answers())]))

    def meet(self, step: int, wish: Wish) -> Verdict:
        self._hear()
        verdict = wish()
        if verdict is Verdict.GO and self._others_leave:
            verdict = Verdict.LEAVE
        out_of_data = verdict is Verdict.DONE and step < self._limit
        if step < self._limit and not out_of_data:
            if verdict is Verdict.GO and step >= self.look_at:
                self._extend(self._limit + self._measured_window(step))
                self._tell({"limit": self._limit})
            elif step >= self.look_at:
                self.look_at = self._limit
            return Verdict.GO
        if verdict in {Verdict.GO, Verdict.SAVE}:
            self._extend(step + 1 + self._measured_window(step))
        self._tell({"at": step, "verdict": verdict.value, "limit": self._limit})
        return verdict

    def _extend(self, limit: float) -> None:
        """Grant more, to all the same; the next look is when half of the last window is used."""
        self._limit = min(limit, self._last)
        ahead = max(self._window // 2, 1)
        self.look_at = self._limit if self._limit >= self._last else self._limit - ahead

    def _measured_window(self, step: int) -> int:
        """How many steps take about WINDOW_SECONDS, by those since the last look; grows by doubling."""
        now, before = time.monotonic(), self._looked
        self._looked = step, now
        if before is not None and step > before[0] and now > before[1]:
            fitting = WINDOW_SECONDS * (step - before[0]) / (now - before[1])
            self._window = max(1, min(int(fitting), 2 * self._window))
        return self._window

    def _hear(self) -> None:
        for peer in self._peers.values():
            for message in peer.waiting():
                if "out" in message:
                    self._check_end(peer.rank, int(message["out"]))
                self._others_leave |= bool(message.get("leave"))

    def _check_end(self, rank: int, step: int) -> None:
        if self._last != math.inf and step > self._last:
            raise GangError(f"rank {rank} made {step} steps, more than the {self._last:.0f} of the job")
        self._last = min(self._last, float(step))  # it has no more data: nobody goes beyond

    def save(self, position: Position, fill: Fill | None) -> None:
        if self._store is None or fill is None:
            return
        try:
            with self._store.writing(position.step) as directory:
                self._tell({"save": str(directory)})
                fill(directory)
                write_position(directory, self._of_all(position))
        except CheckpointError as error:
            self._tell({"saved": str(error)})
            raise
        self._tell({"saved": ""})

    def _of_all(self, position: Position) -> Position:
        randomness = dict(position.randomness)
        for answer in self._answers():
            if answer["why"]:
                raise CheckpointError(f"rank {answer['rank']} could not save: {answer['why']}")
            randomness[int(answer["rank"])] = Randomness(answer["epoch_start"], answer["now"])
        return Position(position.step, position.epoch, position.index, randomness)

    def part(self) -> None:
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            peer.close()

    def _tell(self, message: Message) -> None:
        for peer in self._peers.values():
            peer.send(message)

    def _answers(self) -> list[Message]:
        """One answer of each rank; what else they say meanwhile waits for nobody."""
        answers = []
        for peer in self._peers.values():
            message = peer.receive()
            while "why" not in message:
                message = peer.receive()
            answers.append(message)
        return answers


class Follower:
    """Any other rank: goes as far as it is granted."""

    def __init__(self, store: Checkpoints | None, place: Place) -> None:
        self.look_at = 0.0
        self._store = store
        self._place = place
        self._leader: Peer | None = None
        self._said_leave = False

    @property
    def leader(self) -> Peer:
        if self._leader is None:
            raise GangError("this rank has left its gang")
        return self._leader

    def begin(self, load: Load, wish: Wish) -> Position | None:
        place = self._place
        assert place.gang_address is not None  # noqa: S101 - who has none is not made a follower
        self._leader = join(place.gang_address, place.gang_token, place.rank, lambda: _stay(wish))
        loaded: Position | None = None
        while True:
            message = self.leader.receive()
            if "leave" in message:
                raise AskedToLeaveError
            if "begin" in message:
                self.look_at = float(message["limit"])
                return None if message["begin"] is None else loaded
            loaded, why = self._try(load, str(message["load"]))
            self.leader.send({"why": why})

    def _try(self, load: Load, name: str) -> tuple[Position | None, str]:
        if self._store is None:
            return None, f"rank {self._place.rank} has no load_checkpoint"
        checkpoint = self._store.directory / name
        try:
            position = read_position(checkpoint)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return None, f"rank {self._place.rank}: {explained(error)}"
        why = tried(load, checkpoint, position)
        return position, f"rank {self._place.rank}: {why}" if why else ""

    def meet(self, step: int, wish: Wish) -> Verdict:
        verdict = wish()
        if verdict is Verdict.LEAVE and not self._said_leave:
            self._said_leave = True
            self.leader.send({"leave": True})
        out_of_data = verdict is Verdict.DONE and step < self.look_at
        if out_of_data:
            self.leader.send({"out": step})
        while step >= self.look_at or out_of_data:
            message = self.leader.receive()
            if "verdict" in message:
                return self._told(step, message)
            self.look_at = float(message["limit"])
        return Verdict.GO

    def _told(self, step: int, message: Message) -> Verdict:
        if int(message["at"]) != step:
            raise GangError(
                f"rank {self._place.rank} is at step {step} where rank 0 is at step {message['at']}: "
                "all ranks must have the same number of batches"
            )
        self.look_at = float(message["limit"])
        return Verdict(message["verdict"])

    def save(self, position: Position, fill: Fill | None) -> None:
        if self._store is None or fill is None:
            return
        message = self.leader.receive()
        if "save" in message:
            self._add_part(Path(message["save"]), position, fill)
            message = self.leader.receive()
        if message["saved"]:
            raise CheckpointError(str(message["saved"]))

    def _add_part(self, directory: Path, position: Position, fill: Fill) -> None:
        own = position.randomness[self._place.rank]
        answer = {"rank": self._place.rank, "epoch_start": own.epoch_start, "now": own.now}
        try:
            fill(directory)
        except Exception as error:  # noqa: BLE001 - the user's function may raise anything; rank 0 tells all
            self.leader.send({**answer, "why": explained(error)})
        else:
            self.leader.send({**answer, "why": ""})

    def part(self) -> None:
        leader, self._leader = self._leader, None
        if leader is not None:
            leader.close()


def _stay(wish: Wish) -> None:
    if wish() is Verdict.LEAVE:
        raise AskedToLeaveError
