"""Train a small network with Accelerate, preemptible by Gavel; on several workers all are preempted at the same step.

Without Gavel: `python accelerate_example.py --seed 1 --steps 60`, or `accelerate launch accelerate_example.py`.
"""

from __future__ import annotations

import argparse
import hashlib

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gavel.accelerate


def points(count: int = 512) -> TensorDataset:
    """Points in the plane that belong to one of two rings."""
    kinds = torch.arange(count) % 2
    angles = 6.2832 * torch.rand(count)
    radii = 1.0 + kinds + 0.2 * torch.randn(count)
    return TensorDataset(torch.stack([radii * angles.cos(), radii * angles.sin()], dim=1), kinds.float())


def digest(model: nn.Module) -> str:
    """Return what two models have in common only if all of their weights are equal."""
    weights = (weight.detach().cpu().numpy().tobytes() for weight in model.state_dict().values())
    return hashlib.sha256(b"".join(weights)).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--steps", type=int, default=60, help="number of steps without Gavel; with Gavel, the job's steps apply"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    set_seed(arguments.seed)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    model: nn.Module = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = DataLoader(points(), batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = gavel.accelerate.iterator(accelerator, loader, steps=arguments.steps)
    loss = torch.tensor(0.0)
    while not steps.done:
        for inputs, kinds in steps:
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(inputs).squeeze(1), kinds)
            accelerator.backward(loss)
            optimizer.step()
    if not steps.preempted:
        weights = digest(accelerator.unwrap_model(model))
        accelerator.print(f"final loss {loss.item():.9f} after {steps.step} steps, weights {weights}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
