"""`GavelIterator`: a loop over batches that counts steps, leaves when asked, and resumes exactly where it stopped.

It owns the position and decides when to check for orders; link, gang and checkpoints have their own modules.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic

from gavel.client import randomness
from gavel.client.batches import Batch, batches_from, tell_epoch
from gavel.client.checkpoints import Checkpoints, Position, Randomness, step_of, warn
from gavel.client.coordination import AskedToLeaveError, Coordination, LoadOnlyRank, NextAction, Solo
from gavel.client.errors import CheckpointError, TrainingError
from gavel.client.gang import GangFollower, GangLeader
from gavel.client.job_environment import JobEnvironment
from gavel.client.link import TERMINATED, AgentLink, Message, Orders
from gavel.client.pacing import Pace, StepTally
from gavel.client.termination import TERMINATION
from gavel.errors import InputError

Callback = Callable[[Path], object]
_SHORTEST_SLEEP = 0.0003
"""A sleep takes at least about this long; later steps make up for shorter ones."""


class GavelIterator(Generic[Batch]):
    """The batches of `data`, one epoch for each `for` loop over it, from where the last run of the job stopped.

    >>> steps = GavelIterator(["a", "b"], epochs=2)
    >>> while not steps.done:
    ...     for batch in steps:
    ...         print(steps.epoch, batch)
    0 a
    0 b
    1 a
    1 b

    A batch counts as a step when the next one is requested. `done` is true when all steps are made, or when Gavel or
    SIGTERM asked the job to leave: then `preempted` is true too, the checkpoint is saved, and the program should end.
    """

    def __init__(
        self,
        data: Iterable[Batch],
        *,
        load_checkpoint: Callback | None = None,
        save_checkpoint: Callback | None = None,
        steps: int | None = None,
        epochs: int | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_every_seconds: float = 600.0,
        every_rank: bool = False,
        skip_by_index: bool | None = None,
    ) -> None:
        """Connect to the agent, if there is one, and load the newest checkpoint, if there is one.

        `load_checkpoint` and `save_checkpoint` take a directory to read from or write to. The training ends after
        `steps` steps or `epochs` epochs, whichever comes first; with neither, after one epoch. Under Gavel the job's
        own number of steps (GAVEL_STEPS) replaces `steps`, and its directory (GAVEL_CHECKPOINT_DIR) `checkpoint_dir`.
        In a distributed job rank 0 saves for all; with `every_rank`, each rank saves and loads in its own directory.
        `skip_by_index`: how to resume in the middle of an epoch, see docs/training.md.
        """
        if (load_checkpoint is None) != (save_checkpoint is None):
            raise InputError("load_checkpoint and save_checkpoint go together: give both or neither")
        self.data = data
        self.epoch = 0
        """The number of the epoch, from 0."""
        self.done = False
        self.preempted = False
        self._environment = environment = JobEnvironment.of(os.environ)
        self._load, self._save = load_checkpoint, save_checkpoint
        self._steps = environment.steps if environment.steps is not None else steps
        self._epochs = 1 if self._steps is None and epochs is None else epochs
        self._save_seconds = checkpoint_every_seconds
        self._every_rank, self._skip_by_index = every_rank, skip_by_index
        directory = environment.checkpoint_dir or checkpoint_dir
        self._store = Checkpoints(Path(directory)) if directory and save_checkpoint else None
        self._batches: Iterator[Batch] | None = None
        self._index = 0
        """How many batches of this epoch are done."""
        self._in_hand = False
        """Whether a batch was handed out and is not counted yet."""
        self._out_of_epochs = False
        self._epoch_start: randomness.State = {}
        self._resumed: Randomness | None = None
        """The random states to restore when the first epoch is opened."""
        self._tally = StepTally()
        self._pace: Pace | None = None
        self._look_at = self._next_save = math.inf
        self._orders = Orders(environment.lease_seconds if environment.socket else None)
        self._link = AgentLink(environment.socket, environment.rank, self._orders, self._status)
        self._link.counts()
        TERMINATION.listen(self._orders)
        self._coordination = self._coordinated()
        atexit.register(self.close)
        self._begin()

    @property
    def step(self) -> int:
        """Steps done in the job's whole life, including earlier runs."""
        return self._tally.steps

    @property
    def leaving(self) -> bool:
        """Whether Gavel, or SIGTERM, asked to leave. The loop ends soon; in a single process, after this batch."""
        return self._orders.leaving(time.monotonic())

    def __iter__(self) -> GavelIterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._in_hand:
            self._count()
        if self.done:
            raise StopIteration
        if self._batches is None:
            self._batches = self._open_epoch()
        try:
            batch = next(self._batches)
        except StopIteration:
            self._close_epoch()
            raise
        if self._tally.steps >= self._coordination.end:
            with self._telling_failure():
                self._coordination.differ()
        self._in_hand = True
        return batch

    def close(self) -> None:
        """Send the last report and close the link; happens automatically when the training or the program ends."""
        atexit.unregister(self.close)
        uncaught = hasattr(sys, "last_value")  # the program ends with an exception
        self._coordination.part(orderly=not uncaught)
        TERMINATION.forget(self._orders)
        self._link.close()

    # ---- start ----

    def _coordinated(self) -> Coordination:
        if self._environment.gang_address is not None:
            environment = self._environment
            if environment.rank == 0:
                return GangLeader(self._store, self._steps, environment, self._say_failed)
            return GangFollower(self._store, environment, self._say_failed)
        if self._environment.world_size > 1 and self._environment.rank > 0:
            return LoadOnlyRank(self._store, self._steps)
        return Solo(self._store, self._steps)

    def _begin(self) -> None:
        self._greet()
        with self._telling_failure():
            try:
                position = self._coordination.begin(self._load_from, self._wish)
            except AskedToLeaveError:
                saved = self._store.newest_first() if self._store is not None else []
                self._tally.steps = self._tally.saved = step_of(saved[0]) if saved else 0
                self._end(NextAction.LEAVE)
                return
            if position is not None:
                self._take(position)
            self._schedule_looks()
            if self._wish() is NextAction.DONE:
                self._end(NextAction.DONE)

    def _greet(self) -> None:
        if self._link.broken:
            warn(f"no connection to Gavel's agent ({self._link.broken}); the job runs until its lease ends")
        if self._environment.socket and self._store is None:
            warn(
                "nothing is saved without load_checkpoint and save_checkpoint: if preempted, it begins at step 0 again"
            )

    def _load_from(self, checkpoint: Path, position: Position) -> None:
        del position
        if self._load is not None:
            self._load(self._own_part(checkpoint))

    def _own_part(self, checkpoint: Path) -> Path:
        return checkpoint / f"rank-{self._environment.rank}" if self._every_rank else checkpoint

    def _take(self, position: Position) -> None:
        self._tally.steps = self._tally.saved = position.step
        self.epoch, self._index = position.epoch, position.index
        self._out_of_epochs = self._epochs is not None and self.epoch >= self._epochs
        self._resumed = position.randomness.get(self._environment.rank)

    # ---- epochs ----

    def _open_epoch(self) -> Iterator[Batch]:
        """Open an epoch in its original order, and skip the batches that are already done."""
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            randomness.restore(resumed.epoch_start, self.data)
        self._epoch_start = randomness.capture(self.data)
        tell_epoch(self.data, self.epoch)
        batches = batches_from(self.data, self._index, by_index=self._skip_by_index)
        if resumed is not None and self._index > 0:
            randomness.restore(resumed.now, self.data)
        return batches

    def _close_epoch(self) -> None:
        self._batches = None
        if self._index == 0:
            raise InputError(
                f"epoch {self.epoch} has no batches: the data is empty, or can be iterated only once (give a list, a "
                "DataLoader, or an object whose __iter__ starts over)"
            )
        self.epoch += 1
        self._index = 0
        self._out_of_epochs = self._epochs is not None and self.epoch >= self._epochs
        if self._out_of_epochs:
            self._look_around()

    # ---- steps ----

    def _count(self) -> None:
        if self._orders.news:
            self._hear_news()
        if self._pace is not None:
            self._hold_back()
        self._in_hand = False
        self._index += 1
        now = time.monotonic()
        self._tally.step(now)
        if now >= self._look_at or self._tally.steps >= self._coordination.look_at:
            self._look_around()

    def _hold_back(self) -> None:
        """Wait until the current step may end; an order to leave ends the wait at once."""
        while self._pace is not None and not self.leaving:
            now = time.monotonic()
            left = min(self._pace.seconds_left(now), self._orders.deadline - now)
            if left <= _SHORTEST_SLEEP:
                break
            if self._orders.wait(left):
                self._hear_news()
        if self._pace is not None:
            self._pace.step()

    def _hear_news(self) -> None:
        self._orders.look()
        self._look_at = 0.0
        rate = self._orders.rate
        if rate is None:
            self._pace = None
        elif self._pace is None or self._pace.rate != rate:
            self._pace = Pace(rate, time.monotonic())

    def _look_around(self) -> None:
        with self._telling_failure():
            action = self._coordination.meet(self.step, self._wish)
            if action is not NextAction.GO:
                self._checkpoint()
            if action in {NextAction.LEAVE, NextAction.DONE}:
                self._end(action)
        self._schedule_looks()

    def _wish(self) -> NextAction:
        if self._out_of_epochs or (self._steps is not None and self.step >= self._steps):
            return NextAction.DONE
        now = time.monotonic()
        if self._orders.leaving(now):
            return NextAction.LEAVE
        return NextAction.SAVE if now >= self._next_save else NextAction.GO

    def _schedule_looks(self) -> None:
        if self._next_save == math.inf and self._store is not None and self._environment.rank == 0:
            self._next_save = time.monotonic() + self._save_seconds
        self._look_at = min(self._orders.deadline, self._next_save)

    # ---- saving and leaving ----

    def _checkpoint(self) -> None:
        began = time.monotonic()
        states = randomness.capture(self.data)
        opened = self._batches is not None
        own = Randomness(self._epoch_start if opened else states, states)
        position = Position(self.step, self.epoch, self._index, {self._environment.rank: own})
        fresh = self._store is not None and self._tally.saved != self.step
        self._coordination.save(position, self._fill if fresh else None)
        if fresh:
            self._tally.saved = self.step
            self._link.say("saved", steps=self.step)
            # A function that draws random numbers while saving must not change the training.
            randomness.restore(states, self.data)
        self._next_save = math.inf
        self._tally.leave_out(time.monotonic() - began)
        if self._pace is not None:
            self._pace = Pace(self._pace.rate, time.monotonic())

    def _fill(self, directory: Path) -> None:
        if self._save is not None and (self._every_rank or self._environment.rank == 0):
            part = self._own_part(directory)
            part.mkdir(exist_ok=True)
            self._save(part)

    def _end(self, action: NextAction) -> None:
        self.done = True
        self.preempted = action is NextAction.LEAVE
        self._batches = None
        self._coordination.part()
        self._link.progress()
        if self.preempted:
            why = {"reason": TERMINATED} if self._orders.terminated else {}
            self._link.say("stopped", steps=self._tally.saved, **why)
        else:
            self._link.say("done", steps=self.step)
            TERMINATION.forget(self._orders)  # what the program does now is its own

    @contextmanager
    def _telling_failure(self) -> Iterator[None]:
        try:
            yield
        except TrainingError as error:
            self._say_failed(str(error), blameless=isinstance(error, CheckpointError) and error.blameless)
            self._coordination.part(orderly=False)
            raise

    def _say_failed(self, reason: str, *, blameless: bool = False) -> None:
        told = {"blameless": True} if blameless else {}
        self._link.say("failed", reason=reason, **told)

    def _status(self) -> Message:
        steps, seconds = self._tally.measured
        return {
            "steps": self._tally.steps,
            "saved": self._tally.saved,
            "measured_steps": steps,
            "measured_seconds": seconds,
        }
