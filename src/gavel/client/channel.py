"""Channels to a scheduler: TLS against one authority, or plaintext on this machine; and why a channel cannot be opened.

The scheduler is recognised before a token is sent. On a UNIX socket, the operating system tells it who calls.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grpc

from gavel.client.access import SchedulerAccess, host_of
from gavel.client.contexts import Trust
from gavel.client.errors import NotLoggedIn, NotReachable, NotSecured, SchedulerFailed
from gavel.client.trust import TIMEOUT_SECONDS, TrustError, fetch_chain, pinned_authority, verified_name
from gavel.errors import GavelError
from gavel.wire import CHANNEL_OPTIONS

LOGIN_SUFFIX = ".login"
_TIMEVAL = struct.Struct("ll")
"""Seconds and microseconds, as the system takes a timeout."""
"""Beside the socket of a scheduler: the socket that hands out tokens of sessions."""
LONGEST_LOGIN = 65_536
SYSTEM_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Where distributions keep the authorities that a machine trusts."""

_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.max_receive_message_length", -1),  # a list of all jobs may be long
    ("grpc.max_send_message_length", -1),
    # The library's own pauses grow to two minutes: too long for a scheduler that restarts in a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 10_000),  # how long an attempt may take when the other end is busy
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.enable_http_proxy", 0),  # schedulers are on the local network; proxies are not
)


def open_channel(access: SchedulerAccess) -> grpc.Channel:
    """A channel by a completed access. It connects at the first call."""
    if not access.encrypted:
        return grpc.insecure_channel(access.address, options=_OPTIONS)
    roots = _system_authorities() if access.trust is Trust.SYSTEM else access.authority.encode()
    override = access.server_name and access.server_name != host_of(access.address)
    named = (("grpc.ssl_target_name_override", access.server_name),) if override else ()
    return grpc.secure_channel(access.address, grpc.ssl_channel_credentials(roots), options=(*_OPTIONS, *named))


def _system_authorities() -> bytes | None:
    """The authorities that this machine trusts, in PEM; None: those that come with the network library."""
    for path in (ssl.get_default_verify_paths().cafile, *SYSTEM_BUNDLES):
        with suppress(OSError):
            if path is not None:
                return Path(path).read_bytes()
    return None


def completed(access: SchedulerAccess) -> SchedulerAccess:
    """The access with everything that TLS needs: fetches the authority of a fingerprint and the scheduler's name.

    Nothing secret is sent. Raises TrustError if the scheduler is not the expected one.
    """
    if not access.encrypted or (access.authority and access.server_name):
        return access
    if access.trust is Trust.SYSTEM or not access.fingerprint:
        return replace(access, server_name=access.server_name or host_of(access.address))
    pinned = replace(access, authority=access.authority or pinned_authority(access.address, access.fingerprint))
    name = verified_name(pinned.address, pinned.authority) or host_of(pinned.address)
    return replace(pinned, server_name=name)


def _handshake(access: SchedulerAccess) -> None:
    """Verify the server's certificate as the channel does; raises what the TLS library says."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if access.trust is Trust.SYSTEM:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=access.authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    host, port = host_of(access.address), int(access.address.rpartition(":")[2])
    with (
        socket.create_connection((host, port), TIMEOUT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=access.server_name or host),
    ):
        pass


def why_not(access: SchedulerAccess) -> GavelError | None:
    """Why a scheduler that accepts connections cannot be called, if it is a matter of TLS."""
    if access.local:
        return None
    if access.encrypted:
        try:
            _handshake(access)
        except (OSError, UnicodeError) as error:
            return _explained(access, error)
        return None
    try:
        fetch_chain(access.address)
    except GavelError:
        return None
    return NotSecured(
        f"the scheduler at {access.address} takes no plaintext; run `gavel login {access.address}`, "
        "or on its own machine name its socket: --scheduler unix:PATH"
    )


def _explained(access: SchedulerAccess, error: OSError | UnicodeError) -> GavelError | None:
    """A failed handshake as a sentence; None if the failure has nothing to do with TLS."""
    address = access.address
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.lower()
        if "expired" in said or "not yet valid" in said:
            return TrustError(
                f"the certificate of the scheduler at {address} is not valid now ({said}); nothing was sent"
            )
        if "mismatch" in said:
            return TrustError(
                f"the server at {address} shows a certificate for another name ({said}); nothing was sent. "
                "Reach it by a name in its certificate"
            )
        return TrustError(
            f"the scheduler at {address} shows a certificate of another authority; someone may be in between, or the "
            "cluster was set up again; nothing was sent. Log in again if you know why: "
            f"`gavel login {address} --fingerprint sha256:…`"
        )
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return TrustError(
            f"the server at {address} does not answer with TLS any more or is not a secured scheduler; nothing was sent"
        )
    return None


def session_token(access: SchedulerAccess) -> str:
    """Ask the scheduler behind a UNIX socket for a token: the operating system tells it which user asks.

    Empty if the scheduler there hands out none, because it does not identify its callers.
    """
    path = access.socket
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            # A socket with a timeout of Python's fails at once while many others wait to be accepted.
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(int(TIMEOUT_SECONDS), 0))
            asking.connect(path + LOGIN_SUFFIX)
            asking.settimeout(TIMEOUT_SECONDS)
            line = _first_line(asking)
    except FileNotFoundError as error:
        if Path(path).exists():
            return ""
        raise NotReachable(access.address, _words(error)) from None
    except OSError as error:
        raise NotReachable(access.address, _words(error)) from None
    return _token_in(line, access.address)


def _first_line(asking: socket.socket) -> bytes:
    line = b""
    while b"\n" not in line and len(line) < LONGEST_LOGIN:
        piece = asking.recv(4096)
        if not piece:
            break
        line += piece
    return line.partition(b"\n")[0]


def _token_in(line: bytes, address: str) -> str:
    if not line:  # the scheduler closed the socket: it is about to end, or has just started
        raise NotReachable(address, "it closed the connection")
    try:
        answer = json.loads(line)
        error, token = answer.get("error"), answer.get("token")
    except (ValueError, AttributeError, RecursionError):
        error = token = None
    if isinstance(error, str):
        raise NotLoggedIn(error)
    if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]{1,1000}", token):
        raise SchedulerFailed(f"the server at {address}{LOGIN_SUFFIX} did not answer with a token; is it a scheduler?")
    return token


def _words(error: OSError) -> str:
    return "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()
