"""Train a small network with JAX and Flax, preemptible by Gavel through `should_leave`, `report` and `checkpoint_dir`.

Without Gavel: `python jax_example.py --seed 1 --steps 60`. The same pattern fits any framework.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, serialization

import gavel

State = dict[str, Any]
"""Everything that a step changes; random numbers follow from the step, so there is no more to save."""


class Network(linen.Module):
    @linen.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        hidden = linen.relu(linen.Dense(32)(inputs))
        return linen.Dense(1)(linen.Dropout(0.1, deterministic=False)(hidden))[:, 0]


def points(key: jax.Array, count: int = 512) -> tuple[jax.Array, jax.Array]:
    """Points in the plane that belong to one of two rings."""
    kinds = jnp.arange(count) % 2
    directions, noise = jax.random.split(key)
    angles = 6.2832 * jax.random.uniform(directions, (count,))
    radii = 1.0 + kinds + 0.2 * jax.random.normal(noise, (count,))
    return jnp.stack([radii * jnp.cos(angles), radii * jnp.sin(angles)], axis=1), kinds


@jax.jit
def train(state: State, key: jax.Array, inputs: jax.Array, kinds: jax.Array) -> tuple[State, jax.Array]:
    """Make one step of gradient descent with momentum on a random batch."""
    choice, dropout = jax.random.split(jax.random.fold_in(key, state["step"]))
    batch = jax.random.choice(choice, len(kinds), (32,), replace=False)

    def loss_of(weights: Any) -> jax.Array:
        logits = Network().apply(weights, inputs[batch], rngs={"dropout": dropout})
        return jnp.mean(jnp.logaddexp(0.0, logits) - kinds[batch] * logits)

    loss, slope = jax.value_and_grad(loss_of)(state["weights"])
    momentum = jax.tree.map(lambda old, new: 0.9 * old + new, state["momentum"], slope)
    weights = jax.tree.map(lambda weight, change: weight - 0.1 * change, state["weights"], momentum)
    return {"weights": weights, "momentum": momentum, "step": state["step"] + 1}, loss


def save(state: State, file: Path) -> None:
    """Write a checkpoint that is complete or absent, whenever the program is interrupted."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".new")
    unfinished.write_bytes(serialization.to_bytes(state))
    unfinished.replace(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    last = int(float(os.environ.get("GAVEL_STEPS", arguments.steps)))
    file = gavel.checkpoint_dir("jax-checkpoints") / "state"
    key = jax.random.key(arguments.seed)
    inputs, kinds = points(jax.random.fold_in(key, 0))
    weights = Network().init({"params": key, "dropout": key}, inputs[:1])
    state: State = {"weights": weights, "momentum": jax.tree.map(jnp.zeros_like, weights), "step": jnp.array(0)}
    saved = 0
    if file.exists():
        state = serialization.from_bytes(state, file.read_bytes())
        saved = int(state["step"])
    loss = jnp.array(0.0)
    for step in range(saved + 1, last + 1):
        state, loss = train(state, key, inputs, kinds)
        gavel.report(step, saved=saved)
        leaving = step < last and gavel.should_leave()
        if leaving or step == last or step % 50 == 0:
            save(state, file)
            saved = step
            gavel.report(step, saved=saved)
        if leaving:
            return
    digest = hashlib.sha256(serialization.to_bytes(state["weights"])).hexdigest()[:16]
    print(f"final loss {float(loss):.9f} after {last} steps, weights {digest}")


if __name__ == "__main__":
    main()
