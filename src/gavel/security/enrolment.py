"""Which agents have a certificate: enrolment, renewal and revocation, as rules over records.

Changes are returned with the write that makes them durable; the caller writes them and then has them adopted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import sqlalchemy as sql

from gavel.client.field_checks import shortened
from gavel.core.serialization import from_plain, plain_record
from gavel.errors import InputError
from gavel.journal.accounts import write_document
from gavel.journal.store import Write
from gavel.security.authority import Authority
from gavel.security.certificates import (
    AGENT_SECONDS,
    AgentCertificate,
    Signed,
    agent_fault,
    read_agent_certificate,
)

KIND = "agent"
"""The kind of the documents in the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolledAgent:
    """One agent that was given a certificate."""

    agent: str
    name: str
    serial: str
    """Of its certificate."""
    previous: str = ""
    """The serial number before that, which counts as well: the reply with the new certificate may have been lost."""
    enrolled: float
    expires: float
    revoked: bool = False
    by: str = ""
    """The user whose join token it used."""


@dataclass(frozen=True, slots=True)
class EnrolmentChange:
    """A new record of an agent, and its certificate if it was given one."""

    record: EnrolledAgent
    signed: Signed | None = None

    @property
    def write(self) -> Write:
        """Writes the record; safe to repeat."""
        document = plain_record(self.record)

        def write(connection: sql.Connection) -> None:
            write_document(connection, KIND, self.record.agent, document)

        return write


