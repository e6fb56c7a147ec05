"""Attacks on enrolment: join tokens, signing requests, certificates, renewal and revocation."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import grpc
from attack_tools import elsewhere, untouched
from attacked_cluster import AgentKeys, Stream, Target, eventually, hello_of, refusal, weak_key
from attacks import attack
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gavel.security.certificates import certificate_pem, key_pem, new_key, signing_request
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
PRECONDITION, UNAVAILABLE = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


# ---- tools ----


def enrol(channel: grpc.Channel, token: str, **forged: Any) -> Any:
    """Enrol with a well-formed request, of which any field can be forged."""
    given = {"agent": uuid4().hex, "name": f"evil-{uuid4().hex[:8]}", "signing_request": signing_request(new_key())}
    request = pb.EnrolRequest(join_token=token, **{**given, **forged})
    return GavelStub(channel).Enrol(request, timeout=30)  # type: ignore[no-untyped-call]


def refused_token(target: Target, token: str) -> str:
    """Assert that a join token is refused, seen from a host of its own, and that no agent comes of it."""
    before = agents(target)
    with elsewhere(target) as address, target.channel(address) as channel:
        told = refusal(UNAUTHENTICATED, lambda: enrol(channel, token))
    assert agents(target) == before
    return told


def refused_request(target: Target, **forged: Any) -> str:
    """Assert that a request with a valid token is refused, that no agent comes of it, and that the token is left."""
    token, before = target.join_token(), agents(target)
    with target.channel() as channel:
        told = refusal(PRECONDITION, lambda: enrol(channel, token, **forged))
        assert agents(target) == before
        assert enrol(channel, token).certificate, "the refused request has used the token up"
    return told


def agents(target: Target) -> dict[str, str]:
    """Names of all enrolled agents, by identity."""
    found = target.call("ListAgents", pb.ListAgentsRequest(), "root").agents
    return {record.agent: record.name for record in found}


def good_agent(target: Target) -> str:
    """The identity of the agent that runs the job beside the attacks."""
    return next(agent for agent, name in agents(target).items() if name == "good")


def renewed(target: Target, keys: AgentKeys) -> AgentKeys:
    key = new_key()
    with target.channel(keys=keys) as channel:
        reply = renew(channel, signing_request(key))
    return AgentKeys(keys.agent, keys.name, key_pem(key), reply.certificate.encode())


def renew(channel: grpc.Channel, request: str, **options: Any) -> Any:
    return GavelStub(channel).RenewCertificate(pb.RenewRequest(signing_request=request), timeout=30, **options)  # type: ignore[no-untyped-call]


def request_of(build: Callable[[x509.CertificateSigningRequestBuilder], Any], key: Any = None) -> str:
    """A signing request with anything in it."""
    builder = build(x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])))
    signed = builder.sign(key or new_key(), None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    return str(signed.public_bytes(Encoding.PEM).decode())


def pem_of(der: bytes, label: str = "CERTIFICATE REQUEST") -> str:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n"


def der_of(pem: str) -> bytes:
    return base64.b64decode("".join(pem.splitlines()[1:-1]))


def read(reply: Any) -> x509.Certificate:
    return x509.load_pem_x509_certificate(reply.certificate.encode())


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def certificate_for(
    target: Target,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    agent: str,
    name: str,
    *,
    ends: timedelta = timedelta(days=1),
) -> AgentKeys:
    """An agent's certificate that someone else than the scheduler signed; the issuer may be lied about."""
    key, now = new_key(), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + ends)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"urn:gavel:agent:{agent}")]), critical=False
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return AgentKeys(agent, name, key_pem(key), certificate_pem(certificate) + target.authority)


def no_connection(target: Target, keys: AgentKeys) -> None:
    """Assert that TLS itself refuses a certificate."""
    with target.channel(keys=keys) as channel:
        stream = Stream(GavelStub(channel))  # type: ignore[no-untyped-call]
        stream.say(hello=hello_of(keys))
        refusal(UNAVAILABLE, lambda: stream.hear("welcome"))
        stream.close()


