"""Train a small network on several workers with DistributedDataParallel; all of them are preempted at the same step.

Without Gavel: `torchrun --nproc-per-node 2 ddp.py`, or `python ddp.py` for one worker.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from gavel import GavelIterator


def points(count: int = 512) -> TensorDataset:
    """Points in the plane that belong to one of two rings."""
    kinds = torch.arange(count) % 2
    angles = 6.2832 * torch.rand(count)
    radii = 1.0 + kinds + 0.2 * torch.randn(count)
    return TensorDataset(torch.stack([radii * angles.cos(), radii * angles.sin()], dim=1), kinds.float())


def meet() -> None:
    """Join the process group through RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, set by Gavel or torchrun."""
    if "RANK" in os.environ:
        distributed.init_process_group("gloo")
    else:
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)


def loss_of(model: nn.Module, inputs: Tensor, kinds: Tensor) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(model(inputs).squeeze(1), kinds)


@torch.no_grad()
def final_loss(model: nn.Module, dataset: TensorDataset) -> float:
    return loss_of(model.eval(), *dataset.tensors).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--steps", type=int, default=200, help="number of steps without Gavel; with Gavel, the job's steps apply"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    meet()
    dataset = points()
    sampler = DistributedSampler(dataset, seed=arguments.seed)  # GavelIterator tells it the epoch
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    torch.manual_seed(arguments.seed + distributed.get_rank())  # different dropout on each worker
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def load(directory: Path) -> None:
        saved = torch.load(directory / "state.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    def save(directory: Path) -> None:  # called on rank 0
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, directory / "state.pt")

    steps = GavelIterator(loader, load_checkpoint=load, save_checkpoint=save, steps=arguments.steps)
    while not steps.done:
        for inputs, kinds in steps:
            optimizer.zero_grad()
            loss = loss_of(model, inputs, kinds)
            loss.backward()
            optimizer.step()
            if steps.step % 50 == 0:
                print(f"step {steps.step} loss {loss.item():.9f}", flush=True)
    if not steps.preempted:
        print(f"final loss {final_loss(model.module, dataset):.9f} after {steps.step} steps", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
