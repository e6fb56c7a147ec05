"""Where a call goes and what it carries, for every combination of arguments, environment and contexts."""

# ruff: noqa: S105, S106 - tokens that no scheduler knows

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.client.access import SchedulerAccess, Wishes, resolve
from gavel.client.contexts import Contexts, SchedulerContext, Trust
from gavel.client.errors import NotSecured
from gavel.errors import InputError

PIN = "sha256:" + "ab" * 32
HEAD = SchedulerContext(
    name="prod", address="head:7077", trust=Trust.AUTHORITY, authority="PEM", fingerprint=PIN, token="gvl_head"
)
LOCAL = SchedulerContext(name="local", address="unix:/tmp/gavel.sock")
BOTH = Contexts({"prod": HEAD, "local": LOCAL}, "prod")


def access(
    address: str | None = None,
    environment: dict[str, str] | None = None,
    contexts: Contexts = BOTH,
    **rest: Any,
) -> SchedulerAccess:
    wishes = {name: rest.pop(name) for name in ("token", "fingerprint", "acting_for") if name in rest}
    return resolve(Wishes(address=address, **wishes), environment or {}, contexts, **rest)


def test_what_is_named_comes_before_the_environment_the_context_and_this_machine() -> None:
    environment = {"GAVEL_SCHEDULER": "127.0.0.1:2"}
    assert access("127.0.0.1:1", environment, machine_socket=True).address == "127.0.0.1:1"
    assert access(None, environment, machine_socket=True).address == "127.0.0.1:2"
    assert access(None, {}, machine_socket=True).address == "head:7077"
    assert access(None, {}, Contexts(), machine_socket=True).address == "unix:/run/gavel/gavel.sock"
    assert access(None, {}, Contexts()).address == "127.0.0.1:7077"
    assert access(None, {"GAVEL_SCHEDULER": "  "}, Contexts()).address == "127.0.0.1:7077"


@pytest.mark.parametrize("named", ["prod", "head", "head:7077", " prod "])
def test_the_name_or_address_of_a_context_brings_its_trust_and_token(named: str) -> None:
    contexts = Contexts(BOTH.known, "local")
    for found in (access(named, {}, contexts), access(None, {"GAVEL_SCHEDULER": named}, contexts)):
        assert (found.address, found.trust, found.authority, found.token) == (
            *("head:7077", Trust.AUTHORITY, "PEM", "gvl_head"),
        )


def test_of_two_contexts_for_an_address_the_current_one_counts() -> None:
    other = SchedulerContext(
        name="admin", address="head:7077", trust=Trust.AUTHORITY, authority="PEM", token="gvl_admin"
    )
    contexts = Contexts({"prod": HEAD, "admin": other}, "admin")
    assert access("head", {}, contexts).token == "gvl_admin"
    assert access("prod", {}, contexts).token == "gvl_head"


def test_programs_without_a_context_bring_token_and_trust_in_the_environment() -> None:
    environment = {"GAVEL_SCHEDULER": "other", "GAVEL_TOKEN": "gvl_t", "GAVEL_FINGERPRINT": PIN}
    found = access(None, environment)
    assert (found.address, found.fingerprint, found.token) == ("other:7077", PIN, "gvl_t")
    assert found.authority == ""
    assert access("other", {"GAVEL_TOKEN": "gvl_t"}, authority="FILE").authority == "FILE"
    assert access("other", {}, authority="system").trust is Trust.SYSTEM


def test_arguments_come_before_the_environment() -> None:
    environment = {"GAVEL_TOKEN": "gvl_environment", "GAVEL_FINGERPRINT": "sha256:" + "0" * 64}
    found = access("other", environment, token="gvl_argument", fingerprint=PIN)
    assert (found.token, found.fingerprint) == ("gvl_argument", PIN)


def test_another_fingerprint_than_the_contexts_is_compared_again() -> None:
    other = "sha256:" + "cd" * 32
    found = access("prod", fingerprint=other)
    assert (found.authority, found.fingerprint) == ("", other)
    assert access("prod", fingerprint=PIN).authority == "PEM"


@pytest.mark.parametrize("address", ["head2", "10.0.0.7:7077", "[fe80::1]:7077", "127.0.0.1.evil.example"])
def test_plaintext_beyond_this_machine_is_refused(address: str) -> None:
    with pytest.raises(NotSecured, match=r"run `gavel login .*`, or set GAVEL_FINGERPRINT") as caught:
        access(address, {"GAVEL_TOKEN": "gvl_secret"})
    assert "gvl_secret" not in str(caught.value)
    assert access(address, {"GAVEL_INSECURE": "1", "GAVEL_TOKEN": "gvl_secret"}).token == ""


def test_a_context_without_trust_beyond_this_machine_is_refused() -> None:
    contexts = Contexts({"a": SchedulerContext(name="a", address="far:7077", token="gvl_t")}, "a")
    with pytest.raises(NotSecured):
        access(None, {}, contexts)


def test_a_token_that_a_program_gives_for_plaintext_is_refused() -> None:
    with pytest.raises(NotSecured, match=r"not sent to 127\.0\.0\.1:7077 in plaintext") as caught:
        access("127.0.0.1", token="gvl_secret")
    assert "gvl_secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["gvl_a b", "gvl_\n", "gvl_é", "gvl_\x00", "x" * 1001])
def test_a_token_that_cannot_be_sent_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(InputError, match="characters that no token has") as caught:
        access("prod", token=token)
    assert token not in str(caught.value)


def test_a_join_token_is_not_for_people() -> None:
    with pytest.raises(InputError, match="this is a join token") as caught:
        access("prod", token="gvj_secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("user", ["é", " a", "a\n", "\x1b[31m", "x" * 300])
def test_acting_for_a_name_that_cannot_be_sent_is_refused(user: str) -> None:
    with pytest.raises(InputError, match="is not a user's name"):
        access("prod", acting_for=user)


maybe = st.sampled_from
WORDS = {
    "GAVEL_SCHEDULER": maybe(["", "127.0.0.1:1", "head", "far:1", "prod", "local", "unix:/x"]),
    "GAVEL_TOKEN": maybe(["", "gvl_environment"]),
    "GAVEL_FINGERPRINT": maybe(["", PIN]),
    "GAVEL_INSECURE": maybe(["", "1"]),
}


@given(
    address=maybe([None, "", "127.0.0.1:1", "localhost", "[::1]", "head", "far", "prod", "local", "unix:/y"]),
    token=maybe(["", "gvl_argument"]),
    fingerprint=maybe(["", PIN]),
    environment=st.fixed_dictionaries(WORDS),
    current=maybe(["", "prod", "local", "gone"]),
    machine_socket=st.booleans(),
    authority=maybe(["", "system", "PEM"]),
)
def test_a_token_is_only_ever_combined_with_tls_or_a_unix_socket(
    address: str | None,
    token: str,
    fingerprint: str,
    environment: dict[str, str],
    current: str,
    machine_socket: bool,
    authority: str,
) -> None:
    wishes = Wishes(address=address, token=token, fingerprint=fingerprint)
    contexts = Contexts(BOTH.known, current)
    try:
        found = resolve(wishes, environment, contexts, machine_socket=machine_socket, authority=authority)
    except NotSecured:
        return
    assert found.encrypted or found.local or not found.token
    assert (
        found.encrypted
        or found.local
        or environment["GAVEL_INSECURE"]
        or found.address.startswith(("127.", "localhost", "[::1]"))
    )
    assert found.encrypted or found.address != "head:7077"
    assert found.trust is not Trust.AUTHORITY or found.authority or found.fingerprint
    assert "gvl_" not in repr(found) + repr(wishes)
