"""Attacks on identity: tokens, sessions, and streams of callers that may no longer call."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import grpc
from attacked_cluster import PATIENCE_SECONDS, Target, eventually, refusal, session
from attackers import Metadata, bearer, elsewhere, handmade_call
from attacks import attack

from gavel.security.accounts import Accounts, TokenRecord, UnknownTokenError, UserRecord, digest_of
from gavel.wire import gavel_pb2 as pb
from gavel.wire.gavel_pb2_grpc import GavelStub

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
WHO = pb.WhoAmIRequest()


def refused_with(target: Target, metadata: Metadata) -> str:
    """Assert that these headers prove nothing, and that the audit has the attempt; returns the sentence."""
    with elsewhere(target) as caller:
        return caller.refused(UNAUTHENTICATED, "WhoAmI", WHO, metadata)


# ---- headers ----


@attack("identity")
def no_token(target: Target) -> None:
    """A call without a token"""
    assert "needs a token" in refused_with(target, [])


@attack("identity")
def empty_token(target: Target) -> None:
    """An empty token"""
    for value in ("", "Bearer", "Bearer ", "Bearer    "):
        assert "needs a token" in refused_with(target, [("authorization", value)])


@attack("identity")
def basic_scheme(target: Target) -> None:
    """A valid token under another scheme than Bearer"""
    for scheme in ("Basic", "Digest", "BearerX", "Token"):
        assert "needs a token" in refused_with(target, [("authorization", f"{scheme} {target.tokens['root']}")])


@attack("identity")
def no_scheme(target: Target) -> None:
    """A valid token without a scheme"""
    refused_with(target, [("authorization", target.tokens["root"])])


@attack("identity")
def other_headers(target: Target) -> None:
    """A valid token in headers that proxies or other services use"""
    value = f"Bearer {target.tokens['root']}"
    names = ("proxy-authorization", "x-authorization", "cookie", "x-api-key", "x-forwarded-user", "x-gavel-token")
    refused_with(target, [(name, value) for name in names])


@attack("identity")
def binary_header(target: Target) -> None:
    """A valid token in a binary header"""
    refused_with(target, [("authorization-bin", f"Bearer {target.tokens['root']}".encode())])


@attack("identity")
def two_tokens(target: Target) -> None:
    """Two Authorization headers, so that a proxy could check one and the scheduler the other"""
    valid, other = target.tokens["root"], target.tokens["vic"]
    for pair in ((valid, "x"), ("x", valid), (other, valid), (valid, other), (valid, valid)):
        assert "more than once" in refused_with(target, [("authorization", f"Bearer {token}") for token in pair])


@attack("identity")
def user_in_a_header(target: Target) -> None:
    """Headers that claim a user, a role and an address, without a token"""
    claims = [
        ("x-gavel-user", "root"),
        ("x-gavel-role", "admin"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-gavel-as", "ann"),
    ]
    refused_with(target, claims)


@attack("identity")
def control_characters_in_a_token(target: Target) -> None:
    """A token with control characters, sent in HTTP/2 frames made by hand"""
    token = target.tokens["ann"].encode()
    assert handmade_call(target, "WhoAmI", WHO, [(b"authorization", b"Bearer " + token)])  # the frames are right
    for bad in (token + b"\x00", token + b"\x1b[31m", b"\r\n" + token, token + b"\r\nx-gavel-as: bob", b"\x7f" + token):
        assert not handmade_call(target, "WhoAmI", WHO, [(b"authorization", b"Bearer " + bad)])


@attack("identity")
def bytes_that_are_no_text(target: Target) -> None:
    """A token of bytes that are no valid Unicode, and one in other alphabets' letters"""
    token = target.tokens["ann"]
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in token).encode()  # the full-width forms
    for bad in (b"\xff\xfe\x80", token.encode() + b"\xff", wide, b"gvl_\xc0\xae", token.encode("utf-16")):
        assert not handmade_call(target, "WhoAmI", WHO, [(b"authorization", b"Bearer " + bad)])


