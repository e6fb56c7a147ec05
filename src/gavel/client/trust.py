"""The first contact with a secured scheduler: whether its authority is the one whose fingerprint the user was given.

Only the standard library, and nothing secret is sent: the chain is read from a handshake that then ends.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from gavel.client.errors import NotReachable
from gavel.errors import InputError

TIMEOUT_SECONDS = 10.0
"""How long a connection and a handshake may take."""
FIXED = ".gavel.internal"
"""The end of the name that every scheduler with its own authority has in its certificate."""
_NOT_YET_VALID, _EXPIRED = 9, 10
"""Codes of the TLS library."""


class TrustError(InputError):
    """The server at an address is not the scheduler that was meant, or cannot show that it is."""


def pinned_authority(address: str, fingerprint: str) -> str:
    """Return the authority of the scheduler at HOST:PORT in PEM, if it has this fingerprint.

    Raises TrustError if it has another one, and NotReachable if no server answers.
    """
    wanted = _normal(fingerprint)
    shown = fetch_chain(address)[-1]
    if not hmac.compare_digest(wanted, _fingerprint(shown)):
        raise TrustError(
            f"the authority of the scheduler at {address} has the fingerprint {_fingerprint(shown)}, not {wanted}: "
            "someone may be in between, or it is another cluster; nothing was sent. "
            "Ask the operator for the fingerprint that `gavel init` printed"
        )
    return ssl.DER_cert_to_PEM_cert(shown)


def fetch_chain(address: str) -> list[bytes]:
    """Read the certificates that the server at HOST:PORT shows, its own first, in DER and unverified."""
    context = _context()
    context.verify_mode = ssl.CERT_NONE  # the caller compares the fingerprint
    with _handshake(address, context) as secured:
        chain = _unverified_chain(secured)
    if not chain:
        raise TrustError(f"the server at {address} shows no certificate; it is not a secured scheduler")
    return chain


def verified_name(address: str, authority: str) -> str:
    """The name to check the scheduler's certificate against, which an authority (in PEM) has signed.

    That is the fixed name of a cluster with its own authority; empty: the host name. Raises TrustError if the
    certificate is not from that authority, or the clocks of the two machines are too far apart.
    """
    context = _context()
    context.load_verify_locations(cadata=authority)
    with _handshake(address, context) as secured:
        shown: Any = secured.getpeercert() or {}
    names = [str(name) for kind, name in shown.get("subjectAltName", ()) if kind == "DNS"]
    return next((name for name in names if name.endswith(FIXED)), "")


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])  # gRPC servers refuse a handshake without it
    return context


@contextmanager
def _handshake(address: str, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    """A connection after its handshake; failures are our own errors."""
    host, port = _split(address)
    try:
        with (
            socket.create_connection((host, port), TIMEOUT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            yield secured
    except ssl.SSLCertVerificationError as error:
        raise TrustError(_unverified(address, error)) from None
    except ssl.SSLError as error:
        raise TrustError(
            f"the server at {address} does not answer with TLS ({_reason(error)}): "
            "it is not a secured scheduler, or this is the wrong port"
        ) from None
    except (OSError, UnicodeError) as error:
        raise NotReachable(address, _words(error)) from None


def _unverified(address: str, error: ssl.SSLCertVerificationError) -> str:
    """Say why a certificate was not accepted."""
    here = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    if error.verify_code == _NOT_YET_VALID:
        return (
            f"the certificate of the scheduler at {address} is not valid yet, and the clock of this machine says "
            f"{here}: the clocks of the two machines are too far apart; correct the wrong one"
        )
    if error.verify_code == _EXPIRED:
        return (
            f"the certificate of the scheduler at {address} has expired, and the clock of this machine says {here}; "
            "if that is right, restart the scheduler"
        )
    return (
        f"the certificate of the scheduler at {address} is not from the authority that this machine trusts "
        f"({error.verify_message}): someone may be in between; nothing was sent"
    )


def fingerprint(der: bytes) -> str:
    """The fingerprint of a certificate in DER: what people compare.

    >>> fingerprint(b"")
    'sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'
    """
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


_fingerprint = fingerprint
"""The function where an argument has its name."""


def _normal(given: str) -> str:
    """Bring a fingerprint into our own form, or say what is wrong with it.

    >>> _normal("SHA256:" + "AB:" * 31 + "AB") == "sha256:" + "ab" * 32
    True
    """
    kind, _, digits = given.strip().lower().partition(":")
    digits = digits.replace(":", "")
    if kind != "sha256" or not re.fullmatch("[0-9a-f]{64}", digits):
        raise TrustError(
            f"{given[:100]!r} is not a fingerprint; it is sha256: and 64 hexadecimal digits, as `gavel init` printed it"
        )
    return f"sha256:{digits}"


def _split(address: str) -> tuple[str, int]:
    """Split HOST:PORT.

    >>> _split("[::1]:7077"), _split("head:7077")
    (('::1', 7077), ('head', 7077))
    """
    match = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^:\[\]/]+)):(\d{1,5})", address)
    if match is None or not 0 < int(match[3]) < 65536:
        raise TrustError(f"{address[:200]!r} is not the address of a secured scheduler; write HOST:PORT")
    return match[1] or match[2], int(match[3])


def _unverified_chain(secured: ssl.SSLSocket) -> list[bytes]:
    """The chain of a finished handshake; public from Python 3.13 on."""
    public: Any = getattr(secured, "get_unverified_chain", None)
    if public is not None:
        return list(public())
    inner: Any = secured._sslobj  # type: ignore[attr-defined] # noqa: SLF001
    return [ssl.PEM_cert_to_DER_cert(found.public_bytes()) for found in inner.get_unverified_chain() or ()]


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def _words(error: OSError | UnicodeError) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    if isinstance(error, UnicodeError):
        return "that is not a host name"
    return (error.strerror or str(error)).lower()
