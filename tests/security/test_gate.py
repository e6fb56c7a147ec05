"""Who is let through the gate: by transport, certificate, token and role; the rest is refused and noted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.errors import InputError
from gavel.journal.audit import AuditEntry, AuditWanted
from gavel.journal.database import sqlite_url
from gavel.journal.store import Journal
from gavel.security.accounts import Accounts, Sessions, UserRecord
from gavel.security.gate import CallingPeer, Gate, Identities, RefusedCallError
from gavel.security.roles import NEEDS, Caller, Need, Role
from gavel.security.trail import LISTED_PER_MINUTE, Trail

NOW = 1_000_000.0
TLS = CallingPeer("10.0.0.7", encrypted=True, local=False)
PLAIN = CallingPeer("10.0.0.7", encrypted=False, local=False)
SOCKET = CallingPeer("this machine", encrypted=False, local=True)
AGENT = CallingPeer("10.0.0.8", encrypted=True, local=False, certificate="good")
USERS = [UserRecord(name=name, role=Role(name), teams=("nlp",)) for name in ("viewer", "user", "operator", "admin")]


class Certificates:
    def check(self, certificate: str) -> tuple[str, str]:
        if certificate != "good":
            raise InputError("this certificate was revoked")
        return "a1", "head"


class World:
    def __init__(self, *, plaintext_agents: bool = False, open_to_all: bool = False) -> None:
        self.accounts = Accounts(USERS)
        self.sessions = Sessions()
        self.trail = Trail(lambda: NOW)
        self.tokens = {user.name: self._token(user) for user in USERS}
        identities = Identities(
            accounts=None if open_to_all else self.accounts,
            sessions=self.sessions,
            certificates=Certificates(),
            plaintext_agents=plaintext_agents,
        )
        self.gate = Gate(identities, lambda: NOW, self.trail)

    def _token(self, user: UserRecord) -> str:
        text, _, change = self.accounts.create_token(user=user.name, role=user.role, now=NOW)
        change.apply()
        return text

    def calls(self, method: str, peer: CallingPeer = TLS, token: str = "", acting_for: str = "") -> Caller:
        metadata = {"authorization": f"Bearer {token}"} if token else {}
        return self.gate.admitted(method, peer, metadata | ({"x-gavel-as": acting_for} if acting_for else {}))

    def refused(self, method: str, peer: CallingPeer = TLS, token: str = "", acting_for: str = "") -> RefusedCallError:
        with pytest.raises(RefusedCallError) as refusal:
            self.calls(method, peer, token, acting_for)
        return refusal.value


@pytest.mark.parametrize("method", NEEDS)
@pytest.mark.parametrize("user", [user.name for user in USERS])
def test_a_token_opens_what_its_role_may(method: str, user: str) -> None:
    world, need = World(), NEEDS[method]
    if need is Need.NOTHING or need.met_by(Role(user)):
        assert world.calls(method, token=world.tokens[user]).address == "10.0.0.7"
    else:
        assert world.refused(method, token=world.tokens[user]).code is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("method", [name for name, need in NEEDS.items() if need is not Need.NOTHING])
def test_without_a_token_every_call_is_refused(method: str) -> None:
    assert World().refused(method).code is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("method", NEEDS)
def test_an_agents_certificate_opens_what_agents_may_and_nothing_else(method: str) -> None:
    if NEEDS[method] is Need.AGENT:
        assert World().calls(method, AGENT) == Caller(
            user="", role=Role.AGENT, address="10.0.0.8", agent="a1", agent_name="head"
        )
    elif NEEDS[method] is not Need.NOTHING:
        assert World().refused(method, AGENT).code is grpc.StatusCode.PERMISSION_DENIED


def test_a_token_beside_a_certificate_adds_nothing() -> None:
    world = World()
    assert world.refused("Submit", AGENT, world.tokens["admin"]).code is grpc.StatusCode.PERMISSION_DENIED


def test_a_certificate_that_does_not_count_is_refused() -> None:
    bad = CallingPeer("10.0.0.9", encrypted=True, local=False, certificate="revoked")
    assert World().refused("Attach", bad).code is grpc.StatusCode.UNAUTHENTICATED


def test_a_token_in_plaintext_is_refused_even_if_it_is_right() -> None:
    world = World()
    assert world.refused("List", PLAIN, world.tokens["admin"]).code is grpc.StatusCode.UNAUTHENTICATED


def test_during_an_upgrade_plaintext_opens_attach_and_nothing_else() -> None:
    world = World(plaintext_agents=True)
    assert world.calls("Attach", PLAIN).role is Role.AGENT
    for method in NEEDS:
        if NEEDS[method] is not Need.AGENT:
            refused = world.refused(method, PLAIN, world.tokens["admin"])
            assert "`gavel login`" in str(refused), "a client of an earlier version prints what to do"


def test_an_open_scheduler_lets_everyone_do_everything() -> None:
    world = World(open_to_all=True)
    assert all(world.calls(method, PLAIN).open for method in NEEDS if NEEDS[method] is not Need.NOTHING)


def test_a_session_counts_on_the_socket_only() -> None:
    world = World()
    text, _ = world.sessions.begin("operator", NOW)
    assert world.calls("Drain", SOCKET, text).user == "operator"
    assert world.refused("Drain", TLS, text).code is grpc.StatusCode.UNAUTHENTICATED


class CountedCalls:
    """A limit that remembers by what calls were counted."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def admit(self, key: str) -> str | None:
        self.keys.append(key)
        return "too many calls"


