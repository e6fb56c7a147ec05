"""`gavel login`, `gavel whoami` and `gavel context`, as people type them, against a scheduler behind TLS."""

from __future__ import annotations

import io
import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from fake_scheduler import FakeScheduler
from gavel.cli.app import run
from gavel.client.contexts import ContextFile, Contexts, SchedulerContext
from secure_scheduler import LoginSocket, SecureScheduler, answer_with, tls_scheduler

TOKEN = "gvl_" + "t" * 43
OTHER_TOKEN = "gvl_" + "o" * 43


@pytest.fixture(autouse=True)
def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("SCHEDULER", "TOKEN", "FINGERPRINT", "CA", "INSECURE"):
        monkeypatch.delenv(f"GAVEL_{name}", raising=False)
    return tmp_path / "config" / "gavel"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def secure(authority: Authority) -> Iterator[SecureScheduler]:
    scheduler = tls_scheduler(authority)
    scheduler.admit(TOKEN)
    yield scheduler
    scheduler.stop()


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 0, capsys.readouterr().err
    captured = capsys.readouterr()
    assert captured.err == ""
    assert TOKEN not in captured.out
    return captured.out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    assert run(list(arguments)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert TOKEN not in captured.err
    return captured.err


def contexts() -> Contexts:
    return ContextFile.own().read()


def log_in(capsys: pytest.CaptureFixture[str], scheduler: FakeScheduler, authority: Authority, *more: str) -> str:
    pin = authority.fingerprint
    return printed(capsys, "login", scheduler.address, "--token", TOKEN, "--fingerprint", pin, *more)


# ---- login ----


def test_after_a_login_every_command_knows_where_and_as_whom(
    secure: SecureScheduler, authority: Authority, capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    said = log_in(capsys, secure, authority)
    assert said == f"logged in at {secure.address} as ann (user, team nlp); context 127.0.0.1\n"
    assert printed(capsys, "whoami") == f"ann (user, team nlp) at {secure.address}\n"
    assert "no jobs" in printed(capsys, "jobs")
    assert printed(capsys, "submit", "--", "true") == "submitted job 1\n"
    assert stat.S_IMODE((config / "contexts.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(config.stat().st_mode) == 0o700
    assert secure.secrets_seen == {f"Bearer {TOKEN}"}


def test_a_login_as_json_has_everything_but_the_token(
    secure: SecureScheduler, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    said = json.loads(log_in(capsys, secure, authority, "--name", "prod", "--json"))
    assert said["context"]["name"] == "prod"
    assert said["context"]["fingerprint"] == authority.fingerprint
    assert said["identity"]["user"] == "ann"
    assert json.loads(printed(capsys, "whoami", "--json"))["address"] == secure.address


def test_a_token_comes_from_standard_input_or_the_environment(
    secure: SecureScheduler,
    authority: Authority,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{TOKEN}\n"))
    pin = ("--fingerprint", authority.fingerprint)
    assert "as ann" in printed(capsys, "login", secure.address, *pin, "--token", "-")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert "give your token" in refusal(capsys, "login", secure.address, *pin)
    monkeypatch.setenv("GAVEL_TOKEN", TOKEN)
    assert "as ann" in printed(capsys, "login", secure.address, *pin)


def test_nothing_is_stored_if_the_scheduler_does_not_accept_the_token(
    secure: SecureScheduler, authority: Authority, capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    secure.tokens.clear()
    arguments = ("login", secure.address, "--token", TOKEN, "--fingerprint", authority.fingerprint)
    assert "token ab12 has expired" in refusal(capsys, *arguments)
    assert not config.exists()


def test_without_a_fingerprint_and_a_terminal_a_login_is_refused_and_nothing_is_sent(
    secure: SecureScheduler, capsys: pytest.CaptureFixture[str], config: Path
) -> None:
    assert "--fingerprint sha256:" in refusal(capsys, "login", secure.address, "--token", TOKEN)
    assert secure.calls == []
    assert not config.exists()


@pytest.mark.parametrize("shown", [False, True])
def test_a_man_in_the_middle_gets_no_token_and_no_context(
    authority: Authority, capsys: pytest.CaptureFixture[str], config: Path, shown: bool
) -> None:
    evil = Authority("evil")
    middle = SecureScheduler(evil.server(shown=authority if shown else None))
    try:
        arguments = ("login", middle.address, "--token", TOKEN, "--fingerprint", authority.fingerprint)
        assert "someone may be in between" in refusal(capsys, *arguments)
        assert middle.calls == []
        assert not config.exists()
    finally:
        middle.stop()


def test_a_plaintext_server_gets_no_token(authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    plain = SecureScheduler()
    try:
        arguments = ("login", plain.address, "--token", TOKEN, "--fingerprint", authority.fingerprint)
        assert "does not answer with TLS" in refusal(capsys, *arguments)
        assert plain.calls == []
    finally:
        plain.stop()


def test_a_second_login_trusts_the_authority_of_the_first(
    secure: SecureScheduler, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    log_in(capsys, secure, authority)
    secure.admit(OTHER_TOKEN)
    printed(capsys, "login", secure.address, "--token", OTHER_TOKEN)
    assert [context.token for context in contexts().known.values()] == [OTHER_TOKEN]
    secure.calls.clear()
    secure.stop()
    secure.files = Authority("evil").server()
    secure.start()
    told = refusal(capsys, "login", secure.address, "--token", TOKEN)
    assert "shows a certificate of another authority" in told
    assert "certificate of another authority" in refusal(capsys, "jobs")
    assert secure.calls == []


def test_another_user_at_the_same_scheduler_gets_another_context(
    secure: SecureScheduler, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    log_in(capsys, secure, authority)
    secure.admit(OTHER_TOKEN, "root", "admin", ())
    said = printed(capsys, "login", secure.address, "--token", OTHER_TOKEN)
    assert said == f"logged in at {secure.address} as root (admin); context root@127.0.0.1\n"
    assert {context.user for context in contexts().known.values()} == {"ann", "root"}


def test_an_authority_from_a_file(authority: Authority, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(authority.pem)
    scheduler = tls_scheduler(authority, addresses=("127.0.0.1",))
    scheduler.admit(TOKEN)
    try:
        assert "as ann" in printed(capsys, "login", scheduler.address, "--token", TOKEN, "--ca", str(file))
        assert "as ann" not in printed(capsys, "whoami")
    finally:
        scheduler.stop()
    file.write_text("nonsense")
    assert "has no certificate" in refusal(capsys, "login", "head", "--ca", str(file))
    file.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert "cannot be read" in refusal(capsys, "login", "head", "--ca", str(file))
    assert "no such file" in refusal(capsys, "login", "head", "--ca", str(tmp_path / "none"))
    assert "not both" in refusal(capsys, "login", "head", "--ca", str(file), "--fingerprint", "sha256:1")


def test_a_unix_socket_needs_no_token(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scheduler = SecureScheduler(socket=tmp_path / "s")
    scheduler.admit("gvs_1")
    login = LoginSocket(tmp_path / "s", lambda: answer_with("gvs_1"))
    try:
        address = f"unix:{tmp_path / 's'}"
        assert printed(capsys, "login", address) == f"logged in at {address} as ann (user, team nlp); context local\n"
        assert "ann" in printed(capsys, "whoami")
        assert "gvs_1" not in (ContextFile.own().path).read_text()
    finally:
        login.close()
        scheduler.stop()


@pytest.mark.parametrize("token", ["gvj_abc", "a b", ""])
def test_what_is_no_token_of_a_person_is_refused_before_it_is_sent(
    secure: SecureScheduler, authority: Authority, capsys: pytest.CaptureFixture[str], token: str
) -> None:
    refusal(capsys, "login", secure.address, "--fingerprint", authority.fingerprint, "--token", token)
    assert secure.calls == []


def on_a_terminal(answers: str, *arguments: str) -> tuple[int, str]:
    """Run a command with a terminal, on which a person types."""
    ours, theirs = pty.openpty()
    code = f"from gavel.cli.app import run; raise SystemExit(run({list(arguments)}))"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, answers.encode())
    seen = b""
    try:
        while piece := os.read(ours, 4096):
            seen += piece
    except OSError:  # the terminal is closed with the last process that has it
        pass
    os.close(ours)
    return process.wait(60), seen.decode()


@pytest.mark.parametrize("answer", ["yes", "the fingerprint", "no", ""])
def test_on_a_terminal_the_fingerprint_is_shown_and_confirmed(
    secure: SecureScheduler, authority: Authority, answer: str
) -> None:
    typed = authority.fingerprint if answer == "the fingerprint" else answer
    code, seen = on_a_terminal(f"{typed}\n", "login", secure.address, "--token", TOKEN)
    assert authority.fingerprint in seen
    if answer in ("no", ""):
        assert code == 2
        assert "the fingerprint was not confirmed; nothing was sent" in seen
        assert secure.calls == []
        assert contexts() == Contexts()
    else:
        assert code == 0
        assert "logged in at" in seen
        assert contexts().chosen is not None


def test_a_token_in_the_wrong_place_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert "gvl_(hidden)" in refusal(capsys, "login", "head", TOKEN)
    assert "gvl_(hidden)" in refusal(capsys, "jobs", "--scheduler", f"{TOKEN}!")


# ---- contexts ----


def test_contexts_are_listed_chosen_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no context is current" in printed(capsys, "context")
    assert "no contexts" in printed(capsys, "context", "list")
    for name in ("one", "two"):
        context = SchedulerContext(name=name, address=f"{name}:7077", user="ann", token=TOKEN)
        ContextFile.own().change(lambda known, context=context: known.adding(context))  # type: ignore[misc]
    assert printed(capsys, "context") == "two: two:7077 as ann\n"
    assert printed(capsys, "context", "use", "one") == "now: one: one:7077 as ann\n"
    listed = printed(capsys, "context", "list").splitlines()
    assert [line.split() for line in listed[1:]] == [["*", "one", "one:7077", "ann"], ["two", "two:7077", "ann"]]
    assert printed(capsys, "context", "rm", "one") == "context one is removed; no context is current\n"
    assert "there is no context 'one'; there are: two" in refusal(capsys, "context", "use", "one")


def test_contexts_as_json_have_no_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    ContextFile.own().change(lambda known: known.adding(SchedulerContext(name="a", address="a:7077", token=TOKEN)))

    def answer(*arguments: str) -> Any:
        return json.loads(printed(capsys, *arguments, "--json"))

    assert answer("context")["context"]["has_token"] is True
    assert answer("context", "list")["current"] == "a"
    assert answer("context", "use", "a")["context"]["name"] == "a"
    assert answer("context", "rm", "a") == {"removed": "a", "current": ""}
    assert answer("context") == {"context": None}


def test_a_context_is_named_like_a_scheduler(
    secure: SecureScheduler, authority: Authority, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(capsys, secure, authority, "--name", "prod")
    ContextFile.own().change(lambda known: known.adding(SchedulerContext(name="other", address="127.0.0.1:1")))
    assert "ann" in printed(capsys, "whoami", "--scheduler", "prod")
    monkeypatch.setenv("GAVEL_SCHEDULER", "prod")
    assert "ann" in printed(capsys, "whoami")


def test_a_damaged_file_is_one_sentence(capsys: pytest.CaptureFixture[str], config: Path) -> None:
    config.mkdir(parents=True)
    (config / "contexts.json").touch(0o600)
    (config / "contexts.json").write_text(f'{{"contexts": "{TOKEN}')
    for arguments in (["jobs"], ["context"], ["context", "list"]):
        assert "is damaged; remove it and log in again" in refusal(capsys, *arguments)


def test_plaintext_beyond_this_machine_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "run `gavel login head:7077`" in refusal(capsys, "jobs", "--scheduler", "head")