class Enrolment:
    """All agents that were ever enrolled. Used from one thread."""

    def __init__(
        self,
        authority: Authority | None,
        records: Iterable[EnrolledAgent] = (),
        *,
        clock: Callable[[], float] = time.time,
        lifetime_seconds: float = AGENT_SECONDS,
    ) -> None:
        """Without an authority, agents bring certificates of the operator's own authority."""
        self._authority = authority
        self._records = {record.agent: record for record in records}
        self._clock = clock
        self._lifetime = lifetime_seconds

    @classmethod
    def of(
        cls,
        authority: Authority | None,
        documents: Mapping[str, Mapping[str, Any]],
        *,
        clock: Callable[[], float] = time.time,
        lifetime_seconds: float = AGENT_SECONDS,
    ) -> Self:
        """From the journal: `journal.documents("agent")`."""
        records = [from_plain(EnrolledAgent, document) for document in documents.values()]
        return cls(authority, records, clock=clock, lifetime_seconds=lifetime_seconds)

    @property
    def signs(self) -> bool:
        """Whether agents get certificates here; otherwise they bring them."""
        return self._authority is not None

    def records(self) -> list[EnrolledAgent]:
        """All records, by name."""
        return sorted(self._records.values(), key=lambda record: (record.name, record.agent))

    def adopt(self, change: EnrolmentChange) -> None:
        """Apply a change that is in the journal now."""
        self._records[change.record.agent] = change.record

    # ---- changes ----

    def enrol(self, agent: str, name: str, signing_request: str, by: str) -> EnrolmentChange:
        """Give a new agent a certificate; InputError if its identity or name is taken."""
        authority = self._own_authority("agents need no enrolment")
        if (fault := agent_fault(agent, name)) is not None:
            raise InputError(fault)
        self._check_free(agent, name)
        signed = authority.sign(signing_request, agent, name, self._lifetime)
        record = EnrolledAgent(
            agent=agent, name=name, serial=signed.serial, enrolled=self._clock(), expires=signed.expires, by=by
        )
        return EnrolmentChange(record, signed)

    def renew(self, certificate_pem: str, signing_request: str) -> EnrolmentChange:
        """Give the agent that presents this certificate a new one, for the same identity and name."""
        authority = self._own_authority("it renews the agents' certificates, too")
        shown, record = self._known(certificate_pem)
        signed = authority.sign(signing_request, record.agent, record.name, self._lifetime)
        renewed = replace(record, serial=signed.serial, previous=shown.serial, expires=signed.expires)
        return EnrolmentChange(renewed, signed)

    def revoke(self, agent: str) -> EnrolmentChange:
        """Let an agent's certificate count no more; by identity or name."""
        record = self._records.get(agent) or self._named(agent)
        if record is None:
            raise InputError(f"no agent {shortened(agent)} is enrolled; `gavel agent list` shows all")
        return EnrolmentChange(replace(record, revoked=True))

    def _own_authority(self, instead: str) -> Authority:
        if self._authority is None:
            raise InputError(f"this scheduler trusts the authority given with --client-ca; {instead}")
        return self._authority

    def _check_free(self, agent: str, name: str) -> None:
        now, known = self._clock(), self._records.get(agent)
        if known is not None and not known.revoked and now < known.expires:
            raise InputError(
                f"agent {agent} is enrolled already, as {known.name!r}; "
                f"if its key was lost, revoke it first: gavel agent revoke {agent}"
            )
        if name in self._records or self._named(agent) is not None:
            # Otherwise a revocation by name could hit another agent than was meant.
            raise InputError(f"the name {name!r} or identity {agent} is confusable with another agent's; give another")
        holder = self._named(name)
        if holder is not None and holder.agent != agent and not holder.revoked:
            raise InputError(
                f"the name {name!r} belongs to another enrolled agent, {holder.agent}; give another --name, "
                f"or revoke that one first: gavel agent revoke {holder.agent}"
            )

    def _named(self, name: str) -> EnrolledAgent | None:
        """The agent with this name; of several, the one that is not revoked."""
        found = [record for record in self._records.values() if record.name == name]
        return min(found, key=lambda record: record.revoked, default=None)

    # ---- checks ----

    def check(self, certificate_pem: str) -> tuple[str, str]:
        """The identity and name of the agent that presents this certificate; InputError if it does not count.

        The connection has verified who issued it. The identity is empty for a certificate of the operator's own
        authority: there the name is all that counts.
        """
        if self._authority is not None:
            _, record = self._known(certificate_pem)
            return record.agent, record.name
        shown = read_agent_certificate(certificate_pem)
        self._check_time(shown)
        return "", shown.name

    def revoked_fault(self, agent: str) -> str | None:
        """The sentence for an agent whose certificate was revoked; None if it was not."""
        record = self._records.get(agent)
        if record is None or not record.revoked:
            return None
        return (
            f"the certificate of agent {record.name!r} was revoked; to admit the agent again, remove its "
            "credentials.json and enrol it with a new join token"
        )

    def plaintext_fault(self, agent: str, name: str) -> str | None:
        """Why an agent may not attach without a certificate, in a sentence; None if it may."""
        if agent in self._records:
            return f"agent {agent} is enrolled, so it must connect with its certificate"
        holder = self._named(name)
        if holder is not None and not holder.revoked:
            return f"the name {name!r} belongs to an enrolled agent, which connects with its certificate"
        return None

    def _known(self, certificate_pem: str) -> tuple[AgentCertificate, EnrolledAgent]:
        shown = read_agent_certificate(certificate_pem)
        record = self._records.get(shown.agent)
        if record is None or not shown.agent:
            raise InputError(f"no agent {shortened(shown.agent)} is enrolled here; enrol it with a join token")
        if (fault := self.revoked_fault(record.agent)) is not None:
            raise InputError(fault)
        if shown.serial not in (record.serial, record.previous) or shown.name != record.name:
            raise InputError(
                f"agent {record.name!r} shows a certificate that was replaced; "
                "if its state folder was restored from a backup, revoke the agent and enrol it again"
            )
        self._check_time(shown)
        return shown, record

    def _check_time(self, shown: AgentCertificate) -> None:
        now = self._clock()
        if now >= shown.expires:
            raise InputError(f"the certificate of agent {shortened(shown.name)} has expired; enrol the agent again")
        if now < shown.begins:
            raise InputError(
                f"the certificate of agent {shortened(shown.name)} is not valid yet; compare both machines' clocks"
            )
