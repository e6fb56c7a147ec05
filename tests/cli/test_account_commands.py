"""Users, tokens, agents, limits and the audit on the command line, against a scheduler behind TLS."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from gavel.cli.app import VERBS, run
from gavel.wire import gavel_pb2 as pb
from secure_scheduler import SecureScheduler, tls_scheduler

TOKEN = "gvl_" + "t" * 43
NEW = "gvl_" + "n" * 43
EVIL = "\x1b[2J\x07\r\x9b\u202e"
FORBIDDEN = {character for character in EVIL if not character.isprintable()}
NEW_VERBS = ("login", "whoami", "context", "user", "token", "agent", "limits", "audit")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables in full lines, also where the test runner sets a width."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def fake(authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SecureScheduler]:
    scheduler = tls_scheduler(authority)
    scheduler.admit(TOKEN, "root", "admin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GAVEL_SCHEDULER", scheduler.address)
    monkeypatch.setenv("GAVEL_TOKEN", TOKEN)
    monkeypatch.setenv("GAVEL_FINGERPRINT", authority.fingerprint)
    yield scheduler
    scheduler.stop()


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(list(arguments)) == 0, capsys.readouterr().err
    captured = capsys.readouterr()
    assert captured.err == ""
    assert TOKEN not in captured.out
    return captured.out


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed(capsys, *arguments, "--json"))
    return found


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    assert run(list(arguments)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def cells(text: str) -> list[list[str]]:
    """The rows of a table."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()[1:]]


# ---- users ----


