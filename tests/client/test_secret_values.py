"""Secrets on the client's side: where values come from, what is refused, and that no message shows a value."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml

from gavel.cli.submit_secrets import secrets, with_secrets
from gavel.client.field_checks import FieldError
from gavel.client.job_file import parse_jobs, read_jobs, write_jobs
from gavel.client.messages import to_request
from gavel.client.requests import JobRequest
from gavel.client.secret_values import SecretValues
from gavel.errors import InputError
from gavel.limits import LONGEST_SECRET

VALUE = "hunter2-very-secret"


def test_a_request_with_secrets_shows_only_their_names() -> None:
    request = JobRequest(["train"], secrets={"TOKEN": VALUE})
    request.check()
    assert isinstance(request.secrets, SecretValues)
    assert request.secrets["TOKEN"] == VALUE
    assert request.document()["secrets"] == ["TOKEN"]
    assert request.submission().secrets == ("TOKEN",)
    assert request.redacted().secrets == ("TOKEN",)
    shown = [
        repr(request),
        str(request),
        json.dumps(request.document()),
        write_jobs([request]),
        repr(to_request(request)),
    ]
    assert all("TOKEN" in text and VALUE not in text for text in shown)


def test_secrets_are_not_written_by_accident() -> None:
    values = SecretValues({"TOKEN": VALUE})
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(values)
    with pytest.raises(TypeError):
        json.dumps(values)
    with pytest.raises(yaml.YAMLError):
        yaml.safe_dump(values)
    assert copy.deepcopy(values) == values
    assert repr(values) == "SecretValues(TOKEN=(hidden))"


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ({"A=B": VALUE}, "'A=B' cannot be the name of a variable"),
        ({"": VALUE}, "'' cannot be the name of a variable"),
        ({"1A": VALUE}, "'1A' cannot be the name of a variable"),
        ({"A\0": VALUE}, "cannot be the name of a variable"),
        ({"Ä": VALUE}, "cannot be the name of a variable"),
        ({"A\x1b[31m": VALUE}, r"\\x1b"),
        ({3: VALUE}, "a int cannot be the name of a variable"),
        ({"A" * 201: VALUE}, "at most 200 are allowed"),
        ({"GAVEL_SOCKET": VALUE}, "GAVEL_SOCKET begins with GAVEL_, which is reserved"),
        ({f"A{n}": VALUE for n in range(65)}, "has 65 entries; a job has at most 64"),
        ({"A": VALUE + "\0"}, "the value of A must be text without NUL characters"),
        ({"A": VALUE + "\ud800"}, "the value of A must be text without NUL characters, in valid Unicode"),
        ({"A": VALUE.encode()}, "the value of A must be text"),
        ({"A": VALUE * 4000}, "the value of A has 76,000 bytes, at most 65,536 are allowed"),
        ({f"A{n}": "é" * 32_000 for n in range(20)}, "the values have 1,280,000 bytes together"),
        (["A", "A"], "secrets names A twice"),
        (VALUE, "secrets must be a mapping of names to values, or a list of names"),
    ],
)
def test_what_no_job_can_have_is_refused_without_quoting_the_value(secrets: Any, said: str) -> None:
    with pytest.raises(FieldError, match=said) as refusal:
        JobRequest(["train"], secrets=secrets).check()
    assert VALUE[:5] not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert str(refusal.value).isprintable()


def test_the_most_that_is_allowed_is_accepted() -> None:
    JobRequest(["train"], secrets={f"A{n}": "x" for n in range(64)}).check()
    JobRequest(["train"], secrets={"_a9": "é" * (LONGEST_SECRET // 2), "B": ""}).check()


def test_a_job_file_says_where_values_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "from my environment")
    (tmp_path / "token.txt").write_text("from a file\n")
    text = "command: a\nsecrets:\n  A: {env: MINE}\n  B: {file: token.txt}\n  C: {value: 'typed'}\nprivate: true\n"
    (tmp_path / "job.yaml").write_text(text)
    (job,) = read_jobs(str(tmp_path / "job.yaml"))
    assert dict(job.secrets) == {"A": "from my environment", "B": "from a file", "C": "typed"}  # type: ignore[arg-type]
    assert job.private is True


def test_a_list_of_names_is_kept_until_submission_and_written_again() -> None:
    (job,) = parse_jobs("command: a\nsecrets: [A, B]\n")
    assert job.secrets == ("A", "B")
    assert parse_jobs(write_jobs([job])) == [job]


@pytest.mark.parametrize(
    ("lines", "line", "said"),
    [
        ("secrets: hunter2", 2, "secrets must be a list of names, or a mapping such as {HF_TOKEN: {env: HF_TOKEN}}"),
        ("secrets:\n  A: hunter2", 3, "secrets: 'A' must say where its value is: {env: VARIABLE}, {file: PATH} or"),
        ("secrets:\n  A: [hunter2]", 3, "must say where its value is"),
        ("secrets:\n  A: {hunter2: x}", 3, "must say where its value is"),
        ("secrets:\n  A: {value: hunter2, env: B}", 3, "must say where its value is"),
        ("secrets:\n  A: {value: [hunter2]}", 3, "must say where its value is"),
        ("secrets:\n  A: {value: }", 3, "must say where its value is"),
        ("secrets:\n  A: {env: NOT_SET_HERE}", 3, "the environment variable NOT_SET_HERE is not set"),
        ("secrets:\n  A: {file: nowhere.txt}", 3, "cannot read the secret in"),
        ('secrets:\n  A: {file: "a\\0b"}', 3, "cannot read the secret in"),
        ('secrets: {A: {value: "hunter2\\0"}}', 2, "the value of A must be text without NUL characters"),
        ("secrets: {GAVEL_X: {value: hunter2}}", 2, "which is reserved"),
        ("secrets: [A, A]", 2, "secrets names A twice"),
        ("private: perhaps", 2, "private must be true or false, not perhaps"),
        ("private: 'true'", 2, "private must be true or false, not 'true'"),
        ("private: [true]", 2, "private must be true or false, not a list"),
        ("user: ada", 2, "there is no field 'user'"),
    ],
)
def test_a_mistake_is_a_sentence_with_its_line_and_without_the_value(lines: str, line: int, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_jobs(f"command: a\n{lines}\n", source="job.yaml")
    assert str(refusal.value).startswith(f"job.yaml, line {line}: ")
    assert said in str(refusal.value)
    assert "hunter2" not in str(refusal.value)


def given(*options: str) -> SecretValues:
    """What `--secret` reads."""
    values = secrets(options, ask=True)
    assert values is not None
    return values


def test_the_line_break_at_the_end_of_a_file_is_not_part_of_a_secret(tmp_path: Path) -> None:
    for body, value in {"a\n": "a", "a\r\n": "a", "a\n\n": "a\n", "a": "a", "": "", "a\r": "a\r"}.items():
        (tmp_path / "token").write_bytes(body.encode())
        assert dict(given(f"TOKEN=@{tmp_path / 'token'}")) == {"TOKEN": value}


def test_a_file_that_is_too_large_or_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="it is not UTF-8 text"):
        given(f"TOKEN=@{tmp_path / 'binary'}")
    endless = given("TOKEN=@/dev/zero")
    with pytest.raises(FieldError, match="must be text without NUL characters"):
        JobRequest(["train"], secrets=endless).check()


def test_a_value_on_the_command_line_is_refused_and_not_repeated() -> None:
    with pytest.raises(InputError, match="see command lines, so write no value there") as refusal:
        given(f"TOKEN={VALUE}")
    assert VALUE not in str(refusal.value)


def test_a_secret_given_twice_or_badly_named_is_refused() -> None:
    with pytest.raises(InputError, match="--secret TOKEN is given twice"):
        given("TOKEN", "TOKEN=@x")
    with pytest.raises(InputError, match="reserved"):
        given("GAVEL_TOKEN")


def test_a_secret_without_a_source_and_a_terminal_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKEN", raising=False)
    with pytest.raises(InputError, match="no environment variable TOKEN and no terminal to ask at"):
        given("TOKEN")
    monkeypatch.setenv("TOKEN", VALUE)
    assert dict(given("TOKEN")) == {"TOKEN": VALUE}
    (job,) = with_secrets([JobRequest(["train"], secrets=["TOKEN"])], ask=True)
    assert job == JobRequest(["train"], secrets={"TOKEN": VALUE})