@attack("identity")
def header_name_in_capitals(target: Target) -> None:
    """Header names that HTTP/2 forbids"""
    value = b"Bearer " + target.tokens["ann"].encode()
    for name in (b"Authorization", b"AUTHORIZATION", b"authorization ", b"authorization\x00", b":authorization"):
        assert not handmade_call(target, "WhoAmI", WHO, [(name, value)])


# ---- tokens ----


@attack("identity")
def token_in_capitals(target: Target) -> None:
    """A valid token in capitals"""
    refused_with(target, bearer(target.tokens["ann"].upper()))


@attack("identity")
def part_of_a_token(target: Target) -> None:
    """A valid token without its last character, with one more, and one with a character changed"""
    token = target.tokens["ann"]
    changed = token[:-1] + ("A" if token[-1] != "A" else "B")
    for bad in (token[:-1], token + "A", token[4:], changed, f"{token},{token}"):
        assert "does not know this token" in refused_with(target, bearer(bad))


@attack("identity")
def long_token(target: Target) -> None:
    """A token of thousands of characters that begins with a valid one"""
    assert "does not know this token" in refused_with(target, bearer(target.tokens["ann"] + "A" * 6_000))


@attack("identity")
def metadata_of_a_megabyte(target: Target) -> None:
    """A token of a megabyte, more than a connection takes"""
    with elsewhere(target) as caller:
        call = lambda: caller.call("WhoAmI", WHO, bearer("A" * 1_000_000))  # noqa: E731
        refusal([EXHAUSTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL], call)


@attack("identity")
def token_of_another_kind(target: Target) -> None:
    """The random part of a valid token under the prefixes of other kinds"""
    random = target.tokens["root"].removeprefix("gvl_")
    for prefix in ("gvj_", "gvs_", ""):
        refused_with(target, bearer(prefix + random))


@attack("identity")
def the_id_of_a_token(target: Target) -> None:
    """The id of a token, which lists show, instead of the token"""
    view = target.call("ListTokens", pb.ListTokensRequest(user="root"), "root").tokens[0]
    refused_with(target, bearer(view.id))
    refused_with(target, bearer(f"gvl_{view.id}"))


@attack("identity")
def the_stored_digest(target: Target) -> None:
    """What a stolen database has of a token, presented as the token"""
    digest = digest_of(target.tokens["root"])
    with sqlite3.connect(f"file:{database(target)}?mode=ro", uri=True) as connection:
        stored = b"".join(_bytes(cell) for row in _rows(connection) for cell in row)
    assert digest.encode() in stored  # it is what the database has
    for bad in (digest, f"gvl_{digest}", f"gvl_{digest[:43]}"):
        refused_with(target, bearer(bad))


@attack("identity")
def expired_token(target: Target) -> None:
    """A token that has expired"""
    new = target.call("CreateToken", pb.CreateTokenRequest(seconds=1.0), "ann")
    eventually(lambda: time.time() > new.view.expires, "the token has expired")
    assert "has expired" in refused_with(target, bearer(new.token))


@attack("identity")
def revoked_token(target: Target) -> None:
    """A token that was revoked"""
    new = target.call("CreateToken", pb.CreateTokenRequest(), "ann")
    target.call("WhoAmI", WHO, token=new.token)
    target.call("RevokeToken", pb.RevokeTokenRequest(id=new.view.id), "ann")
    assert "was revoked" in refused_with(target, bearer(new.token))


@attack("identity")
def token_of_a_disabled_user(target: Target) -> None:
    """The valid token of a user who was disabled"""
    name, token = new_user(target)
    disable(target, name)
    assert "is disabled" in refused_with(target, bearer(token))


@attack("identity")
def metrics_token(target: Target) -> None:
    """A token for scraping metrics on calls of people"""
    token = target.call("CreateToken", pb.CreateTokenRequest(role="metrics"), "root").token
    for method, request in (("WhoAmI", WHO), ("List", pb.JobQuery()), ("CreateToken", pb.CreateTokenRequest())):
        target.refused(DENIED, method, request, token=token)


