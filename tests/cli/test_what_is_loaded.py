"""Which libraries a command loads: imports take most of a short command's time, so each loads only what it uses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_scheduler import FakeScheduler
from gavel.cli.app import CLIENT, VERBS
from gavel.wire import gavel_pb2 as pb

SOURCE = Path(__file__).parents[2] / "src" / "gavel"
HEAVY = {"numpy", "scipy", "highspy", "matplotlib", "sqlalchemy", "pandas", "torch", "cvxpy"}
LAYERS_ABOVE = {path.parent.name for path in SOURCE.glob("*/__init__.py")} - {"wire", "client", "cli"}
PRINT_LOADED = "; import sys; print(*sorted(sys.modules), file=sys.stderr)"


@pytest.fixture
def fake() -> Iterator[FakeScheduler]:
    scheduler = FakeScheduler()
    scheduler.jobs["1"] = pb.JobView(id="1", state=pb.QUEUED, request=pb.JobRequest(command=["true"], workers=1))
    yield scheduler
    scheduler.stop()


def loaded(code: str, scheduler: str = "127.0.0.1:1") -> set[str]:
    """The modules in memory after some code."""
    command = [sys.executable, "-c", code + PRINT_LOADED]
    environment = {"PYTHONPATH": ":".join(sys.path), "GAVEL_SCHEDULER": scheduler}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return set(ended.stderr.split())


def after(*arguments: str, scheduler: str = "127.0.0.1:1") -> set[str]:
    return loaded(f"from gavel.cli.app import run; assert run({list(arguments)}) == 0", scheduler)


def test_importing_the_client_package_loads_only_the_standard_library() -> None:
    names = {name.partition(".")[0] for name in loaded("import gavel.client") - loaded("pass")}
    assert names - sys.stdlib_module_names == {"gavel"}


def test_the_api_client_loads_the_network_library_and_nothing_else_of_ours() -> None:
    names = loaded("from gavel import Client; Client")
    assert "grpc" in names
    assert not names & (HEAVY | {"rich", "yaml", "typer", "pydantic"})
    assert not names & {f"gavel.{layer}" for layer in LAYERS_ABOVE}


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_loads_no_verb_and_no_library_of_one(argument: str) -> None:
    names = after(argument)
    assert not names & (HEAVY | {"rich", "yaml", "grpc", "pydantic"})
    assert {name for name in names if name.startswith("gavel.")} == {
        *("gavel.cli", "gavel.cli.app", "gavel.errors", "gavel.version")
    }


CLIENT_VERBS = [name for name, verb in VERBS.items() if verb.package == CLIENT]


@pytest.mark.parametrize("verb", CLIENT_VERBS)
def test_the_help_of_a_verb_of_the_client_loads_neither_network_nor_tables(verb: str) -> None:
    names = after(verb, "--help")
    assert not names & (HEAVY | {"rich", "yaml", "grpc"})
    assert not names & {f"gavel.{layer}" for layer in LAYERS_ABOVE}


@pytest.mark.parametrize(
    "arguments",
    [
        *(["jobs", "--json"], ["job", "1", "--json"], ["cluster", "--json"], ["events"], ["logs", "1"]),
        *(["cancel", "1"], ["submit", "--", "true"]),
    ],
    ids=" ".join,
)
def test_a_command_that_draws_no_table_loads_no_library_for_it(fake: FakeScheduler, arguments: list[str]) -> None:
    fake.detail = pb.JobDetail(job=fake.jobs["1"])
    names = after(*arguments, scheduler=fake.address)
    assert not names & (HEAVY | {"rich", "yaml"})


def test_contexts_need_no_network(tmp_path: Path) -> None:
    code = f"import os; os.environ['XDG_CONFIG_HOME'] = {str(tmp_path)!r}; from gavel.cli.app import run; "
    names = loaded(code + "assert run(['context']) == 0; assert run(['context', 'list']) == 0")
    assert not names & (HEAVY | {"rich", "yaml", "grpc"})


@pytest.mark.parametrize("verb", ["jobs", "cluster"])
def test_a_command_that_draws_a_table_loads_that_library_and_no_solver(fake: FakeScheduler, verb: str) -> None:
    names = after(verb, scheduler=fake.address)
    assert "rich.table" in names or "rich.console" in names
    assert not names & (HEAVY | {"yaml"})
    assert not names & {f"gavel.{layer}" for layer in LAYERS_ABOVE}
