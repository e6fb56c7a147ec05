"""Certificates as values: made, read and compared, without files and without a clock of their own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gavel.client.field_checks import label_fault, shortened
from gavel.errors import InputError
from gavel.security.names import parse_name

AGENT_URN = "urn:gavel:agent:"
LONGEST_COMMON_NAME = 64
"""Bytes of a common name, by the standard."""
LONGEST_REQUEST = 16 * 1024
"""Bytes of a signing request; ours have less than 1 KiB."""
SKEW = timedelta(minutes=5)
"""Certificates are valid from a little earlier, for machines whose clocks are behind."""
DAY_SECONDS = 86_400.0
AUTHORITY_SECONDS = 3_653 * DAY_SECONDS
SERVER_SECONDS = 90 * DAY_SECONDS
AGENT_SECONDS = 30 * DAY_SECONDS

_MALFORMED = (ValueError, TypeError, UnsupportedAlgorithm)
_CURVES = (ec.SECP256R1, ec.SECP384R1)
_RSA_BITS = range(2048, 8193)


@dataclass(frozen=True, slots=True)
class CertifiedKey:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate for an agent."""

    pem: str
    serial: str
    """In hexadecimal digits."""
    expires: float


@dataclass(frozen=True, slots=True)
class AgentCertificate:
    """What an agent's certificate says."""

    agent: str
    """Empty: it was not issued by a cluster's authority."""
    name: str
    serial: str
    begins: float
    expires: float


def new_key() -> ec.EllipticCurvePrivateKey:
    """A new key of the kind that all our certificates use."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key in PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """A certificate in PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def serial_of(certificate: x509.Certificate) -> str:
    """The serial number in the form that we record."""
    return f"{certificate.serial_number:x}"


