"""The public artefact's files beside the built-in models, and what the docs say of how far they are apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from place import DATA

from gavel.core import builtin
from gavel.core.scaling import scaled
from gavel.core.throughputs import ThroughputTable, builtin_table, read_table, write_table
from gavel.workload.formats import read_trace

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["throughputs-simulation.json", "throughputs-physical.json"])
def test_the_public_files_can_be_read_and_survive_a_round_trip(tmp_path: Path, name: str) -> None:
    table = read_table(DATA / name)
    assert sorted(table.types) == ["k80", "p100", "v100"]
    assert len(table.templates) == 26
    write_table(table, tmp_path / "written.json")
    again = read_table(tmp_path / "written.json")
    assert set(again.profiles) == set(table.profiles)
    np.testing.assert_array_equal(again.rates(table.profiles, table.types), table.rates(table.profiles, table.types))
    for mine, other in zip(*(each.pairs(table.profiles, table.types) for each in (again, table)), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_missing_unconsolidated_k80_figure_of_the_public_file_is_the_consolidated_one() -> None:
    rates = read_table(DATA / "throughputs-simulation.json").rates(
        [("ResNet-50 (batch size 64)", 2), ("ResNet-50 (batch size 32)", 2)], ["k80"]
    )
    assert rates[0, 0, 0] == rates[0, 0, 1] > 0
    assert rates[1, 0, 0] != rates[1, 0, 1]


def test_single_worker_rates_are_those_of_the_public_file_to_four_digits() -> None:
    table, public = builtin_table(), read_table(DATA / "throughputs-simulation.json")
    assert table.templates == public.templates
    singles = [(template, 1) for template in table.templates]
    np.testing.assert_allclose(table.rates(singles, table.types), public.rates(singles, table.types), rtol=5e-4)


def test_scaling_over_workers_is_near_the_public_file() -> None:
    table, public = builtin_table(), read_table(DATA / "throughputs-simulation.json")
    assert set(table.profiles) == set(public.profiles)
    several = [profile for profile in table.profiles if profile[1] > 1]
    modelled, measured = (each.rates(several, table.types) for each in (table, public))
    np.testing.assert_array_equal(modelled > 0, measured > 0)
    runs = (measured > 0).all(axis=(1, 2))
    errors = np.abs(modelled[runs] / measured[runs] - 1).mean(axis=0)
    # v100 consolidated is not smooth in the number of workers; see docs/throughputs.md.
    assert (errors < [[0.16, 0.05], [0.03, 0.04], [0.03, 0.04]]).all()


@pytest.mark.parametrize(
    ("name", "most_error", "zeros", "reproduced"),
    [("v100", 0.09, 21, 20), ("p100", 0.03, 11, 11), ("k80", 0.03, 45, 43)],
)
def test_sharing_is_near_the_public_file(name: str, most_error: float, zeros: int, reproduced: int) -> None:
    table, public = builtin_table(), read_table(DATA / "throughputs-simulation.json")
    modelled, measured = (kept_rates(each, table.templates, name) for each in (table, public))
    pairs = np.triu(np.ones_like(measured, dtype=bool))
    assert (measured[pairs] == 0).sum() == zeros
    assert ((measured == 0) & (modelled == 0))[pairs].sum() == reproduced
    assert (modelled[measured > 0] > 0).all()
    assert np.abs(modelled - measured)[measured > 0].mean() < most_error


def kept_rates(table: ThroughputTable, templates: tuple[str, ...], name: str) -> np.ndarray[Any, Any]:
    """The share of its rate that every template keeps beside every other."""
    profiles = [(template, 1) for template in templates]
    first, second, rates = table.pairs(profiles, [name])
    shared = np.zeros((len(profiles), len(profiles)))
    shared[first, second], shared[second, first] = rates[:, 0, 0], rates[:, 1, 0]
    return shared / table.rates(profiles, [name])[:, :, 0]


def test_the_fit_can_be_repeated(tmp_path: Path) -> None:
    output = tmp_path / "fitted.json"
    script = ROOT / "tools" / "fit_throughputs.py"
    public = DATA / "throughputs-simulation.json"
    command = [sys.executable, str(script), str(public), "--output", str(output)]
    subprocess.run(command, check=True, capture_output=True)
    fitted, shipped = builtin.parse_parameters(output.read_text("utf-8")), builtin.load_parameters()
    # Another linear algebra library may end in another last digit: compare rates, not files.
    np.testing.assert_allclose(builtin.scaled_rates(fitted), builtin.scaled_rates(shipped), rtol=0.01)
    apart = np.abs(builtin.shared_rates(fitted) - builtin.shared_rates(shipped)) / shipped.rate[:, None, :]
    assert apart.max() < 0.01


@pytest.mark.parametrize(
    ("kind", "hidden", "errors"),
    [
        *(("v100", 8, (0.48, 0.20)), ("v100", 4, (0.55, 0.12)), ("p100", 8, (0.12, 0.11))),
        *(("p100", 4, (0.05, 0.06)), ("k80", 8, (0.10, 0.06)), ("k80", 4, (0.06, 0.03))),
    ],
)
def test_hidden_figures_are_missed_by_what_the_docs_say(kind: str, hidden: int, errors: tuple[float, float]) -> None:
    table = read_table(DATA / "throughputs-simulation.json")
    shown = [count for count in (1, 2, 4, 8) if count != hidden]
    missed = []
    for template in table.templates:
        if table.workers(template) == (1, 2, 4, 8):
            [true] = table.rates([(template, hidden)], [kind])[:, 0]
            guess = scaled(shown, table.rates([(template, count) for count in shown], [kind])[:, 0], hidden)
            missed += [np.abs(guess / true - 1.0)] if true.all() and guess.all() else []
    assert np.mean(missed, axis=0).tolist() == pytest.approx(errors, abs=0.006)


def test_the_artefacts_own_traces_are_read_as_they_are() -> None:
    table = read_table(DATA / "throughputs-simulation.json")
    sizes = {path.name: len(read_trace(path, table=table).jobs) for path in DATA.glob("*.trace")}
    assert sizes["physical-continuous.trace"] == 96
    assert sizes["c36_static100_s0.trace"] == 100
    trace = read_trace(DATA / "c12_single_l2700_s0.trace", table=table)
    assert trace.jobs[1].steps == 343170.46864225325
    assert trace.jobs[1].arrival == 733.7582187309046
    assert trace.notes == ()
