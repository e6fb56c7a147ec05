"""Random stories of what may happen to a scheduler, told event by event as a world would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from gavel.core.cluster import Server
from gavel.core.events import (
    AllocationReady,
    Command,
    Event,
    JobCancelled,
    JobEdited,
    JobFailed,
    JobFinished,
    JobsHeld,
    JobsProgressed,
    JobsReleased,
    JobSubmitted,
    RateMeasured,
    RestartMeasured,
    RoundDue,
    ServerJoined,
    ServerLost,
    Solve,
    SolveFailed,
    TypesAllowed,
    WakeAt,
)
from gavel.core.jobs import NO_NEEDS, Cause, JobSpec, Needs
from gavel.core.locality import Locality
from gavel.policies.registry import allocate
from gavel.scheduler.machine import Scheduler

TEMPLATES = ("A3C", "LM (batch size 5)", "ResNet-50 (batch size 64)", "Transformer (batch size 64)")
WORKERS = (1, 1, 2, 4)

TYPES: tuple[tuple[str, ...] | None, ...] = (None, ("v100",), ("p100", "k80"), ("k80",), ("v100", "p100"))
FIGURES = ((8.0, 100, 16), (3.0, 64, 0), (0.0, 0, 32), (16.0, 31, 12))
"""What servers have: CPU cores, RAM and the memory of an accelerator; 0: unknown."""
NEEDS = (NO_NEEDS, NO_NEEDS, NO_NEEDS, Needs(16), Needs(0, 3000), Needs(0, 6500, 40), Needs(8, 500, 5), Needs(40, 1, 1))

Story = list[tuple[str, int, int]]
"""What happens, and two numbers that say to whom."""


def stories(*, at_most: int = 40) -> st.SearchStrategy[Story]:
    rare = ["finish", "cancel", "fail", "lose", "join", "progress", "measure", "restart", "slow", "answer"]
    rare += ["hold", "release", "edit", "types"]
    kinds = st.sampled_from(["submit"] * 4 + ["round"] * 6 + rare)
    return st.lists(st.tuples(kinds, st.integers(0, 7), st.integers(0, 3)), min_size=1, max_size=at_most)


@dataclass
class Teller:
    """Tells a story to a scheduler: iterate over `events`, and say what it commanded by `hear`.

    Solves are answered at once, unless "slow" came before: then at the next "answer", or with a failure. With `open`,
    there are new types, entities and templates, rates are measured, and jobs state what they need beside accelerators.
    """

    story: Story
    open: bool = False
    time: float = 0.0
    submitted: int = 0
    slow: bool = False
    late: list[Event] = field(default_factory=list)
    due: list[Event] = field(default_factory=list)

    def events(self, machine: Scheduler) -> Iterator[Event]:
        yield ServerJoined(0.0, self._server("base", "v100", 2, 0))
        for kind, number, other in self.story:
            self.time += 60.0 if kind != "round" else 360.0
            event = self._event(machine, kind, number, other)
            if event is not None:
                yield event
            while self.due:
                yield self.due.pop(0)

    def hear(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Solve):
                answer = AllocationReady(self.time, command.number, allocate(command.problem))
                (self.late if self.slow else self.due).append(answer)
                self.slow = False
            elif isinstance(command, WakeAt) and command.time <= self.time:
                self.due.append(RoundDue(command.time))

    def _event(self, machine: Scheduler, kind: str, number: int, other: int) -> Event | None:  # noqa: PLR0911
        active = sorted(machine.roster.slot_of)
        match kind:
            case "submit":
                self.submitted += 1
                held = Cause("over_limit", "you may run 8 accelerators at a time") if number == 7 else None
                return JobSubmitted(self.time, self._spec(number, other), held=held)
            case "round":
                return RoundDue(self.time)
            case "join":
                kinds = ("v100", "p100", "k80", "t4" if self.open else "v100")
                return ServerJoined(self.time, self._server(f"s{number}-{self.time}", kinds[other], 1 + other, number))
            case "lose":
                servers = [name for pool in machine.server_pools for name, _, _ in pool.servers()]
                return ServerLost(self.time, servers[number % len(servers)] if servers else "missing")
            case "slow":
                self.slow = True
                return None
            case "answer":
                self.due, self.late = [*self.due, *(self._late(event, other) for event in self.late)], []
                return None
        return self._about_a_job(machine, kind, active[number % len(active)], number + other) if active else None

    def _server(self, name: str, kind: str, size: int, number: int) -> Server:
        cpus, memory, of_each = FIGURES[number % 4] if self.open else (0.0, 0, 0)
        return Server(name, kind, size, cpus, memory, of_each)

    def _spec(self, number: int, other: int) -> JobSpec:
        spec = JobSpec(f"j{self.submitted}", TEMPLATES[other], WORKERS[other], 1e6)
        if not self.open:
            return spec
        template = "my-model" if number == 0 else spec.template
        types = [None, None, ("v100", "t4"), ("k80",)][number % 4]
        entity = [None, "lab", "lab/vision", "club"][number % 4]
        return replace(spec, template=template, entity=entity, types=types, needs=NEEDS[(number + other) % len(NEEDS)])

    def _edit(self, machine: Scheduler, job: str, number: int) -> JobEdited:
        """Other types, or the same, and a new weight, deadline or number of steps."""
        slot = machine.roster.slot_of[job]
        template, workers, types, needs = machine.beliefs.profile_at(int(machine.roster.profile[slot]))
        types = TYPES[number % len(TYPES)] if number % 3 else types
        steps = [2e6, 1e5, np.nan][number % 3]
        deadline = 1e5 if number % 2 else None
        weight = 1.0 + number % 3
        spec = JobSpec(
            job, template, workers, steps, weight=weight, deadline_seconds=deadline, types=types, needs=needs
        )
        return JobEdited(self.time, spec, steps - 10.0)

    def _late(self, event: Event, other: int) -> Event:
        assert isinstance(event, AllocationReady)
        if other == 0:
            return SolveFailed(self.time, event.number, "no luck")
        return AllocationReady(self.time, event.number, event.allocation)

    def _about_a_job(self, machine: Scheduler, kind: str, job: str, number: int) -> Event | None:  # noqa: C901, PLR0911
        slot = machine.roster.slot_of[job]
        match kind:
            case "measure":
                run = next((run for run in machine.placed if slot in run.members), None)
                if run is None or not self.open:
                    return None
                mates = [machine.roster.ids[other] for other in run.members if other != slot]
                rate = float(machine.roster.rates[slot, run.type_index]) * (0.9, 0.97, 1.01, 2.0)[number % 4]
                kind, beside = machine.types[run.type_index], mates[0] if mates else None
                return RateMeasured(self.time, job, kind, rate, Locality.of(number % 3 > 0), beside)
            case "restart":
                return RestartMeasured(self.time, job, 5.0 * number)
            case "progress":
                return JobsProgressed(self.time, [job], np.array([10.0]))
            case "hold":
                return JobsHeld(self.time, (job, "missing"), Cause("held", "an operator holds it"))
            case "release":
                return JobsReleased(self.time, (job, "missing"))
            case "edit":
                return self._edit(machine, job, number)
            case "types":
                return TypesAllowed(self.time, job, TYPES[number % len(TYPES)], Cause("waited"))
            case "finish":
                return JobFinished(self.time, job)
            case "cancel":
                return JobCancelled(self.time, job)
        pause = self.time + 500.0 if number % 3 == 0 else None
        return JobFailed(self.time, job, "crashed", bool(number % 2), pause, crashed=number % 4 > 1)
