"""A tiny torch training with everything that usually makes resuming inexact: shuffling, dropout, random augmentation
by three libraries, momentum, and a schedule that steps between epochs.

It prints what it saw last and a digest of its parameters. `--stop-at N` holds step N until Gavel asks it to leave.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from gavel import GavelIterator


class Examples:
    """A map-style dataset; each look at an example is a little different."""

    def __len__(self) -> int:
        return 44

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        inputs = torch.linspace(-1, 1, 8) * (index - 22) / 22
        noise = torch.rand(8) + random.random() + np.random.rand()  # noqa: NPY002 - as many programs do
        return inputs + 0.01 * noise, inputs.sum().reshape(1)


def loader(kind: str) -> Any:
    examples = Examples()
    if kind == "plain":
        return DataLoader(examples, batch_size=8, shuffle=True)
    if kind == "generator":
        return DataLoader(examples, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(5))
    return DataLoader(examples, batch_size=8, shuffle=True, num_workers=2, persistent_workers=kind == "lasting")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="plain")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--stop-at", type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}

    def save(directory: Path) -> None:
        torch.save({name: part.state_dict() for name, part in parts.items()}, directory / "state.pt")

    def load(directory: Path) -> None:
        for name, state in torch.load(directory / "state.pt").items():
            parts[name].load_state_dict(state)

    steps = GavelIterator(loader(arguments.kind), load_checkpoint=load, save_checkpoint=save, steps=arguments.steps)
    print("began", steps.step, flush=True)
    while not steps.done:
        for inputs, targets in steps:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            if steps.step == arguments.stop_at:
                print("holding", flush=True)
                while not steps.leaving:
                    threading.Event().wait(0.001)
            last = loss.item()
        if not steps.preempted:
            random.random()
            schedule.step()
    if not steps.preempted:
        digest = hashlib.sha256(b"".join(part.detach().numpy().tobytes() for part in model.parameters()))
        print("ended", steps.step, digest.hexdigest(), repr(last), flush=True)


if __name__ == "__main__":
    main()
