"""Calls over real TLS and real UNIX sockets: who sees the token, and what users read when something is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from certificates import Authority
from fake_scheduler import FakeScheduler
from gavel.client.api import Client
from gavel.client.errors import NotAllowed, NotLoggedIn, NotReachable, NotSecured, Refused, SchedulerFailed
from gavel.client.requests import JobRequest
from gavel.client.trust import TrustError
from gavel.errors import GavelError
from gavel.wire import gavel_pb2 as pb
from secure_scheduler import LoginSocket, SecureScheduler, answer_with, tls_scheduler

TOKEN = "gvl_" + "t" * 43

Run = Callable[..., SecureScheduler]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("SCHEDULER", "TOKEN", "FINGERPRINT", "CA", "INSECURE"):
        monkeypatch.delenv(f"GAVEL_{name}", raising=False)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def schedulers() -> Iterator[list[FakeScheduler]]:
    running: list[FakeScheduler] = []
    yield running
    for scheduler in running:
        scheduler.stop()


@pytest.fixture
def secure(authority: Authority, schedulers: list[FakeScheduler]) -> SecureScheduler:
    scheduler = tls_scheduler(authority)
    scheduler.admit(TOKEN)
    schedulers.append(scheduler)
    return scheduler


def client_of(scheduler: FakeScheduler, authority: Authority, **rest: object) -> Client:
    given = {"token": TOKEN, "fingerprint": authority.fingerprint, "patience": 0.0, **rest}
    return Client(scheduler.address, **given)  # type: ignore[arg-type]


def failure(client: Client) -> GavelError:
    with client, pytest.raises(GavelError) as caught:
        client.whoami()
    assert TOKEN not in str(caught.value)
    assert TOKEN not in repr(caught.value)
    return caught.value


# ---- TLS ----


def test_a_fingerprint_and_a_token_are_all_that_a_program_needs(secure: SecureScheduler, authority: Authority) -> None:
    with client_of(secure, authority) as client:
        assert (client.whoami().user, client.whoami().teams) == ("ann", ("nlp",))
        assert client.submit(JobRequest(["a"])) == ["1"]
        assert next(client.watch()).job is not None
    assert {given["authorization"] for _, given in secure.calls} == {f"Bearer {TOKEN}"}
    assert all("x-gavel-as" not in given for _, given in secure.calls)


def test_the_environment_is_enough(
    secure: SecureScheduler, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAVEL_SCHEDULER", secure.address)
    monkeypatch.setenv("GAVEL_TOKEN", TOKEN)
    monkeypatch.setenv("GAVEL_FINGERPRINT", authority.fingerprint.upper().replace("SHA256", "sha256"))
    with Client() as client:
        assert client.whoami().user == "ann"


def test_with_a_file_of_authorities_the_host_name_is_verified(
    authority: Authority, schedulers: list[FakeScheduler], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(authority.pem)
    monkeypatch.setenv("GAVEL_CA", str(file))
    named = tls_scheduler(authority, addresses=("127.0.0.1",))
    named.admit(TOKEN)
    other = tls_scheduler(authority, addresses=("10.9.8.7",))
    schedulers += [named, other]
    with Client(named.address, token=TOKEN) as client:
        assert client.whoami().user == "ann"
    told = failure(Client(other.address, token=TOKEN, patience=0.0))
    assert "shows a certificate for another name" in str(told)
    assert other.calls == []


def test_acting_for_another_user_is_sent_with_every_call(secure: SecureScheduler, authority: Authority) -> None:
    with client_of(secure, authority, acting_for="bob") as client:
        assert (client.whoami().user, client.whoami().by) == ("bob", "ann")
        client.cluster()
    assert {given["x-gavel-as"] for _, given in secure.calls} == {"bob"}


# ---- attacks ----


def test_a_server_of_another_authority_never_sees_the_token(
    authority: Authority, schedulers: list[FakeScheduler]
) -> None:
    middle = tls_scheduler(Authority("evil"))
    schedulers.append(middle)
    told = failure(client_of(middle, authority))
    assert isinstance(told, TrustError)
    assert middle.calls == []


def test_a_server_that_shows_the_right_authority_without_its_key_never_sees_the_token(
    authority: Authority, schedulers: list[FakeScheduler]
) -> None:
    middle = SecureScheduler(Authority("gavel").server(shown=authority))
    schedulers.append(middle)
    told = failure(client_of(middle, authority))
    assert isinstance(told, TrustError)
    assert "someone may be in between" in str(told)
    assert middle.calls == []


def test_a_scheduler_that_is_replaced_by_another_while_we_are_connected_never_sees_the_token(
    secure: SecureScheduler, authority: Authority
) -> None:
    with client_of(secure, authority, patience=30.0) as client:
        client.whoami()
        secure.stop()
        secure.calls.clear()
        secure.files = Authority("evil").server()
        secure.start()
        with pytest.raises(TrustError, match="shows a certificate of another authority; someone may be in between"):
            client.whoami()
    assert secure.calls == []


def test_a_scheduler_that_falls_back_to_plaintext_is_refused(secure: SecureScheduler, authority: Authority) -> None:
    with client_of(secure, authority, patience=30.0) as client:
        client.whoami()
        secure.stop()
        secure.calls.clear()
        secure.files = None
        secure.start()
        with pytest.raises(TrustError, match="does not answer with TLS"):
            client.whoami()
    assert secure.calls == []
    told = failure(client_of(secure, authority))
    assert "does not answer with TLS" in str(told)
    assert secure.calls == []


def test_a_certificate_that_has_expired_is_refused(authority: Authority, schedulers: list[FakeScheduler]) -> None:
    old = tls_scheduler(authority, days=-1.0)
    schedulers.append(old)
    assert "has expired" in str(failure(client_of(old, authority)))
    assert old.calls == []


def test_plaintext_to_a_secured_scheduler_says_how_to_log_in(secure: SecureScheduler) -> None:
    told = failure(Client(secure.address, patience=30.0))
    assert isinstance(told, NotSecured)
    assert f"run `gavel login {secure.address}`" in str(told)


def test_a_token_in_the_environment_is_not_sent_in_plaintext(
    schedulers: list[FakeScheduler], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = SecureScheduler()
    schedulers.append(plain)
    monkeypatch.setenv("GAVEL_TOKEN", TOKEN)
    told = failure(Client(plain.address, patience=0.0))
    assert isinstance(told, NotLoggedIn)
    assert plain.secrets_seen == set()
    assert len(plain.calls) == 1


def test_no_object_of_ours_shows_the_token(secure: SecureScheduler, authority: Authority) -> None:
    with client_of(secure, authority) as client:
        client.whoami()
        connection = client._connection
        shown = f"{client!r} {connection!r} {connection.access!r} {client.create_token()!r}"
    assert "gvl_" not in shown


# ---- what users read ----


def test_an_expired_token_says_what_to_do(secure: SecureScheduler, authority: Authority) -> None:
    secure.tokens.clear()
    told = failure(client_of(secure, authority))
    assert isinstance(told, NotLoggedIn)
    assert str(told) == (f"token ab12 has expired; ask for a new one, then run `gavel login {secure.address}`")


def test_a_missing_token_says_how_to_log_in(secure: SecureScheduler, authority: Authority) -> None:
    secure.unknown = "this scheduler needs a token; `gavel login` stores one"
    assert str(failure(client_of(secure, authority, token=""))) == secure.unknown
    secure.unknown = "who are you?"
    told = str(failure(client_of(secure, authority, token="")))
    assert told == f"who are you?; run `gavel login {secure.address}`"


def test_a_server_that_repeats_the_token_does_not_get_it_printed(secure: SecureScheduler, authority: Authority) -> None:
    secure.tokens.clear()
    secure.unknown = f"I do not know {TOKEN}"
    assert "I do not know (token)" in str(failure(client_of(secure, authority)))


@pytest.mark.parametrize(
    ("code", "kind"),
    [(grpc.StatusCode.PERMISSION_DENIED, NotAllowed), (grpc.StatusCode.RESOURCE_EXHAUSTED, Refused)],
)
def test_refusals_are_the_schedulers_own_sentence(
    secure: SecureScheduler,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    code: grpc.StatusCode,
    kind: type[GavelError],
) -> None:
    def refuse(_: SecureScheduler, __: object, context: grpc.ServicerContext) -> None:
        context.abort(code, "this needs the role admin")

    monkeypatch.setattr(SecureScheduler, "Cluster", refuse)
    secure.restart()
    with client_of(secure, authority) as client, pytest.raises(kind, match=r"^this needs the role admin$"):
        client.cluster()


def test_nothing_at_the_address_is_said_as_before(authority: Authority) -> None:
    client = Client("127.0.0.1:1", token=TOKEN, fingerprint=authority.fingerprint, patience=30.0)
    told = failure(client)
    assert isinstance(told, NotReachable)
    assert "connection refused" in str(told)


def test_a_token_is_created_once_although_the_connection_breaks(
    secure: SecureScheduler, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(scheduler: SecureScheduler, request: pb.CreateTokenRequest, context: grpc.ServicerContext) -> None:
        scheduler.created.append(request)
        context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    monkeypatch.setattr(SecureScheduler, "CreateToken", broken)
    secure.restart()
    with client_of(secure, authority, patience=30.0) as client:
        client.whoami()
        with pytest.raises(NotReachable):
            client.create_token()
    assert len(secure.created) == 1


# ---- UNIX sockets ----


class Machine:
    """A scheduler on a UNIX socket, with the socket that hands out sessions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.scheduler = SecureScheduler(socket=path)
        self.sessions = 0
        self.answer: bytes | None = None
        self.login = LoginSocket(path, self._answer)

    def _answer(self) -> bytes:
        if self.answer is not None:
            return self.answer
        self.sessions += 1
        return answer_with(self.scheduler.admit(f"gvs_{self.sessions}"))

    @property
    def address(self) -> str:
        return f"unix:{self.path}"

    def close(self) -> None:
        self.login.close()
        self.scheduler.stop()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path / "gavel.sock")
    yield found
    found.close()


