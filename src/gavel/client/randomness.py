"""The random states of a program, as plain data: Python's, and those of numpy and torch if the program loaded them.

Nothing is imported that the program has not imported: a module that is not loaded has drawn no numbers.
"""

from __future__ import annotations

import base64
import random
import sys
from collections.abc import Iterable
from typing import Any

State = dict[str, Any]
"""JSON, by the name of the source of random numbers."""


def capture(data: object = None) -> State:
    """Return the current state of all sources, and of the generators that the data loader holds."""
    state: State = {"python": _plain(random.getstate())}
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        state["numpy"] = _plain(numpy.get_state(legacy=False))
    torch = _torch()
    if torch is not None:
        state["torch"] = _text(torch.get_rng_state())
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = [_text(device) for device in torch.cuda.get_rng_state_all()]
    state["loader"] = [_text(generator.get_state()) for generator in _generators(data)]
    return state


def restore(state: State, data: object = None) -> None:
    """Restore what `capture` returned; sources that it does not mention, or that are not loaded, are left alone."""
    random.setstate(_tuples(state["python"]))
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and "numpy" in state:
        numpy.set_state(state["numpy"])
    torch = _torch()
    if torch is None:
        return
    if "torch" in state:
        torch.set_rng_state(_tensor(state["torch"]))
    if "cuda" in state and torch.cuda.is_available():
        # The job may now run on another server, with fewer accelerators.
        for device, text in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
            torch.cuda.set_rng_state(_tensor(text), device)
    for generator, text in zip(_generators(data), state.get("loader", ()), strict=False):
        generator.set_state(_tensor(text))


def _torch() -> Any:
    # A module that another thread is still importing has no state yet.
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "get_rng_state") else None


def _generators(data: object) -> Iterable[Any]:
    """Return the torch generators that the loader or its samplers, one inside the other, were given, each once."""
    holders = [data]
    for holder in holders:  # the list grows during the loop
        inner = (getattr(holder, name, None) for name in ("sampler", "batch_sampler"))
        holders += [found for found in inner if found is not None and not any(found is other for other in holders)]
    found = [getattr(holder, "generator", None) for holder in holders]
    torch = _torch()
    usable = [generator for generator in found if torch is not None and isinstance(generator, torch.Generator)]
    return {id(generator): generator for generator in usable}.values()


def _text(tensor: Any) -> str:
    return base64.b64encode(bytes(tensor.tolist())).decode()


def _tensor(text: str) -> Any:
    torch = sys.modules["torch"]
    return torch.tensor(list(base64.b64decode(text)), dtype=torch.uint8)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
