"""A brute-force model of why jobs may not run yet: it looks at all jobs each time, and knows only what happened."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gavel.client.dependencies import Dependency
from gavel.client.requests import Submission
from gavel.client.views import JobState
from gavel.core.cluster import Server
from gavel.core.errors import InputError
from gavel.core.events import AllocationReady, JobCancelled, JobFailed, JobFinished, RoundDue
from gavel.policies.registry import allocate
from gavel.runtime.configuration import Configurator, ServeSettings, settings_document
from gavel.runtime.events import (
    AgentAttached,
    Event,
    HoldAsked,
    JobsSubmitted,
    LimitsGiven,
    ReleaseAsked,
    RequeueAsked,
    SettingsGiven,
)
from gavel.runtime.facts import Fact, document_of, fact_of
from gavel.runtime.prerequisites import Ends
from gavel.runtime.state import ClusterState
from gavel.security.quotas import Limits, Subject
from gavel.security.roles import OPEN_USER

SETTINGS = ServeSettings(round_seconds=100.0).scheduling
BY = "ann"


def text_of(state: ClusterState) -> str:
    """A state to compare."""
    return json.dumps(state.document(), sort_keys=True)


def request(name: str = "", **more: Any) -> Submission:
    return Submission(command=("train", "{index}"), name=name, **{"template": "mine", "user": BY, "workers": 1, **more})


@dataclass
class Played:
    """A state, to which events happen one after the other, and every fact with the states in between."""

    accelerators: int = 4
    state: ClusterState = field(init=False)
    time: float = 0.0
    facts: list[Fact] = field(default_factory=list)
    states: dict[int, str] = field(default_factory=dict)
    """After this many facts."""
    keeps_states: bool = False

    def __post_init__(self) -> None:
        self.state = ClusterState(Configurator(SETTINGS))
        self.take(SettingsGiven(0.0, "test", settings_document(SETTINGS)))
        if self.accelerators:
            server = Server("a", "v100", self.accelerators)
            self.take(AgentAttached(time=0.0, agent="id-a", name="a", servers=(server,)))

    def take(self, event: Event) -> list[Fact]:
        facts = self.state.take(event)
        self.facts += facts
        if self.keeps_states:
            self.states[len(self.facts)] = text_of(self.state)
        return facts

    def submit(self, *requests: Submission, **more: Any) -> list[str]:
        self.time += 1.0
        before = self.state.jobs.next_number
        self.take(JobsSubmitted(self.time, requests, f"key {self.time}", **{"by": OPEN_USER, **more}))
        return [str(number) for number in range(before, self.state.jobs.next_number)]

    def end(self, job: str, outcome: str = "completed") -> list[Fact]:
        self.time += 1.0
        events: dict[str, Event] = {
            "completed": JobFinished(self.time, job),
            "failed": JobFailed(self.time, job, "it failed", retry=False),
            "cancelled": JobCancelled(self.time, job),
        }
        return self.take(events[outcome])

    def fail(self, job: str) -> None:
        """It fails, and pauses before it runs again."""
        self.time += 1.0
        self.take(JobFailed(self.time, job, "it failed", not_before=self.time + 1e6))

    def hold(self, *jobs: str) -> list[Fact]:
        self.time += 1.0
        return self.take(HoldAsked(self.time, jobs, BY))

    def release(self, *jobs: str) -> list[Fact]:
        self.time += 1.0
        return self.take(ReleaseAsked(self.time, jobs, BY))

    def requeue(self, *jobs: str) -> list[Fact]:
        self.time += 1.0
        return self.take(RequeueAsked(self.time, jobs, BY))

    def limit(self, subject: Subject, accelerators: int) -> None:
        self.time += 1.0
        self.take(LimitsGiven(self.time, "operator", subject, Limits(running_accelerators=accelerators)))

    def round(self) -> None:
        """A round begins, with the policy's answer."""
        self.time += 200.0
        self.take(RoundDue(self.time))
        solve = self.state.scheduler.unanswered
        if solve is not None:
            self.take(AllocationReady(self.time, solve.number, allocate(solve.problem)))

    def codes(self) -> dict[str, str]:
        """By job on hold: why."""
        reasons = {record.id: self.state.gates.reason(record.id) for record in self.state.jobs.active()}
        return {job: cause.code for job, cause in reasons.items() if cause is not None}

    def reason(self, job: str) -> str:
        cause = self.state.gates.reason(job)
        return "" if cause is None else cause.text

    def again(self) -> ClusterState:
        """The state, written down and read back."""
        return ClusterState.of(json.loads(json.dumps(self.state.document())), Configurator(SETTINGS))

    def replayed(self) -> ClusterState:
        """The state that the facts alone give, compared with the live one wherever that was kept."""
        state = ClusterState(Configurator(SETTINGS))
        for number, fact in enumerate(self.facts, 1):
            document = json.loads(json.dumps(document_of(fact)))
            state.evolve(fact_of(document, state.problem_of))
            if number in self.states:
                assert text_of(state) == self.states[number], f"after fact {number}, {document['kind']}"
        return state


