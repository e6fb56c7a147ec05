"""The mode of a scheduler: open on this machine only, secured everywhere else unless told otherwise."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gavel.core.errors import InputError
from gavel.runtime import listening
from gavel.runtime.listening import BoundPorts, Listening, Mode, advertised, insecure_sentence, keep_warning, mode_of
from gavel.runtime.server import ServeSettings, open_journal
from gavel.security.setup import FOLDER, set_up

GAVEL = [sys.executable, "-c", "from gavel.cli.app import main; main()"]
BEYOND = [
    "0.0.0.0:7077",
    "[::]:7077",
    "10.0.0.5:7077",
    "head:7077",
    "127.evil.example:7077",
    "localhost.evil.example:1",
]


@pytest.mark.parametrize("listen", ["127.0.0.1:7077", "127.0.0.2:0", "[::1]:7077", "localhost:7077"])
def test_on_this_machine_a_new_scheduler_is_open(tmp_path: Path, listen: str) -> None:
    assert mode_of(listen, tmp_path, Listening()) is Mode.OPEN


@pytest.mark.parametrize("listen", BEYOND)
def test_beyond_this_machine_it_is_secured(tmp_path: Path, listen: str) -> None:
    assert mode_of(listen, tmp_path, Listening()) is Mode.SECURE


def test_once_set_up_it_stays_secured_on_this_machine_too(tmp_path: Path) -> None:
    with open_journal(ServeSettings(folder=tmp_path)) as journal:
        set_up(tmp_path, journal, ["localhost"], time.time)
    assert mode_of("127.0.0.1:7077", tmp_path, Listening()) is Mode.SECURE


@pytest.mark.parametrize("listen", BEYOND)
def test_only_the_word_insecure_opens_it_beyond_this_machine(tmp_path: Path, listen: str) -> None:
    assert mode_of(listen, tmp_path, Listening(insecure=True)) is Mode.INSECURE


@pytest.mark.parametrize(
    "wanted",
    [
        Listening(tls_cert=Path("a")),
        Listening(tls_key=Path("a")),
        Listening(insecure=True, tls_cert=Path("a"), tls_key=Path("b")),
        Listening(insecure=True, client_ca=Path("a")),
        Listening(insecure=True, insecure_listen="127.0.0.1:1"),
        Listening(client_ca=Path("a"), insecure_listen="127.0.0.1:1"),
    ],
    ids=str,
)
def test_contradictions_are_refused(tmp_path: Path, wanted: Listening) -> None:
    with pytest.raises(InputError):
        mode_of("127.0.0.1:7077", tmp_path, wanted)


@pytest.mark.parametrize("listen", ["7077", ":7077", "head", "head:99999", "head:x", ""])
def test_an_address_that_is_none_is_refused(tmp_path: Path, listen: str) -> None:
    with pytest.raises(InputError, match="write HOST:PORT"):
        mode_of(listen, tmp_path, Listening())


def test_a_file_of_options_cannot_open_the_scheduler(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text('insecure = true\nlisten = "0.0.0.0:0"\n')
    done = gavel("serve", "--config", str(config), "--folder", str(tmp_path / "state"))
    assert done.returncode == 2
    assert "there is no option 'insecure'" in done.stderr


def gavel(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*GAVEL, *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_what_is_insecure_is_said_again_and_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listening, "WARN_SECONDS", 0.001)
    sentence = insecure_sentence(Mode.INSECURE, BoundPorts("0.0.0.0:7077"))

    async def scene() -> None:
        task = asyncio.create_task(keep_warning(sentence))
        while len(caplog.records) < 3:  # noqa: ASYNC110 - the log has no event
            await asyncio.sleep(0.001)
        task.cancel()

    with caplog.at_level(logging.WARNING):
        asyncio.run(asyncio.wait_for(scene(), 30))
    assert "everyone who reaches 0.0.0.0:7077 can run commands on every server" in caplog.text


def test_a_secured_scheduler_has_nothing_to_warn_about() -> None:
    assert insecure_sentence(Mode.SECURE, BoundPorts("0.0.0.0:7077", 7078)) == ""
    assert "attach an agent" in insecure_sentence(Mode.SECURE, BoundPorts("a:1", 2, insecure="0.0.0.0:7077"))


def test_others_are_told_the_first_name_or_the_address() -> None:
    assert advertised("0.0.0.0:7077", Listening(names=("head.example", "10.0.0.5"))) == "head.example:7077"
    assert advertised("10.0.0.5:7077", Listening()) == "10.0.0.5:7077"
    assert not advertised("0.0.0.0:7077", Listening()).startswith("0.0.0.0")  # noqa: S104


def test_init_makes_private_files_and_prints_the_lines_that_others_need(tmp_path: Path) -> None:
    before = os.umask(0)  # the most generous
    try:
        done = gavel("init", "--folder", str(tmp_path / "state"), "--name", "head.example")
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert "gavel login head.example:7077 --token" in done.stdout
    assert "gavel worker --join head.example:7077 --token" in done.stdout
    assert "gvl_" not in done.stdout + done.stderr, "tokens are for terminals; a log gets the names of their files"
    assert str(tmp_path / "state" / FOLDER / "admin.token") in done.stdout
    assert "gavel serve --listen 0.0.0.0:7077" in done.stdout
    folder = tmp_path / "state" / FOLDER
    assert _mode(folder) == 0o700
    assert {_mode(path) for path in folder.iterdir()} == {0o600}
    assert {path.name for path in folder.iterdir()} >= {"authority.key", "server.key", "admin.token", "join.token"}


def test_a_password_of_the_journal_is_not_printed(tmp_path: Path) -> None:
    for url in ("postgresql://gavel:hunter2@127.0.0.1:1/x", "postgresql:/gavel:hunter2@"):
        for verb in ("serve", "init"):
            done = gavel(verb, "--folder", str(tmp_path), "--listen", "127.0.0.1:0", "--journal", url)
            assert done.returncode in {1, 2}
            assert "hunter2" not in done.stdout + done.stderr


def test_init_does_not_replace_what_is_there(tmp_path: Path) -> None:
    first = gavel("init", "--folder", str(tmp_path))
    before = (tmp_path / FOLDER / "authority.key").read_bytes()
    again = gavel("init", "--folder", str(tmp_path))
    assert (first.returncode, again.returncode) == (0, 2)
    assert "is set up already" in again.stderr
    assert (tmp_path / FOLDER / "authority.key").read_bytes() == before


def _mode(path: Path) -> Any:
    return stat.S_IMODE(path.stat().st_mode)
