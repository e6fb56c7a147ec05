"""What shells complete, as the shells themselves ask for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_scheduler import FakeScheduler
from gavel.cli.completion import SCRIPTS, Shell
from gavel.cli.completion_answers import answers
from gavel.wire import gavel_pb2 as pb
from needs import needs_shell

EVIL = ("$(touch x)", "a;b", "`x`", "a b", "\x1b[2J", "'", "a\nb", "~x", "*", "#x", "!1")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeScheduler]:
    scheduler = FakeScheduler()
    monkeypatch.setenv("GAVEL_SCHEDULER", scheduler.address)
    for name in ("resnet", *EVIL):
        scheduler._add(pb.JobRequest(command=["a"], name=name, tags={"team": "vision", name: name}, user="ada"))
    scheduler._add(pb.JobRequest(command=["a"], array_id="a7", index=0))
    scheduler.move("2", pb.COMPLETED)
    for name in ("v100", "k80"):
        scheduler.view.servers.add(name=name, agent=name, type=name, accelerators=1)
    yield scheduler
    scheduler.stop()


def words(*line: str) -> list[str]:
    """What the last word of a line can be."""
    return [word for word, _ in answers(["gavel", *line], len(line))]


def test_verbs_options_and_values_are_completed(fake: FakeScheduler) -> None:
    del fake
    assert words("ca") == ["cancel"]
    assert {"submit", "jobs", "hold"} <= set(words(""))
    assert words("submit", "--ty") == ["--types"]
    assert "--yes" in words("cancel", "-")
    assert words("worker", "dr") == ["drain"]
    assert sorted(words("submit", "--types", "")) == ["k80", "v100"]
    assert words("submit", "--prefer", "v100,") == ["v100,k80"]
    assert words("jobs", "--state", "run") == ["running"]
    assert words("jobs", "--state=qu") == ["--state=queued"]
    assert words("jobs", "--state", "=", "qu") == ["queued"], "bash splits at the equals sign"
    assert words("jobs", "--name", "") == ["resnet"]
    assert words("submit", "--name", "") == [], "a new name is not an old one"
    assert words("edit", "--named", "res") == ["resnet"]
    assert words("jobs", "--tag", "t") == ["team=vision"]
    assert words("jobs", "--user", "") == ["ada"]
    assert {"a7", "1", "3"} <= set(words("cancel", ""))
    assert "2" not in words("cancel", "")
    assert "2" in words("job", "")
    assert words("submit", "--", "tr") == words("submit", "job.ya") == []
    assert words("completion", "z") == ["zsh"]


def test_names_that_a_shell_would_run_are_not_offered(fake: FakeScheduler) -> None:
    del fake
    offered = [*words("jobs", "--name", ""), *words("jobs", "--tag", ""), *words("cancel", "")]
    assert not any(name in word for word in offered for name in EVIL if name != "*")


def test_nothing_is_offered_and_nothing_fails_without_a_scheduler(
    fake: FakeScheduler, capfd: pytest.CaptureFixture[str]
) -> None:
    fake.stop()
    assert words("cancel", "") == []
    assert words("submit", "--types", "") == []
    assert words("nonsense", "x", "") == words("")
    assert words("submit", "--st") == ["--steps"]
    assert capfd.readouterr() == ("", "")
    fake.start()


ASK = {
    "bash": 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gavel; printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": """
compdef() { :; }
compadd() { print -l -- $values; }
_files() { print files; }
source "$1"; shift; words=("$@"); CURRENT=$#; _gavel""",
    "fish": 'source $argv[1]; complete -C "$argv[2..]" | string replace -r "\\t.*" ""; true',
}


@pytest.mark.parametrize("shell", [pytest.param(name, marks=needs_shell[name]) for name in ASK])
def test_the_script_works_in_the_shell(fake: FakeScheduler, tmp_path: Path, shell: str) -> None:
    del fake
    script, program = tmp_path / "script", tmp_path / "gavel"
    script.write_text(SCRIPTS[Shell(shell)])
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gavel "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}

    def ask(*line: str) -> list[str]:
        arguments = [" ".join(line)] if shell == "fish" else line
        prefix = {"bash": ["--norc", "-c", ASK[shell], "x"], "zsh": ["-f", "-c", ASK[shell], "x"]}
        command = [shell, *prefix.get(shell, ["--no-config", "-c", ASK[shell]]), str(script), *arguments]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert ended.stderr == ""
        return ended.stdout.split()

    assert ask("gavel", "canc") == ["cancel"]
    assert ask("gavel", "submit", "--types", "v") == ["v100"]
    assert {"1", "3", "a7"} <= set(ask("gavel", "hold", ""))
