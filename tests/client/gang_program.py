"""One rank of a gang that trains nothing: its steps take random times, and only the gang keeps it in step.

It reports how it began, one step that a test waits for, and how it ended.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import threading
import time
from pathlib import Path

from counting import Model

from gavel import GavelIterator


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, nargs="+", help="for each rank, or one number for all")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--tell-at", type=int, help="the step of which a test wants to know")
    parser.add_argument("--save-every", type=float, default=600.0)
    parser.add_argument("--every-rank", action="store_true")
    parser.add_argument("--unsaved", type=int, help="a rank that is given no functions to load and save")
    parser.add_argument("--full", type=int, help="a rank whose disk is full when it saves")
    parser.add_argument("--stuck", type=int, help="a rank that never ends the step of which the test wants to know")
    arguments = parser.parse_args()
    rank = int(os.environ["GAVEL_RANK"])
    pauses = random.Random()  # not the one whose state belongs to the training
    random.seed(rank if arguments.every_rank else 0)
    model = Model()
    save = no_space if rank == arguments.full else model.save
    steps = GavelIterator(
        range(arguments.batches[rank % len(arguments.batches)]),
        epochs=arguments.epochs,
        checkpoint_every_seconds=arguments.save_every,
        every_rank=arguments.every_rank,
        load_checkpoint=None if rank == arguments.unsaved else model.load,
        save_checkpoint=None if rank == arguments.unsaved else save,
    )
    print("began", steps.step, flush=True)
    while not steps.done:
        for batch in steps:
            time.sleep(0.003 * pauses.random())
            model.seen.append([batch, random.randrange(1000)])
            if len(model.seen) == arguments.tell_at:
                print("there", flush=True)
                if rank == arguments.stuck:
                    threading.Event().wait()
    print("ended", steps.step, steps.preempted, json.dumps(model.seen), flush=True)


def no_space(folder: Path) -> None:
    """Save nothing."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "part"))


if __name__ == "__main__":
    main()
