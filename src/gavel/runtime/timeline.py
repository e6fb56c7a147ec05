"""Facts as sentences: a timeline for people. Works on documents, so any reader of a journal can use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gavel.client.quantities import duration

Fact = Mapping[str, Any]
MOST_NAMED = 6
"""Most jobs named in one sentence."""
ROUTINE = frozenset({"time_passed", "wake_set", "solve_asked", "jobs_progressed", "rate_measured"})
"""Kinds of facts that occur all the time and tell people little."""


def sentence(kind: str, fact: Fact) -> str:
    """What a fact says, for people."""
    tell = _SENTENCES.get(kind)
    return kind.replace("_", " ") if tell is None else tell(fact)


def _queued(fact: Fact) -> str:
    job, request = fact["job"], fact.get("request") or {}
    name = f" ({request['name']})" if request.get("name") else ""
    workers = f", {job['workers']} workers" if job["workers"] > 1 else ""
    held = f"; it waits: {fact['held'].get('text') or fact['held']['code']}" if fact.get("held") else ""
    return f"job {job['id']}{name} was submitted: {job['template']}{workers}{held}"


def _edited(fact: Fact) -> str:
    parts = [
        f"{each['name']} {each.get('before') or 'none'} → {each.get('after') or 'none'}"
        for each in fact.get("changes") or ()
    ]
    by = f" by {fact['by']}" if fact.get("by") else ""
    return f"job {fact['job']['id']} was changed{by}: {', '.join(parts)}"


def _allowed(fact: Fact) -> str:
    types = ", ".join(fact.get("types") or ()) or "any type"
    return f"job {fact['job']} may run on {types}: {fact['cause'].get('text') or fact['cause']['code']}"


def _ended(fact: Fact) -> str:
    return f"job {fact['job']} {fact['outcome']}: {fact['reason']}"


def _planned(fact: Fact) -> str:
    parts = [f"{_runs(fact['started'])} started"] if fact.get("started") else []
    parts += [f"{_runs(fact['moved'])} moved within a type"] if fact.get("moved") else []
    parts += [f"{_runs(fact['stopped'])} stopped ({_causes(fact['stopped'])})"] if fact.get("stopped") else []
    what = "; ".join(parts) or "everything continues"
    return f"{'during the round' if fact.get('mid_round') else 'round'}: {what}"


def _runs(runs: Sequence[Fact]) -> str:
    return _jobs([job for run in runs for job in run["jobs"]])


def _jobs(jobs: Sequence[str]) -> str:
    shown = ", ".join(jobs[:MOST_NAMED])
    more = f" and {len(jobs) - MOST_NAMED} more" if len(jobs) > MOST_NAMED else ""
    return f"job{'s' if len(jobs) > 1 else ''} {shown}{more}"


def _causes(runs: Sequence[Fact]) -> str:
    texts = dict.fromkeys(str(run["cause"].get("text") or run["cause"]["code"]) for run in runs)
    return ", ".join(list(texts)[:MOST_NAMED])


def _joined(fact: Fact) -> str:
    offers = ", ".join(f"{server['accelerators']} {server['type']}" for server in fact["servers"])
    return f"agent {fact['name']} joined with {offers}"


def _lost(fact: Fact) -> str:
    fenced = fact.get("fences")
    what = f"; job{'s' if len(fenced) > 1 else ''} {', '.join(fenced)} may still run there" if fenced else ""
    return f"{_agent(fact)} was lost: {fact['reason']}{what}"


def _draining(fact: Fact) -> str:
    when = "its jobs leave at once" if fact.get("now") else "its jobs leave when the round ends"
    return f"{_agent(fact)} takes no new work, requested by {_who(fact)}; {when}"


def _agent(fact: Fact) -> str:
    """Which agent; its identity if an earlier version recorded no name."""
    return f"agent {fact.get('name') or fact['agent']}"


def _who(fact: Fact) -> str:
    return "the agent itself" if fact["by"] == "agent" else str(fact["by"])


def _removed(fact: Fact) -> str:
    stopped = fact.get("stopped")
    jobs = f"; job{'s' if len(stopped) > 1 else ''} {', '.join(stopped)} stopped" if stopped else ""
    return f"server {fact['server']} takes no more work: {fact['cause'].get('text') or fact['cause']['code']}{jobs}"


def _unwanted(fact: Fact) -> str:
    return f"checkpoints of {_jobs(fact['jobs'])} are to be removed, requested by {_who(fact)}"


def _cleared(fact: Fact) -> str:
    removed, kept = fact.get("removed") or (), fact.get("kept") or {}
    parts = [f"checkpoints of {_jobs(removed)} were removed"] if removed else []
    parts += [f"those of job {job} were kept: {reason}" for job, reason in list(kept.items())[:MOST_NAMED]]
    agents = len(fact["done"])
    return "; ".join(parts) or f"{agents} agent{'s' if agents > 1 else ''} had no checkpoints left to remove"


def _why(fact: Fact) -> str:
    return str(fact["cause"].get("text") or fact["cause"]["code"])


def _holds(fact: Fact) -> str:
    held = "held" if fact["held"] else "released"
    return f"{_jobs(fact['jobs'])} {'were' if len(fact['jobs']) > 1 else 'was'} {held} by {_who(fact)}"


def _dependencies(fact: Fact) -> str:
    after = fact.get("after") or ()
    shown = ", ".join(after[:MOST_NAMED]) + (f" and {len(after) - MOST_NAMED} more" if len(after) > MOST_NAMED else "")
    return f"job {fact['job']} waits for {shown or 'no other job'} now, as {_who(fact)} asked"


def _settings(fact: Fact) -> str:
    before, after = fact.get("before") or {}, fact["after"]
    if not before:
        return f"first settings by {fact['by']}: policy {after.get('policy', 'max_min_fairness')}"
    changes = [
        f"{name} {before.get(name, 'default')} → {after.get(name, 'default')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]
    return f"settings changed by {fact['by']}: {', '.join(changes)}"


def _limits(fact: Fact) -> str:
    kind, name = fact["subject"]["kind"], fact["subject"].get("name", "")
    who = f"{kind} {name}" if name else "every user"
    parts = [f"{field.replace('_', ' ')} {value:,g}" for field, value in (fact.get("limits") or {}).items()]
    return f"limits of {who}, set by {fact['by']}: {', '.join(parts) or 'none of its own'}"


def _notifications(fact: Fact) -> str:
    count = len(fact.get("urls") or ())
    told = f"{count} URL{'s' if count > 1 else ''}" if count else "no URL"
    return f"notifications of {fact['user']} go to {told}, set by {fact['by']}"


_SENTENCES: dict[str, Callable[[Fact], str]] = {
    "job_queued": _queued,
    "job_ended": _ended,
    "job_edited": _edited,
    "types_allowed": _allowed,
    "start_delayed": lambda fact: (
        f"job {fact['job']} began {duration(float(round(fact['seconds'])))} after it had accelerators, "
        "which counts against no time limit"
    ),
    "time_limit_near": lambda fact: (
        f"job {fact['job']} is near its time limit of {duration(fact['limit_seconds'])}: it is stopped after "
        f"{duration(float(round(fact['left_seconds'])))} more of running"
    ),
    "job_requeued": lambda fact: f"job {fact['job']} waits again: {fact['reason']}",
    "jobs_held": lambda fact: f"{_jobs(fact['jobs'])} must wait: {_why(fact)}",
    "jobs_stopped": lambda fact: f"{_jobs(fact['jobs'])} stopped: {_why(fact)}",
    "pauses_ended": lambda fact: f"{_jobs(fact['jobs'])} pause{'s' * (len(fact['jobs']) == 1)} no longer: {_why(fact)}",
    "holds_changed": _holds,
    "dependencies_changed": _dependencies,
    "jobs_released": lambda fact: f"{_jobs(fact['jobs'])} may run when there are accelerators",
    "jobs_progressed": lambda fact: f"{len(fact['jobs'])} jobs counted their steps",
    "rate_measured": lambda fact: f"job {fact['job']} made {fact['rate']:.4g} steps a second on {fact['type']}",
    "restart_measured": lambda fact: f"a restart cost job {fact['job']} {fact['seconds']:.1f} s",
    "server_added": lambda fact: f"server {fact['server']['name']} takes work",
    "server_closed": lambda fact: f"server {fact['server']} starts nothing new",
    "server_reopened": lambda fact: f"server {fact['server']} takes work again",
    "server_removed": _removed,
    "solve_asked": lambda fact: f"the policy was asked (solve {fact['number']})",
    "solve_failed": lambda fact: f"the policy has no answer: {fact['reason']}",
    "allocation_adopted": lambda fact: f"the policy's answer is in force (solve {fact['number']})",
    "round_planned": _planned,
    "time_passed": lambda _: "time was accounted for",
    "wake_set": lambda fact: f"the scheduler will look again ({fact['why']})",
    "slept": lambda _: "nothing can run",
    "settings_changed": _settings,
    "limits_changed": _limits,
    "notifications_changed": _notifications,
    "scheduler_started": lambda fact: f"a scheduler of version {fact['version']} started (term {fact['term']})",
    "attempt_closed": lambda fact: (
        f"attempt {fact['attempt']} of job {fact['job']} ended: {fact.get('reason') or fact['outcome']}"
    ),
    "agent_joined": _joined,
    "agent_lost": _lost,
    "agent_draining": _draining,
    "agent_undrained": lambda fact: f"{_agent(fact)} takes work again, requested by {_who(fact)}",
    "templates_forgotten": lambda fact: f"{len(fact['templates']):,} templates without jobs moved to the journal",
    "template_recalled": lambda fact: f"what was learned about {fact['learned']['template']} counts again",
    "checkpoints_unwanted": _unwanted,
    "checkpoints_removed": _cleared,
    "agent_forgotten": lambda fact: f"{_agent(fact)} was removed from the list by {_who(fact)}",
}
