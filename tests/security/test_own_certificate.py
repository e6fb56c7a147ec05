"""A certificate of the operator's own: checked when the scheduler starts, and followed when its files change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gavel.errors import InputError
from gavel.security.authority import Authority
from gavel.security.certificates import key_pem, new_key
from gavel.security.tls import OwnCertificate


@pytest.fixture
def operator(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "operator", "0f3c", ["head.lab"])


def write(operator: Authority, folder: Path, age: int = 0) -> tuple[Path, Path]:
    certificate, key = folder / "tls.crt", folder / "tls.key"
    for path, data in ((certificate, operator.shown().chain), (key, operator.shown().key)):
        path.write_bytes(data)
        path.chmod(0o600)
        os.utime(path, ns=(age, age))
    return certificate, key


def test_the_files_are_shown_and_read_again_when_they_change(operator: Authority, tmp_path: Path) -> None:
    own = OwnCertificate(*write(operator, tmp_path))
    assert own() == operator.shown()
    operator.issue_server(["head.lab", "other.lab"])
    write(operator, tmp_path, age=1)
    assert own() == operator.shown()


def test_a_replacement_that_is_not_complete_changes_nothing(operator: Authority, tmp_path: Path) -> None:
    _, key = paths = write(operator, tmp_path)
    own = OwnCertificate(*paths)
    key.write_bytes(key_pem(new_key()))
    assert own() == operator.shown()
    key.unlink()
    assert own() == operator.shown()


def test_a_key_of_another_certificate_is_refused(operator: Authority, tmp_path: Path) -> None:
    certificate, key = write(operator, tmp_path)
    key.write_bytes(key_pem(new_key()))
    with pytest.raises(InputError, match="is not the key of --tls-cert"):
        OwnCertificate(certificate, key)


def test_a_missing_or_open_key_is_refused(operator: Authority, tmp_path: Path) -> None:
    certificate, key = write(operator, tmp_path)
    key.chmod(0o644)
    with pytest.raises(InputError, match="can be read by other users"):
        OwnCertificate(certificate, key)
    key.unlink()
    with pytest.raises(InputError, match="cannot be read"):
        OwnCertificate(certificate, key)
