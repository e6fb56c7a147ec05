"""The page on adding a mechanism: its code and its commands are run as they stand there."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gavel
from gavel.cli.app import run
from gavel.core.errors import InputError
from gavel.sim.experiment import Experiment
from gavel.sim.experiment import run as simulate
from gavel.sim.resume_file import ResumeFile
from gavel.sim.simulate import Underway

PAGE = (Path(__file__).parents[2] / "docs" / "add-a-mechanism.md").read_text()
SHORT, LASTING = "my_mechanisms.MostOwed", "my_mechanisms.LastingMostOwed"
"""The classes of the two blocks."""
LOADS: dict[str, dict[str, Any]] = {
    "gangs and failures": {"multi_worker": True, "failures_per_server_day": 2.0, "repair_hours": 1.0},
    "pairs": {"space_sharing": True},
    "teams": {"policy": "hierarchical", "entities": "a,b"},
    "deadlines": {"policy": "min_cost_slo", "slo": (1.2, 2.0, 10.0)},
    "estimated": {"throughputs_known": 0.5, "space_sharing": True},
}


def block(title: str) -> str:
    """A code block of the page."""
    [code] = re.findall(rf'```python title="{title}"\n(.*?)```', PAGE, re.DOTALL)
    return str(code)


def commands() -> list[tuple[list[str], list[str]]]:
    """The `gavel` commands of the page, as arguments, with the lines that they print."""
    found = []
    for text in re.findall(r"^```\n(\$ .*?)```", PAGE, re.DOTALL | re.MULTILINE):
        for part in text.replace("\\\n", "").split("$ ")[1:]:
            command, *lines = part.splitlines()
            if command.startswith("gavel "):
                found.append((shlex.split(command)[1:], lines))
    return found


@pytest.fixture(autouse=True, scope="module")
def importable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The blocks as the file that the page calls it."""
    directory = tmp_path_factory.mktemp("own")
    first, second = block("my_mechanisms.py"), block("my_mechanisms.py, continued")
    (directory / "my_mechanisms.py").write_text(f"{first}\n\n{second}")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        patch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)  # for the processes of a sweep
        yield


def experiment(mechanism: str, **settings: Any) -> Experiment:
    load = {"cluster": "v100=8,p100=8,k80=8", "jobs": 24, "arrivals_per_hour": 3.0, **settings}
    return Experiment(mechanism=mechanism, **load)


def test_it_takes_forty_lines() -> None:
    assert len(block("my_mechanisms.py").splitlines()) <= 40


@pytest.mark.parametrize("load", LOADS)
def test_all_jobs_are_done_with_it(load: str) -> None:
    assert simulate(experiment(SHORT, **LOADS[load])).figures.jobs_completed == 24


def test_its_class_can_be_given_from_python() -> None:
    from my_mechanisms import MostOwed  # type: ignore[import-not-found] # noqa: PLC0415 - a module of the page

    report = gavel.simulate(cluster="v100=2,k80=2", jobs=8, mechanism=MostOwed)
    assert report.experiment.mechanism == SHORT
    assert report.figures.jobs_completed == 8


def test_its_commands_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers may differ by 5%: those of our mechanisms move when rules are improved."""
    monkeypatch.chdir(tmp_path)
    simulated, swept, served = commands()
    assert served[0] == ["serve", "--mechanism", LASTING]
    for arguments, lines in (simulated, swept):
        assert run(arguments) == 0
        printed = capsys.readouterr().out.splitlines()
        for line in lines:
            if line != "…":
                assert any(alike(line, other) for other in printed), (line, printed)


def alike(line: str, other: str) -> bool:
    """Whether two lines have the same words, and numbers that are nearly the same."""
    words, others = line.split(), other.split()
    return len(words) == len(others) and all(map(_same, words, others))


def _same(word: str, other: str) -> bool:
    try:
        return float(other) == pytest.approx(float(word), rel=0.05)
    except ValueError:
        return word == other


def test_it_restarts_jobs_less_often_than_priorities() -> None:
    load: dict[str, Any] = {"cluster": "v100=4,p100=4,k80=4", "arrivals_per_hour": 0.7, "jobs": 100, "window": (20, 80)}
    mine, priorities = (simulate(experiment(name, **load)).figures.restarts_per_job for name in (SHORT, "priorities"))
    assert mine is not None
    assert priorities is not None
    assert mine < priorities / 10


class CutError(Exception):
    """The simulation was cut here."""


class Cutter:
    """Writes a simulation down after a number of events, and ends it."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.written: dict[str, Any] = {}

    def between(self, simulation: Underway) -> None:
        self.left -= 1
        if not self.left:
            self.written = json.loads(json.dumps(simulation.dump(), allow_nan=False))
            raise CutError


@pytest.mark.parametrize("after", [3, 40, 120])
def test_with_two_more_methods_it_can_be_interrupted(after: int) -> None:
    theirs = experiment(LASTING, space_sharing=True, multi_worker=True)
    cutter = Cutter(after)
    with pytest.raises(CutError):
        simulate(theirs, attendants=[cutter])
    whole, resumed = simulate(theirs), simulate(theirs, start=cutter.written)
    assert resumed.outcome.dump()["jobs"] == whole.outcome.dump()["jobs"]


def test_without_them_it_is_refused_where_its_state_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="--resume stores its state; give it the methods dump and restore"):
        ResumeFile(tmp_path / "kept", experiment(SHORT))
    assert ResumeFile(tmp_path / "kept", experiment(LASTING)).found() is None
    assert run(["serve", "--mechanism", SHORT, "--folder", str(tmp_path)]) == 2
    assert f"mechanism {SHORT}: a scheduler stores its state" in capsys.readouterr().err