def test_people_and_agents_are_limited_each_by_what_they_prove() -> None:
    world, rates = World(), CountedCalls()
    world.gate._rates = rates
    assert world.refused("RenewCertificate", AGENT).code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert world.refused("List", token=world.tokens["user"]).code is grpc.StatusCode.RESOURCE_EXHAUSTED
    [token] = [token.id for token in world.accounts.tokens.values() if token.user == "user"]
    assert rates.keys == ["a1", token]


def test_a_method_without_a_declared_need_is_refused_to_everyone() -> None:
    world = World(open_to_all=True)
    assert world.refused("Shutdown", PLAIN).code is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("user", ["viewer", "user"])
def test_users_cannot_act_for_others(user: str) -> None:
    world = World()
    for other in ("viewer", "admin"):  # neither someone with fewer rights nor with more
        assert world.refused("List", token=world.tokens[user], acting_for=other).reason == "acting"


def test_an_operator_acts_with_the_rights_of_the_other() -> None:
    world = World()
    caller = world.calls("Submit", token=world.tokens["operator"], acting_for="user")
    assert (caller.user, caller.by, caller.role) == ("user", "operator", Role.USER)
    assert world.refused("Drain", token=world.tokens["operator"], acting_for="user").reason == "role"


def test_an_operator_cannot_act_for_an_administrator() -> None:
    world = World()
    assert world.refused("AddUser", token=world.tokens["operator"], acting_for="admin").reason == "acting"


def test_no_one_acts_for_a_user_who_does_not_exist() -> None:
    world = World()
    assert world.refused("Submit", token=world.tokens["admin"], acting_for="eve").reason == "acting"


@given(st.text(max_size=60), st.sampled_from(["authorization", "Authorization", "x-gavel-as", "cookie"]))
def test_no_metadata_but_a_token_opens_anything(text: str, key: str) -> None:
    world = World()
    metadata: Mapping[str, str | bytes] = {key: text}
    with pytest.raises(RefusedCallError):
        world.gate.admitted("List", TLS, metadata)
    with pytest.raises(RefusedCallError):
        world.gate.admitted("List", TLS, {key: text.encode(errors="replace")})


def test_a_flood_of_refusals_is_counted_not_listed(tmp_path: Path) -> None:
    trail = Trail(lambda: NOW)
    stranger = Caller(user="", role=Role.VIEWER, address="10.0.0.7")
    for _ in range(10 * LISTED_PER_MINUTE):
        trail.refused(stranger, "List", "no token")
    rows = written_rows(trail, tmp_path)
    assert len(rows) == LISTED_PER_MINUTE + 1
    assert rows[-1].what == "540 more refused calls from this address are not listed"


def test_a_flood_from_many_addresses_takes_bounded_memory(tmp_path: Path) -> None:
    trail = Trail(lambda: NOW)
    for number in range(20_000):
        trail.refused(Caller(user="", role=Role.VIEWER, address=f"10.0.{number >> 8}.{number & 255}"), "List", "no")
    assert len(written_rows(trail, tmp_path)) < 2_100


def test_entries_are_written_once_however_often_the_write_is_repeated(tmp_path: Path) -> None:
    trail = Trail(lambda: NOW)
    trail.refused(Caller(user="ann", role=Role.USER), "Drain", "role")
    write = trail.due()
    assert write is not None
    with Journal.open(sqlite_url(tmp_path / "journal.sqlite"), holder="test") as journal:
        journal.write([write])
        journal.write([write])
        assert len(journal.audited(AuditWanted())) == 1


def written_rows(trail: Trail, folder: Path) -> list[AuditEntry]:
    write = trail.due()
    assert write is not None
    with Journal.open(sqlite_url(folder / "journal.sqlite"), holder="test") as journal:
        journal.write([write])
        return journal.audited(AuditWanted())
