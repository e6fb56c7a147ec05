"""Logs and traces in files of every layout; totals are counted a second time without our readers."""

from __future__ import annotations

from pathlib import Path

import pytest

import recounts
from gavel.workload.formats import read_trace

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize(("name", "bound"), [("pods.csv", False), ("pods-with-models.csv", True)])
def test_alibabas_pods(name: str, bound: bool) -> None:
    _, models = recounts.check_pods(DATA / name)
    assert (models > 0) is bound


def test_alibabas_pods_without_times() -> None:
    recounts.check_pods_without_times(DATA / "pods-without-times.csv")


def test_alibabas_nodes() -> None:
    recounts.check_nodes(DATA / "nodes.csv")


def test_sias_job_list() -> None:
    recounts.check_sia(DATA / "sia.csv")


def test_a_log_with_the_columns_of_helios() -> None:
    recounts.check_helios(DATA / "helios.csv")


def test_shockwaves_trace() -> None:
    assert recounts.check_shockwave(DATA / "shockwave.trace") == 40


def test_an_artefacts_trace_is_read_as_it_is() -> None:
    trace = read_trace(DATA / "artefact.trace", table=recounts.TABLE)
    rows = [line.split("\t") for line in (DATA / "artefact.trace").read_text().splitlines()]
    found = [(job.template, job.steps, job.workers, job.arrival) for job in trace.jobs]
    assert found == [(row[0], float(row[5]), int(row[6]), float(row[9])) for row in rows]
    assert trace.notes == ()


def test_a_trace_in_our_own_format_with_a_table_of_other_types() -> None:
    recounts.check_own_format(DATA / "other-types.csv", DATA / "other-types.json")


@pytest.mark.parametrize(
    "name",
    [
        *("pods.csv", "pods-with-models.csv", "pods-without-times.csv", "sia.csv", "helios.csv"),
        *("shockwave.trace", "artefact.trace"),
    ],
)
def test_what_is_converted_is_read_back_the_same(name: str, tmp_path: Path) -> None:
    recounts.check_round_trip(DATA / name, tmp_path / "t.csv")
