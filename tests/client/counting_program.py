"""A job that counts to twenty and saves after every step; it can hang in a save, or run into a limit of file sizes."""

from __future__ import annotations

import argparse
import itertools
import resource
import threading
from pathlib import Path

from counting import Model

from gavel import GavelIterator


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--hang-at", type=int)
    parser.add_argument("--file-limit", type=int)
    arguments = parser.parse_args()
    model = Model()

    def save(directory: Path) -> None:
        model.save(directory)
        if len(model.seen) == arguments.hang_at:
            print("saving at", arguments.hang_at, flush=True)
            threading.Event().wait()

    if arguments.file_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (arguments.file_limit, arguments.file_limit))
    steps = GavelIterator(
        itertools.count(),
        load_checkpoint=model.load,
        save_checkpoint=save,
        steps=20,
        checkpoint_dir=arguments.directory,
        checkpoint_every_seconds=0,
    )
    if arguments.hang_at is None:
        print("began at", steps.step)
    for batch in steps:
        model.seen.append(batch)
    assert model.seen == list(range(20))
    print("seen", model.seen[0], "to", model.seen[-1])


if __name__ == "__main__":
    main()
