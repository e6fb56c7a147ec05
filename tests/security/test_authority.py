"""The cluster's authority: what it makes is accepted by other implementations of TLS, and damage is reported."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from gavel.client.trust import fingerprint
from gavel.errors import InputError
from gavel.security.authority import Authority
from gavel.security.certificates import (
    AGENT_SECONDS,
    DAY_SECONDS,
    SERVER_SECONDS,
    Signed,
    key_pem,
    new_key,
    read_agent_certificate,
    signing_request,
)

CLUSTER = "0f3cab"
NOW = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


class Clock:
    """Time that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authority(tmp_path: Path, clock: Clock) -> Authority:
    return Authority.create(tmp_path / "security", CLUSTER, ["head", "10.0.0.7"], clock=clock)


def leaf(authority: Authority) -> x509.Certificate:
    return x509.load_pem_x509_certificates(authority.shown().chain)[0]


def root(authority: Authority) -> x509.Certificate:
    return x509.load_pem_x509_certificate(authority.authority_pem)


def agent_certificate(signed: Signed) -> x509.Certificate:
    return x509.load_pem_x509_certificate(signed.pem.encode())


def policy(authority: Authority, now: float = NOW) -> PolicyBuilder:
    return PolicyBuilder().store(Store([root(authority)])).time(datetime.fromtimestamp(now, UTC))


def test_everything_is_readable_by_its_owner_alone(authority: Authority, tmp_path: Path) -> None:
    assert authority.server_name
    folder = tmp_path / "security"
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == dict.fromkeys(["authority.key", "authority.crt", "server.key", "server.crt"], 0o600)


def test_an_existing_authority_is_never_replaced(authority: Authority, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has a certificate authority already"):
        Authority.create(tmp_path / "security", CLUSTER, [])
    assert Authority.load(tmp_path / "security", CLUSTER, clock=lambda: NOW).fingerprint == authority.fingerprint


def test_a_loaded_authority_is_the_one_that_was_made(authority: Authority, tmp_path: Path, clock: Clock) -> None:
    loaded = Authority.load(tmp_path / "security", CLUSTER, clock=clock)
    assert loaded.fingerprint == authority.fingerprint
    assert loaded.shown() == authority.shown()
    assert loaded.server_name == f"scheduler.{CLUSTER}.gavel.internal"


def test_the_fingerprint_is_that_of_the_last_certificate_shown(authority: Authority) -> None:
    last = x509.load_pem_x509_certificates(authority.shown().chain)[-1]
    assert authority.fingerprint == fingerprint(last.public_bytes(serialization.Encoding.DER))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: (folder / "authority.key").unlink(), "is missing"),
        (lambda folder: (folder / "authority.crt").unlink(), "is missing"),
        (lambda folder: (folder / "authority.crt").write_text("no certificate"), "is damaged"),
        (lambda folder: (folder / "authority.key").write_bytes(b"\x00\xff"), "is damaged"),
        (lambda folder: (folder / "authority.key").write_bytes(key_pem(new_key())), "is not the key of"),
        (lambda folder: (folder / "authority.key").chmod(0o640), "can be read by other users"),
        (lambda folder: folder.chmod(0o755), "can be read by other users"),
        (
            lambda folder: [(folder / f"server{end}").rename(folder / f"authority{end}") for end in (".key", ".crt")],
            "is not the certificate of an authority",
        ),
    ],
)
def test_a_damaged_authority_is_refused_with_a_sentence(
    authority: Authority, tmp_path: Path, damage: object, sentence: str
) -> None:
    assert callable(damage)
    assert authority.fingerprint
    damage(tmp_path / "security")
    with pytest.raises(InputError, match=sentence):
        Authority.load(tmp_path / "security", CLUSTER, clock=lambda: NOW)


def test_a_missing_authority_says_how_to_create_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="create one with `gavel init`"):
        Authority.load(tmp_path / "security", CLUSTER)


@pytest.mark.parametrize(("days", "sentence"), [(3_700, "expired on 2036"), (-1, "in the future")])
def test_an_authority_outside_its_time_is_refused(
    authority: Authority, tmp_path: Path, days: float, sentence: str
) -> None:
    assert authority.fingerprint
    with pytest.raises(InputError, match=sentence):
        Authority.load(tmp_path / "security", CLUSTER, clock=lambda: NOW + days * DAY_SECONDS)


