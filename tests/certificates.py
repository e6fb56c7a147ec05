"""Certificate authorities and server certificates for tests, made as the scheduler makes its own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

FIXED_NAME = "scheduler.c1.gavel.internal"


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
    )


@dataclass(frozen=True)
class ServerFiles:
    """What a server needs, in PEM."""

    key: bytes
    chain: bytes


class Authority:
    """One certificate authority."""

    def __init__(self, name: str = "gavel") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        basic = x509.BasicConstraints(ca=True, path_length=0)
        builder = _builder(name, _named(name), self._key).not_valid_after(datetime.now(UTC) + timedelta(days=3650))
        self.certificate = builder.add_extension(basic, critical=True).sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def fingerprint(self) -> str:
        return f"sha256:{sha256(self.certificate.public_bytes(Encoding.DER)).hexdigest()}"

    def server(
        self, *names: str, addresses: tuple[str, ...] = (), days: float = 10.0, shown: Authority | None = None
    ) -> ServerFiles:
        """A server's certificate and key; the chain ends in this authority, or in the one that is to be shown."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternative: list[x509.GeneralName] = [x509.DNSName(name) for name in names or (FIXED_NAME,)]
        alternative += [x509.IPAddress(ip_address(address)) for address in addresses]
        builder = _builder("scheduler", self.certificate.subject, key)
        certificate = (
            builder.not_valid_after(datetime.now(UTC) + timedelta(days=days))
            .add_extension(x509.SubjectAlternativeName(alternative), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return ServerFiles(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            certificate.public_bytes(Encoding.PEM) + (shown or self).pem.encode(),
        )