def test_a_new_user_gets_the_exact_line_to_log_in(fake: SecureScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    fake.configured, fake.fingerprint = "gpu-head:7077", "sha256:abc"
    said = printed(capsys, "user", "add", "ann", "--team", "nlp", "--team", "vision", "--lead", "nlp", "--days", "30")
    assert said.startswith("added user ann (user, teams nlp, vision, leads nlp). To log in, ann runs")
    assert said.endswith(f"  gavel login gpu-head:7077 --token {NEW} --fingerprint sha256:abc\n")
    assert list(fake.users["ann"].teams) == ["nlp", "vision"]
    assert (fake.created[0].user, fake.created[0].seconds) == ("ann", 30 * 86_400.0)


def test_the_line_to_log_in_has_the_address_that_we_use_if_the_operator_configured_none(
    fake: SecureScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    said = document(capsys, "user", "add", "ann")
    assert said["command"] == f"gavel login {fake.address} --token {NEW}"
    assert said["user"]["role"] == "user"
    assert said["token"]["token"] == NEW


def test_a_line_to_copy_is_one_quoted_line_whatever_the_scheduler_says(
    fake: SecureScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.configured, fake.fingerprint = "head; rm -rf\n/", "$(x)"
    said = document(capsys, "user", "add", "ann")["command"]
    assert "\n" not in said
    assert shlex.split(said) == ["gavel", "login", "head;rm-rf/", "--token", NEW, "--fingerprint", "$(x)"]


def test_a_user_without_a_token(fake: SecureScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, "user", "add", "bot", "--role", "viewer", "--no-token")
    assert said == "added user bot (viewer); `gavel token create --user bot` creates a token\n"
    assert fake.created == []
    assert "there is a user 'bot' already" in refusal(capsys, "user", "add", "bot")


def test_users_are_listed_changed_disabled_and_enabled(
    fake: SecureScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no users" in printed(capsys, "user", "list")
    fake.users["ann"] = pb.User(name="ann", role="user", teams=["nlp"], leads=["nlp"])
    assert printed(capsys, "user", "set", "ann", "--role", "operator") == (
        "ann (operator, team nlp, leads nlp) is active\n"
    )
    assert printed(capsys, "user", "set", "ann", "--no-leads", "--team", "b") == "ann (operator, team b) is active\n"
    assert printed(capsys, "user", "disable", "ann") == "ann (operator, team b) is disabled\n"
    assert "disabled" in printed(capsys, "user", "list")
    assert document(capsys, "user", "enable", "ann")["user"]["disabled"] is False
    assert document(capsys, "user", "list")["users"][0]["name"] == "ann"


def test_a_change_that_says_nothing_or_both_is_refused(
    fake: SecureScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "say what to change" in refusal(capsys, "user", "set", "ann")
    assert "not both" in refusal(capsys, "user", "set", "ann", "--team", "a", "--no-teams")
    assert "there is no user 'ann'" in refusal(capsys, "user", "disable", "ann")
    assert [method for method, _ in fake.calls] == ["ChangeUser"]


# ---- tokens ----


def test_a_join_token_comes_with_the_exact_line_for_a_new_server(
    fake: SecureScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.configured, fake.fingerprint = "gpu-head:7077", "sha256:abc"
    said = printed(capsys, "token", "create", "--join", "--uses", "2", "--hours", "3")
    token = "gvj_" + "n" * 43
    assert said.startswith("join token t1 for 2 agents, valid for ")
    assert said.endswith(f"  gavel worker --join gpu-head:7077 --token {token} --fingerprint sha256:abc\n")
    assert (fake.created[0].role, fake.created[0].uses, fake.created[0].seconds) == ("agent", 2, 3 * 3600.0)


def test_a_token_is_shown_once_with_the_line_to_log_in(
    fake: SecureScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    said = printed(capsys, "token", "create", "--user", "ann", "--name", "laptop", "--days", "1", "--role", "viewer")
    assert said.startswith("token t1 for ann (viewer), valid for ")
    assert f"\n  {NEW}\n" in said
    assert said.endswith(f"  gavel login {fake.address} --token {NEW}\n")
    assert (fake.created[0].name, fake.created[0].seconds) == ("laptop", 86_400.0)


def test_tokens_are_listed_and_revoked(fake: SecureScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    assert cells(printed(capsys, "token", "list"))[0][:3] == ["t1", "ann", "of me"]
    assert cells(printed(capsys, "token", "list", "--all"))[0][2] == "of *"
    assert document(capsys, "token", "list", "--user", "bob")["tokens"][0]["name"] == "of bob"
    assert printed(capsys, "token", "revoke", "t1") == "token t1 is revoked\n"
    assert fake.revoked == ["t1"]
    assert "revoked" in printed(capsys, "token", "list")
    assert "there is no token 't2'" in refusal(capsys, "token", "revoke", "t2")


@pytest.mark.parametrize(
    "arguments",
    [
        *(["create", "--uses", "2"], ["create", "--hours", "2"], ["create", "--join", "--days", "2"]),
        *(["create", "--join", "--role", "admin"], ["list", "--all", "--user", "a"], ["revoke", NEW]),
        ["create", "--days", "nan"],
    ],
    ids=" ".join,
)
def test_options_that_do_not_belong_together_are_refused_before_anything_is_sent(
    fake: SecureScheduler, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert NEW not in refusal(capsys, "token", *arguments)
    assert fake.calls == []


# ---- agents, limits, audit ----


def test_agents_are_listed_and_revoked(fake: SecureScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    assert cells(printed(capsys, "agent", "list"))[0][:3] == ["server-1", "a1", "not here"]
    assert "server-1 is revoked" in printed(capsys, "agent", "revoke", "server-1")
    assert document(capsys, "agent", "list")["agents"][0]["revoked"] is True
    assert "there is no agent 'x'" in refusal(capsys, "agent", "revoke", "x")
    fake.enrolled.clear()
    assert "gavel token create --join" in printed(capsys, "agent", "list")


def test_setting_one_limit_keeps_the_others(fake: SecureScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no limits" in printed(capsys, "limits")
    printed(capsys, "limits", "set", "--user", "ann", "--unfinished-jobs", "100", "--submissions-per-minute", "2.5")
    printed(capsys, "limits", "set", "--user", "ann", "--running-accelerators", "8", "--unfinished-jobs", "0")
    printed(capsys, "limits", "set", "--default", "--unfinished-jobs", "10")
    found = {(each["kind"], each["name"]): each["limits"] for each in document(capsys, "limits")["limits"]}
    assert found == {
        ("user", "ann"): {"unfinished_jobs": 0, "running_accelerators": 8, "submissions_per_minute": 2.5},
        ("default", ""): {"unfinished_jobs": 10, "running_accelerators": 0, "submissions_per_minute": 0.0},
    }
    fake.limit_list["user", "ann"].used.running_accelerators = 3
    assert "3 of 8" in printed(capsys, "limits")


@pytest.mark.parametrize(
    "arguments",
    [[], ["--user", "a"], ["--unfinished-jobs", "1"], ["--user", "a", "--team", "b", "--unfinished-jobs", "1"]],
)
def test_limits_need_a_name_and_a_number(
    fake: SecureScheduler, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert "say " in refusal(capsys, "limits", "set", *arguments)
    assert fake.calls == []


def test_the_audit_is_a_table(fake: SecureScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "audit") == "nothing\n"
    line = pb.AuditLine(number=1, time=time.time(), user="root", role="admin", address="10.0.0.1", method="Cancel")
    line.object, line.what, line.outcome = "7", "cancelled", "done"
    setattr(line, "as", "bob")
    fake.audited = [line, pb.AuditLine(number=2, time=time.time(), method="Submit", outcome="no token")]
    rows = cells(printed(capsys, "audit", "--since", "1d", "--user", "bob", "--job", "7", "--limit", "5"))
    assert rows[0][1:] == ["root for bob", "admin", "10.0.0.1", "Cancel", "7", "done: cancelled"]
    query = fake.audit_queries[-1]
    assert (query.user, query.job, query.limit) == ("bob", "7", 5)
    assert abs(time.time() - 86_400 - query.since) < 60
    assert document(capsys, "audit")["audit"][0]["acting_for"] == "bob"
    assert [query.limit for query in fake.audit_queries] == [100, 5, 100]


# ---- jobs ----


def test_jobs_of_a_user_and_ones_own(fake: SecureScheduler, capsys: pytest.CaptureFixture[str]) -> None:
    for user in ("root", "bob", "bob"):
        fake._add(pb.JobRequest(command=["a"], workers=1, weight=1.0, user=user))
    assert [job["id"] for job in document(capsys, "jobs", "--mine")["jobs"]] == ["1"]
    assert [job["id"] for job in document(capsys, "jobs", "--user", "bob")["jobs"]] == ["2", "3"]
    assert [job["id"] for job in document(capsys, "jobs", "--user", "bob", "--all")["jobs"]] == ["2", "3"]
    assert "not both" in refusal(capsys, "jobs", "--mine", "--user", "bob")
    assert [row[1] for row in cells(printed(capsys, "jobs"))[:3]] == ["root", "bob", "bob"]
    assert "user       bob" in printed(capsys, "job", "2")


def test_the_one_user_of_an_open_scheduler_gets_no_column(
    fake: SecureScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    fake._add(pb.JobRequest(command=["a"], workers=1, weight=1.0, user="you"))
    assert "user" not in printed(capsys, "jobs")


@pytest.mark.parametrize(
    ("arguments", "method"),
    [
        (["submit", "--as", "bob", "--", "true"], "Submit"),
        (["cancel", "--as", "bob", "1"], "Cancel"),
        (["checkpoints", "remove", "--as", "bob", "2"], "RemoveCheckpoints"),
        (["whoami", "--as", "bob"], "WhoAmI"),
    ],
)
def test_operators_act_for_others(
    fake: SecureScheduler, capsys: pytest.CaptureFixture[str], arguments: list[str], method: str
) -> None:
    for _ in range(2):
        fake._add(pb.JobRequest(command=["a"], workers=1, weight=1.0, user="bob"))
    fake.move("2", pb.COMPLETED)
    printed(capsys, *arguments)
    assert (method, "bob") in [(called, given.get("x-gavel-as")) for called, given in fake.calls]


# ---- everywhere ----


def test_no_command_prints_control_characters(
    fake: SecureScheduler, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.admit(TOKEN, f"root{EVIL}", f"admin{EVIL}", [f"t{EVIL}"])
    fake.users["a"] = pb.User(name=f"a{EVIL}", role=f"r{EVIL}", teams=[EVIL], leads=[EVIL])
    fake.configured, fake.fingerprint = f"h{EVIL}", f"f{EVIL}"
    fake.enrolled = [pb.EnrolledAgent(agent=f"a{EVIL}", name=f"n{EVIL}", state=EVIL, by=EVIL)]
    fake.limit_list["x", "y"] = pb.LimitsOf(kind=EVIL, name=EVIL)
    fake.audited = [pb.AuditLine(number=1, user=EVIL, role=EVIL, address=EVIL, method=EVIL, object=EVIL, what=EVIL)]
    fake._add(pb.JobRequest(command=["a"], workers=1, weight=1.0, user=f"bob{EVIL}"))
    monkeypatch.setenv("COLUMNS", "300")
    for arguments in (
        *(["whoami"], ["user", "list"], ["user", "add", f"x{EVIL}"], ["user", "disable", "a"], ["token", "list"]),
        *(["token", "create"], ["token", "create", "--join"], ["token", "revoke", f"t{EVIL}"], ["agent", "list"]),
        *(["agent", "revoke", f"n{EVIL}"], ["limits"], ["audit"], ["jobs"], ["jobs", "--mine"], ["job", "1"]),
        *(["login", f"h{EVIL}"], ["context", "use", EVIL], ["submit", "--as", EVIL, "--", "true"]),
    ):
        run(arguments)
        captured = capsys.readouterr()
        assert captured.out or captured.err
        assert not FORBIDDEN & set(captured.out + captured.err), arguments


@pytest.mark.parametrize("verb", NEW_VERBS)
def test_the_help_of_every_command_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"Example: gavel {verb}" in printed(capsys, verb, "--help").replace("\n", " ").replace("  ", " ")
    assert verb in VERBS


def test_users_are_told_apart_from_jobs_that_do_not_exist(
    fake: SecureScheduler, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, "user", "enable", "x") == "gavel: there is no user 'x'\n"
    assert fake.users == {}
