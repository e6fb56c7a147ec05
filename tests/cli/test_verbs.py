"""The table of verbs: what `gavel --help` says, and what it does not load to say it."""

from __future__ import annotations

import ast
import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from gavel.cli.app import CLIENT, VERBS, run

SOURCE = Path(__file__).parents[2] / "src" / "gavel"
GAVEL = [sys.executable, "-c", "from gavel.cli.app import main; main()"]
CLIENT_LAYERS = ("client", "wire")


@pytest.mark.parametrize("name", VERBS)
def test_what_help_says_of_a_verb_is_what_the_verb_says_of_itself(name: str) -> None:
    verb = VERBS[name]
    assert said_of_itself(verb.load()).splitlines()[0] == verb.summary


def said_of_itself(found: object) -> str:
    """Its docstring, or that of its group."""
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


def test_verbs_of_the_client_import_nothing_of_the_scheduler() -> None:
    reached = {path.relative_to(SOURCE).parts[0] for path in client_files() if path.parent != SOURCE}
    assert reached == {"cli", *CLIENT_LAYERS}


def test_with_the_client_alone_help_lists_the_verbs_that_work(client_alone: Path) -> None:
    shown = gavel_in(client_alone, "--help").stdout
    listed = {line.split()[0] for line in shown.partition("Commands:")[2].partition("\n\n")[0].splitlines() if line}
    assert listed == {name for name, verb in VERBS.items() if verb.package == CLIENT}
    assert "With gavel-scheduler also: policies, allocate," in shown


def test_a_verb_that_is_not_installed_names_the_package_to_install(client_alone: Path) -> None:
    ended = gavel_in(client_alone, "serve", "--port", "0")
    assert ended.returncode == 2
    assert "gavel: `gavel serve` needs gavel.cli.serve" in ended.stderr
    assert "pip install gavel-scheduler" in ended.stderr


@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if verb.package == CLIENT])
def test_a_verb_of_the_client_loads_with_the_client_alone(client_alone: Path, name: str) -> None:
    ended = gavel_in(client_alone, name, "--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert VERBS[name].summary in ended.stdout


@pytest.fixture(scope="module")
def client_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with only those modules of ours that the client's verbs import."""
    place = tmp_path_factory.mktemp("client")
    for path in client_files():
        copy = place / "gavel" / path.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return place


def gavel_in(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(place), "PATH": "", "COLUMNS": "200"}
    command = [*GAVEL, *arguments]
    return subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True, check=False)


def client_files() -> set[Path]:
    """The command line without verbs, the client's layers, and what verbs of the client import of `cli`."""
    found = {*SOURCE.glob("*.py"), SOURCE / "cli" / "__init__.py", SOURCE / "cli" / "app.py"}
    found |= {path for name in CLIENT_LAYERS for path in (SOURCE / name).rglob("*.py")}
    new = [source_of(verb.module) for verb in VERBS.values() if verb.package == CLIENT]
    while new:
        path = new.pop()
        if path not in found:
            found.add(path)
            new += map(source_of, imported(path))
    return found


def source_of(module: str) -> Path:
    path = SOURCE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(path: Path) -> set[str]:
    """Modules of ours that a module imports, also those that it imports when they are needed."""
    froms = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom))
    return {node.module for node in froms if node.module and node.module.startswith("gavel.")}
