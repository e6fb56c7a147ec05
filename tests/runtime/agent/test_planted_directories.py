"""Where users may create directories of checkpoints themselves, nothing planted is used, or followed as root."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gavel.runtime.agent import ownership
from gavel.runtime.agent.ownership import NotOursError, Owner, check_private, claim, remove
from gavel.runtime.agent.run_as import SystemAccount

OWNER = Owner("c1", "7")


def filled(root: Path) -> Path:
    """A job's directory with a marker and files."""
    directory = root / "7"
    claim(directory, OWNER, 1)
    for name in ("a", "b", "passwd"):
        (directory / name).write_text("mine")
    return directory


def test_a_removal_follows_no_link_that_takes_the_directorys_place_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "etc"
    elsewhere.mkdir()
    (elsewhere / "passwd").write_text("theirs")
    (elsewhere / "shadow").write_text("theirs")
    (tmp_path / "checkpoints").mkdir()
    directory = filled(tmp_path / "checkpoints")
    delete: Callable[[Path], None] = ownership._delete

    def deleting(path: Path) -> None:
        if not directory.is_symlink():  # its user is quick
            directory.rename(tmp_path / "moved")
            directory.symlink_to(elsewhere)
        delete(path)

    monkeypatch.setattr(ownership, "_delete", deleting)
    with pytest.raises(OSError, match="directory"):
        remove(tmp_path / "checkpoints", OWNER)
    assert sorted(path.name for path in elsewhere.iterdir()) == ["passwd", "shadow"]


def account(uid: int) -> SystemAccount:
    return SystemAccount(name="ann", uid=uid, gid=os.getgid(), groups=(os.getgid(),), home="/")


def test_a_directory_of_the_account_alone_is_used_and_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    check_private(tmp_path, account(os.getuid()))
    assert tmp_path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_directory_that_others_can_write_to_is_not_used(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(NotOursError, match="does not belong to account ann alone"):
        check_private(tmp_path, account(os.getuid()))


def test_a_directory_that_someone_else_made_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(NotOursError, match="does not belong to account ann alone"):
        check_private(tmp_path, account(os.getuid() + 1))


def test_a_link_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "7").symlink_to(tmp_path / "real")
    with pytest.raises(NotOursError, match="is not a directory"):
        check_private(tmp_path / "7", account(os.getuid()))
