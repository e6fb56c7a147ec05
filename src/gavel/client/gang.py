"""Gangs: the ranks of a distributed job stop, save and end at the same step, whatever framework trains them.

Rank 0 leads. It grants steps ahead of need, the same to all ranks: "run up to step L". To stop, it grants no more:
all ranks reach L, and there it says what happens. A rank waits for others only when it is a whole window ahead.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gavel.client.checkpoints import (
    Checkpoints,
    Position,
    Randomness,
    explained,
    read_position,
    warn,
    write_position,
)
from gavel.client.coordination import AskedToLeaveError, Fill, Load, NextAction, Wish, newest, tried
from gavel.client.errors import CheckpointError, GangError, from_full_disk
from gavel.client.gang_wire import Message, Peer, Watch, gather, join, part
from gavel.client.job_environment import JobEnvironment

WINDOW_SECONDS = 0.5
"""Approximate length of one grant, and so the time until all ranks have stopped."""


class GangLeader:
    """Rank 0: decides for all ranks."""

    def __init__(
        self, store: Checkpoints | None, steps: int | None, environment: JobEnvironment, tell: Callable[[str], None]
    ) -> None:
        """Lead; `tell` is called from another thread before this process is ended because another rank is gone."""
        self.look_at = 0.0
        self._tell_agent = tell
        self._watch: Watch | None = None
        self._store = store
        self._last = math.inf if steps is None else float(steps)
        self._environment = environment
        self._peers: dict[int, Peer] = {}
        self._limit = 0.0
        """All ranks may run up to this step."""
        self._window = 1
        self._looked: tuple[int, float] | None = None
        """The step and time of the last look, from which the window is measured."""
        self._others_leave = False
        self._out: tuple[int, int] | None = None
        """The first rank that ran out of batches, and after how many steps."""

    @property
    def end(self) -> float:
        return math.inf if self._out is None else self._out[1]

    def begin(self, load: Load, wish: Wish) -> Position | None:
        environment = self._environment
        assert environment.gang_address is not None  # noqa: S101 - only a rank with an address leads
        try:
            for peer in gather(
                environment.gang_address,
                environment.gang_token,
                environment.world_size,
                lambda: _stay(wish),
                environment.gang_certificate,
            ):
                self._peers[peer.rank] = peer
            _stay(wish)
        except AskedToLeaveError:
            self._tell({"leave": True})
            raise
        if self._store is not None:
            self._store.prepare()
        position, unreadable = newest(self._store, lambda checkpoint, at: self._all_load(load, checkpoint, at))
        if self._store is not None:
            self._store.set_aside(unreadable)
        step = position.step if position is not None else 0
        self._extend(step + 2)
        self._tell({"begin": None if position is None else step, "limit": self._limit})
        self._watch = Watch(self._peers.values(), lambda reason: _end_process(0, reason, self._tell_agent))
        return position

    def _all_load(self, load: Load, checkpoint: Path, position: Position) -> str:
        self._tell({"load": checkpoint.name})
        own = tried(load, checkpoint, position)
        return "; ".join(filter(None, [own, *(str(answer["why"]) for answer in self._answers())]))

    def meet(self, step: int, wish: Wish) -> NextAction:
        self._hear()
        if step > self.end:
            self.differ()
        action = wish()
        if action is NextAction.GO and self._others_leave:
            action = NextAction.LEAVE
        out_of_data = action is NextAction.DONE and step < self._limit
        if step == self.end and action in {NextAction.GO, NextAction.SAVE}:
            self._go_beyond(step)
            return NextAction.GO
        if step < self._limit and not out_of_data:
            if action is NextAction.GO and step >= self.look_at:
                self._extend(self._limit + self._measured_window(step))
                self._tell({"limit": self._limit})
            elif step >= self.look_at:
                self.look_at = self._limit
            return NextAction.GO
        if action in {NextAction.GO, NextAction.SAVE}:
            self._extend(step + 1 + self._measured_window(step))
        self._tell({"at": step, "verdict": action.value, "limit": self._limit})
        return action

    def _go_beyond(self, step: int) -> None:
        """Let all ranks ask for the next batch after one rank ran out, to learn whether the others have more."""
        self.look_at = step + 1
        if step >= self._limit:
            self._limit = step + 1
            self._tell({"limit": self._limit})

    def _extend(self, limit: float) -> None:
        """Grant more steps, the same to all; the next look comes when half of the last window is used."""
        self._limit = min(limit, self._last)
        ahead = max(self._window // 2, 1)
        self.look_at = self._limit if self._limit >= self._last else self._limit - ahead

    def _measured_window(self, step: int) -> int:
        """How many steps take about WINDOW_SECONDS, judged by those since the last look; at most doubles each time."""
        now, before = time.monotonic(), self._looked
        self._looked = step, now
        if before is not None and step > before[0] and now > before[1]:
            fitting = WINDOW_SECONDS * (step - before[0]) / (now - before[1])
            self._window = max(1, min(int(fitting), 2 * self._window))
        return self._window

    def differ(self) -> None:
        assert self._out is not None  # noqa: S101 - the caller has seen the end
        rank, step = self._out
        sentence = f"rank {rank} has no batches after step {step}, but rank 0 has: all ranks must have equally many"
        for peer in self._peers.values():
            with suppress(GangError):
                peer.send({"error": sentence})
        raise GangError(sentence)

    def _hear(self) -> None:
        for peer in self._peers.values():
            for message in peer.waiting():
                self._note(peer.rank, message)

    def _note(self, rank: int, message: Message) -> None:
        _check(message)
        if "out" in message and message["out"] < self.end:
            self._out = rank, int(message["out"])
            self.look_at = min(self.look_at, self.end)
        self._others_leave |= bool(message.get("leave"))

    def save(self, position: Position, fill: Fill | None) -> None:
        """Wait for all ranks at this step and for their parts to be written; without `fill`, only wait."""
        if self._store is None or fill is None:
            self._tell({"save": None})
            self._of_all(position)
        else:
            self._write(self._store, position, fill)
        self._tell({"saved": ""})

    def _write(self, store: Checkpoints, position: Position, fill: Fill) -> None:
        try:
            with store.writing(position.step) as directory:
                self._tell({"save": str(directory)})
                fill(directory)
                write_position(directory, self._of_all(position))
        except CheckpointError as error:
            self._tell({"saved": str(error), "blameless": error.blameless})
            raise

    def _of_all(self, position: Position) -> Position:
        randomness = dict(position.randomness)
        for answer in self._answers():
            if answer["why"]:
                raise CheckpointError(
                    f"rank {answer['rank']} could not save: {answer['why']}", blameless=bool(answer.get("blameless"))
                )
            randomness[int(answer["rank"])] = Randomness(answer["epoch_start"], answer["now"])
        return Position(position.step, position.epoch, position.index, randomness)

    def part(self, *, orderly: bool = True) -> None:
        if self._watch is not None:
            self._watch.over()
        peers, self._peers = self._peers, {}
        part(peers.values(), orderly=orderly)

    def _tell(self, message: Message) -> None:
        for peer in self._peers.values():
            peer.send(message)

    def _answers(self) -> list[Message]:
        """One answer of each rank; other messages that arrive meanwhile are noted."""
        return [self._answer(peer) for peer in self._peers.values()]

    def _answer(self, peer: Peer) -> Message:
        while True:
            message = peer.receive()
            if "why" in message:
                return message
            self._note(peer.rank, message)


class GangFollower:
    """Any rank other than 0: runs as far as it is granted."""

    def __init__(self, store: Checkpoints | None, environment: JobEnvironment, tell: Callable[[str], None]) -> None:
        """Follow; `tell` is called from another thread before this process is ended because rank 0 is gone."""
        self.look_at = 0.0
        self.end = math.inf
        self._tell_agent = tell
        self._watch: Watch | None = None
        self._store = store
        self._environment = environment
        self._leader: Peer | None = None
        self._said_leave = False

    @property
    def leader(self) -> Peer:
        if self._leader is None:
            raise GangError("this rank has left its gang")
        return self._leader

    def begin(self, load: Load, wish: Wish) -> Position | None:
        environment = self._environment
        assert environment.gang_address is not None  # noqa: S101 - only a rank with an address follows
        self._leader = join(
            environment.gang_address,
            environment.gang_token,
            environment.rank,
            lambda: _stay(wish),
            environment.gang_certificate,
        )
        loaded: Position | None = None
        while True:
            try:
                message = _check(self.leader.receive())
            except GangError:
                _stay(wish)  # it may have been asked to leave before rank 0 knew of this rank
                raise
            if "leave" in message:
                raise AskedToLeaveError
            if "begin" in message:
                self.look_at = float(message["limit"])
                self._watch = Watch([self.leader], self._end_process)
                return None if message["begin"] is None else loaded
            loaded, why = self._try(load, str(message["load"]))
            self._say({"why": why})

    def _try(self, load: Load, name: str) -> tuple[Position | None, str]:
        if self._store is None:
            return None, f"rank {self._environment.rank} has no load_checkpoint"
        checkpoint = self._store.directory / name
        try:
            position = read_position(checkpoint)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return None, f"rank {self._environment.rank}: {explained(error)}"
        why = tried(load, checkpoint, position)
        return position, f"rank {self._environment.rank}: {why}" if why else ""

    def meet(self, step: int, wish: Wish) -> NextAction:
        action = wish()
        if action is NextAction.LEAVE and not self._said_leave:
            self._said_leave = True
            self._say({"leave": True})
        out_of_data = action is NextAction.DONE and step < self.look_at
        if out_of_data:
            self._say({"out": step})
        while step >= self.look_at or out_of_data:
            message = _check(self.leader.receive())
            if "verdict" in message:
                return self._told(step, message)
            self.look_at = float(message["limit"])
        return NextAction.GO

    def _told(self, step: int, message: Message) -> NextAction:
        if int(message["at"]) != step:
            sentence = (
                f"rank {self._environment.rank} is at step {step} but rank 0 is at step {message['at']}: "
                "all ranks must have equally many batches"
            )
            self._say({"error": sentence})
            raise GangError(sentence)
        self.look_at = float(message["limit"])
        return NextAction(message["verdict"])

    def differ(self) -> None:
        """Do nothing: rank 0 notices the difference."""

    def save(self, position: Position, fill: Fill | None) -> None:
        message = _check(self.leader.receive())
        if "save" in message:
            own = position.randomness[self._environment.rank]
            why, blameless = self._added(message["save"], fill)
            self._say(
                {"rank": self._environment.rank, "epoch_start": own.epoch_start, "now": own.now}
                | {"why": why, "blameless": blameless}
            )
            message = _check(self.leader.receive())
        if message["saved"]:
            raise CheckpointError(str(message["saved"]), blameless=bool(message.get("blameless")))

    def _added(self, directory: str | None, fill: Fill | None) -> tuple[str, bool]:
        """Write this rank's part; return why that failed, and whether a full disk is to blame."""
        if directory is None:
            return "", False
        if fill is None:
            return "it has no save_checkpoint function, but rank 0 has one", False
        try:
            fill(Path(directory))
        except Exception as error:  # noqa: BLE001 - the user's function may raise anything; rank 0 tells all
            return explained(error), from_full_disk(error)
        return "", False

    def _end_process(self, reason: str) -> None:
        _end_process(self._environment.rank, reason, self._tell_agent)

    def _say(self, message: Message) -> None:
        # Rank 0 may be gone with its last message still unread here; the receiving side finds that out.
        with suppress(GangError):
            self.leader.send(message)

    def part(self, *, orderly: bool = True) -> None:
        if self._watch is not None:
            self._watch.over()
        leader, self._leader = self._leader, None
        if leader is not None:
            part([leader], orderly=orderly)


def _end_process(rank: int, reason: str, tell: Callable[[str], None]) -> None:
    """End this process when its training thread may be blocked forever waiting for the other rank."""
    tell(reason)
    warn(f"rank {rank} ends: {reason}")
    sys.stdout.flush()
    os._exit(1)


def _stay(wish: Wish) -> None:
    if wish() is NextAction.LEAVE:
        raise AskedToLeaveError


def _check(message: Message) -> Message:
    if "error" in message:
        raise GangError(str(message["error"]))
    return message