def test_on_a_unix_socket_the_operating_system_says_who_we_are(machine: Machine) -> None:
    with Client(machine.address) as client:
        assert client.whoami().user == "ann"
        assert client.whoami().user == "ann"
    assert machine.sessions == 1
    assert machine.scheduler.secrets_seen == {"Bearer gvs_1"}


def test_a_session_that_the_scheduler_forgot_is_renewed(machine: Machine) -> None:
    with Client(machine.address) as client:
        client.whoami()
        machine.scheduler.tokens.clear()
        assert client.whoami().user == "ann"
        machine.scheduler.tokens.clear()
        assert list(client.audit()) == []
    assert machine.sessions == 3


def test_a_session_that_never_counts_is_asked_for_only_twice(machine: Machine) -> None:
    machine.answer = answer_with("gvs_unknown")
    machine.scheduler.unknown = "this session is unknown"
    with (
        Client(machine.address, patience=30.0) as client,
        pytest.raises(NotLoggedIn, match=r"^this session is unknown$"),
    ):
        client.whoami()
    assert len(machine.scheduler.calls) == 2


def test_a_user_that_the_scheduler_does_not_know_reads_its_sentence(machine: Machine) -> None:
    machine.answer = json.dumps({"error": "there is no user ann"}).encode() + b"\n"
    with Client(machine.address) as client, pytest.raises(NotLoggedIn, match=r"^there is no user ann$"):
        client.whoami()
    assert machine.scheduler.calls == []


