"""Convert states that earlier versions dumped to the current format, one format at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gavel.core.problem import Floats
from gavel.core.serialization import read_items, to_plain


def in_seconds(document: Mapping[str, Any], round_seconds: float) -> dict[str, Any]:
    """Convert format 1 to 2: mechanisms count seconds instead of rounds."""
    roster, mechanism = document["roster"], document["mechanism"]
    columns = {**roster["columns"], "launched": roster["columns"]["arrival"]}
    return {
        **document,
        "format": 2,
        "counters": {**document["counters"], "_plans": 0, "_waking": None},
        "roster": {**roster, "columns": columns},
        "mechanism": _MECHANISMS[mechanism["kind"]](mechanism, round_seconds, len(document["types"])),
    }


def with_times_heard(document: Mapping[str, Any]) -> dict[str, Any]:
    """Convert format 2 to 3: add the time when each job last reported its progress."""
    roster = document["roster"]
    heard = [document["counters"]["_accounted_until"]] * len(roster["slots"])
    columns = {**roster["columns"], "heard": to_plain(np.array(heard, dtype=float))}
    return {**document, "format": 3, "roster": {**roster, "columns": columns}}


def with_wake(document: Mapping[str, Any]) -> dict[str, Any]:
    """Convert format 3 to 4: add the time when the scheduler wants to be woken."""
    counters = document["counters"]
    waking = counters.get("_waking")
    wake = counters.get("_round_ends") if waking is None else waking
    return {**document, "format": 4, "counters": {**counters, "wake": wake, "_solve_seconds": 0.0}}


def _credits(state: Mapping[str, Any], round_seconds: float, types: int) -> dict[str, Any]:
    arrays = _arrays({"credit": state["entries"]["credit"], "lag": state["lag"], "class_rate": state["class_rate"]})
    kept = {name: value for name, value in state.items() if name != "settled"}
    return {
        **kept,
        "entries": {**state["entries"], "credit": to_plain(arrays["credit"] * round_seconds)},
        "lag": to_plain(arrays["lag"] * round_seconds),
        "alone": to_plain(np.zeros((len(arrays["class_rate"]), types))),  # filled by the next allocation
    }


def _priorities(state: Mapping[str, Any], round_seconds: float, types: int) -> dict[str, Any]:  # noqa: ARG001
    rounds = _arrays({"rounds": state["rounds"]})["rounds"]
    kept = {name: value for name, value in state.items() if name not in {"turn", "rounds"}}
    return {**kept, "seconds": to_plain((rounds - 0.5) * round_seconds)}


def _arrays(plain: Mapping[str, Any]) -> dict[str, Floats]:
    return read_items(dict.fromkeys(plain, Floats), plain, "a mechanism")


_MECHANISMS: dict[str, Callable[[Mapping[str, Any], float, int], dict[str, Any]]] = {
    "credits": _credits,
    "priorities": _priorities,
}
