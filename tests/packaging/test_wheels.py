"""What is in each of the two packages. (`make release-check` also installs them.)"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from wheels import PROJECTS, ROOT, build, modules, project

from gavel.cli.app import CLIENT, SCHEDULER, VERBS
from gavel.version import __version__

SOURCE = ROOT / "src"
LIBRARIES = {"grpc": "grpcio", "google": "protobuf", "yaml": "pyyaml"}
"""Packages whose modules have another name."""
OPTIONAL = {"cvxpy", "matplotlib", "pandas", "torch", "transformers", "lightning"}
"""Imported where they are installed; a sentence says which extra brings them."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The modules in the wheel of each package."""
    place = tmp_path_factory.mktemp("wheels")
    return {name: modules(build(name, place)) for name in PROJECTS}


def written() -> set[str]:
    """The files of the import package in this tree."""
    paths = (path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(SOURCE)) for path in paths}


def test_no_file_is_in_both_wheels(files: dict[str, set[str]]) -> None:
    assert not files[CLIENT] & files[SCHEDULER]


def test_every_file_is_in_one_of_the_wheels(files: dict[str, set[str]]) -> None:
    missing = written() - files[CLIENT] - files[SCHEDULER]
    assert not missing


def test_modules_of_the_client_import_nothing_of_the_scheduler(files: dict[str, set[str]]) -> None:
    ours = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in files[CLIENT]}
    # The front door names what it loads when asked, and says which package brings what is missing.
    for name in sorted(files[CLIENT] - {"gavel/__init__.py"}):
        if name.endswith(".py"):
            reached = {module for module in imported(SOURCE / name) if module.split(".")[0] == "gavel"}
            assert reached <= ours, f"{name} imports {reached - ours}; list them in packages/client/pyproject.toml"


def imported(path: Path) -> set[str]:
    """Absolute names of all modules that a file imports, also within functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in below if is_module(name)}
            found |= modules if len(modules) == len(below) else {node.module, *modules}
    return found


def is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


@pytest.mark.parametrize("name", PROJECTS)
def test_a_package_depends_on_the_libraries_that_it_imports_and_on_no_other(
    files: dict[str, set[str]], name: str
) -> None:
    paths = [SOURCE / file for file in files[name] if file.endswith(".py")]
    tops = {module.split(".")[0] for path in paths for module in imported(path)} - sys.stdlib_module_names - {"gavel"}
    wanted = {LIBRARIES.get(top, top) for top in tops} - OPTIONAL
    named = [re.split(r"[<>=]", line) for line in project(name)["project"]["dependencies"]]
    assert {line[0] for line in named} - {"gavel-client"} == wanted


@pytest.mark.parametrize("name", ["simulate", "allocate", "Experiment", "POLICIES", "plot"])
def test_with_the_client_alone_a_name_of_the_scheduler_says_what_to_install(client_alone: Path, name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", f"from gavel import {name}"],
        cwd=client_alone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr.splitlines()[-1] == (
        f"gavel.errors.NotInstalledError: gavel.{name} needs gavel-scheduler, which is not installed; "
        "run: pip install gavel-scheduler"
    )


@pytest.fixture(scope="module")
def client_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the client's wheel holds."""
    place = tmp_path_factory.mktemp("client")
    ZipFile(build(CLIENT, place)).extractall(place)
    return place


def test_verbs_are_in_the_package_that_the_command_line_names(files: dict[str, set[str]]) -> None:
    for name, verb in VERBS.items():
        assert f"{verb.module.replace('.', '/')}.py" in files[verb.package], name


def test_the_scheduler_needs_the_client_of_its_own_version() -> None:
    assert f"gavel-client=={__version__}" in project(SCHEDULER)["project"]["dependencies"]


def test_only_the_client_brings_the_command() -> None:
    assert project(CLIENT)["project"]["scripts"] == {"gavel": "gavel.cli.app:main"}
    assert "scripts" not in project(SCHEDULER)["project"]


def test_both_packages_have_the_same_licence_and_support_the_same_pythons() -> None:
    assert (ROOT / "LICENSE").read_text() == (PROJECTS[CLIENT] / "LICENSE").read_text()
    client, scheduler = (project(name)["project"] for name in (CLIENT, SCHEDULER))
    assert client["requires-python"] == scheduler["requires-python"]
    assert pythons(client["classifiers"]) == pythons(scheduler["classifiers"]) == ["3.11", "3.12", "3.13"]


def pythons(classifiers: list[str]) -> list[str]:
    return [line.rpartition(" ")[2] for line in classifiers if line.startswith("Programming Language :: Python ::")]
