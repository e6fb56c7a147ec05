"""Attacks on the transport: TLS, certificates, servers in the middle, bytes that are of no protocol."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial

import grpc
import pytest
from attacked_cluster import GAVEL, PATIENCE_SECONDS, AgentKeys, Target, refusal
from attackers import Impostor, Relay, answer_to, everything, handshake, impostor, place, relayed
from attacks import attack

from gavel.client.access import SchedulerAccess
from gavel.client.connection import Connection
from gavel.client.contexts import Trust
from gavel.client.trust import TrustError, fetch_chain, pinned_authority
from gavel.errors import GavelError
from gavel.security.certificates import (
    CertifiedKey,
    certificate_pem,
    key_pem,
    make_agent,
    make_authority,
    make_server,
    new_key,
)
from gavel.wire import gavel_pb2 as pb

UNAVAILABLE, UNAUTHENTICATED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED
WHO = pb.WhoAmIRequest()
YEAR = 365 * 86_400.0


# ---- without TLS, with too little of it, with the wrong one ----


def plaintext(target: Target, address: str) -> None:
    with target.plain(address) as channel:
        refusal(UNAVAILABLE, lambda: target.call_on(channel, "WhoAmI", WHO, "root"))


@attack("transport")
def plaintext_with_a_token(target: Target) -> None:
    """A plaintext call with a valid token to the TLS port"""
    plaintext(target, target.address)


@attack("transport")
def plaintext_to_the_agents_port(target: Target) -> None:
    """A plaintext call to the agents' port"""
    plaintext(target, target.agents_address)


@attack("transport")
def tls_to_the_socket(target: Target) -> None:
    """A TLS handshake with the local sockets"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for path in (str(target.socket), f"{target.socket}.login"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_SECONDS)
            connection.connect(path)
            with pytest.raises((ssl.SSLError, OSError)):
                context.wrap_socket(connection, server_hostname="x")


def refused_handshakes(target: Target, change: Callable[[ssl.SSLContext], object]) -> None:
    """Assert that a handshake fails with a change, and would succeed without it."""
    assert handshake(target.address) in {"TLSv1.2", "TLSv1.3"}
    for address in (target.address, target.agents_address):
        with pytest.raises((ssl.SSLError, OSError)):
            handshake(address, change)


@attack("transport")
def old_versions(target: Target) -> None:
    """TLS 1.0 and TLS 1.1"""
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):

        def lower(context: ssl.SSLContext, version: ssl.TLSVersion = version) -> None:
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = version

        with pytest.warns(DeprecationWarning, match="TLSv1"):
            refused_handshakes(target, lower)


def with_ciphers(ciphers: str) -> Callable[[ssl.SSLContext], None]:
    def change(context: ssl.SSLContext) -> None:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(ciphers)

    return change


@attack("transport")
def weak_ciphers(target: Target) -> None:
    """Ciphers without authentication, without encryption, without forward secrecy, and old ones"""
    assert handshake(target.address, with_ciphers("ECDHE+AESGCM")) == "TLSv1.2"
    for weak in (
        "aNULL:@SECLEVEL=0",
        "eNULL:@SECLEVEL=0",
        "kRSA:@SECLEVEL=0",
        "ECDHE-ECDSA-AES128-SHA",
        "SHA1:@SECLEVEL=0",
    ):
        refused_handshakes(target, with_ciphers(weak))


def _choose(context: ssl.SSLContext, protocols: list[str]) -> None:
    context.set_alpn_protocols(protocols)


@attack("transport")
def other_protocols_within_tls(target: Target) -> None:
    """TLS for HTTP/1.1 or another protocol than HTTP/2, chosen by ALPN"""
    for protocols in (["http/1.1"], ["spdy/3"], ["h2c"]):
        refused_handshakes(target, partial(_choose, protocols=protocols))


@attack("transport")
def http1(target: Target) -> None:
    """HTTP/1.1 requests to every port"""
    for request in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"POST /gavel.v1.Gavel/List HTTP/1.1\r\nHost: x\r\n\r\n"):
        for address in (target.address, target.agents_address):
            answer = answer_to(address, request)
            assert b"HTTP/1.1 2" not in answer
            assert b"gavel" not in answer.lower()


@attack("transport")
def random_bytes(target: Target) -> None:
    """Random bytes, half a handshake and huge lengths to every port and socket"""
    with socket.create_connection(place(target.address)) as probe:
        assert probe.getpeername()  # it listens
    junk = [os.urandom(5_000), b"\x16\x03\x01\xff\xff" + os.urandom(100), b"\0" * 10_000, b"\x80\xff" * 2_000]
    for data in junk:
        for address in (target.address, target.agents_address):
            assert b"gvl" not in answer_to(address, data)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_SECONDS)
            connection.connect(str(target.socket))
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            assert b"gvl" not in everything(connection)
    assert target.call("WhoAmI", WHO, "ann").user == "ann"


# ---- the agents' port ----


def refused_agent(target: Target, keys: AgentKeys) -> None:
    with target.channel(keys=keys) as channel:
        refusal([UNAVAILABLE, UNAUTHENTICATED], lambda: target.call_on(channel, "WhoAmI", WHO, "root"))


@attack("transport")
def agents_port_without_a_certificate(target: Target) -> None:
    """The agents' port without a certificate, with an administrator's token"""
    with target.channel(target.agents_address) as channel:
        refusal(UNAVAILABLE, lambda: target.call_on(channel, "WhoAmI", WHO, "root"))
        refusal(UNAVAILABLE, lambda: target.call_on(channel, "Attach", iter([pb.FromAgent()])))


@attack("transport")
def self_signed_agent(target: Target) -> None:
    """A self-signed certificate that names an enrolled agent, on the agents' port"""
    own = make_authority("mine", time.time())
    refused_agent(target, AgentKeys("a", "good", key_pem(own.key), certificate_pem(own.certificate)))