@attack("identity")
def join_token_as_login(target: Target) -> None:
    """A join token as a login"""
    assert "is a join token" in refused_with(target, bearer(target.join_token()))


@attack("identity")
def guessing(target: Target) -> None:
    """Guessing tokens: after ten failures in a minute an address gets no more answers"""
    with elsewhere(target) as caller:
        codes = [_code(partial(caller.call, "WhoAmI", WHO, bearer(f"gvl_{number}"))) for number in range(25)]
        assert set(codes[:10]) == {UNAUTHENTICATED}
        assert codes.count(EXHAUSTED) >= 12, codes  # some seconds may pass meanwhile
        assert caller.call("WhoAmI", WHO, bearer(target.tokens["ann"])).user == "ann"  # neighbours are not locked out


@attack("identity")
def timing_of_comparison(target: Target) -> None:  # noqa: ARG001 - in this process, where nanoseconds can be told apart
    """Timing: how long a wrong token takes says nothing about how much of it is right"""
    right = "gvl_" + "k" * 43
    token = TokenRecord(id="1", digest=digest_of(right), user="ann", expires=2.0)
    accounts = Accounts([UserRecord(name="ann")], [token])
    near, far = right[:46] + "x", "gvl_" + "z" * 43
    # What is looked up has nothing in common with the stored digest, however near the guess is.
    assert _shared(digest_of(near), token.digest) <= 8 >= _shared(digest_of(far), token.digest)
    pairs = [(_seconds(accounts, near), _seconds(accounts, far)) for _ in range(300)]
    ratio = statistics.median(first / second for first, second in pairs)
    assert 0.5 < ratio < 2.0, ratio  # a comparison by character would take some forty times as many steps


# ---- sessions ----


@attack("identity")
def session_over_tls(target: Target) -> None:
    """The session of a local user, taken to the network"""
    token = session(target.socket)["token"]
    with target.plain(f"unix:{target.socket}") as channel:
        assert target.call_on(channel, "WhoAmI", WHO, token=token).role == "admin"
    assert "does not know this token" in refused_with(target, bearer(token))


@attack("identity")
def forged_session(target: Target) -> None:
    """A session token that the scheduler did not hand out, at the local socket"""
    with target.plain(f"unix:{target.socket}") as channel:
        for bad in ("gvs_" + "A" * 43, "gvs_", "gvs_root", session(target.socket)["token"][:-1]):
            refusal([UNAUTHENTICATED, EXHAUSTED], partial(target.call_on, channel, "WhoAmI", WHO, token=bad))


@attack("identity")
def socket_without_a_token(target: Target) -> None:
    """The local socket without logging in there"""
    with target.plain(f"unix:{target.socket}") as channel:
        refusal([UNAUTHENTICATED, EXHAUSTED], lambda: target.call_on(channel, "List", pb.JobQuery()))


@attack("identity")
def words_to_the_login_socket(target: Target) -> None:
    """Claiming to be another account at the socket that hands out sessions"""

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(f"{target.socket}.login")
        with contextlib.suppress(OSError):  # it may have answered already
            connection.sendall(b'{"user": "ann", "uid": 1000}\n')
        answer = connection.makefile().readline()
    assert '"user": "root"' in answer  # the account that the operating system names


# ---- streams that are open when rights end ----


@attack("identity")
def stream_after_revocation(target: Target) -> None:
    """A stream that was opened before its token was revoked"""
    new = target.call("CreateToken", pb.CreateTokenRequest(), "ann")
    with open_stream(target, bearer(new.token)) as ended:
        target.call("RevokeToken", pb.RevokeTokenRequest(id=new.view.id), "ann")
        eventually(ended, "the stream of the revoked token ends")


@attack("identity")
def stream_after_disabling(target: Target) -> None:
    """A stream that was opened before its user was disabled"""
    name, token = new_user(target)
    with open_stream(target, bearer(token)) as ended:
        disable(target, name)
        eventually(ended, "the stream of the disabled user ends")


