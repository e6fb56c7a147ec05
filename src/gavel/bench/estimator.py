"""Cost of estimates: for a new template among many references, and in each round of a simulation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gavel.estimator.completion import Floats
from gavel.estimator.evaluation import observed
from gavel.estimator.fingerprint import fingerprint, profiling_plan
from gavel.estimator.references import References
from gavel.sim.experiment import Experiment, prepare, run


def generated_references(count: int, types: int = 3, seed: int = 0) -> References:
    """Synthetic references with random sensitivity, pressure and memory use."""
    random = np.random.default_rng(seed)
    headroom, sensitivity, pressure = random.uniform(0.6, 1.6, size=(3, count, types))
    memory = random.uniform(0.05, 0.6, size=(count, types))
    slowdown = 1.0 + sensitivity[:, None] * pressure[None]
    noise = random.normal(1.0, 0.03, size=slowdown.shape)
    kept = np.minimum(1.0, 1.5 * headroom[:, None] / slowdown * noise)
    room = memory[:, None] + memory[None] <= 1.0
    names = tuple(f"template {number}" for number in range(count))
    alone: Floats = random.uniform(1.0, 100.0, size=(count, types))
    return References(names, tuple(f"type {number}" for number in range(types)), alone, np.where(room, kept, 0.0))


def estimate(references: int, repeat: int) -> dict[str, float]:
    """Seconds to fit the references, to plan what to profile, and to estimate a new template."""
    everyone = generated_references(references + 1)
    new = everyone.templates[-1]
    known = everyone.without(new)
    basis_seconds = _seconds(lambda: known.basis)
    plan_seconds = _seconds(lambda: profiling_plan(known))
    seen = observed(everyone, new, profiling_plan(known))
    fingerprint(known, seen)  # computed only once
    return {
        "references_seconds": basis_seconds,
        "plan_seconds": plan_seconds,
        "estimate_seconds": min(_seconds(lambda: fingerprint(known, seen)) for _ in range(repeat)),
    }


def rounds(experiment: Experiment, known: float, repeat: int) -> dict[str, float]:
    """CPU milliseconds of a simulated round, with all throughputs known and with estimates.

    The fastest of several runs, because the machine may be busy.
    """

    def milliseconds(settings: Experiment) -> float:
        scene = prepare(settings)
        started = time.process_time()
        outcome = run(settings, scene=scene).outcome
        return 1000.0 * (time.process_time() - started) / outcome.rounds

    estimated = replace(experiment, throughputs_known=known)
    runs = [(milliseconds(experiment), milliseconds(estimated)) for _ in range(repeat)]
    all_known, some = (min(side) for side in zip(*runs, strict=True))
    return {
        "round_known_milliseconds": all_known,
        "round_estimated_milliseconds": some,
        "added_percent": 100.0 * (some / all_known - 1.0),
    }


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
