"""The first contact with a secured scheduler: whether its authority is the one whose fingerprint the user was given.

Only the standard library, and nothing secret is sent: the chain is read from a handshake that then ends.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import socket
import ssl
from typing import Any

from gavel.client.errors import NotReachable
from gavel.errors import InputError

TIMEOUT_SECONDS = 10.0
"""How long a connection and a handshake may take."""


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
    host, port = _split(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the caller compares the fingerprint
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])  # gRPC servers refuse a handshake without it
    try:
        with (
            socket.create_connection((host, port), TIMEOUT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            chain = _unverified_chain(secured)
    except ssl.SSLError as error:
        raise TrustError(
            f"the server at {address} does not answer with TLS ({_reason(error)}): "
            "it is not a secured scheduler, or this is the wrong port"
        ) from None
    except (OSError, UnicodeError) as error:
        raise NotReachable(address, _words(error)) from None
    if not chain:
        raise TrustError(f"the server at {address} shows no certificate; it is not a secured scheduler")
    return chain


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
