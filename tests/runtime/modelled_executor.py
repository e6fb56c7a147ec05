"""An executor without agents: attempts run in virtual time on servers that are simply there.

It knows nothing but the seam (`gavel.runtime.executor`), and nothing above the seam knows it from the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from gavel.core.cluster import Server
from gavel.core.events import Launch
from gavel.core.jobs import Cause
from gavel.runtime.agents import AgentRecord
from gavel.runtime.events import AgentAttached, AttemptEnded, AttemptOutcome, CheckpointsCleared, StepsCounted
from gavel.runtime.executor import AttemptStatus, EventSink, Presence
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.removals import Outstanding

AGENT = "machines"
RATES = {"v100": 10.0, "k80": 2.0}


@dataclass
class Processes:
    """What really runs; it outlives a scheduler."""

    running: dict[str, Launch] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)
    started: list[tuple[str, int]] = field(default_factory=list)

    def start(self, launch: Launch) -> None:
        assert launch.job not in self.running, f"job {launch.job} runs twice"
        self.running[launch.job] = launch
        self.started.append((launch.job, launch.attempt))

    def advance(self, seconds: float) -> None:
        for job, launch in self.running.items():
            self.steps[job] = self.steps.get(job, 0.0) + RATES[launch.type] * seconds


@dataclass
class ModelledExecutor:
    """Starts and stops at once, and always saves."""

    processes: Processes
    servers: Sequence[Server]
    clock: Callable[[], float]
    post: EventSink
    jobs: Mapping[str, LiveJobRecord]
    lease_until: float = 0.0
    waiting: dict[str, Launch] = field(default_factory=dict)
    unsettled: set[str] = field(default_factory=set)

    def begin(
        self,
        agents: Iterable[AgentRecord],
        attempts: Iterable[tuple[str, Sequence[Launch]]],
        fences: Mapping[tuple[str, str], float],
        renewed_until: float,
        holders: Mapping[tuple[str, int], Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        del agents, fences, holders
        self.lease_until = renewed_until
        self.post(AgentAttached(time=self.clock(), agent=AGENT, name=AGENT, servers=tuple(self.servers)))
        for job, launches in attempts:
            here = self.processes.running.get(job)
            for launch in launches:
                record = self.jobs.get(job)
                if here is None or here.attempt != launch.attempt:
                    self._ended(launch, AttemptOutcome.LEFT)
                elif record is None or record.attempts != launch.attempt or record.finished:
                    self.stop(job, Cause("", "no longer planned"))

    def launch(self, launch: Launch, holders: Mapping[str, str]) -> None:
        del holders
        if launch.job in self.processes.running or launch.job in self.unsettled:
            self.waiting[launch.job] = launch
        else:
            self.processes.start(launch)

    def stop(self, job: str, cause: Cause) -> None:
        del cause
        waiting = self.waiting.pop(job, None)
        if waiting is not None:
            self._ended(waiting, AttemptOutcome.LEFT)
        elif job in self.processes.running:
            self._ended(self.processes.running.pop(job), AttemptOutcome.LEFT)

    def withdraw(self, job: str) -> None:
        if job in self.waiting:
            self._ended(self.waiting.pop(job), AttemptOutcome.LEFT)

    def close(self, job: str, cause: Cause | None = None) -> None:
        del cause
        self.withdraw(job)
        if job in self.processes.running:
            self._ended(self.processes.running.pop(job), AttemptOutcome.LEFT)

    def renew(self, until: float) -> None:
        self.lease_until = until

    def remove_checkpoints(self, outstanding: Outstanding) -> None:
        if due := outstanding.of(AGENT):
            removed = tuple(job for _, job in due if self.processes.steps.pop(job, None) is not None)
            self.post(CheckpointsCleared(self.clock(), {AGENT: due[-1][0]}, removed))

    def report(self) -> None:
        counted = {job: self.processes.steps.get(job, 0.0) for job in self.processes.running}
        self.post(StepsCounted(self.clock(), counted))

    def tick(self) -> None:
        for job, launch in list(self.processes.running.items()):
            record = self.jobs.get(job)
            wanted = None if record is None else record.request.steps
            if wanted is not None and self.processes.steps.get(job, 0.0) >= wanted:
                del self.processes.running[job]
                self.processes.steps[job] = wanted
                self._ended(launch, AttemptOutcome.DONE)

    def excuse(self, seconds: float) -> None:
        pass

    def running(self) -> Iterable[str]:
        return self.processes.running.keys()

    def attempt(self, job: str) -> AttemptStatus | None:
        launch = self.processes.running.get(job)
        if launch is None:
            return None
        steps = self.processes.steps.get(job, 0.0)
        return AttemptStatus(job, launch.attempt, launch.accelerators, stopping=False, lease_until=0.0, steps=steps)

    def at(self, agent: str) -> Iterable[AttemptStatus]:
        assert agent == AGENT
        return [status for job in self.processes.running if (status := self.attempt(job)) is not None]

    def presence(self, agent: str) -> Presence | None:
        return Presence(attached=True, heard_at=self.clock()) if agent == AGENT else None

    def _ended(self, launch: Launch, outcome: AttemptOutcome) -> None:
        job = launch.job
        self.unsettled.add(job)
        steps = self.processes.steps.get(job)
        ended = AttemptEnded(time=self.clock(), job=job, attempt=launch.attempt, outcome=outcome, steps=steps)
        self.post(ended, lambda _: self._settled(job))

    def _settled(self, job: str) -> None:
        self.unsettled.discard(job)
        if job in self.waiting and job not in self.processes.running:
            self.processes.start(self.waiting.pop(job))