def authority_of(target: Target) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
    """The authority's name and its key, which no attacker has."""
    key = load_pem_private_key((target.folder / "state" / "security" / "authority.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return x509.load_pem_x509_certificate(target.authority).subject, key


# ---- join tokens ----


@attack("enrolment")
def replayed_join_token(target: Target) -> None:
    """A join token for one agent, used again"""
    token = target.join_token()
    with target.channel() as channel:
        enrol(channel, token)
    assert "used up" in refused_token(target, token)


@attack("enrolment")
def expired_join_token(target: Target) -> None:
    """A join token that has expired"""
    made = target.call("CreateToken", pb.CreateTokenRequest(role="agent", uses=5, seconds=1), "root")
    eventually(lambda: datetime.now(UTC).timestamp() > made.view.expires, "the token has expired")
    assert "expired" in refused_token(target, made.token)


@attack("enrolment")
def revoked_join_token(target: Target) -> None:
    """A join token that was revoked"""
    made = target.call("CreateToken", pb.CreateTokenRequest(role="agent", uses=5), "root")
    target.call("RevokeToken", pb.RevokeTokenRequest(id=made.view.id), "root")
    assert "revoked" in refused_token(target, made.token)


@attack("enrolment")
def race_for_one_use(target: Target) -> None:
    """Twenty agents that race for the one use of a join token"""
    token, before = target.join_token(), agents(target)
    with elsewhere(target) as address, target.channel(address) as channel, ThreadPoolExecutor(20) as threads:
        outcomes = list(threads.map(lambda _: _outcome(channel, token), range(20)))
    assert outcomes.count(None) == 1, outcomes
    assert set(outcomes) - {None} <= {UNAUTHENTICATED, EXHAUSTED}
    assert len(agents(target)) == len(before) + 1


def _outcome(channel: grpc.Channel, token: str) -> grpc.StatusCode | None:
    try:
        enrol(channel, token)
    except grpc.RpcError as error:
        return error.code()
    return None


@attack("enrolment")
def guessed_join_tokens(target: Target) -> None:
    """Guesses of join tokens, until the address is told only to wait"""
    with elsewhere(target) as address, target.channel(address) as channel:
        outcomes = [_outcome(channel, f"gvj_{uuid4().hex}{uuid4().hex[:11]}") for _ in range(30)]
        assert enrol(channel, target.join_token()).certificate, "a neighbour with a right token must not be locked out"
    assert outcomes[:5] == [UNAUTHENTICATED] * 5
    assert outcomes[-5:] == [EXHAUSTED] * 5
    with target.channel() as channel:
        assert enrol(channel, target.join_token()).certificate, "other addresses must not be blocked"


@attack("enrolment")
def nearly_right_join_token(target: Target) -> None:
    """A join token that differs from a valid one in its last character, and one that is cut short"""
    token = target.join_token()
    refused_token(target, token[:-1] + ("B" if token[-1] == "A" else "A"))
    refused_token(target, token[:-1])
    with target.channel() as channel:
        assert enrol(channel, token).certificate


@attack("enrolment")
def digest_as_join_token(target: Target) -> None:
    """The stored digest of a join token, as a thief of a backup would find it, instead of the token"""
    token = target.join_token()
    digest = hashlib.sha256(token.encode()).hexdigest()
    refused_token(target, digest)
    refused_token(target, f"gvj_{digest}")


@attack("enrolment")
def users_token_as_join_token(target: Target) -> None:
    """An administrator's token in place of a join token"""
    assert "not a join token" in refused_token(target, target.tokens["root"])


@attack("enrolment")
def join_token_as_bearer(target: Target) -> None:
    """A join token in place of a user's token"""
    token = target.join_token()
    with elsewhere(target) as address, target.channel(address) as channel:
        for method, request in (("List", pb.JobQuery()), ("CreateToken", pb.CreateTokenRequest(role="admin"))):
            refusal(
                [UNAUTHENTICATED, DENIED],
                partial(target.call_on, channel, method, request, token=token),
            )
        assert enrol(channel, token).certificate


@attack("enrolment")
def megabytes_as_join_token(target: Target) -> None:
    """A join token of three megabytes"""
    refused_token(target, "gvj_" + "A" * 3_000_000)


# ---- identities and names ----


@attack("enrolment")
def identity_of_another(target: Target) -> None:
    """Enrolment with the identity of another agent"""
    agent = good_agent(target)
    assert "enrolled already" in refused_request(target, agent=agent)
    assert agents(target)[agent] == "good"


@attack("enrolment")
def name_of_another(target: Target) -> None:
    """Enrolment with the name of another agent"""
    assert "belongs to another" in refused_request(target, name="good")


@attack("enrolment")
def identity_equal_to_a_name(target: Target) -> None:
    """An identity that equals another agent's name, so that a revocation would hit the wrong one"""
    assert "confusable" in refused_request(target, agent="good")


@attack("enrolment")
def name_equal_to_an_identity(target: Target) -> None:
    """A name that equals another agent's identity"""
    assert "confusable" in refused_request(target, name=good_agent(target))


@attack("enrolment")
def name_of_anothers_server(target: Target) -> None:
    """A name like that of a server of another agent"""
    assert "colon" in refused_request(target, name="good:v100")


@attack("enrolment")
def names_with_escapes(target: Target) -> None:
    """Names with terminal escapes, line breaks, NUL and text that runs backwards"""
    for name in ("\x1b[31mgood", "good\n", "a\0b", "good\r", "\u202edoog", "go\u200bod", "\x9b2J"):
        told = refused_request(target, name=name)
        assert told.isprintable()
        assert "cannot be printed" in told or "blanks around it" in told


@attack("enrolment")
def endless_name(target: Target) -> None:
    """Names of 10,000 characters, and of one byte more than a certificate holds"""
    for name in ("x" * 10_000, "x" * 65, "ü" * 33):
        told = refused_request(target, name=name)
        assert len(told) < 1000


@attack("enrolment")
def names_with_blanks_around(target: Target) -> None:
    """The name of another agent with blanks around it, which looks the same in every table"""
    for name in ("good ", " good", " "):
        assert "blanks" in refused_request(target, name=name)


@attack("enrolment")
def no_name(target: Target) -> None:
    """Enrolment without a name or without an identity"""
    assert "needs a name" in refused_request(target, name="")
    assert "identity" in refused_request(target, agent="")


@attack("enrolment")
def identity_as_a_path(target: Target) -> None:
    """Identities that are paths, URNs or have control characters"""
    for agent in ("../../authority", "a/b", "a\0", "a\n", "urn:gavel:agent:x", "a b", "ä", "%2e%2e"):
        assert "identity" in refused_request(target, agent=agent)


@attack("enrolment")
def endless_identity(target: Target) -> None:
    """An identity of 10,000 digits"""
    told = refused_request(target, agent="9" * 10_000)
    assert len(told) < 1000


# ---- signing requests ----


@attack("enrolment")
def forged_subject(target: Target) -> None:
    """A signing request whose subject is another agent"""
    with target.channel() as channel:
        forged = request_of(lambda _: _subject("good"))
        found = read(enrol(channel, target.join_token(), name="evil-subject", signing_request=forged))
    assert found.subject == named("evil-subject")


def _subject(name: str) -> x509.CertificateSigningRequestBuilder:
    return x509.CertificateSigningRequestBuilder().subject_name(named(name))


@attack("enrolment")
def forged_alternative_names(target: Target) -> None:
    """A signing request for the identity of another agent and for the scheduler's name"""
    wanted = [
        x509.UniformResourceIdentifier(f"urn:gavel:agent:{good_agent(target)}"),
        x509.DNSName(target.server_name),
        x509.DNSName("localhost"),
    ]
    forged = request_of(lambda request: request.add_extension(x509.SubjectAlternativeName(wanted), critical=True))
    agent = uuid4().hex
    with target.channel() as channel:
        found = read(enrol(channel, target.join_token(), agent=agent, signing_request=forged))
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(names) == [x509.UniformResourceIdentifier(f"urn:gavel:agent:{agent}")]


@attack("enrolment")
def asks_to_be_an_authority(target: Target) -> None:
    """A signing request for an authority, with the right to sign and to be a server"""

    def build(request: x509.CertificateSigningRequestBuilder) -> x509.CertificateSigningRequestBuilder:
        purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]
        return request.add_extension(x509.BasicConstraints(ca=True, path_length=5), critical=True).add_extension(
            x509.ExtendedKeyUsage(purposes), critical=True
        )

    with target.channel() as channel:
        found = read(enrol(channel, target.join_token(), signing_request=request_of(build))).extensions
    assert not found.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not found.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    purposes = found.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]


