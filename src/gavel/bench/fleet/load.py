"""The load of a fleet benchmark: agents, jobs, templates and watchers, and the named scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gavel.client.requests import JobRequest

STEPS_PER_SECOND = 100.0
SPEEDS: Mapping[str, float] = MappingProxyType({"v100": 1.0, "p100": 0.5, "k80": 0.25})
"""Types of the modelled accelerators, assigned to agents in turn, and their relative speeds."""
GANG_EVERY = 20
"""One in this many jobs has two workers."""


def speed(type_name: str) -> float:
    """Steps per second of every modelled job on a type."""
    return STEPS_PER_SECOND * SPEEDS[type_name]


def agent_name(number: int) -> str:
    """The name of a modelled agent, which is also its identity."""
    return f"agent{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One benchmark of the scheduler."""

    agents: int = 250
    accelerators_per_agent: int = 4
    jobs: int = 10_000
    round_seconds: float = 5.0
    seconds: float = 60.0
    """How long to measure, once everything is connected and submitted and two rounds have passed."""
    templates: int = 26
    finished: int = 0
    """Jobs that finish before the others are submitted."""
    watchers: int = 0
    processes: int = 2
    """Processes that the agents are spread over."""
    job_seconds: tuple[float, float] = (5.0, 60.0)
    """Range of a job's duration on the fastest type, uniformly distributed."""
    arrivals_per_second: int = 5
    """Jobs submitted each second while it is measured."""
    heartbeat_seconds: float = 2.0
    lease_slack_seconds: float = 30.0
    limit_seconds: float = 400.0
    """The whole benchmark is aborted after this."""
    seed: int = 0

    @property
    def settling_seconds(self) -> float:
        """Delay between submission and measurement: the first rounds start jobs on every accelerator at once."""
        return 2.0 * self.round_seconds

    def requests(self) -> Iterator[JobRequest]:
        """The jobs, determined by the seed; optionally more than `jobs`."""
        random = np.random.default_rng(self.seed)
        number = 0
        while True:
            seconds = random.uniform(*self.job_seconds)
            yield JobRequest(
                ("modelled-job",),
                name=f"bench-{number}",
                template=f"bench-template-{number % self.templates}",
                steps=max(seconds * STEPS_PER_SECOND, 1.0),
                workers=2 if number % GANG_EVERY == GANG_EVERY - 1 and self.accelerators_per_agent > 1 else 1,
            )
            number += 1


SCENARIOS: Mapping[str, Load] = MappingProxyType(
    {
        "250-agents": Load(),
        "250-agents-churn": Load(job_seconds=(1.0, 10.0)),
        "1000-agents": Load(agents=1000, processes=3),
        "10000-templates": Load(agents=50, templates=10_000),
        "100000-finished": Load(agents=4, jobs=100, finished=100_000, job_seconds=(60.0, 600.0), arrivals_per_second=0),
        "200-watchers": Load(agents=50, watchers=200),
        "submit-10000": Load(agents=0, arrivals_per_second=0, seconds=5.0),
    }
)
"""The rows of the table of `gavel bench live`."""
