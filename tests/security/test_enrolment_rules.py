"""Which agents get a certificate, and whose certificate counts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.errors import InputError
from gavel.journal.store import Journal
from gavel.security.authority import Authority
from gavel.security.certificates import AGENT_SECONDS, new_key, signing_request
from gavel.security.enrolment import KIND, Enrolment, EnrolmentChange

NOW = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


class Clock:
    """Time that a test sets."""

    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authority(tmp_path: Path, clock: Clock) -> Authority:
    return Authority.create(tmp_path / "security", "0f3c", [], clock=clock)


@pytest.fixture
def enrolment(authority: Authority, clock: Clock) -> Enrolment:
    return Enrolment(authority, clock=clock)


def request() -> str:
    return signing_request(new_key())


def enrolled(enrolment: Enrolment, agent: str, name: str) -> str:
    return done(enrolment, enrolment.enrol(agent, name, request(), "alice"))


def renewed(enrolment: Enrolment, certificate: str) -> str:
    return done(enrolment, enrolment.renew(certificate, request()))


def done(enrolment: Enrolment, change: EnrolmentChange) -> str:
    enrolment.adopt(change)
    assert change.signed is not None
    return change.signed.pem


def test_an_enrolled_agent_is_recognised(enrolment: Enrolment) -> None:
    certificate = enrolled(enrolment, "a1", "lab1")
    assert enrolment.check(certificate) == ("a1", "lab1")
    (record,) = enrolment.records()
    assert (record.by, record.enrolled, record.expires) == ("alice", NOW, NOW + AGENT_SECONDS)


def test_an_agent_with_a_valid_certificate_cannot_enrol_again(enrolment: Enrolment) -> None:
    enrolled(enrolment, "a1", "lab1")
    with pytest.raises(InputError, match="revoke it first: gavel agent revoke a1"):
        enrolment.enrol("a1", "lab1", request(), "mallory")


def test_the_name_of_another_agent_cannot_be_taken(enrolment: Enrolment) -> None:
    enrolled(enrolment, "a1", "lab1")
    with pytest.raises(InputError, match="belongs to another enrolled agent, a1"):
        enrolment.enrol("a2", "lab1", request(), "mallory")


@pytest.mark.parametrize(("agent", "name"), [("lab1", "lab2"), ("a2", "a1")])
def test_a_revocation_by_name_cannot_be_led_to_another_agent(enrolment: Enrolment, agent: str, name: str) -> None:
    enrolled(enrolment, "a1", "lab1")
    with pytest.raises(InputError, match="confusable"):
        enrolment.enrol(agent, name, request(), "mallory")


def test_an_expired_certificate_does_not_count_and_its_agent_may_enrol_again(
    enrolment: Enrolment, clock: Clock
) -> None:
    first = enrolled(enrolment, "a1", "lab1")
    clock.now += AGENT_SECONDS
    with pytest.raises(InputError, match="has expired; enrol the agent again"):
        enrolment.check(first)
    with pytest.raises(InputError, match="has expired"):
        enrolment.renew(first, request())
    assert enrolment.check(enrolled(enrolment, "a1", "lab1")) == ("a1", "lab1")


def test_a_certificate_from_the_future_is_refused(enrolment: Enrolment, clock: Clock) -> None:
    certificate = enrolled(enrolment, "a1", "lab1")
    clock.now -= 3600
    with pytest.raises(InputError, match="is not valid yet"):
        enrolment.check(certificate)


@pytest.mark.parametrize("by", ["a1", "lab1"])
def test_a_revoked_certificate_never_counts_again(enrolment: Enrolment, by: str) -> None:
    first = enrolled(enrolment, "a1", "lab1")
    enrolment.adopt(enrolment.revoke(by))
    for refused in (enrolment.check, lambda shown: enrolment.renew(shown, request())):
        with pytest.raises(InputError, match="was revoked"):
            refused(first)
    assert enrolment.revoked_fault("a1") is not None
    second = enrolled(enrolment, "a1", "lab1")
    assert enrolment.check(second) == ("a1", "lab1")
    with pytest.raises(InputError, match="was replaced"):
        enrolment.check(first)


def test_a_revoked_name_is_free_for_another_agent(enrolment: Enrolment) -> None:
    enrolled(enrolment, "a1", "lab1")
    enrolment.adopt(enrolment.revoke("lab1"))
    assert enrolment.check(enrolled(enrolment, "a2", "lab1")) == ("a2", "lab1")
    assert enrolment.revoke("lab1").record.agent == "a2"


def test_an_unknown_agent_cannot_be_revoked(enrolment: Enrolment) -> None:
    with pytest.raises(InputError, match="no agent 'lab9' is enrolled"):
        enrolment.revoke("lab9")


def test_renewal_keeps_identity_and_name(enrolment: Enrolment, clock: Clock) -> None:
    first = enrolled(enrolment, "a1", "lab1")
    clock.now += AGENT_SECONDS * 0.7
    second = renewed(enrolment, first)
    assert enrolment.check(second) == ("a1", "lab1")
    (record,) = enrolment.records()
    assert record.expires == clock.now + AGENT_SECONDS
    assert (record.by, record.enrolled) == ("alice", NOW)


def test_a_lost_reply_to_a_renewal_is_not_fatal(enrolment: Enrolment) -> None:
    first = enrolled(enrolment, "a1", "lab1")
    lost = renewed(enrolment, first)
    assert enrolment.check(first) == ("a1", "lab1")
    second = renewed(enrolment, first)
    assert enrolment.check(second) == ("a1", "lab1")
    with pytest.raises(InputError, match="was replaced"):
        enrolment.check(lost)


def test_a_certificate_two_renewals_old_does_not_count(enrolment: Enrolment) -> None:
    first = enrolled(enrolment, "a1", "lab1")
    renewed(enrolment, renewed(enrolment, first))
    with pytest.raises(InputError, match="was replaced"):
        enrolment.renew(first, request())


def test_a_certificate_that_was_never_recorded_is_refused(authority: Authority, enrolment: Enrolment) -> None:
    signed = authority.sign(request(), "a9", "lab9")
    with pytest.raises(InputError, match="no agent 'a9' is enrolled here"):
        enrolment.check(signed.pem)
    enrolled(enrolment, "a9", "lab9")
    with pytest.raises(InputError, match="was replaced"):
        enrolment.check(signed.pem)


def test_an_enrolled_agent_may_not_attach_in_plaintext(enrolment: Enrolment) -> None:
    enrolled(enrolment, "a1", "lab1")
    assert "must connect with its certificate" in (enrolment.plaintext_fault("a1", "other") or "")
    assert "belongs to an enrolled agent" in (enrolment.plaintext_fault("a2", "lab1") or "")
    assert enrolment.plaintext_fault("a2", "lab2") is None
    enrolment.adopt(enrolment.revoke("a1"))
    assert enrolment.plaintext_fault("a1", "lab1") is not None, "a revocation is no way back to plaintext"


def test_records_survive_a_restart(enrolment: Enrolment, authority: Authority, clock: Clock, tmp_path: Path) -> None:
    with Journal.open(f"sqlite:///{tmp_path / 'journal.sqlite'}", holder="test") as journal:
        kept = enrolment.enrol("a1", "lab1", request(), "alice")
        lost = enrolment.enrol("a2", "lab2", request(), "alice")
        journal.write([kept.write, lost.write, kept.write])
        enrolment.adopt(kept)
        enrolment.adopt(lost)
        revoked = enrolment.revoke("lab2")
        journal.write([revoked.write])
        again = Enrolment.of(authority, journal.documents(KIND), clock=clock)
    assert again.check(done(enrolment, kept)) == ("a1", "lab1")
    assert again.revoked_fault("a2") is not None


def test_with_an_operators_authority_the_common_name_is_the_name(authority: Authority, clock: Clock) -> None:
    own = Enrolment(None, clock=clock)
    certificate = authority.sign(request(), "anything", "lab1").pem
    assert own.check(certificate) == ("", "lab1")
    with pytest.raises(InputError, match="--client-ca"):
        own.enrol("a1", "lab1", request(), "alice")
    with pytest.raises(InputError, match="--client-ca"):
        own.renew(certificate, request())
    clock.now += AGENT_SECONDS
    with pytest.raises(InputError, match="has expired"):
        own.check(certificate)


@given(st.one_of(st.text(max_size=200), st.binary(max_size=200).map(lambda data: data.decode("latin-1"))))
def test_what_is_no_certificate_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Enrolment(None).check(text)