def test_creation_that_was_cut_short_is_made_again(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "security" / "authority.crt").unlink()
    again = Authority.create(tmp_path / "security", CLUSTER, [], clock=lambda: NOW)
    assert again.fingerprint != authority.fingerprint
    assert Authority.load(tmp_path / "security", CLUSTER, clock=lambda: NOW).shown() == again.shown()


def test_an_authority_of_another_cluster_is_refused(authority: Authority, tmp_path: Path) -> None:
    assert authority.fingerprint
    with pytest.raises(InputError, match=r"is of another cluster .*Gavel cluster 0f3cab"):
        Authority.load(tmp_path / "security", "ffff", clock=lambda: NOW)


# ---- the scheduler's certificate ----


@pytest.mark.parametrize("name", [f"scheduler.{CLUSTER}.gavel.internal", "head"])
def test_another_verifier_accepts_the_servers_names(authority: Authority, name: str) -> None:
    verifier = policy(authority).build_server_verifier(x509.DNSName(name))
    assert verifier.verify(leaf(authority), [])[0] == leaf(authority)


def test_another_verifier_refuses_other_names(authority: Authority) -> None:
    with pytest.raises(VerificationError):
        policy(authority).build_server_verifier(x509.DNSName("elsewhere")).verify(leaf(authority), [])


def test_the_servers_certificate_is_replaced_when_a_third_of_its_life_is_left(
    authority: Authority, clock: Clock
) -> None:
    first = authority.shown()
    clock.now += SERVER_SECONDS * 0.6
    assert authority.shown() is first
    clock.now += SERVER_SECONDS * 0.1
    second = authority.shown()
    assert second.chain != first.chain
    assert second.key != first.key
    assert policy(authority, clock.now).build_server_verifier(x509.DNSName("head")).verify(leaf(authority), [])


def test_a_full_disk_does_not_keep_an_expiring_certificate_in_use(
    authority: Authority, clock: Clock, tmp_path: Path
) -> None:
    first = authority.shown()
    for name in ("server.key", "server.crt"):
        (tmp_path / "security" / f".{name}.new").mkdir()  # nothing can be written there
    clock.now += SERVER_SECONDS
    assert authority.shown() != first


def test_a_new_name_is_added_and_an_absent_one_kept(authority: Authority) -> None:
    before = authority.shown()
    assert authority.issue_server(["head"]) is before
    assert authority.issue_server(["head", "gpu-head.lab"]) is not before
    assert policy(authority).build_server_verifier(x509.DNSName("gpu-head.lab")).verify(leaf(authority), [])


def test_a_damaged_server_certificate_is_issued_again(authority: Authority, tmp_path: Path, clock: Clock) -> None:
    assert authority.server_name
    (tmp_path / "security" / "server.crt").write_text("no certificate")
    loaded = Authority.load(tmp_path / "security", CLUSTER, clock=clock)
    assert policy(loaded).build_server_verifier(x509.DNSName(loaded.server_name)).verify(leaf(loaded), [])


