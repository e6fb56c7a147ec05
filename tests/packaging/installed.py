"""The packages as users install them: each from its wheel, in a separate environment.

`make release-check` runs this file. It needs the index that pip uses and about a minute, so `make test` leaves it out.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from wheels import PROJECTS, build, modules

from gavel.cli.app import CLIENT, SCHEDULER, VERBS
from gavel.version import __version__

PATIENCE_SECONDS = 300.0
HEAVY = ("numpy", "scipy", "highspy", "matplotlib", "sqlalchemy", "pandas", "torch")
TRAINING = """
from gavel import GavelIterator

seen = []
steps = GavelIterator(
    range(10),
    load_checkpoint=lambda folder: seen.extend((folder / "seen").read_text().split()),
    save_checkpoint=lambda folder: (folder / "seen").write_text(" ".join(map(str, seen))),
)
while not steps.done:
    for batch in steps:
        seen.append(batch)
print(f"trained {steps.step} steps")
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment in which packages are installed."""

    place: Path

    def run(self, program: str, *arguments: str, code: int = 0) -> str:
        """Run a program of the environment to its end and return what it printed, errors included."""
        ended = subprocess.run(
            [str(self.program(program)), *arguments],
            cwd=self.place,
            env=clean(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert ended.returncode == code, ended.stdout
        return ended.stdout

    def program(self, name: str) -> Path:
        return self.place / "bin" / name

    def has(self, module: str) -> bool:
        found = self.run("python", "-c", f"from importlib.util import find_spec; print(find_spec({module!r}))")
        return found != "None\n"


def clean() -> dict[str, str]:
    """This process's environment without what would let other packages in."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("GAVEL_", "PYTHON", "VIRTUAL"))}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    for name in PROJECTS:
        build(name, place)
        build(name, place, "sdist")
    return place


def environment(place: Path, dist: Path, *packages: str) -> Environment:
    venv.create(place, with_pip=True)
    made = Environment(place)
    made.run("python", "-m", "pip", "install", "--quiet", "--find-links", str(dist), *packages)
    made.run("python", "-m", "pip", "check")
    return made


@pytest.fixture(scope="module")
def client(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return environment(tmp_path_factory.mktemp("client"), dist, f"{CLIENT}=={__version__}")


@pytest.fixture(scope="module")
def scheduler(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return environment(tmp_path_factory.mktemp("scheduler"), dist, f"{SCHEDULER}=={__version__}")


@pytest.mark.parametrize("name", PROJECTS)
def test_a_source_distribution_gives_the_same_wheel(dist: Path, name: str, tmp_path: Path) -> None:
    stem = f"{name.replace('-', '_')}-{__version__}"
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path)]
    subprocess.run([*command, str(dist / f"{stem}.tar.gz")], check=True)
    assert modules(tmp_path / f"{stem}-py3-none-any.whl") == modules(dist / f"{stem}-py3-none-any.whl")


def test_the_client_brings_no_solver_and_no_database(client: Environment) -> None:
    assert [module for module in HEAVY if client.has(module)] == []


def test_the_scheduler_brings_no_plots_and_no_torch(scheduler: Environment) -> None:
    assert [module for module in HEAVY if scheduler.has(module)] == ["numpy", "scipy", "highspy", "sqlalchemy"]


def test_the_client_has_the_commands_of_users(client: Environment) -> None:
    assert client.run("gavel", "--version") == f"gavel {__version__}\n"
    for name, verb in VERBS.items():
        if verb.package == CLIENT:
            assert verb.summary in client.run("gavel", name, "--help")
        else:
            assert "pip install gavel-scheduler" in client.run("gavel", name, code=2)


def test_a_training_script_runs_with_the_client_alone(client: Environment, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    assert client.run("python", str(tmp_path / "train.py")) == "trained 10 steps\n"


def test_the_scheduler_has_every_command(scheduler: Environment) -> None:
    for name, verb in VERBS.items():
        if name != "reproduce":
            assert verb.summary in scheduler.run("gavel", name, "--help")
    assert "pip install 'gavel-scheduler[plots]'" in scheduler.run("gavel", "reproduce", code=2)


def test_the_demo_runs_to_its_end(scheduler: Environment) -> None:
    jobs = json.loads(scheduler.run("gavel", "demo", "--jobs", "3", "--seconds", "2", "--json"))["jobs"]
    assert [job["state"] for job in jobs] == ["completed"] * 4


@contextmanager
def background(place: Environment, log: Path, *arguments: str) -> Iterator[None]:
    """A command of the scheduler while the context lasts."""
    with log.open("w") as file:
        command = [str(place.program("gavel")), *arguments]
        process = subprocess.Popen(command, cwd=place.place, env=clean(), stdout=file, stderr=file)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def test_jobs_of_a_client_environment_run_on_the_servers_of_a_scheduler(
    client: Environment, scheduler: Environment, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    address = free_address()
    serve = ["--listen", address, "--folder", str(tmp_path / "journal"), "--round-seconds", "1"]
    worker = ["--scheduler", address, "--emulate", "v100=1", "--state", str(tmp_path / "agent")]
    shared = ["--checkpoints", str(tmp_path / "checkpoints")]
    with ExitStack() as stack:
        stack.enter_context(background(scheduler, tmp_path / "scheduler.log", "serve", *serve))
        stack.enter_context(background(scheduler, tmp_path / "worker.log", "worker", *worker, *shared))
        wait_for(address)
        job = [str(client.program("python")), str(tmp_path / "train.py")]
        asked = ["--scheduler", address, "--steps", "30", "--template", "A3C", "--wait"]
        assert "completed" in client.run("gavel", "submit", *asked, "--", *job)
        assert client.run("gavel", "logs", "1", "--scheduler", address) == "trained 30 steps\n"


def wait_for(address: str) -> None:
    """Return when a server listens there."""
    host, _, port = address.partition(":")
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        assert time.monotonic() < give_up, f"nothing listens at {address}"
        time.sleep(0.05)


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_without_the_scheduler_the_client_stays_whole(dist: Path, tmp_path: Path) -> None:
    both = environment(tmp_path, dist, f"{SCHEDULER}=={__version__}")
    both.run("python", "-m", "pip", "uninstall", "--quiet", "--yes", SCHEDULER)
    assert VERBS["submit"].summary in both.run("gavel", "submit", "--help")
    assert not both.has("gavel.core")