@attack("enrolment")
def weak_keys(target: Target) -> None:
    """Signing requests for keys that are too weak: a curve of 192 bits, RSA of 1,024 bits"""
    for key in (weak_key(), rsa.generate_private_key(65537, 1024)):  # noqa: S505
        assert "bits" in refused_request(target, signing_request=request_of(lambda request: request, key))


@attack("enrolment")
def unusual_key(target: Target) -> None:
    """A signing request for a kind of key that the authority does not sign"""
    key = ed25519.Ed25519PrivateKey.generate()
    assert "Ed25519" in refused_request(target, signing_request=request_of(lambda request: request, key))


@attack("enrolment")
def key_of_another(target: Target) -> None:
    """A signing request for a public key whose private key the sender does not have"""
    mine, theirs = new_key(), new_key()
    forged = der_of(signing_request(mine)).replace(_point(mine), _point(theirs))
    assert "not signed by its own key" in refused_request(target, signing_request=pem_of(forged))


def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


@attack("enrolment")
def broken_signature(target: Target) -> None:
    """A signing request with a changed signature"""
    der = bytearray(der_of(signing_request(new_key())))
    der[-3] ^= 1
    assert "signed" in refused_request(target, signing_request=pem_of(bytes(der)))


@attack("enrolment")
def garbage_requests(target: Target) -> None:
    """Signing requests that are garbage, cut short, empty, a certificate or a private key"""
    whole = der_of(signing_request(new_key()))
    garbage = [
        "",
        "garbage",
        "-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n",
        pem_of(whole[:-20]),
        pem_of(b"\x30\x84\xff\xff\xff\xff" + whole),
        pem_of(whole, "PRIVATE KEY"),
        target.authority.decode(),
        key_pem(new_key()).decode(),
        signing_request(new_key()).replace("\n", "\0\n"),
    ]
    for text in garbage:
        assert "cannot be read" in refused_request(target, signing_request=text)


