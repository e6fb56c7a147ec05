"""Many modelled agents in one process: `python -m gavel.bench.fleet.crew`, started by the benchmark."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from gavel.bench.fleet.agent import FleetTally, ModelledAgent
from gavel.bench.fleet.load import SPEEDS, agent_name
from gavel.bench.fleet.login import Login, read_key_pairs
from gavel.bench.fleet.role import Answer, play


class ModelledCrew:
    """The agents of this process and their observations."""

    def __init__(self) -> None:
        self._tally = FleetTally()
        self._agents: list[asyncio.Task[None]] = []

    def answers(self) -> Mapping[str, Answer]:
        """Commands of the benchmark."""
        return {"attach": self.attach, "attached": self.attached, "settle": self.settle, "report": self.report}

    async def attach(
        self,
        *,
        login: dict[str, str],
        key_pairs: str,
        numbers: list[int],
        accelerators: int,
        slack: float,
        seed: int,
    ) -> dict[str, Any]:
        """Start agents; they connect in the background, each with its own certificate if there are any."""
        type_names = list(SPEEDS)
        shown = read_key_pairs(key_pairs) if key_pairs else {}
        for number in numbers:
            random = np.random.default_rng([seed, number])
            type_name = type_names[number % len(type_names)]
            name = agent_name(number)
            agent = ModelledAgent(name, type_name, accelerators, slack, self._tally, random)
            self._agents.append(asyncio.create_task(agent.run(Login(**login), shown.get(name))))
        return {"agents": len(self._agents)}

    async def attached(self) -> dict[str, Any]:
        """Count the agents that are connected now."""
        return {"attached": self._tally.attached}

    async def settle(self) -> dict[str, Any]:
        """Start counting."""
        self._tally.reset()
        return {}

    async def report(self) -> dict[str, Any]:
        """Report the counts."""
        return asdict(self._tally)


if __name__ == "__main__":
    play(lambda: ModelledCrew().answers())
