"""Train a small transformer to continue synthetic sequences; preemptible under Gavel."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from gavel import GavelIterator

SYMBOLS = 16
LENGTH = 24


def sequences(count: int = 512) -> TensorDataset:
    """Sequences that count up by a fixed step each and wrap around after the last symbol, with a few wrong symbols."""
    starts, strides = torch.randint(SYMBOLS, (count, 1)), torch.randint(1, 5, (count, 1))
    exact = (starts + strides * torch.arange(LENGTH + 1)) % SYMBOLS
    wrong = torch.rand(exact.shape) < 0.05
    return TensorDataset(torch.where(wrong, torch.randint(SYMBOLS, exact.shape), exact))


class Transformer(nn.Module):
    """Two causal layers."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, width)
        self.places = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=64, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers=2)
        self.out = nn.Linear(width, SYMBOLS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, text: Tensor) -> Tensor:
        embedded = self.symbols(text) + self.places(torch.arange(text.shape[1]))
        return self.out(self.layers(embedded, mask=self.mask, is_causal=True))


def loss_of(model: nn.Module, text: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


@torch.no_grad()
def final_loss(model: nn.Module, dataset: TensorDataset) -> float:
    return loss_of(model.eval(), dataset.tensors[0]).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--steps", type=int, default=200, help="number of steps without Gavel; with Gavel, the job's steps apply"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    dataset = sequences()
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.5)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule}

    def load(directory: Path) -> None:
        for name, state in torch.load(directory / "state.pt").items():
            parts[name].load_state_dict(state)

    def save(directory: Path) -> None:
        torch.save({name: part.state_dict() for name, part in parts.items()}, directory / "state.pt")

    steps = GavelIterator(loader, load_checkpoint=load, save_checkpoint=save, steps=arguments.steps)
    while not steps.done:
        for (text,) in steps:
            optimizer.zero_grad()
            loss = loss_of(model, text)
            loss.backward()
            optimizer.step()
            schedule.step()
            if steps.step % 50 == 0:
                print(f"step {steps.step} loss {loss.item():.9f}", flush=True)
    if not steps.preempted:
        print(f"final loss {final_loss(model, dataset):.9f} after {steps.step} steps", flush=True)


if __name__ == "__main__":
    main()
