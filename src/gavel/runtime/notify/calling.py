"""One HTTP request to a receiver: no redirects, no proxies, no more of the answer than its status."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from gavel.runtime.notify.hosts import Permission, is_public

LONGEST_HEAD = 4096
"""Bytes of an answer that are read."""
MOST_ADDRESSES = 3
"""Addresses of one name that are tried."""
_AGENT = "gavel-notify"


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a call went."""

    status: int = 0
    """0: there was no answer."""
    trouble: str = ""
    """Why it did not arrive, as a clause without anything that the receiver said; empty: it did."""


async def call(
    permission: Permission,
    headers: Mapping[str, str],
    body: bytes,
    *,
    seconds: float,
    context: ssl.SSLContext,
) -> CallResult:
    """Post a body, and return how that went; never takes much longer than `seconds`, whatever the receiver does."""
    try:
        async with asyncio.timeout(seconds):
            status = await _post(permission, headers, body, context)
    except TimeoutError:
        return CallResult(trouble=f"no answer within {seconds:g} s")
    except (_NoAnswerError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        return CallResult(trouble=_clause(error))
    if 200 <= status < 300:
        return CallResult(status)
    redirects = "; redirects are not followed" if 300 <= status < 400 else ""
    return CallResult(status, f"it answered with status {status}{redirects}")


class _NoAnswerError(Exception):
    """A call that ended before an answer."""


async def _post(permission: Permission, headers: Mapping[str, str], body: bytes, context: ssl.SSLContext) -> int:
    endpoint = permission.endpoint
    reader, writer = await _connected(permission, context if endpoint.scheme == "https" else None)
    try:
        own = {
            "Host": endpoint.authority,
            "User-Agent": _AGENT,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        lines = [f"{name}: {value}" for name, value in {**own, **headers}.items()]
        head = "\r\n".join([f"POST {endpoint.path} HTTP/1.1", *lines, "", ""])
        writer.write(head.encode("ascii") + body)
        await writer.drain()
        return _status(await reader.readuntil(b"\n"))
    finally:
        writer.transport.abort()  # the rest of the answer is of no interest


async def _connected(
    permission: Permission, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to one of the host's addresses: those that were looked at, not those of another look-up."""
    endpoint = permission.endpoint
    error: OSError = OSError()
    for address in await _addresses(permission):
        try:
            return await asyncio.open_connection(
                address,
                endpoint.port,
                ssl=context,
                server_hostname=endpoint.host if context else None,
                limit=LONGEST_HEAD,
            )
        except ssl.SSLError:
            raise
        except OSError as failure:
            error = failure
    raise error


async def _addresses(permission: Permission) -> list[str]:
    endpoint = permission.endpoint
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except OSError:
        raise _NoAnswerError(f"the name {endpoint.host} has no address") from None
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    if permission.public_only:
        addresses = [address for address in addresses if is_public(address)]
        if not addresses:
            raise _NoAnswerError(
                f"{endpoint.host} has no public address; the operator must list this very name to allow another"
            )
    return addresses[:MOST_ADDRESSES]


def _status(line: bytes) -> int:
    parts = line.split(None, 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not parts[1].isdigit() or len(parts[1]) != 3:
        raise _NoAnswerError("its answer is not HTTP")
    return int(parts[1])


_CLAUSES: Mapping[type[Exception], str] = {
    ssl.SSLCertVerificationError: "its certificate is not valid for this name, or comes from an unknown authority",
    ssl.SSLError: "it does not speak TLS as expected",
    ConnectionRefusedError: "the connection was refused",
    ConnectionError: "the connection ended without an answer",
    asyncio.IncompleteReadError: "the connection ended without an answer",
    asyncio.LimitOverrunError: "its answer is not HTTP",
}
"""What went wrong, for people; the first that fits."""


def _clause(error: Exception) -> str:
    if isinstance(error, _NoAnswerError):
        return str(error)
    return next((clause for kind, clause in _CLAUSES.items() if isinstance(error, kind)), "it cannot be reached")
