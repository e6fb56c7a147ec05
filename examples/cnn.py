"""Train a small convolutional network to distinguish three kinds of synthetic images; preemptible under Gavel."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gavel import GavelIterator


def pictures(count: int = 384) -> TensorDataset:
    """Noisy images of 16 x 16 pixels with a horizontal bar, a vertical bar or a square."""
    kinds = torch.arange(count) % 3
    images = 0.5 * torch.randn(count, 1, 16, 16)
    rows, columns = torch.randint(2, 11, (2, count)).tolist()
    for image, kind, row, column in zip(images, kinds.tolist(), rows, columns, strict=True):
        height, width = ((2, 12), (12, 2), (5, 5))[kind]
        image[0, row : row + height, column : column + width] += 1.0
    return TensorDataset(images, kinds)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(256, 3),
    )


@torch.no_grad()
def final_loss(model: nn.Module, dataset: TensorDataset) -> float:
    images, kinds = dataset.tensors
    return nn.functional.cross_entropy(model.eval()(images), kinds).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--steps", type=int, default=200, help="number of steps without Gavel; with Gavel, the job's steps apply"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    dataset = pictures()
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def load(directory: Path) -> None:
        saved = torch.load(directory / "state.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    def save(directory: Path) -> None:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, directory / "state.pt")

    steps = GavelIterator(loader, load_checkpoint=load, save_checkpoint=save, steps=arguments.steps)
    while not steps.done:
        for images, kinds in steps:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), kinds)
            loss.backward()
            optimizer.step()
            if steps.step % 50 == 0:
                print(f"step {steps.step} loss {loss.item():.9f}", flush=True)
    if not steps.preempted:
        print(f"final loss {final_loss(model, dataset):.9f} after {steps.step} steps", flush=True)


if __name__ == "__main__":
    main()