@pytest.mark.parametrize(
    "answer", [b"{}\n", b"[]\n", b"\x00\n", b'{"token": 7}\n', b'{"token": "a b"}\n', b"x" * 70_000]
)
def test_an_answer_without_a_token_is_the_servers_fault(machine: Machine, answer: bytes) -> None:
    machine.answer = answer
    with Client(machine.address) as client, pytest.raises(SchedulerFailed, match="did not answer with a token"):
        client.whoami()


def test_a_token_of_our_own_needs_no_session(machine: Machine) -> None:
    machine.scheduler.admit(TOKEN, "bob")
    with Client(machine.address, token=TOKEN) as client:
        assert client.whoami().user == "bob"
    assert machine.sessions == 0


def test_a_socket_without_logins_is_called_without_a_token(machine: Machine) -> None:
    machine.login.close()
    machine.scheduler.admit("")
    with Client(machine.address) as client:
        client.cluster()
    assert machine.scheduler.secrets_seen == set()


def test_a_scheduler_that_restarts_is_waited_for(machine: Machine) -> None:
    with Client(machine.address, patience=30.0) as client:
        client.whoami()
        machine.scheduler.tokens.clear()
        machine.scheduler.restart()
        assert client.whoami().user == "ann"


def test_a_socket_that_is_not_there_is_not_reachable(tmp_path: Path) -> None:
    told = failure(Client(f"unix:{tmp_path / 'none.sock'}", patience=0.0))
    assert isinstance(told, NotReachable)
    assert "no such file" in str(told)
