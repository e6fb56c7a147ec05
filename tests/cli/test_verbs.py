"""The table of verbs: what `gavel --help` says, and what it does not load to say it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module

import pytest
import typer

from gavel.cli.app import VERBS, run


@pytest.mark.parametrize("name", VERBS)
def test_what_help_says_of_a_verb_is_what_the_verb_says_of_itself(name: str) -> None:
    verb = VERBS[name]
    found = getattr(import_module(f"gavel.cli.{verb.module}"), verb.attribute)
    assert said_of_itself(found).splitlines()[0] == verb.summary


def said_of_itself(found: object) -> str:
    """Its docstring, or that of the group it is."""
    if not isinstance(found, typer.Typer):
        return inspect.getdoc(found) or ""
    if isinstance(found.info.help, str):
        return found.info.help
    assert found.registered_callback is not None
    return inspect.getdoc(found.registered_callback.callback) or ""


def test_help_cuts_no_summary_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in VERBS)


@pytest.mark.parametrize("arguments", [[], ["trace"], ["bench"]])
def test_a_command_of_commands_alone_prints_its_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    alone = capsys.readouterr()
    assert run([*arguments, "--help"]) == 0
    assert alone == capsys.readouterr()
    assert len(alone.out.splitlines()) > 10


def test_a_misspelt_verb_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulat", "--jobs", "3"]) == 2
    assert "'simulate'" in capsys.readouterr().err


def test_help_loads_no_verb() -> None:
    code = """
import sys
from gavel.cli.app import run
assert run(["--help"]) == 0
sys.exit(any(f"gavel.cli.{name}" in sys.modules for name in ("simulate", "sweep", "bench", "allocate")))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