@attack("transport")
def agent_of_another_authority(target: Target) -> None:
    """A certificate for an enrolled agent from another authority with the same name"""
    good = target.call("ListAgents", pb.ListAgentsRequest(), "root").agents[0]
    fake, key = make_authority(cluster_of(target), time.time()), new_key()
    signed = make_agent(fake, key.public_key(), good.agent, good.name, now=time.time())
    chain = signed.pem.encode() + certificate_pem(fake.certificate)
    refused_agent(target, AgentKeys(good.agent, good.name, key_pem(key), chain))


@attack("transport")
def agents_certificate_with_another_key(target: Target) -> None:
    """A copied certificate of an agent without its key"""
    keys = target.enrolled()
    refused_agent(target, AgentKeys(keys.agent, keys.name, key_pem(new_key()), keys.chain))


@attack("transport")
def scheduler_as_an_agent(target: Target) -> None:
    """The scheduler's own certificate and key on the agents' port"""
    folder = target.folder / "state" / "security"
    key, chain = (folder / "server.key").read_bytes(), (folder / "server.crt").read_bytes()
    refused_agent(target, AgentKeys("a", "good", key, chain))


@attack("transport")
def agents_certificate_on_the_clients_port(target: Target) -> None:
    """An agent's certificate on the port for people, which asks for none"""
    keys = target.enrolled()
    with target.channel(target.address, keys=keys) as channel:
        refusal(UNAUTHENTICATED, lambda: target.call_on(channel, "Attach", iter([pb.FromAgent()])))


# ---- a server in the middle ----


def cluster_of(target: Target) -> str:
    return target.server_name.split(".")[1]


def names_of(target: Target) -> list[str]:
    return ["localhost", "127.0.0.1", target.server_name]


def stolen_authority(target: Target) -> CertifiedKey:
    """The cluster's own authority, to make certificates that only it could have made."""
    from gavel.security.authority import Authority  # noqa: PLC0415

    authority = Authority.load(target.folder / "state" / "security", cluster_of(target))
    return next(value for value in vars(authority).values() if isinstance(value, CertifiedKey))


def shown_by(server: CertifiedKey, *above: CertifiedKey) -> tuple[bytes, bytes]:
    chain = b"".join(certificate_pem(each.certificate) for each in (server, *above))
    return key_pem(server.key), chain


def refused_by_our_client(target: Target, server: Impostor) -> str:
    """Assert that our client says nothing to a server; returns the sentence."""
    access = SchedulerAccess(
        address=server.address,
        trust=Trust.AUTHORITY,
        authority=target.authority.decode(),
        server_name=target.server_name,
        token=target.tokens["ann"],
    )
    with pytest.raises(GavelError) as refused:
        Connection(access, 5.0, 0.0).ask("WhoAmI", WHO)
    assert server.connections
    assert server.heard == b""
    return str(refused.value)


def refused_login(target: Target, server: Impostor, *options: str) -> str:
    """Assert that `gavel login` says nothing to a server; returns what it prints."""
    arguments = options or ("--fingerprint", target.fingerprint)
    token = target.tokens["ann"]
    found = target.gavel("login", server.address, "--token", token, *arguments, user="victim", check=False)
    assert found.returncode != 0
    assert server.connections
    assert server.heard == b""
    assert token not in found.stdout + found.stderr
    return found.stderr


@attack("transport")
def own_certificate_with_the_same_names(target: Target) -> None:
    """A server with a self-made certificate for the scheduler's names"""
    own = make_authority(cluster_of(target), time.time())
    with impostor(*shown_by(make_server(own, names_of(target), time.time()), own)) as server:
        handshake(server.address)  # it can speak TLS
        server.heard = b""
        assert "another authority" in refused_by_our_client(target, server)


@attack("transport")
def stolen_agents_key_as_a_server(target: Target) -> None:
    """A server that shows the stolen certificate of an agent"""
    keys = target.enrolled(name="localhost")
    with impostor(keys.key, keys.chain) as server:
        refused_by_our_client(target, server)
        refused_login(target, server)


@attack("transport")
def another_server_of_the_same_authority(target: Target) -> None:
    """A server with a certificate of the right authority for another name"""
    authority = stolen_authority(target)
    other = make_server(authority, ["localhost", "127.0.0.1", "scheduler.other.gavel.internal"], time.time())
    with impostor(*shown_by(other, authority)) as server:
        refused_by_our_client(target, server)


