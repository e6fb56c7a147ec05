"""The first contact with a scheduler, checked against Python's own TLS server."""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gavel.client import trust
from gavel.client.errors import NotReachable
from gavel.client.trust import TrustError, fetch_chain, fingerprint, pinned_authority, verified_name
from gavel.security.authority import Authority
from gavel.security.certificates import key_pem, new_key, signing_request

CLUSTER = "0f3cab"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "security", CLUSTER, ["127.0.0.1", "localhost"])


def server_context(authority: Authority, folder: Path) -> ssl.SSLContext:
    shown = authority.shown()
    (folder / "chain").write_bytes(shown.chain)
    (folder / "key").write_bytes(shown.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "chain", folder / "key")
    context.set_alpn_protocols(["h2"])
    return context


@contextmanager
def server(context: ssl.SSLContext | None) -> Iterator[tuple[str, list[Any]]]:
    """Accept connections one after the other, and note their certificates; without a context, close them at once."""
    accepted: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    connection.settimeout(10.0)
                    if context is not None:
                        with context.wrap_socket(connection, server_side=True) as secured:
                            accepted.append(secured.getpeercert())
                            secured.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", accepted
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20.0)


def test_the_whole_chain_is_read(authority: Authority, tmp_path: Path) -> None:
    with server(server_context(authority, tmp_path)) as (address, _):
        chain = fetch_chain(address)
    assert len(chain) == 2
    assert fingerprint(chain[-1]) == authority.fingerprint == f"sha256:{hashlib.sha256(chain[-1]).hexdigest()}"


def test_the_pinned_authority_verifies_everything_after(authority: Authority, tmp_path: Path) -> None:
    with server(server_context(authority, tmp_path)) as (address, _):
        pem = pinned_authority(address, authority.fingerprint.upper())
        assert pem == authority.authority_pem.decode()
        assert verified_name(address, pem) == f"scheduler.{CLUSTER}.gavel.internal"


@pytest.mark.parametrize("name", [f"scheduler.{CLUSTER}.gavel.internal", "localhost", "127.0.0.1"])
def test_pythons_tls_accepts_the_certificate_for_its_names(authority: Authority, tmp_path: Path, name: str) -> None:
    context = ssl.create_default_context(cadata=authority.authority_pem.decode())
    with server(server_context(authority, tmp_path)) as (address, _):
        host, _, port = address.rpartition(":")
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain, server_hostname=name) as tls,
        ):
            assert tls.version() == "TLSv1.3"


def test_pythons_tls_refuses_the_certificate_for_other_names(authority: Authority, tmp_path: Path) -> None:
    context = ssl.create_default_context(cadata=authority.authority_pem.decode())
    with server(server_context(authority, tmp_path)) as (address, _):
        host, _, port = address.rpartition(":")
        with (
            socket.create_connection((host, int(port))) as plain,
            pytest.raises(ssl.SSLCertVerificationError, match="elsewhere"),
        ):
            context.wrap_socket(plain, server_hostname="elsewhere")


def test_pythons_tls_accepts_an_agents_certificate_from_a_client(authority: Authority, tmp_path: Path) -> None:
    key = new_key()
    (tmp_path / "agent.crt").write_text(authority.sign(signing_request(key), "a1", "lab1").pem)
    (tmp_path / "agent.key").write_bytes(key_pem(key))
    wanted = server_context(authority, tmp_path)
    wanted.verify_mode = ssl.CERT_REQUIRED
    wanted.load_verify_locations(cadata=authority.authority_pem.decode())
    client = ssl.create_default_context(cadata=authority.authority_pem.decode())
    client.load_cert_chain(tmp_path / "agent.crt", tmp_path / "agent.key")
    with server(wanted) as (address, accepted):
        host, _, port = address.rpartition(":")
        with (
            socket.create_connection((host, int(port))) as plain,
            client.wrap_socket(plain, server_hostname=authority.server_name) as tls,
        ):
            tls.send(b"x")
    (shown,) = accepted
    assert shown["subjectAltName"] == (("URI", "urn:gavel:agent:a1"),)
    assert shown["subject"] == ((("commonName", "lab1"),),)


def test_another_fingerprint_is_refused_with_both(authority: Authority, tmp_path: Path) -> None:
    wanted = "sha256:" + "ab" * 32
    with (
        server(server_context(authority, tmp_path)) as (address, _),
        pytest.raises(TrustError, match="someone may be in between") as refused,
    ):
        pinned_authority(address, wanted)
    assert wanted in str(refused.value)
    assert authority.fingerprint in str(refused.value)


def test_another_authority_does_not_verify(authority: Authority, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other", CLUSTER, [])
    with (
        server(server_context(authority, tmp_path)) as (address, _),
        pytest.raises(TrustError, match="is not from the authority that this machine trusts"),
    ):
        verified_name(address, other.authority_pem.decode())


def test_a_server_without_tls_is_named() -> None:
    with server(None) as (address, _), pytest.raises((TrustError, NotReachable), match=address):
        fetch_chain(address)


def test_a_silent_server_is_not_waited_for_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NotReachable, match=r"no answer within 0\.1 s"):
            fetch_chain(address)


@pytest.mark.parametrize(
    "text", ["", "sha256:", "ab" * 32, "md5:" + "ab" * 32, "sha256:" + "ab" * 31, "sha256:" + "xy" * 32, "sha256:é"]
)
def test_what_is_no_fingerprint_is_refused_before_connecting(text: str) -> None:
    with pytest.raises(TrustError, match="is not a fingerprint"):
        pinned_authority("127.0.0.1:1", text)


@pytest.mark.parametrize("address", ["", "head", "head:0", "head:99999", "unix:/x", "a:b:1", "[::1]", "http://head:1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(TrustError, match="write HOST:PORT"):
        fetch_chain(address)


@pytest.mark.parametrize("host", ["a" * 300, "ü" * 70])
def test_a_host_that_cannot_exist_is_not_reachable(host: str) -> None:
    with pytest.raises(NotReachable):
        fetch_chain(f"{host}:7077")
