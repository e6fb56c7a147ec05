"""Credentials of the scheduler's ports: certificates can be replaced while it runs, without a restart."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import grpc

from gavel.errors import InputError
from gavel.security.authority import Shown
from gavel.security.files import read_private

Source = Callable[[], Shown]
"""What to show now; called for every new connection, so it must be quick."""


class OwnCertificate:
    """A certificate of the operator's own, read again when its files change."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._paths = certificate, key
        self._stamps: tuple[int, ...] = ()
        self._shown = self._read()

    def __call__(self) -> Shown:
        try:
            if self._stamp() != self._stamps:
                self._shown = self._read()
        except (OSError, InputError):
            pass  # the files are being replaced; the next connection looks again
        return self._shown

    def _stamp(self) -> tuple[int, ...]:
        return tuple(path.stat().st_mtime_ns for path in self._paths)

    def _read(self) -> Shown:
        certificate, key = self._paths
        try:
            stamps = self._stamp()
            shown = Shown(read_private(key), certificate.read_bytes())
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
        except ssl.SSLError:
            raise InputError(f"--tls-key {key} is not the key of --tls-cert {certificate}, or one is damaged") from None
        except OSError as error:
            raise InputError(f"{error.filename} cannot be read ({error.strerror})") from None
        self._stamps = stamps
        return shown


def _no_password() -> str:
    """Refuse an encrypted key instead of asking at the terminal."""
    return ""


def server_credentials(source: Source, client_authority: bytes | None = None) -> grpc.ServerCredentials:
    """Credentials of a port; with an authority (in PEM), only for callers that have a certificate of it."""
    offered = _Offered(source, client_authority)
    return grpc.dynamic_ssl_server_credentials(
        offered.first,
        offered.fetch,  # type: ignore[arg-type] # its stubs lack that None means no change
        require_client_authentication=client_authority is not None,
    )


class _Offered:
    """What one port shows; the library keeps it until it is given another."""

    def __init__(self, source: Source, client_authority: bytes | None) -> None:
        self._source = source
        self._client_authority = client_authority
        self._last = source()
        self._lock = threading.Lock()
        self.first = self._configuration(self._last)

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """The next configuration, or None if it has not changed."""
        with self._lock:
            shown = self._source()
            if shown == self._last:
                return None
            self._last = shown
        return self._configuration(shown)

    def _configuration(self, shown: Shown) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(shown.key, shown.chain)], self._client_authority)
