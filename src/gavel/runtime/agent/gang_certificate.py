"""The certificate of one attempt's rank 0: made by its agent, for its own process, and trusted by its gang alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gavel.runtime.privacy import write_private


@dataclass(frozen=True, slots=True)
class GangCertificate:
    """A self-signed certificate and, at rank 0's agent only, its key; both in PEM."""

    certificate: str
    key: str = field(default="", repr=False)

    @property
    def public(self) -> GangCertificate:
        """What the other ranks get."""
        return GangCertificate(self.certificate)

    def write(self, path: Path, owner: tuple[int, int] | None = None) -> None:
        """Write both to a new file that only its owner can read."""
        write_private(path, self.certificate + self.key, owner)


def make_certificate() -> GangCertificate:
    """Make a key and a certificate with no names, which only this attempt will trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gang")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return GangCertificate(certificate.public_bytes(serialization.Encoding.PEM).decode(), secret.decode())
