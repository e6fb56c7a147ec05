"""The agents that the cluster knows, including those that are away, drained or lost: a fold over facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gavel.core.cluster import Server
from gavel.core.serialization import from_plain, plain_record
from gavel.runtime.facts import AgentDraining, AgentForgotten, AgentJoined, AgentLost, AgentUndrained, Fact

ITSELF = "agent"
"""The author of a drain when an agent leaves by itself; an agent that returns after that takes work again."""


def identity_of(name: str) -> str:
    """The identity of an agent of an earlier version, which had only its name."""
    return f"name:{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRecord:
    """One agent: its identity, its servers and its current state."""

    agent: str
    name: str
    servers: tuple[Server, ...]
    since: float
    """When it last joined, was lost, drained or undrained."""
    lost: bool = False
    drained_by: str = ""
    """Who asked it to take no new work; empty if it takes work."""
    reason: str = ""

    @property
    def draining(self) -> bool:
        return bool(self.drained_by)

    @property
    def offered(self) -> tuple[Server, ...]:
        """The servers that should take work."""
        return () if self.lost or self.draining else self.servers


class Agents:
    """Agents by identity, and what lost agents may still run."""

    def __init__(self) -> None:
        self.records: dict[str, AgentRecord] = {}
        self.fences: dict[tuple[str, str], float] = {}
        """By job and agent: until when the job may still run there, and so must not start elsewhere."""
        self.by_server: dict[str, str] = {}
        """The agent that last joined with each server."""

    def __iter__(self) -> Iterator[AgentRecord]:
        return iter(self.records.values())

    def get(self, agent: str) -> AgentRecord | None:
        return self.records.get(agent)

    def named(self, name: str) -> AgentRecord | None:
        """The agent with this name or, failing that, this identity."""
        found = next((record for record in self if record.name == name), None)
        return found or self.records.get(name)

    def evolve(self, fact: Fact) -> None:
        """Apply a fact."""
        match fact:
            case AgentJoined():
                self._joined(fact)
            case AgentLost():
                self._lost(fact)
            case AgentDraining():
                reason = "leaving by itself" if fact.by == ITSELF else f"drained by {fact.by}"
                self._change(fact.agent, since=fact.time, drained_by=fact.by, reason=reason)
            case AgentUndrained():
                self._change(fact.agent, since=fact.time, drained_by="", reason="")
            case AgentForgotten():
                self._leave_servers(fact.agent)
                del self.records[fact.agent]
            case _:
                pass

    def _joined(self, fact: AgentJoined) -> None:
        before = self.records.get(fact.agent)
        self._leave_servers(fact.agent)
        self.by_server |= {server.name: fact.agent for server in fact.servers}
        self.records[fact.agent] = AgentRecord(
            agent=fact.agent,
            name=fact.name,
            servers=fact.servers,
            since=fact.time,
            drained_by=before.drained_by if before else "",
            reason=before.reason if before and before.draining else "",
        )
        # Unexpired fences stay: what the agent still runs is being stopped now, which only the executor knows, and a
        # scheduler restarted before those processes end must not forget them.
        self._drop_fences(fact.time)

    def _leave_servers(self, agent: str) -> None:
        """Release the agent's servers, unless another agent already has them."""
        record = self.records.get(agent)
        for server in record.servers if record is not None else ():
            if self.by_server.get(server.name) == agent:
                del self.by_server[server.name]

    def _lost(self, fact: AgentLost) -> None:
        self._change(fact.agent, since=fact.time, lost=True, reason=fact.reason)
        self._drop_fences(fact.time)
        self.fences |= {(job, fact.agent): until for job, until in fact.fences.items()}

    def _drop_fences(self, time: float) -> None:
        self.fences = {key: until for key, until in self.fences.items() if until > time}

    def postpone(self, seconds: float) -> None:
        """Extend all fences."""
        self.fences = {key: until + seconds for key, until in self.fences.items()}

    def _change(self, agent: str, **changes: Any) -> None:
        self.records[agent] = replace(self.records[agent], **changes)

    def document(self) -> dict[str, Any]:
        return {
            "records": [plain_record(record) for record in self],
            "fences": [[job, agent, until] for (job, agent), until in self.fences.items()],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Agents:
        agents = cls()
        agents.records = {entry["agent"]: from_plain(AgentRecord, entry) for entry in document["records"]}
        # Of two agents with the same name, the lost one is older.
        for record in sorted(agents, key=lambda record: not record.lost):
            agents.by_server |= {server.name: record.agent for server in record.servers}
        agents.fences = {(job, agent): until for job, agent, until in document["fences"]}
        return agents
