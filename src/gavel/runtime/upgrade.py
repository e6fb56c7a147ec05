"""Converts a journal of format 1, whose events were decided again at every start: replays them and stores the state.

After an orderly stop nothing is left to decide. After a crash the last events are decided by this version; where it
decides differently, agents report what really runs when they attach, and the fleet resolves the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gavel.client.requests import Submission
from gavel.client.views import JobState
from gavel.core.cluster import Server
from gavel.core.codec import decode_event
from gavel.core.errors import InputError
from gavel.core.events import JobFailed, JobSubmitted, Launch, ServerJoined, ServerLost
from gavel.core.serialization import from_plain, plain_record
from gavel.journal.upgrade import OldJob, OldJournal, Upgraded
from gavel.runtime.agents import identity_of
from gavel.runtime.configuration import Configurator, Scheduling, settings_document
from gavel.runtime.events import AgentAttached, AgentGone, Event, SettingsGiven
from gavel.runtime.fleet import agent_name
from gavel.runtime.jobs import LiveJobRecord
from gavel.runtime.state import ClusterState
from gavel.runtime.state_keeper import finished_jobs

STATES = {
    1: JobState.QUEUED,
    2: JobState.RUNNING,
    3: JobState.PREEMPTED,
    4: JobState.COMPLETED,
    5: JobState.FAILED,
    6: JobState.CANCELLED,
}
"""The numbers that format 1 used for states."""


def upgrading(settings: Scheduling, configurator: Configurator) -> Callable[[OldJournal], Upgraded]:
    """A function that turns a journal of format 1 into a state, under the settings of this start."""

    def upgrade(old: OldJournal) -> Upgraded:
        state = _state(old, settings, configurator)
        finished = [record_of(job.document) for job in old.over()]
        ended = state.jobs.hand_over()
        every = {record.id: record for record in (*finished, *ended)}
        return Upgraded(state.document(), finished_jobs(tuple(every.values())))

    return upgrade


def _state(old: OldJournal, settings: Scheduling, configurator: Configurator) -> ClusterState:
    kept = old.latest()
    if kept is None:
        number, state = 0, ClusterState(configurator)
        state.take(SettingsGiven(0.0, "upgrade", settings_document(settings)))
    else:
        number, document = kept
        state = ClusterState.of(_document(document, settings), configurator)
    for entry in old.events(after=number):
        _replay(state, entry)
    return state


def _replay(state: ClusterState, entry: Mapping[str, Any]) -> None:
    """Process an event of format 1; one that was refused then is refused now."""
    fields = dict(entry)
    note = fields.pop("note", {})
    try:
        event = decode_event(fields, state.problem_of)
        for each in _events(state, event, note):
            state.take(each)
    except InputError:
        return


def _events(state: ClusterState, event: Any, note: Mapping[str, Any]) -> list[Event]:
    match event:
        case JobSubmitted():
            request = request_of(note["request"])
            return [JobSubmitted(event.time, event.job, request, note.get("key", ""))]
        case JobFailed():
            counts = bool(note.get("counts", True))
            return [
                JobFailed(event.time, event.job, event.reason, event.retry, event.not_before, event.crashed, counts)
            ]
        case ServerJoined():
            name = agent_name(event.server.name)
            known = state.agents.get(identity_of(name))
            servers = (*(known.servers if known is not None else ()), event.server)
            return [AgentAttached(time=event.time, agent=identity_of(name), name=name, servers=servers)]
        case ServerLost():
            name = agent_name(event.server)
            return [AgentGone(event.time, identity_of(name), f"server {event.server} is gone", note.get("fences", {}))]
        case _:
            return [event]


def _document(old: Mapping[str, Any], settings: Scheduling) -> dict[str, Any]:
    """A state of format 1, in the form of this version."""
    servers = _servers(old["scheduler"])
    book = old["book"]
    return {
        "settings": settings_document(settings),
        "scheduler": old["scheduler"],
        "learned": old["learned"],
        "jobs": {
            "next_number": book["next_number"],
            "records": [record_of(entry).document() for entry in book["records"]],
            "keys": book["keys"],
        },
        "agents": {
            "records": [
                {
                    "agent": identity_of(name),
                    "name": name,
                    "servers": [plain_record(server) for server in own],
                    "since": old["time"],
                }
                for name, own in servers.items()
            ],
            "fences": [[job, identity_of(agent), until] for job, agent, until in old.get("fences", ())],
        },
        "attempts": _attempts(old),
        "renewed_until": old["renewed_until"],
        "trouble": "",
        "time": old["time"],
    }


def _servers(scheduler: Mapping[str, Any]) -> dict[str, list[Server]]:
    """By agent: its servers."""
    found: dict[str, list[Server]] = {}
    for type_name, pool in zip(scheduler["types"], scheduler["floors"], strict=True):
        for name, size in pool["sizes"].items():
            found.setdefault(agent_name(name), []).append(Server(name, type_name, size))
    return found


def _attempts(old: Mapping[str, Any]) -> list[dict[str, Any]]:
    numbers = {entry["id"]: entry["attempts"] for entry in old["book"]["records"]}
    launches = [from_plain(Launch, entry, attempt=numbers.get(entry["job"], 1)) for entry in old["launches"]]
    return [plain_record(launch) for launch in launches]


def request_of(old: Mapping[str, Any]) -> Submission:
    """A request as format 1 stored it: protobuf's JSON."""
    return Submission(
        command=tuple(old.get("command", ())),
        name=old.get("name", ""),
        template=old.get("template", ""),
        steps=old.get("steps") or None,
        workers=old.get("workers", 1),
        weight=old.get("weight", 1.0),
        entity=old.get("entity") or None,
        deadline_seconds=old.get("deadlineSeconds") or None,
        types=tuple(old.get("types", ())),
        environment=old.get("environment", {}),
        retries=old.get("retries", 0),
        working_directory=old.get("workingDirectory", ""),
    )


def record_of(old: Mapping[str, Any] | OldJob) -> LiveJobRecord:
    """A record as format 1 stored it."""
    document = dict(old.document if isinstance(old, OldJob) else old)
    history = [{"time": time, "state": STATES[state], "reason": reason} for time, state, reason in document["history"]]
    request = plain_record(request_of(document["request"]))
    return LiveJobRecord.of({**document, "request": request, "history": history})
