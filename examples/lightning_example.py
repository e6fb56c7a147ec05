"""Train a small network with Lightning, preemptible by Gavel even in the middle of an epoch.

Without Gavel: `python lightning_example.py --seed 1 --steps 60`.
"""

from __future__ import annotations

import argparse
import hashlib
import os

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import gavel.lightning
import gavel.torch


class Rings(pl.LightningModule):
    """Tells which of two rings a point belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        self.log("validation loss", self.loss(batch))

    def loss(self, batch: list[Tensor]) -> Tensor:
        points, kinds = batch
        return nn.functional.binary_cross_entropy_with_logits(self.network(points).squeeze(1), kinds)

    def configure_optimizers(self) -> dict[str, object]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)}


def points(count: int = 512) -> TensorDataset:
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
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pl.seed_everything(arguments.seed, verbose=False)
    dataset = points()
    loader = gavel.torch.ResumableLoader(dataset, batch_size=32, shuffle=True)
    model = Rings()
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # Gavel starts one process for each accelerator
    trainer = pl.Trainer(
        max_steps=int(float(os.environ.get("GAVEL_STEPS", arguments.steps))),
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        devices=here,
        num_nodes=int(os.environ.get("WORLD_SIZE", "1")) // here,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    validation = torch.utils.data.DataLoader(dataset, batch_size=128)
    gavel.lightning.fit(trainer, model, loader, validation)  # ends the program here if the job is preempted
    loss = model.loss(list(dataset.tensors)).item()
    print(f"final loss {loss:.9f} after {trainer.global_step} steps, weights {digest(model)}")


if __name__ == "__main__":
    main()
