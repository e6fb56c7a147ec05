"""Local users: the operating system says who is at the other end of the socket."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.security.accounts import Accounts, Sessions, UserRecord
from gavel.security.local_login import LocalLogin, account_name
from gavel.security.roles import Role
from needs import needs_root

NOW = 1_000_000.0
NOBODY = 65534
OWNER = UserRecord(name="owner", role=Role.ADMIN)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path that every account can enter."""
    with tempfile.TemporaryDirectory(prefix="gavel-", dir="/tmp") as path:
        Path(path).chmod(0o755)
        yield Path(path)


def login_of(accounts: Accounts, sessions: Sessions | None = None) -> LocalLogin:
    return LocalLogin(accounts, sessions or Sessions(), lambda: NOW, "owner")


def test_the_schedulers_own_account_is_its_owner(folder: Path) -> None:
    sessions = Sessions()

    async def scene() -> dict[str, str]:
        login = login_of(Accounts([OWNER]), sessions)
        await login.start(folder / "login")
        reader, writer = await asyncio.open_unix_connection(folder / "login")
        answer: dict[str, str] = json.loads(await reader.readline())
        writer.close()
        await login.stop()
        return answer

    answer = asyncio.run(scene())
    assert answer["user"] == "owner"
    assert sessions.user(answer["token"], NOW)[0] == "owner"
    assert not (folder / "login").exists()


def test_an_account_without_a_user_is_told_whom_to_ask() -> None:
    other = next(uid for uid in (NOBODY, NOBODY - 1) if uid not in {0, os.geteuid()})
    told = login_of(Accounts([OWNER])).told(other)
    assert "token" not in told
    assert f"no user {account_name(other)!r}" in str(told["error"])


def test_a_disabled_user_gets_no_session() -> None:
    name = account_name(NOBODY)
    told = login_of(Accounts([OWNER, UserRecord(name=name, disabled=True)])).told(NOBODY)
    assert "token" not in told


def test_an_account_that_is_a_user_is_that_user_not_the_owner() -> None:
    """Even root, and the scheduler's own account, if they are users with other rights."""
    name = account_name(os.geteuid())
    told = login_of(Accounts([OWNER, UserRecord(name=name, role=Role.VIEWER)])).told(os.geteuid())
    assert told["user"] == name


@needs_root
def test_another_account_is_recognised_as_itself(folder: Path) -> None:
    user = UserRecord(name=account_name(NOBODY), role=Role.USER)

    async def scene() -> dict[str, str]:
        login = login_of(Accounts([OWNER, user]))
        await login.start(folder / "login")
        answer = await asyncio.to_thread(_asked_as, NOBODY, folder / "login")
        await login.stop()
        return answer

    assert asyncio.run(scene())["user"] == user.name


def _asked_as(uid: int, path: Path) -> dict[str, str]:
    """Connect from a process of another account, and return what it was told."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(uid)
            os.setuid(uid)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(str(path))
                os.write(writing, connection.recv(4096))
        finally:
            os._exit(0)
    os.close(writing)
    told = os.read(reading, 4096)
    os.close(reading)
    os.waitpid(child, 0)
    answer: dict[str, str] = json.loads(told)
    return answer