@attack("transport")
def expired_server(target: Target) -> None:
    """A server with an expired certificate of the scheduler"""
    authority = stolen_authority(target)
    old = make_server(authority, names_of(target), time.time() - YEAR, YEAR / 2)
    with impostor(*shown_by(old, authority)) as server:
        assert "not valid now" in refused_by_our_client(target, server)
        assert "expired" in refused_login(target, server)


@attack("transport")
def login_to_a_man_in_the_middle(target: Target) -> None:
    """`gavel login` with a man in the middle who has another authority"""
    own = make_authority(cluster_of(target), time.time())
    with impostor(*shown_by(make_server(own, names_of(target), time.time()), own)) as server:
        assert "someone may be in between" in refused_login(target, server)


@attack("transport")
def right_authority_behind_the_wrong_certificate(target: Target) -> None:
    """A man in the middle who sends the cluster's real authority after his own certificate"""
    own = make_authority(cluster_of(target), time.time())
    key, chain = shown_by(make_server(own, names_of(target), time.time()))
    with impostor(key, chain + target.authority) as server:
        assert pinned_authority(server.address, target.fingerprint)  # the fingerprint alone does not show it
        assert "someone may be in between" in refused_login(target, server)


@attack("transport")
def fingerprint_of_the_wrong_certificate(target: Target) -> None:
    """Fingerprints that are shortened, empty, or of the server's certificate instead of the authority's"""
    leaf = hashlib.sha256(fetch_chain(target.address)[0]).hexdigest()
    assert leaf not in target.fingerprint
    digits = target.fingerprint.removeprefix("sha256:")
    for bad in (f"sha256:{leaf}", f"sha256:{digits[:16]}", "sha256:", "", f"md5:{digits[:32]}", f"sha256:{'*' * 64}"):
        with pytest.raises(TrustError):
            pinned_authority(target.address, bad)


@attack("transport")
def downgrade(target: Target) -> None:
    """A plaintext server where a login knows a secured one"""
    with relayed(target.address) as relay:
        login = ("--token", target.tokens["ann"], "--fingerprint", target.fingerprint)
        target.gavel("login", relay.address, *login, user="victim")
        port = place(relay.address)[1]
    with impostor(port=port) as server:
        found = target.gavel("jobs", "--patience", "0", user="victim", check=False)
        assert found.returncode != 0
        assert server.heard[:2] == b"\x16\x03"  # it heard the beginning of TLS
        assert b"gvl_" not in server.heard
        assert "nothing was sent" in found.stderr


@attack("transport")
def token_of_the_environment_in_plaintext(target: Target) -> None:
    """A plaintext server at an address without a login, while GAVEL_TOKEN is set"""
    with impostor() as server, tempfile.TemporaryDirectory() as folder:
        added = {"XDG_CONFIG_HOME": folder, "GAVEL_TOKEN": target.tokens["ann"], "GAVEL_SCHEDULER": server.address}
        command = [
            *GAVEL,
            "login",
            server.address,
            "--token",
            target.tokens["ann"],
            "--fingerprint",
            target.fingerprint,
        ]
        for arguments in ([*GAVEL, "whoami"], command):
            process = subprocess.Popen(arguments, env={**os.environ, **added}, stderr=subprocess.PIPE)
            try:
                process.wait(1.5)
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate()
            assert process.returncode != 0
    assert b"/gavel.v1.Gavel/WhoAmI" in server.heard  # the first command called, without TLS
    assert b"gvl_" not in server.heard


@attack("transport")
def replayed_bytes(target: Target) -> None:
    """The recorded bytes of a TLS connection that submitted a job, sent again"""
    job = pb.JobRequest(command=["true"], types=["none"], name="recorded")
    with relayed(target.address) as relay:
        with target.channel(relay.address) as channel:
            target.call_on(channel, "Submit", pb.SubmitRequest(jobs=[job]), "ann")
        recorded = relay.sent[0]
    assert len(recorded) > 500
    assert b"gvl_" not in recorded
    assert b"recorded" not in recorded
    for _ in range(3):
        answer_to(target.address, recorded)
    assert len(target.call("List", pb.JobQuery(names=["recorded"]), "ann").jobs) == 1


@attack("transport")
def changed_bytes(target: Target) -> None:
    """Bytes of a TLS connection changed on the way"""

    class Changing(Relay):
        """Flips a bit of what a client sends after its handshake."""

        def passed(self, number: int, data: bytes) -> bytes:
            return data[:-1] + bytes([data[-1] ^ 1]) if len(self.sent[number]) > 250 else data

    relay = Changing(target.address)
    relay.start()
    with target.channel(relay.address) as channel:
        job = pb.JobRequest(command=["true"], types=["none"], name="changed")
        call = lambda: target.call_on(channel, "Submit", pb.SubmitRequest(jobs=[job]), "ann")  # noqa: E731
        refusal([UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN], call)
    relay.close()
    assert not target.call("List", pb.JobQuery(names=["changed"]), "ann").jobs