class Model:
    """What should be on hold, from the requests and what happened to the jobs."""

    def __init__(self, played: Played) -> None:
        self.played = played
        self.requests: dict[str, Submission] = {}
        self.outcomes: dict[str, str] = {}
        self.held: set[str] = set()
        self.placed: set[str] = set()
        """Jobs that had a place in their array when this was last checked."""

    # ---- what happens ----

    def submitted(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self.requests[job] = self.played.state.jobs[job].request
            if self.requests[job].hold:
                self.held.add(job)

    @property
    def unfinished(self) -> list[str]:
        return [job for job in self.requests if job not in self.outcomes]

    def runs(self, job: str) -> bool:
        return self.played.state.jobs[job].state is JobState.RUNNING

    # ---- what should be ----

    def met(self, dependency: Dependency) -> bool | None:
        """Whether a dependency is met; None: that is open."""
        members = (
            [dependency.reference] if dependency.reference in self.requests else self.members(dependency.reference)
        )
        outcomes = [self.outcomes.get(member) for member in members]
        bad = [outcome in ("failed", "cancelled") for outcome in outcomes]
        if dependency.condition == "ok" and any(bad):
            return False
        if None in outcomes:
            return None
        return {"ok": not any(bad), "any": True, "failed": any(bad)}[dependency.condition]

    def members(self, array: str) -> list[str]:
        return [job for job, each in self.requests.items() if each.array_id == array]

    def journal(self) -> dict[str, Ends]:
        """What the journal's table tells about jobs and arrays of which nothing is unfinished."""
        found: dict[str, Ends] = {}
        for job, outcome in self.outcomes.items():
            array = self.requests[job].array_id
            found[job] = Ends().ended(job, outcome)
            if array and all(member in self.outcomes for member in self.members(array)):
                found[array] = found.get(array, Ends()).ended(job, outcome)
        return found

    def first_reason(self, job: str) -> str:
        """`held`, `dependency`, `never`, or empty if none of them applies."""
        if job in self.held:
            return "held"
        answers = [self.met(Dependency.of(text)) for text in self.requests[job].after]
        return "never" if False in answers else "dependency" if None in answers else ""

    def check(self) -> None:
        """Compare everything with the state."""
        state, codes = self.played.state, self.played.codes()
        for job in self.unfinished:
            reason = self.first_reason(job)
            code = codes.get(job, "")
            assert code == reason if reason else code in ("", "array", "over_limit"), f"job {job}: {code}, not {reason}"
            assert state.scheduler.on_hold(job) == bool(code), f"job {job}: {code}"
            assert not (code and self.runs(job)), f"job {job} runs although it waits: {code}"
            recorded = state.gates._recorded.get(job)
            assert (recorded.code if recorded else "") == code, f"job {job}: recorded {recorded}, is {code}"
        for array in {each.array_id for each in self.requests.values()} - {""}:
            self.check_array(array, codes)
        self.check_limits(codes)

    def check_array(self, array: str, codes: dict[str, str]) -> None:
        """As many jobs as may have a place, and those that got one come before those that wait."""
        members = [job for job in self.members(array) if job not in self.outcomes]
        placed = {job for job in members if codes.get(job, "over_limit") == "over_limit"}
        waiting = [job for job in members if codes.get(job) == "array"]
        most = self.requests[members[0]].at_once if members else 0
        assert not most or len(placed) <= most, f"{placed} of array {array} at once"
        assert not waiting or len(placed) == most, f"{waiting} wait although only {placed} have a place"
        fresh = [self.requests[job].index or 0 for job in placed - self.placed]
        rest = [self.requests[job].index or 0 for job in waiting]
        assert not fresh or not rest or max(fresh) < min(rest), f"array {array}: {fresh} before {rest}"
        self.placed = (self.placed - set(members)) | placed

    def check_limits(self, codes: dict[str, str]) -> None:
        quotas, time = self.played.state.quotas, self.played.time
        for subject in quotas.subjects():
            mine = [job for job in self.unfinished if self.requests[job].user == subject.name]
            using = [job for job in mine if job not in codes]
            used, limit = quotas.used_by(subject, time), quotas.limits_of(subject).running_accelerators
            assert used.unfinished_jobs == len(mine)
            assert used.running_accelerators == sum(self.requests[job].workers for job in using)
            assert not limit or used.running_accelerators <= limit or all(map(self.runs, using))
            assert limit or not any(codes.get(job) == "over_limit" for job in mine)
        assert quotas.admissible() == ()


def refused(action: Any, *arguments: Any) -> str:
    """Why something is refused; empty if it is not."""
    try:
        action(*arguments)
    except InputError as error:
        return str(error)
    return ""
