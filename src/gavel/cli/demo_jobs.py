"""The jobs of `gavel demo`: emulated models of the built-in table, one with two workers, and a real training run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from gavel.core.locality import Locality
from gavel.core.throughputs import ThroughputTable
from gavel.runtime.local import EMULATED_PROGRAM
from gavel.workload.trace import TraceJob

TORCH_TRAINING = '''
"""A real training: a small network learns a function, on the CPU."""
import torch
from torch import nn
from gavel import GavelIterator

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimiser = torch.optim.SGD(model.parameters(), lr=0.02)
inputs = torch.randn(4096, 8)
data = torch.utils.data.TensorDataset(inputs, inputs.prod(dim=1, keepdim=True).tanh())
loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)


def save(folder):
    torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict()}, folder / "state.pt")


def load(folder):
    state = torch.load(folder / "state.pt")
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])


steps = GavelIterator(loader, load_checkpoint=load, save_checkpoint=save)
print(f"begins at step {steps.step}", flush=True)
while not steps.done:
    for features, target in steps:
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(model(features), target)
        loss.backward()
        optimiser.step()
print(f"ends at step {steps.step}, loss {loss.item():.4f}", flush=True)
'''

NUMPY_TRAINING = '''
"""A real training without a framework: a small network learns a function, on the CPU."""
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np
from gavel import GavelIterator

np.random.seed(0)
inputs = np.random.randn(16384, 8)
targets = np.tanh(inputs.prod(axis=1, keepdims=True))
model = {"w1": np.random.randn(8, 512) / 4, "b1": np.zeros(512), "w2": np.random.randn(512, 1) / 32, "b2": np.zeros(1)}


class Batches:
    """All rows, shuffled each epoch."""

    def __len__(self):
        return len(inputs) // 1024

    def __iter__(self):
        for rows in np.random.permutation(len(inputs)).reshape(-1, 1024):
            yield inputs[rows], targets[rows]


def gradients(features, target):
    """The loss of a batch, and its derivative by each parameter."""
    hidden = np.maximum(features @ model["w1"] + model["b1"], 0)
    error = hidden @ model["w2"] + model["b2"] - target
    out = 2 * error / len(error)
    back = out @ model["w2"].T * (hidden > 0)
    return (error**2).mean(), {"w1": features.T @ back, "b1": back.sum(0), "w2": hidden.T @ out, "b2": out.sum(0)}


def save(folder):
    np.savez(folder / "state.npz", **model)


def load(folder):
    model.update(np.load(folder / "state.npz"))


steps = GavelIterator(Batches(), load_checkpoint=load, save_checkpoint=save)
print(f"begins at step {steps.step}", flush=True)
while not steps.done:
    for features, target in steps:
        loss, slopes = gradients(features, target)
        for name, slope in slopes.items():
            model[name] -= 0.02 * slope
print(f"ends at step {steps.step}, loss {loss:.4f}", flush=True)
'''

REAL_TEMPLATE = "a real training"
STEPS_A_SECOND = 100
"""Approximate duration of the real training run with a core to itself; it depends on the machine."""


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One job: its template, its number of steps, and the program that runs it."""

    name: str
    template: str
    steps: int
    workers: int = 1
    program: str = EMULATED_PROGRAM


def demo_jobs(table: ThroughputTable, count: int, time_scale: float, seconds: float, seed: int) -> list[DemoJob]:
    """Models drawn at random, one of them with two workers, and a real training run.

    Each takes about `seconds` alone on its fastest accelerator, in demo time.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(table.templates))[:count]
    jobs = []
    for number, index in enumerate(chosen.tolist()):
        template = table.templates[index]
        gang = number == 0
        workers = 2 if gang and 2 in table.workers(template) else 1
        fastest = float(table.rates([(template, workers)], table.types)[0, :, Locality.SERVER].max())
        steps = fastest * time_scale * seconds * rng.uniform(0.6, 1.4)
        jobs.append(DemoJob(short(template), template, max(int(steps), 1), workers))
    steps = max(int(STEPS_A_SECOND * seconds), 1)
    return [*jobs, DemoJob("real training", REAL_TEMPLATE, steps, program=training())]


def training() -> str:
    """The program that trains: with torch where it is installed, or else with numpy, which always is."""
    return NUMPY_TRAINING if find_spec("torch") is None else TORCH_TRAINING


def short(template: str) -> str:
    """A model's name without its batch size.

    >>> short("ResNet-18 (batch size 16)")
    'ResNet-18'
    """
    return template.partition(" (")[0]


def as_trace(jobs: list[DemoJob]) -> list[TraceJob]:
    """The jobs as a trace for simulation, with the ids of the live system."""
    return [
        TraceJob(id=str(number), template=job.template, workers=job.workers, steps=float(job.steps), arrival=0.0)
        for number, job in enumerate(jobs, start=1)
    ]


def emulated_ids(jobs: list[DemoJob]) -> list[str]:
    """The ids of the emulated jobs."""
    return [job.id for job in as_trace(jobs) if job.template != REAL_TEMPLATE]


def demo_table(
    table: ThroughputTable, jobs: list[DemoJob], seconds: Sequence[float], time_scale: float
) -> ThroughputTable:
    """The table extended by the real training run, which on every type takes the given number of seconds."""
    for job, took in zip(jobs, seconds, strict=True):
        if job.template == REAL_TEMPLATE:
            return table.with_template(REAL_TEMPLATE, job.steps / max(took, 1e-3) / time_scale)
    return table
