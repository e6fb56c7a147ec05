"""The vault: what it seals only it can unseal, and only for the same cluster, job and name."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.security.vault import Vault, VaultError

VALUE = "hunter2-Zażółć"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault.open(tmp_path, "cluster")


_folder = TemporaryDirectory()
SHARED = Vault.open(Path(_folder.name), "cluster")


@given(
    st.text(),
    st.text(),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_any_text_is_unsealed_as_it_was(job: str, name: str, value: str) -> None:
    sealed = SHARED.seal(job, name, value)
    assert SHARED.unseal(job, name, sealed) == value
    assert len(value) < 8 or value.encode() not in sealed


def test_a_value_is_sealed_differently_each_time(vault: Vault) -> None:
    assert len({vault.seal("1", "TOKEN", VALUE) for _ in range(100)}) == 100


@pytest.mark.parametrize(("job", "name"), [("2", "TOKEN"), ("1", "OTHER"), ("", "1TOKEN"), ("1TOKEN", "")])
def test_a_value_moved_to_another_job_or_name_cannot_be_unsealed(vault: Vault, job: str, name: str) -> None:
    sealed = vault.seal("1", "TOKEN", VALUE)
    with pytest.raises(VaultError, match="damaged, or was moved from another job or name; submit the job again"):
        vault.unseal(job, name, sealed)


def test_a_value_moved_to_another_cluster_cannot_be_unsealed(vault: Vault, tmp_path: Path) -> None:
    sealed = vault.seal("1", "TOKEN", VALUE)
    with pytest.raises(VaultError, match="moved"):
        Vault.open(tmp_path, "another").unseal("1", "TOKEN", sealed)


def test_a_change_of_any_byte_is_noticed(vault: Vault) -> None:
    sealed = vault.seal("1", "TOKEN", VALUE)
    for place in range(len(sealed)):
        tampered = bytearray(sealed)
        tampered[place] ^= 1
        with pytest.raises(VaultError, match="secret TOKEN of job 1"):
            vault.unseal("1", "TOKEN", bytes(tampered))


def test_a_truncated_value_is_noticed(vault: Vault) -> None:
    sealed = vault.seal("1", "TOKEN", VALUE)
    for length in range(len(sealed)):
        with pytest.raises(VaultError, match="secret TOKEN of job 1"):
            vault.unseal("1", "TOKEN", sealed[:length])


def test_the_key_is_made_for_the_first_secret_and_readable_by_its_user_only(vault: Vault, tmp_path: Path) -> None:
    assert not vault.path.exists()
    sealed = vault.seal("1", "TOKEN", VALUE)
    assert vault.path == tmp_path / "security" / "secrets.key"
    assert stat.S_IMODE(vault.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(vault.path.parent.stat().st_mode) == 0o700
    assert [path.name for path in vault.path.parent.iterdir()] == ["secrets.key"]
    assert Vault.open(tmp_path, "cluster").unseal("1", "TOKEN", sealed) == VALUE


def test_vaults_that_make_the_key_at_the_same_time_agree_on_one(tmp_path: Path) -> None:
    vaults = [Vault.open(tmp_path, "cluster") for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        sealed = list(threads.map(lambda vault: vault.seal("1", "TOKEN", VALUE), vaults))
    assert {vaults[0].unseal("1", "TOKEN", each) for each in sealed} == {VALUE}


def test_a_missing_key_is_named_with_what_to_do(vault: Vault, tmp_path: Path) -> None:
    sealed = vault.seal("1", "TOKEN", VALUE)
    vault.path.unlink()
    told = r"secrets\.key, is missing; restore it and restart the scheduler, or submit the job again"
    with pytest.raises(VaultError, match=told):
        Vault.open(tmp_path, "cluster").unseal("1", "TOKEN", sealed)


def test_another_key_is_not_taken_for_damage(vault: Vault, tmp_path: Path) -> None:
    sealed = vault.seal("1", "TOKEN", VALUE)
    vault.path.unlink()
    fresh = Vault.open(tmp_path, "cluster")
    fresh.prepare()
    with pytest.raises(VaultError, match="sealed with another key"):
        fresh.unseal("1", "TOKEN", sealed)


@pytest.mark.parametrize("text", ["", "zz" * 32, "ab" * 31, "ab" * 33, "é"])
def test_a_damaged_key_is_neither_used_nor_replaced_nor_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "security" / "secrets.key"
    path.parent.mkdir()
    path.write_text(text)
    vault = Vault.open(tmp_path, "cluster")
    with pytest.raises(VaultError, match="is damaged") as refusal:
        vault.seal("1", "TOKEN", VALUE)
    assert path.read_text() == text
    assert not text or text not in str(refusal.value)


def test_a_key_that_cannot_be_made_is_a_sentence(vault: Vault) -> None:
    vault.path.parent.write_text("in the way")
    with pytest.raises(VaultError, match=r"no key for secrets can be made in .*security: file exists"):
        vault.seal("1", "TOKEN", VALUE)


def test_a_vault_does_not_show_its_key(vault: Vault) -> None:
    vault.prepare()
    assert vault.path.read_text().strip() not in repr(vault)
