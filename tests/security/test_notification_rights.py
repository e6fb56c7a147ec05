"""Whose notifications a caller may see, set and test, and whose URLs it may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from gavel.client.requests import Submission
from gavel.core.errors import InputError
from gavel.runtime.job_edits_service import without_others_urls
from gavel.runtime.notifications_service import urls_of, user_fault
from gavel.runtime.notify.hosts import AllowedHosts
from gavel.security.caller import as_caller
from gavel.security.roles import Caller, Role
from gavel.security.vault import Vault

ALLOWED = AllowedHosts.of(["chat.example.org"])


@pytest.mark.parametrize("role", [Role.USER, Role.VIEWER])
def test_users_see_and_set_only_their_own_not_even_as_leads(role: Role) -> None:
    ann = Caller(user="ann", role=role, teams=("lab",), leads=("lab",))
    assert user_fault(ann, "ann") is None
    assert user_fault(ann, "bob") == "notifications of 'bob' are for that user and operators; ask one of them"


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
def test_operators_see_and_set_those_of_others(role: Role) -> None:
    assert user_fault(Caller(user="olga", role=role), "bob") is None


def test_a_job_that_is_submitted_again_by_another_does_not_use_the_urls_of_its_first_user() -> None:
    job = Submission(command=("train",), user="ann", notify=("https://chat.example.org/capability",))
    with as_caller(Caller(user="bob", role=Role.USER)):
        assert without_others_urls(job).notify == ()
    with as_caller(Caller(user="ann", role=Role.USER)):
        assert without_others_urls(job).notify == job.notify


def test_urls_are_bounded_in_number_and_length_and_each_counts_once() -> None:
    url = "https://chat.example.org/x"
    assert urls_of([url, url], ALLOWED) == (url,)
    for texts, told in (
        ([f"{url}{number}" for number in range(9)], "9 URLs; give at most 8"),
        ([f"{url}{'x' * 5000}"], "5,026 characters"),
        ([url, "https://evil.example/"], "https://evil.example may not be called"),
    ):
        with pytest.raises(InputError, match=told):
            urls_of(texts, ALLOWED)


def test_users_have_different_keys_that_restarts_keep(tmp_path: Path) -> None:
    vault = Vault.open(tmp_path, "c1")
    keys = {vault.derive("notifications", user) for user in ("ann", "bob")}
    assert len(keys) == 2
    assert Vault.open(tmp_path, "c1").derive("notifications", "ann") in keys
    assert Vault.open(tmp_path, "c2").derive("notifications", "ann") not in keys
