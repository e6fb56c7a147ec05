"""Users and tokens: what a token proves, until when, and that it is stored only as a digest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.core.errors import InputError
from gavel.journal.database import sqlite_url
from gavel.journal.store import Journal
from gavel.security.accounts import MOST_SESSIONS, Accounts, Sessions, UnknownTokenError, UserRecord, digest_of
from gavel.security.roles import Role

NOW = 1_000_000.0
DAY = 86_400.0


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(sqlite_url(tmp_path / "journal.sqlite"), holder="test") as opened:
        yield opened


def accounts_with(*users: UserRecord) -> Accounts:
    return Accounts(users)


def token_of(accounts: Accounts, user: str = "ann", role: Role = Role.USER, **options: float) -> tuple[str, str]:
    """A valid token's text and id."""
    text, record, change = accounts.create_token(user=user, role=role, now=NOW, **options)  # type: ignore[arg-type]
    change.apply()
    return text, record.id


ANN = UserRecord(name="ann", teams=("nlp",))
ADMIN = UserRecord(name="root", role=Role.ADMIN)


def test_a_token_proves_its_user_until_it_expires() -> None:
    accounts = accounts_with(ANN)
    text, _ = token_of(accounts, seconds=60.0)
    assert accounts.recognise(text, NOW + 59.9).user == ANN
    with pytest.raises(UnknownTokenError, match="expired"):
        accounts.recognise(text, NOW + 60.0)


def test_a_revoked_token_proves_nothing() -> None:
    accounts = accounts_with(ANN)
    text, found = token_of(accounts)
    accounts.revoke(found).apply()
    with pytest.raises(UnknownTokenError, match="revoked"):
        accounts.recognise(text, NOW)
    assert not accounts.valid(found, NOW)


def test_tokens_of_a_disabled_user_prove_nothing() -> None:
    accounts = accounts_with(ANN)
    text, found = token_of(accounts)
    accounts.change_user("ann", {"disabled": True})[1].apply()
    with pytest.raises(UnknownTokenError, match="disabled"):
        accounts.recognise(text, NOW)
    assert not accounts.valid(found, NOW)


@pytest.mark.parametrize("text", ["", "gvl_", "gvl_" + "A" * 43, "x" * 10_000_000, "gvl_\0", "gvl_é", "gvl_\ud800"])
def test_other_texts_prove_nothing(text: str) -> None:
    accounts = accounts_with(ANN)
    token_of(accounts)
    with pytest.raises(UnknownTokenError, match="does not know"):
        accounts.recognise(text, NOW)


def test_a_token_never_gives_more_than_its_user_has_now() -> None:
    accounts = accounts_with(ADMIN, UserRecord(name="bob", role=Role.ADMIN))
    text, _ = token_of(accounts, "bob", Role.ADMIN)
    accounts.change_user("bob", {"role": Role.VIEWER})[1].apply()
    assert accounts.recognise(text, NOW).role is Role.VIEWER


def test_a_token_may_give_less_than_its_user_has() -> None:
    accounts = accounts_with(ADMIN)
    text, _ = token_of(accounts, "root", Role.VIEWER)
    assert accounts.recognise(text, NOW).role is Role.VIEWER


def test_a_metrics_token_of_an_administrator_gives_metrics_only() -> None:
    accounts = accounts_with(ADMIN)
    text, _ = token_of(accounts, "root", Role.METRICS)
    assert accounts.recognise(text, NOW).role is Role.METRICS


def test_a_join_token_is_no_login() -> None:
    accounts = accounts_with(ADMIN)
    text, _ = token_of(accounts, "root", Role.AGENT)
    with pytest.raises(UnknownTokenError, match="join token"):
        accounts.recognise(text, NOW)


def test_a_join_token_is_used_as_often_as_it_says() -> None:
    accounts = accounts_with(ADMIN)
    text, _ = token_of(accounts, "root", Role.AGENT, uses=2)
    for _ in range(2):
        accounts.redeem(text, NOW)[1].apply()
    with pytest.raises(UnknownTokenError, match="used up"):
        accounts.redeem(text, NOW)


def test_a_login_token_joins_no_agent() -> None:
    accounts = accounts_with(ADMIN)
    text, _ = token_of(accounts, "root", Role.ADMIN)
    with pytest.raises(UnknownTokenError, match="not a join token"):
        accounts.redeem(text, NOW)