def test_a_server_certificate_of_another_authority_is_not_shown(
    authority: Authority, tmp_path: Path, clock: Clock
) -> None:
    other = Authority.create(tmp_path / "other", CLUSTER, ["head"], clock=clock)
    for name in ("server.key", "server.crt"):
        (tmp_path / "security" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    loaded = Authority.load(tmp_path / "security", CLUSTER, clock=clock)
    assert loaded.shown() not in (other.shown(), authority.shown())
    assert policy(loaded).build_server_verifier(x509.DNSName(loaded.server_name)).verify(leaf(loaded), [])


# ---- certificates of agents ----


def test_a_certificate_says_which_agent_it_is_for(authority: Authority) -> None:
    key = new_key()
    signed = authority.sign(signing_request(key), "a1", "lab3")
    shown = read_agent_certificate(signed.pem)
    assert (shown.agent, shown.name, shown.serial) == ("a1", "lab3", signed.serial)
    assert signed.expires == shown.expires == NOW + AGENT_SECONDS
    assert agent_certificate(signed).public_key() == key.public_key()
    verified = policy(authority).build_client_verifier().verify(agent_certificate(signed), [])
    assert verified.subjects == [x509.UniformResourceIdentifier("urn:gavel:agent:a1")]


def test_an_agents_certificate_cannot_serve(authority: Authority) -> None:
    signed = authority.sign(signing_request(new_key()), "a1", "lab3")
    with pytest.raises(VerificationError):
        policy(authority).build_server_verifier(x509.DNSName("lab3")).verify(agent_certificate(signed), [])


def test_an_agents_certificate_cannot_sign_others(authority: Authority) -> None:
    key = new_key()
    signed = authority.sign(signing_request(key), "a1", "lab3")
    parent = agent_certificate(signed)
    child = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab4")]))
        .issuer_name(parent.subject)
        .public_key(new_key().public_key())
        .serial_number(5)
        .not_valid_before(datetime.fromtimestamp(NOW, UTC))
        .not_valid_after(datetime.fromtimestamp(NOW, UTC) + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier("urn:gavel:agent:a2")]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    with pytest.raises(VerificationError):
        policy(authority).build_client_verifier().verify(child, [parent])


def test_a_certificate_does_not_outlive_its_authority(authority: Authority, clock: Clock) -> None:
    clock.now += 3_650 * DAY_SECONDS
    signed = authority.sign(signing_request(new_key()), "a1", "lab3")
    assert signed.expires == root(authority).not_valid_after_utc.timestamp()


def test_forged_names_in_a_request_are_ignored(authority: Authority) -> None:
    key = new_key()
    forged = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab4")]))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.UniformResourceIdentifier("urn:gavel:agent:a2"), x509.DNSName(authority.server_name)]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    signed = authority.sign(forged.public_bytes(serialization.Encoding.PEM).decode(), "a1", "lab3")
    certificate = agent_certificate(signed)
    shown = read_agent_certificate(signed.pem)
    assert (shown.agent, shown.name) == ("a1", "lab3")
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.server_name.encode() not in certificate.public_bytes(serialization.Encoding.DER)
    purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def request_by(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey) -> str:
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, algorithm)
    return request.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (rsa.generate_private_key(65537, 512 * 2), "RSA of 1,024 bits"),
        (ec.generate_private_key(ec.SECP192R1()), "192 bits"),
        (ed25519.Ed25519PrivateKey.generate(), "Ed25519"),
    ],
    ids=["rsa", "curve", "ed25519"],
)
def test_a_weak_or_unusual_key_is_not_signed(
    authority: Authority,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey,
    kind: str,
) -> None:
    with pytest.raises(InputError, match=f"the key in the signing request is .*{kind}"):
        authority.sign(request_by(key), "a1", "lab3")


def test_usual_keys_are_signed(authority: Authority) -> None:
    assert authority.sign(request_by(rsa.generate_private_key(65537, 2048)), "a1", "lab3").serial
    assert authority.sign(request_by(ec.generate_private_key(ec.SECP384R1())), "a1", "lab3").serial


def test_a_request_with_a_broken_signature_is_not_signed(authority: Authority) -> None:
    der = bytearray(ssl_der(signing_request(new_key())))
    der[-1] ^= 1
    with pytest.raises(InputError, match="is not signed by its own key"):
        authority.sign(x509_request_pem(bytes(der)), "a1", "lab3")


def test_a_request_with_another_agents_key_is_not_signed(authority: Authority) -> None:
    """A request for a key that its sender does not have carries a signature by another key."""
    mine, theirs = (ssl_der(signing_request(new_key())) for _ in range(2))
    mixed = theirs[:-70] + mine[-70:]
    with pytest.raises(InputError, match=r"is not signed by its own key|cannot be read"):
        authority.sign(x509_request_pem(mixed), "a1", "lab3")


@pytest.mark.parametrize("text", ["", "no request", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n", "\x00" * 100])
def test_what_is_no_request_is_refused(authority: Authority, text: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        authority.sign(text, "a1", "lab3")


def test_a_huge_request_is_not_read(authority: Authority) -> None:
    with pytest.raises(InputError, match="at most 16,384 are read"):
        authority.sign("x" * 1_000_000, "a1", "lab3")


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        *[("", "lab3"), ("a b", "lab3"), ("a" * 101, "lab3"), ("a1\n", "lab3"), ("name:lab3", "lab3")],
        *[("a1", ""), ("a1", "a:b"), ("a1", "x" * 65), ("a1", "ü" * 33), ("a1", "a\x1b[31m"), ("a1", "a\x00")],
    ],
)
def test_identities_and_names_that_cannot_be_certified_are_refused(authority: Authority, agent: str, name: str) -> None:
    with pytest.raises(InputError, match="agent"):
        authority.sign(signing_request(new_key()), agent, name)


def ssl_der(pem: str) -> bytes:
    return x509.load_pem_x509_csr(pem.encode()).public_bytes(serialization.Encoding.DER)


def x509_request_pem(der: bytes) -> str:
    return ssl.DER_cert_to_PEM_cert(der).replace("CERTIFICATE-", "CERTIFICATE REQUEST-")
