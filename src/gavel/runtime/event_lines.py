"""The facts that a reader asks for, in order, as documents: past ones from the journal, and a filter for new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Any

from gavel.client.secret_values import HIDDEN
from gavel.client.webhooks import host_only
from gavel.core.codec import kind_of
from gavel.journal.facts import Entry
from gavel.journal.queries import JournalReader
from gavel.runtime.agents import Agents
from gavel.runtime.facts import KINDS, Fact, jobs_of, server_of
from gavel.runtime.timeline import ROUTINE


def public(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document of a fact without what may be secret: values of a job's environment, and paths of URLs."""
    fact = document["fact"]
    request, urls = fact.get("request"), fact.get("urls")
    if urls:
        fact = {**fact, "urls": list(map(host_only, urls))}
    if request and request.get("environment"):
        request = {**request, "environment": dict.fromkeys(request["environment"], HIDDEN)}
    if request and request.get("notify"):
        request = {**request, "notify": list(map(host_only, request["notify"]))}
    if request:
        fact = {**fact, "request": request}
    return {**document, "fact": fact}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which facts a reader asks for."""

    job: str = ""
    servers: frozenset[str] = frozenset()
    """Names of servers and agents; empty: all."""
    since: float = 0.0
    after: int = 0
    limit: int = 0
    """The newest, at most this many; 0: all."""
    routine: bool = False

    def includes(self, fact: Fact) -> bool:
        """Whether a fact that was just written matches."""
        return (
            (self.routine or kind_of(type(fact)) not in ROUTINE)
            and (not self.job or self.job in jobs_of(fact))
            and (not self.servers or server_of(fact) in self.servers)
        )

    def until(self, journal: JournalReader, last: int) -> Iterator[Entry]:
        """Matching facts up to a number, oldest first; the journal is read when the first is requested."""
        if self.limit:
            newest = islice(self._merged(journal, last, newest_first=True), self.limit)
            yield from reversed(list(newest))
        else:
            yield from self._merged(journal, last, newest_first=False)

    def _merged(self, journal: JournalReader, last: int, *, newest_first: bool) -> Iterator[Entry]:
        asked: Mapping[str, Any] = {
            "after": min(self.after, last),  # the database has no larger numbers
            "until": last,
            "since": self.since or None,
            "job": self.job or None,
            "kinds": () if self.routine else KINDS - ROUTINE,
            "newest_first": newest_first,
            "limit": self.limit or None,
        }
        servers: list[str | None] = [*sorted(self.servers)] or [None]
        found = [journal.facts(server=server, **asked) for server in servers]
        return merge(*found, key=lambda entry: entry.number, reverse=newest_first)


def names_of(server: str, agents: Agents) -> frozenset[str]:
    """All names that facts may use for a server or agent: an agent with several types has several servers."""
    if not server:
        return frozenset()
    groups = [{record.name, *(each.name for each in record.servers)} for record in agents]
    # Servers of one agent are told apart, but facts about the agent concern all of them.
    return frozenset({server}.union(*(_related(server, group) for group in groups if server in group)))


def _related(server: str, group: set[str]) -> set[str]:
    agent = min(group, key=len)
    return group if server == agent else {server, agent}
