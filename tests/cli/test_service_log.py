"""What a service logs is one line for each record, whatever is in it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gavel.cli import service_log
from gavel.cli.app import run


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """Leave the process's loggers as they were."""
    root, ours = logging.getLogger(), logging.getLogger("gavel")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def test_json_lines_have_every_field_that_was_given() -> None:
    out = io.StringIO()
    service_log.set_up("info", "json", out)
    logging.getLogger("gavel.x").info("job %s\nended", "7", extra={"job": "7", "fact": 12})
    logging.getLogger("gavel.x").debug("not at this level")
    try:
        int("broken")
    except ValueError:
        logging.getLogger("gavel.x").exception("oh")
    first, second = [json.loads(line) for line in out.getvalue().splitlines()]
    assert first.pop("time").endswith("Z")
    assert first == {"level": "info", "logger": "gavel.x", "message": "job 7\nended", "job": "7", "fact": 12}
    assert "ValueError: invalid literal" in second["exception"]


def test_text_lines_cannot_be_broken_or_coloured_by_names() -> None:
    out = io.StringIO()
    service_log.set_up("debug", "text", out)
    logging.getLogger("gavel.x").debug("agent %s joined", "a\x1b[2J\nb")
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().rstrip("\n").endswith(" debug   agent a?[2J b joined")


def test_libraries_are_heard_only_when_they_warn() -> None:
    out = io.StringIO()
    service_log.set_up("debug", "text", out)
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("careful")
    assert out.getvalue().splitlines()[0].endswith("warning careful")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--log-level", "loud"], "--log-level 'loud': there are: debug, info, warning"),
        (["--log-level", "inf"], "did you mean 'info'?"),
        (["--log-format", "xml"], "--log-format 'xml': there are: text, json"),
        (["--wait", "-1"], "--wait"),
    ],
)
def test_a_way_of_logging_that_does_not_exist_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("key", ["log-level", "log_level"])
def test_keys_of_a_configuration_have_dashes_or_underscores(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f'{key} = "loud"')
    assert run(["serve", "--config", str(config)]) == 2
    assert "--log-level 'loud'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("log-level = 'info'\nlog_level = 'debug'", "log-level is given twice, with - and with _; keep one"),
        ("round-second = 3", "there is no option 'round-second'; did you mean 'round-seconds'"),
        ("notify = 'x'", "notify must be a table, such as [notify] with hosts = ['chat.example.org']"),
        ("[notify]\nhosts = 'x.org'", "notify-hosts must be a list of texts, not 'x.org'"),
        ("[notify]\ncommand = ['mail', 3]", "notify-command must be a list of texts, not ['mail', 3]"),
        ("notify-hosts = ['x.org']\n[notify]\nhosts = ['y.org']", "notify-hosts is given twice, also in [notify]"),
        ("[notify]\nhots = ['x.org']", "there is no option 'notify-hots'; did you mean 'notify-hosts'"),
        ("[notify]\nhosts = ['*']", "--notify-hosts *: '*' is not the name or address of a host"),
        ("[notify]\nevents = ['failed']", "--notify-events says what --notify-command is run for"),
        ("[notify]\nstuck-minutes = 0.0", "Invalid value for '--stuck-minutes'"),
    ],
)
def test_a_wrong_key_of_a_configuration_is_one_sentence(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "serve.toml").write_text(text)
    assert run(["serve", "--config", str(tmp_path / "serve.toml")]) == 2
    assert said in capsys.readouterr().err