@attack("identity")
def log_stream_after_leaving_the_team(target: Target) -> None:
    """Following the log of a team's job after leaving the team"""
    name, token = new_user(target, team="nlp")
    with open_stream(target, bearer(token), "Logs", pb.LogsRequest(id=target.job, follow=True)) as ended:
        target.call(
            "ChangeUser", pb.ChangeUserRequest(user=pb.User(name=name, teams=["vision"]), fields=["teams"]), "root"
        )
        eventually(ended, "the log ends")
    target.refused(DENIED, "Logs", pb.LogsRequest(id=target.job), token=token)


@attack("identity")
def stream_of_a_disabled_operator_acting_for_another(target: Target) -> None:
    """A stream of an operator acting for a user, after the operator was disabled"""
    name, token = new_user(target, role="operator")
    with open_stream(target, [*bearer(token), ("x-gavel-as", "ann")]) as ended:
        disable(target, name)
        eventually(ended, "the stream of the disabled operator ends")


@attack("identity")
def stream_for_a_disabled_user(target: Target) -> None:
    """A stream of an operator acting for a user, after the user was disabled"""
    name, _ = new_user(target)
    with open_stream(target, [*bearer(target.tokens["oda"]), ("x-gavel-as", name)]) as ended:
        disable(target, name)
        eventually(ended, "the stream for the disabled user ends")


# ---- shared ----


def new_user(target: Target, role: str = "user", team: str = "") -> tuple[str, str]:
    """A user of one attack: name and token."""
    name = f"eve{time.monotonic_ns()}"
    target.call("AddUser", pb.User(name=name, role=role, teams=[team] if team else []), "root")
    return name, str(target.call("CreateToken", pb.CreateTokenRequest(user=name), "root").token)


def disable(target: Target, name: str) -> None:
    change = pb.ChangeUserRequest(user=pb.User(name=name, disabled=True), fields=["disabled"])
    target.call("ChangeUser", change, "root")


@contextmanager
def open_stream(
    target: Target, metadata: Metadata, method: str = "Events", request: object = None
) -> Iterator[Callable[[], bool]]:
    """A stream that the scheduler has accepted; yields whether it has ended. Left to itself it would not end."""
    with target.channel() as channel:
        stub = getattr(GavelStub(channel), method)  # type: ignore[no-untyped-call]
        call = stub(request or pb.EventsRequest(follow=True), metadata=metadata, timeout=PATIENCE_SECONDS * 2)
        call.initial_metadata()
        reader = threading.Thread(target=_read, args=(call,), daemon=True)
        reader.start()
        assert call.is_active()
        yield lambda: not reader.is_alive()
        assert call.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        call.cancel()


def _read(call: object) -> None:
    try:
        for _ in call:  # type: ignore[attr-defined]
            pass
    except grpc.RpcError:
        pass


def _code(call: Callable[[], object]) -> grpc.StatusCode | None:
    try:
        call()
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return None


def _shared(one: str, other: str) -> int:
    """The length of the common beginning."""
    return next((place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))


def _seconds(accounts: Accounts, text: str) -> int:
    begin = time.perf_counter_ns()
    for _ in range(20):
        try:
            accounts.recognise(text, 1.0)
        except UnknownTokenError:
            continue
        raise AssertionError("a wrong token was recognised")
    return time.perf_counter_ns() - begin


def database(target: Target) -> str:
    return str(next((target.folder / "state").glob("*.db"), None) or next((target.folder / "state").glob("*.sqlite*")))


def _rows(connection: sqlite3.Connection) -> Iterator[tuple[object, ...]]:
    tables = connection.execute("select name from sqlite_master where type = 'table'").fetchall()
    for (table,) in tables:
        yield from connection.execute(f'select * from "{table}"')  # noqa: S608 - names of our own tables


def _bytes(cell: object) -> bytes:
    return cell if isinstance(cell, bytes) else str(cell).encode()
