"""Train a network whose parameters are sharded over several workers (FSDP); checkpoints are sharded, too.

Without Gavel: `torchrun --nproc-per-node 2 fsdp.py`, or `python fsdp.py` for one worker.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
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


def digest(model: nn.Module) -> str:
    """Return what two models have in common only if all of their weights are equal."""
    weights: list[Tensor] = [weight.full_tensor() for weight in model.state_dict().values()]
    return hashlib.sha256(b"".join(weight.cpu().numpy().tobytes() for weight in weights)).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--steps", type=int, default=60, help="number of steps without Gavel; with Gavel, the job's steps apply"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    meet()
    dataset = points()
    sampler = DistributedSampler(dataset, seed=arguments.seed)  # GavelIterator tells it the epoch
    loader = DataLoader(dataset, batch_size=32, sampler=sampler)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(arguments.seed + distributed.get_rank())  # different dropout on each worker

    def state() -> dict[str, Any]:
        parts = get_state_dict(model, optimizer)
        return dict(zip(("model", "optimizer"), parts, strict=True))

    def save(directory: Path) -> None:  # each rank is given its own directory; together they write one beside them
        checkpoint.save(state(), checkpoint_id=directory.parent / "shards")

    def load(directory: Path) -> None:
        saved = state()
        checkpoint.load(saved, checkpoint_id=directory.parent / "shards")
        set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])

    steps = GavelIterator(loader, load_checkpoint=load, save_checkpoint=save, steps=arguments.steps, every_rank=True)
    loss = torch.tensor(0.0)
    while not steps.done:
        for inputs, kinds in steps:
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(inputs).squeeze(1), kinds)
            loss.backward()
            optimizer.step()
    if not steps.preempted:
        weights = digest(model)
        print(f"final loss {loss.item():.9f} after {steps.step} steps, weights {weights}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
