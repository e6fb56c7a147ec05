"""The cluster's own certificate authority: its files, the scheduler's certificate, and certificates of agents.

It signs what it is told to sign; which agents may have a certificate is decided elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from gavel.client.trust import fingerprint
from gavel.errors import InputError
from gavel.security import certificates as made
from gavel.security.certificates import AGENT_SECONDS, SERVER_SECONDS, CertifiedKey, Signed
from gavel.security.files import check_private, private_directory, read_private, write_private
from gavel.security.names import fixed_name, normalised

AUTHORITY, SERVER = "authority", "server"
"""Names of the files, which end in .key and .crt."""
RENEWED_AT = 1 / 3
"""A certificate is replaced when less than this share of its life is left."""
_MALFORMED = (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a server shows to its callers, in PEM."""

    key: bytes
    chain: bytes
    """Its own certificate first, its authority last."""


class Authority:
    """The authority of one cluster, with its key in memory. Threads may share it."""

    def __init__(
        self,
        folder: Path,
        cluster: str,
        pair: CertifiedKey,
        clock: Callable[[], float] = time.time,
        server_seconds: float = SERVER_SECONDS,
    ) -> None:
        self._folder = folder
        self._pair = pair
        self._clock = clock
        self._server_seconds = server_seconds
        self.server_name = fixed_name(cluster)
        self._names: tuple[str, ...] = (self.server_name,)
        self._server: CertifiedKey | None = None
        self._shown: Shown | None = None
        self._lock = threading.Lock()

    @classmethod
    def create(
        cls,
        folder: Path,
        cluster: str,
        names: Iterable[str],
        *,
        clock: Callable[[], float] = time.time,
        server_seconds: float = SERVER_SECONDS,
    ) -> Self:
        """Make an authority and the scheduler's certificate in a folder of their own; an existing one is kept."""
        private_directory(folder)
        with _only_one(folder):
            if exists(folder):
                raise InputError(
                    f"{folder} has a certificate authority already, which agents and clients trust; "
                    "to replace it, move the folder away and enrol every agent again"
                )
            found = cls(folder, cluster, made.make_authority(cluster, clock()), clock, server_seconds)
            write_private(folder / f"{AUTHORITY}.key", made.key_pem(found._pair.key))
            found.issue_server(names)
            # Last: an authority without its certificate was never used, and is made again.
            write_private(folder / f"{AUTHORITY}.crt", found.authority_pem)
        return found

    @classmethod
    def load(
        cls,
        folder: Path,
        cluster: str,
        *,
        clock: Callable[[], float] = time.time,
        server_seconds: float = SERVER_SECONDS,
    ) -> Self:
        """Read an authority that `create` made; InputError if it is missing, damaged, expired or open to others."""
        try:
            check_private(folder)
        except FileNotFoundError:
            raise InputError(f"there is no certificate authority in {folder}; create one with `gavel init`") from None
        pair = _read_pair(folder, AUTHORITY)
        _check_authority(folder, pair, clock())
        if pair.certificate.subject != made.authority_name(cluster):
            raise InputError(
                f"the authority in {folder} is of another cluster ({pair.certificate.subject.rfc4514_string()}), "
                f"and this is cluster {cluster}; restore the folder and the journal from the same backup"
            )
        found = cls(folder, cluster, pair, clock, server_seconds)
        with suppress(InputError):  # it is issued again
            found._take_up(_read_pair(folder, SERVER))
        return found

    @property
    def authority_pem(self) -> bytes:
        """The authority's certificate."""
        return made.certificate_pem(self._pair.certificate)

    @property
    def fingerprint(self) -> str:
        """What agents and people compare before they trust this authority."""
        return fingerprint(self._pair.certificate.public_bytes(Encoding.DER))

    # ---- the scheduler's own certificate ----

    def issue_server(self, names: Iterable[str]) -> Shown:
        """Make sure that the scheduler's certificate has these names, the fixed one, and enough time left."""
        with self._lock:
            self._names = (self.server_name, *(name for name in normalised(names) if name != self.server_name))
            return self._current()

    def shown(self) -> Shown:
        """What to show a caller who connects now; the certificate is replaced when little of its life is left."""
        with self._lock:
            with suppress(OSError):  # a full disk: the new one is used all the same, and made again after a restart
                return self._current()
            return self._shown or self._current()

    def _current(self) -> Shown:
        if self._shown is None or not self._suffices(self._server):
            server = made.make_server(self._pair, self._names, self._clock(), self._server_seconds)
            self._show(server)
            write_private(self._folder / f"{SERVER}.key", made.key_pem(server.key))
            write_private(self._folder / f"{SERVER}.crt", made.certificate_pem(server.certificate))
        assert self._shown is not None  # noqa: S101 - for mypy
        return self._shown

    def _suffices(self, server: CertifiedKey | None) -> bool:
        if server is None or made.lifetime_left(server.certificate, self._clock()) < RENEWED_AT:
            return False
        return set(self._names) <= set(made.names_in(server.certificate))

    def _take_up(self, server: CertifiedKey) -> None:
        """Use the certificate of an earlier run, if it is ours; its names are kept."""
        if made.is_issued_by(server.certificate, self._pair.certificate):
            self._show(server)

    def _show(self, server: CertifiedKey) -> None:
        self._server = server
        self._shown = Shown(made.key_pem(server.key), made.certificate_pem(server.certificate) + self.authority_pem)

    # ---- agents ----

    def sign(self, signing_request_pem: str, agent_id: str, agent_name: str, lifetime: float = AGENT_SECONDS) -> Signed:
        """Sign the key in a request for this agent and for `lifetime` seconds, whatever else the request says."""
        key = made.requested_key(signing_request_pem)
        return made.make_agent(self._pair, key, agent_id, agent_name, now=self._clock(), seconds=lifetime)


def exists(folder: Path) -> bool:
    """Whether a folder has an authority, be it damaged."""
    return (folder / f"{AUTHORITY}.crt").exists()


def _read_pair(folder: Path, name: str) -> CertifiedKey:
    """Read a certificate and its key, which must belong together."""
    key_path, path = folder / f"{name}.key", folder / f"{name}.crt"
    try:
        key = load_pem_private_key(read_private(key_path), password=None)
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(
            f"{error.filename} is missing; restore the folder {folder} from a backup, or create a new "
            "authority with `gavel init` in another folder and enrol every agent again"
        ) from None
    except OSError as error:
        raise InputError(f"{error.filename} cannot be read ({error.strerror})") from None
    except InputError:
        raise  # it is a ValueError, too
    except _MALFORMED:
        raise InputError(f"{key_path} or {path} is damaged; restore both from a backup") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise InputError(f"{key_path} is not the key of {path}; restore both from a backup")
    return CertifiedKey(certificate, key)


def _check_authority(folder: Path, pair: CertifiedKey, now: float) -> None:
    path, certificate = folder / f"{AUTHORITY}.crt", pair.certificate
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except _MALFORMED:
        raise InputError(f"{path} is not the certificate of an authority that `gavel init` made") from None
    if not constraints.ca:
        raise InputError(f"{path} is not the certificate of an authority")
    if now >= certificate.not_valid_after_utc.timestamp():
        raise InputError(
            f"the authority in {path} expired on {_day(certificate.not_valid_after_utc)}; create a new one with "
            "`gavel init` in another folder and enrol every agent again (or correct the clock of this machine)"
        )
    if now < certificate.not_valid_before_utc.timestamp():
        raise InputError(
            f"the authority in {path} is valid from {_day(certificate.not_valid_before_utc)}, "
            "which is in the future: correct the clock of this machine"
        )


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Let one process at a time make an authority in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