@attack("enrolment")
def request_of_a_megabyte(target: Target) -> None:
    """A signing request of one megabyte, and one whose subject has thousands of parts"""
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, "x" * 60) for _ in range(5000)]
    long = request_of(lambda _: x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts)))
    for text in (signing_request(new_key()) + " " * 2**20, long):
        assert "at most" in refused_request(target, signing_request=text)


# ---- certificates ----


@attack("enrolment")
def certificate_of_another_authority(target: Target) -> None:
    """A certificate for another agent, signed by an authority that only has the right name"""
    subject, _ = authority_of(target)
    no_connection(target, certificate_for(target, subject, new_key(), good_agent(target), "good"))


@attack("enrolment")
def agent_as_an_authority(target: Target) -> None:
    """A certificate for another agent, signed with the key of an enrolled agent"""
    keys = target.enrolled()
    own = x509.load_pem_x509_certificate(keys.chain)
    key = load_pem_private_key(keys.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    forged = certificate_for(target, own.subject, key, good_agent(target), "good")
    leaf, _, _ = forged.chain.partition(target.authority)
    no_connection(target, AgentKeys(forged.agent, forged.name, forged.key, leaf + keys.chain))


@attack("enrolment")
def expired_certificate(target: Target) -> None:
    """A certificate of the cluster's authority that has expired"""
    keys = target.enrolled()
    late = certificate_for(target, *authority_of(target), keys.agent, keys.name, ends=-timedelta(hours=1))
    no_connection(target, late)


@attack("enrolment")
def certificate_without_a_record(target: Target) -> None:
    """A certificate with the authority's signature that the scheduler did not issue, for another agent"""
    forged = certificate_for(target, *authority_of(target), good_agent(target), "good")
    with untouched(target):
        assert "replaced" in target.attach_refused(forged)


@attack("enrolment")
def servers_certificate_as_an_agents(target: Target) -> None:
    """The scheduler's own certificate, shown as an agent's"""
    folder = target.folder / "state" / "security"
    keys = AgentKeys("x", "x", (folder / "server.key").read_bytes(), (folder / "server.crt").read_bytes())
    no_connection(target, keys)


@attack("enrolment")
def certificate_at_the_peoples_port(target: Target) -> None:
    """An agent's certificate in place of a token, at the port of people"""
    keys = target.enrolled()
    with elsewhere(target) as address, target.channel(address, keys=keys) as channel:
        refusal(UNAUTHENTICATED, lambda: target.call_on(channel, "List", pb.JobQuery()))
        stream = Stream(GavelStub(channel))  # type: ignore[no-untyped-call]
        stream.say(hello=hello_of(keys))
        refusal(UNAUTHENTICATED, lambda: stream.hear("welcome"))
        stream.close()


@attack("enrolment")
def agent_manages_agents(target: Target) -> None:
    """An agent that revokes another, lists all, or makes itself a join token"""
    keys, before = target.enrolled(), agents(target)
    calls = {
        "RevokeAgent": pb.RevokeAgentRequest(agent="good"),
        "ListAgents": pb.ListAgentsRequest(),
        "CreateToken": pb.CreateTokenRequest(role="agent", uses=100),
    }
    before = agents(target)
    with target.channel(keys=keys) as channel:
        for method, request in calls.items():
            refusal(DENIED, partial(target.call_on, channel, method, request))
            refusal(DENIED, partial(target.call_on, channel, method, request, "root"))
    assert agents(target) == before


# ---- renewal and revocation ----


@attack("enrolment")
def renewal_with_a_users_token(target: Target) -> None:
    """Renewal with an administrator's token instead of a certificate"""
    request = pb.RenewRequest(signing_request=signing_request(new_key()))
    refusal([UNAUTHENTICATED, DENIED], lambda: target.call("RenewCertificate", request, "root"))


@attack("enrolment")
def renewal_for_another(target: Target) -> None:
    """A renewal whose signing request names another agent"""
    keys = target.enrolled()
    names = [x509.UniformResourceIdentifier(f"urn:gavel:agent:{good_agent(target)}")]
    forged = request_of(lambda _: _subject("good").add_extension(x509.SubjectAlternativeName(names), critical=False))
    with target.channel(keys=keys) as channel:
        found = read(renew(channel, forged))
    assert found.subject == named(keys.name)
    assert keys.agent in str(found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


@attack("enrolment")
def replaced_certificate(target: Target) -> None:
    """A certificate that was replaced two renewals ago, as a thief of a backup would find it"""
    old = target.enrolled()
    current = renewed(target, renewed(target, old))
    with elsewhere(target, agents=True) as address, target.channel(address, keys=old) as channel:
        told = refusal(UNAUTHENTICATED, lambda: renew(channel, signing_request(new_key())))
    assert "replaced" in told
    assert "replaced" in target.attach_refused(old)
    with target.attached(current):
        pass


@attack("enrolment")
def renewal_after_revocation(target: Target) -> None:
    """A renewal by an agent that was revoked, over a connection from before"""
    keys = target.enrolled()
    with elsewhere(target, agents=True) as address, target.channel(address, keys=keys) as channel:
        renew(channel, signing_request(new_key()))
        target.call("RevokeAgent", pb.RevokeAgentRequest(agent=keys.agent), "root")
        assert "revoked" in refusal(UNAUTHENTICATED, lambda: renew(channel, signing_request(new_key())))
    records = target.call("ListAgents", pb.ListAgentsRequest(), "root").agents
    assert next(record for record in records if record.agent == keys.agent).revoked


@attack("enrolment")
def stream_after_revocation(target: Target) -> None:
    """A revoked agent that keeps its stream open, and then connects again"""
    keys = target.enrolled()
    with target.attached(keys) as stream:
        target.call("RevokeAgent", pb.RevokeAgentRequest(agent=keys.name), "root")
        try:
            stream.hear("ack")
        except (grpc.RpcError, AssertionError):
            pass
        else:
            raise AssertionError("the stream of a revoked agent is still open")
    assert "revoked" in target.attach_refused(keys)


@attack("enrolment")
def keys_from_before_a_new_enrolment(target: Target) -> None:
    """The old keys of an agent that was revoked and enrolled again"""
    old = target.enrolled()
    target.call("RevokeAgent", pb.RevokeAgentRequest(agent=old.agent), "root")
    new = target.enrolled(old.name, old.agent)
    assert "replaced" in target.attach_refused(old)
    with target.attached(new):
        pass


@attack("enrolment")
def weak_renewal(target: Target) -> None:
    """A renewal for a weak key, after which the certificate in use still counts"""
    keys = target.enrolled()
    with target.channel(keys=keys) as channel:
        told = refusal(DENIED, lambda: renew(channel, request_of(lambda request: request, weak_key())))
    assert "bits" in told
    with target.attached(keys):
        pass