def make_authority(cluster: str, now: float, seconds: float = AUTHORITY_SECONDS) -> CertifiedKey:
    """A self-signed authority, which can sign certificates of servers and agents but no other authority."""
    key = new_key()
    name = authority_name(cluster)
    builder = (
        _builder(name, name, key.public_key(), now, seconds)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return CertifiedKey(builder.sign(key, hashes.SHA256()), key)


def authority_name(cluster: str) -> x509.Name:
    """The name of a cluster's authority."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Gavel cluster {cluster}"[:LONGEST_COMMON_NAME])])


def make_server(
    authority: CertifiedKey, names: Sequence[str], now: float, seconds: float = SERVER_SECONDS
) -> CertifiedKey:
    """A certificate for the scheduler, with a new key; the first name is its common name."""
    key = new_key()
    common = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:LONGEST_COMMON_NAME])])
    certificate = _issued(
        authority,
        _builder(common, authority.certificate.subject, key.public_key(), now, _at_most(authority, now, seconds)),
        [_general(name) for name in names],
        ExtendedKeyUsageOID.SERVER_AUTH,
    )
    return CertifiedKey(certificate, key)


def make_agent(
    authority: CertifiedKey,
    public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    agent: str,
    name: str,
    *,
    now: float,
    seconds: float = AGENT_SECONDS,
) -> Signed:
    """A certificate that says which agent has this key."""
    if (fault := agent_fault(agent, name)) is not None:
        raise InputError(fault)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = _issued(
        authority,
        _builder(subject, authority.certificate.subject, public_key, now, _at_most(authority, now, seconds)),
        [x509.UniformResourceIdentifier(f"{AGENT_URN}{agent}")],
        ExtendedKeyUsageOID.CLIENT_AUTH,
    )
    expires = certificate.not_valid_after_utc.timestamp()
    return Signed(certificate_pem(certificate).decode(), serial_of(certificate), expires)


def agent_fault(agent: str, name: str) -> str | None:
    """Why a certificate cannot be for this identity and name, in a sentence; None if it can.

    >>> agent_fault("0f3c", "lab3"), agent_fault("a b", "lab3")
    (None, "an agent's identity has 1 to 100 letters, digits, dots, dashes or underscores, not 'a b'")
    """
    if not re.fullmatch("[A-Za-z0-9._-]{1,100}", agent):
        return f"an agent's identity has 1 to 100 letters, digits, dots, dashes or underscores, not {shortened(agent)}"
    if not name or name.strip() != name:
        return f"an agent needs a name without blanks around it, not {shortened(name)}; give a --name"
    if (fault := label_fault(name)) is not None:
        return f"the agent's name {fault}: {shortened(name)}; give another --name"
    if ":" in name:
        return f"the agent's name {shortened(name)} contains a colon; give another --name"
    if len(name.encode()) > LONGEST_COMMON_NAME:
        return (
            f"the agent's name {shortened(name)} is too long for a certificate; "
            f"give a --name of at most {LONGEST_COMMON_NAME} bytes"
        )
    return None


def signing_request(key: ec.EllipticCurvePrivateKey) -> str:
    """A request in PEM to sign a key; it names no one, because the scheduler decides what it signs."""
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode()


def requested_key(pem: str) -> ec.EllipticCurvePublicKey | rsa.RSAPublicKey:
    """The key in a signing request whose sender has the private one; everything else in the request is ignored."""
    if len(pem) > LONGEST_REQUEST:
        raise InputError(f"the signing request has {len(pem):,} characters; at most {LONGEST_REQUEST:,} are read")
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        key, genuine = request.public_key(), request.is_signature_valid
    except _MALFORMED:
        raise InputError("the signing request cannot be read; it must be one PKCS #10 request in PEM") from None
    if not genuine:
        raise InputError("the signing request is not signed by its own key, so its sender may not have that key")
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES):
        return key
    if isinstance(key, rsa.RSAPublicKey) and key.key_size in _RSA_BITS:
        return key
    raise InputError(f"the key in the signing request is {_kind(key)}; use EC P-256 or P-384, or RSA of 2,048 bits")


def _kind(key: object) -> str:
    size = getattr(key, "key_size", None)
    kind = re.sub("(Open)?(SSL|ssl)?PublicKey", "", type(key).__name__).strip("_")
    return f"{kind} of {size:,} bits" if isinstance(size, int) else kind


def read_agent_certificate(pem: str | bytes) -> AgentCertificate:
    """What a certificate says about an agent; whether it may be believed is decided elsewhere."""
    data = pem.encode() if isinstance(pem, str) else pem
    try:
        certificate = x509.load_pem_x509_certificate(data)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        agents = [uri.removeprefix(AGENT_URN) for uri in _uris(certificate) if uri.startswith(AGENT_URN)]
    except _MALFORMED:
        raise InputError("the agent's certificate cannot be read") from None
    if len(names) != 1 or len(agents) > 1:
        raise InputError("the agent's certificate does not name one agent")
    return AgentCertificate(
        agents[0] if agents else "",
        str(names[0].value),
        serial_of(certificate),
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def names_in(certificate: x509.Certificate) -> list[str]:
    """The DNS names and addresses of a server certificate."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    return [*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses)]


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether an authority signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def lifetime_left(certificate: x509.Certificate, now: float) -> float:
    """The share of a certificate's life since it was issued that is left; negative if it has expired, at most 1."""
    issued = (certificate.not_valid_before_utc + SKEW).timestamp()
    ends = certificate.not_valid_after_utc.timestamp()
    return min(1.0, (ends - now) / max(1.0, ends - issued))


def _general(name: str) -> x509.GeneralName:
    parsed = parse_name(name)
    return x509.IPAddress(parsed) if isinstance(parsed, IPv4Address | IPv6Address) else x509.DNSName(parsed)


def _at_most(authority: CertifiedKey, now: float, seconds: float) -> float:
    """A lifetime that ends no later than that of the authority."""
    return min(seconds, authority.certificate.not_valid_after_utc.timestamp() - now)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    now: float,
    seconds: float,
) -> x509.CertificateBuilder:
    begins = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins - SKEW)
        .not_valid_after(begins + timedelta(seconds=seconds))
    )


def _issued(
    authority: CertifiedKey,
    builder: x509.CertificateBuilder,
    names: Sequence[x509.GeneralName],
    purpose: x509.ObjectIdentifier,
) -> x509.Certificate:
    issuer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
