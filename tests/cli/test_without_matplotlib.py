"""What commands do where matplotlib is not installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import gavel
from gavel.cli.app import run

REMEDY = "a plot needs matplotlib, which is not installed; run: pip install 'gavel-scheduler[plots]'"
SMALL = ["--cluster", "v100=1,k80=1"]


@pytest.fixture(autouse=True)
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name.startswith(("gavel.plots", "gavel.reproduce", "gavel.cli.reproduce", "matplotlib")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(vars(gavel), "plot", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


def test_a_run_that_is_to_be_drawn_is_refused_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plots = tmp_path / "plots"
    assert run(["simulate", *SMALL, "--static", "3", "--plots", str(plots)]) == 2
    assert capsys.readouterr().err == f"gavel: {REMEDY}\n"
    assert not plots.exists()


def test_a_sweep_has_its_numbers_and_says_why_there_are_no_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sweep", *SMALL, "--static", "2", "--out", str(tmp_path)]
    assert run(command) == 0
    said = capsys.readouterr()
    assert f"gavel: without plots: {REMEDY}" in said.err
    assert said.out.splitlines()[-1] == f"numbers: {tmp_path / 'results.csv'}"
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plots"] == []


def test_a_reproduction_is_refused_before_it_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reproduce", "colocation-heatmap", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"gavel: {REMEDY}\n"


def test_from_python_a_plot_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="run: pip install"):
        gavel.plot  # noqa: B018