def test_the_last_administrator_stays_one() -> None:
    accounts = accounts_with(ADMIN, ANN)
    for change in ({"disabled": True}, {"role": Role.USER}):
        with pytest.raises(InputError, match="only administrator"):
            accounts.change_user("root", change)


@pytest.mark.parametrize(
    "user",
    [
        UserRecord(name=""),
        UserRecord(name=" ann"),
        UserRecord(name="you"),
        UserRecord(name="a\x1b[31m"),
        UserRecord(name="a" * 201),
        UserRecord(name="ann", teams=("",)),
        UserRecord(name="ann", leads=("\n",)),
        UserRecord(name="ann", role=Role.AGENT),
        UserRecord(name="ann", role=Role.METRICS),
    ],
    ids=repr,
)
def test_users_that_cannot_be_are_refused(user: UserRecord) -> None:
    with pytest.raises(InputError):
        Accounts().add_user(user)


@pytest.mark.parametrize("seconds", [-1.0, 0.5, 1e12, float("nan")])
def test_tokens_that_last_absurdly_are_refused(seconds: float) -> None:
    with pytest.raises(InputError, match="valid for"):
        Accounts([ANN]).create_token(user="ann", role=Role.USER, now=NOW, seconds=seconds)


def test_accounts_survive_a_restart_and_hold_no_token(journal: Journal, tmp_path: Path) -> None:
    accounts = Accounts()
    added = accounts.add_user(ANN)
    added.apply()
    text, record, change = accounts.create_token(user="ann", role=Role.USER, now=NOW, name="laptop")
    journal.write([added.write, change.write])
    loaded = Accounts.load(journal)
    assert loaded.tokens == {record.id: record}
    assert loaded.recognise(text, NOW).user == ANN
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert text.encode() not in stored
    assert text.removeprefix("gvl_").encode() not in stored


def test_a_revocation_survives_a_restart(journal: Journal) -> None:
    accounts = Accounts([ANN])
    text, record, change = accounts.create_token(user="ann", role=Role.USER, now=NOW)
    change.apply()
    journal.write([accounts.add_user(UserRecord(name="eve")).write, change.write])
    journal.write([accounts.revoke(record.id).write])
    with pytest.raises(UnknownTokenError, match="revoked"):
        Accounts.load(journal).recognise(text, NOW)


def test_the_last_use_is_noted_and_written(journal: Journal) -> None:
    accounts = Accounts([ANN])
    text, found = token_of(accounts)
    accounts.recognise(text, NOW + 5.0, "10.0.0.7")
    write = accounts.used()
    assert write is not None
    journal.write([write])
    assert json.loads(json.dumps(journal.documents("token")[found]))["last_address"] == "10.0.0.7"
    assert accounts.tokens[found].last_used == NOW + 5.0
    assert accounts.used() is None


def test_expired_tokens_are_forgotten(journal: Journal) -> None:
    accounts = Accounts([ANN])
    token_of(accounts, seconds=DAY)
    _, kept = token_of(accounts, seconds=3 * DAY)
    change = accounts.forget_tokens(NOW + 2 * DAY)
    assert change is not None
    journal.write([change.write])
    change.apply()
    assert list(accounts.tokens) == [kept]


def test_sessions_end() -> None:
    sessions = Sessions(seconds=60.0)
    text, expires = sessions.begin("ann", NOW)
    assert sessions.user(text, NOW + 59.0) == ("ann", expires)
    with pytest.raises(UnknownTokenError):
        sessions.user(text, NOW + 60.0)
    with pytest.raises(UnknownTokenError):
        sessions.user(text + "x", NOW)


def test_many_logins_of_one_user_end_no_session_of_another() -> None:
    sessions = Sessions(seconds=60.0)
    anns, _ = sessions.begin("ann", NOW)
    first, _ = sessions.begin("bob", NOW)
    for _ in range(MOST_SESSIONS):
        last, _ = sessions.begin("bob", NOW)
    assert (sessions.user(anns, NOW)[0], sessions.user(last, NOW)[0]) == ("ann", "bob")
    with pytest.raises(UnknownTokenError):
        sessions.user(first, NOW)


def test_what_is_stored_of_a_token_has_nothing_of_it() -> None:
    assert "secret" not in digest_of("gvl_secret")
    assert len(digest_of("")) == 64
