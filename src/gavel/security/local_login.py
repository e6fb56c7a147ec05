"""Local users log in through a UNIX socket: the operating system says who is at the other end.

gRPC cannot tell, so a second socket beside the scheduler's hands out session tokens: one JSON line per connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gavel.security.accounts import Accounts, Sessions, UnknownTokenError

SUFFIX = ".login"
WAITING = 1024
"""Connections that may wait to be accepted; further ones fail at once, so a flood must not fill this easily."""
_CREDENTIALS = struct.Struct("3i")
"""Process, user and group, as Linux returns them."""


class LocalLogin:
    """Answers at one socket."""

    def __init__(self, accounts: Accounts, sessions: Sessions, clock: Callable[[], float], owner: str) -> None:
        self._accounts = accounts
        self._sessions = sessions
        self._clock = clock
        self._owner = owner
        """The user of the account that the scheduler runs as."""
        self._server: asyncio.AbstractServer | None = None

    async def start(self, path: Path) -> None:
        """Listen; everyone on this machine who can reach the folder may ask."""
        self._server = await asyncio.start_unix_server(self._answer, sock=_listening(path), backlog=WAITING)
        self._path = path

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            _remove(self._path)

    async def _answer(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        told = self.told(_peer(connection))
        writer.write(json.dumps(told).encode() + b"\n")
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    def told(self, uid: int) -> dict[str, object]:
        """What an operating-system user is told."""
        name = self._name(uid)
        try:
            user = self._accounts.active(name)
        except UnknownTokenError:
            return {"error": f"this scheduler has no user {name!r}, or it is disabled; ask an administrator to add it"}
        token, expires = self._sessions.begin(user.name, self._clock())
        return {"token": token, "user": user.name, "expires": expires}

    def _name(self, uid: int) -> str:
        """The user of an account: root and the scheduler's own account are its owner unless they are users."""
        name = account_name(uid)
        if name not in self._accounts.users and uid in {0, os.geteuid()}:
            return self._owner
        return name


def _listening(path: Path) -> socket.socket:
    _remove(path)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.bind(str(path))
    path.chmod(0o666)
    return found


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def account_name(uid: int) -> str:
    """The name of an account; its number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _peer(connection: socket.socket) -> int:
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(packed)[1])
