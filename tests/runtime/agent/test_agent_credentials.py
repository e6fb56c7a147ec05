"""The credentials of an agent on disk: private, whole or refused, and never behind."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from gavel.errors import InputError
from gavel.runtime.agent.credentials import FILE, Enrolled, KeyPair, StoredCredentials
from gavel.security.authority import Authority
from gavel.security.certificates import AGENT_SECONDS, DAY_SECONDS, key_pem, new_key, signing_request
from gavel.security.files import write_private


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "security", "0f3c", [])


def pair(authority: Authority) -> KeyPair:
    key = new_key()
    return KeyPair(key_pem(key).decode(), authority.sign(signing_request(key), "a1", "lab1").pem)


@pytest.fixture
def enrolled(authority: Authority, tmp_path: Path) -> Enrolled:
    made = Enrolled(
        scheduler="head:7077",
        agents_port=7078,
        server_name=authority.server_name,
        authority=authority.authority_pem.decode(),
        own=pair(authority),
    )
    write_private(tmp_path / FILE, json.dumps(asdict(made)).encode())
    return made


def test_what_was_stored_is_loaded(enrolled: Enrolled, tmp_path: Path) -> None:
    loaded = StoredCredentials.load(tmp_path)
    assert loaded is not None
    assert loaded.enrolled == enrolled
    assert (loaded.address, loaded.name, loaded.expired) == ("head:7078", "lab1", False)


def test_an_agent_that_has_not_enrolled_has_none(tmp_path: Path) -> None:
    assert StoredCredentials.load(tmp_path) is None


@pytest.mark.parametrize(("scheduler", "address"), [("other:7077", "other:7078"), ("[::1]:9000", "[::1]:9001")])
def test_a_scheduler_that_moved_is_reached_at_its_agents_port(
    enrolled: Enrolled, tmp_path: Path, scheduler: str, address: str
) -> None:
    loaded = StoredCredentials.load(tmp_path)
    assert loaded is not None
    assert loaded.at(scheduler).address == address
    assert loaded.at(scheduler).enrolled == enrolled


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"own": 1, "previous": null}', "\x00"])
def test_a_damaged_file_is_refused_with_what_to_do(enrolled: Enrolled, tmp_path: Path, text: str) -> None:
    assert enrolled.own.key
    write_private(tmp_path / FILE, text.encode())
    with pytest.raises(InputError, match="is damaged"):
        StoredCredentials.load(tmp_path)


def test_a_certificate_of_another_key_is_refused(enrolled: Enrolled, authority: Authority, tmp_path: Path) -> None:
    mixed = {**asdict(enrolled), "own": {"key": enrolled.own.key, "certificate": pair(authority).certificate}}
    write_private(tmp_path / FILE, json.dumps(mixed).encode())
    with pytest.raises(InputError, match="is not for its key"):
        StoredCredentials.load(tmp_path)


def test_a_file_that_others_can_read_is_refused(enrolled: Enrolled, tmp_path: Path) -> None:
    assert enrolled.own.key
    (tmp_path / FILE).chmod(0o644)
    with pytest.raises(InputError, match="can be read by other users"):
        StoredCredentials.load(tmp_path)


def test_an_expired_certificate_names_both_times(enrolled: Enrolled, tmp_path: Path) -> None:
    late = StoredCredentials(tmp_path / FILE, enrolled, clock=lambda: time.time() + AGENT_SECONDS + DAY_SECONDS)
    assert late.expired
    assert "the clock of this machine says" in (late.fault() or "")


def test_the_pair_before_is_used_once_and_only_while_it_is_valid(
    enrolled: Enrolled, authority: Authority, tmp_path: Path
) -> None:
    previous = pair(authority)
    both = Enrolled(**{**{name: getattr(enrolled, name) for name in enrolled.__slots__}, "previous": previous})
    late = StoredCredentials(tmp_path / FILE, both, clock=lambda: time.time() + AGENT_SECONDS + DAY_SECONDS)
    assert not late.rejected()
    stored = StoredCredentials(tmp_path / FILE, both)
    assert stored.rejected()
    assert not stored.rejected()
    loaded = StoredCredentials.load(tmp_path)
    assert loaded is not None
    assert (loaded.enrolled.own, loaded.enrolled.previous) == (previous, None)
