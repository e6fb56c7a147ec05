"""Logs that others published; totals are counted a second time without our readers."""

from __future__ import annotations

from pathlib import Path

import pytest
from place import DATA

import recounts

REAL = DATA / "real"


@pytest.mark.parametrize(("name", "bound"), [("openb_pod_list_default.csv", 0), ("openb_pod_list_gpuspec33.csv", 2092)])
def test_alibabas_pods(name: str, bound: int) -> None:
    assert recounts.check_pods(REAL / name) == (6203, bound)


def test_alibabas_pods_without_times() -> None:
    recounts.check_pods_without_times(REAL / "openb_pod_list_multigpu50_head.csv")


def test_alibabas_nodes() -> None:
    recounts.check_nodes(REAL / "openb_node_list_gpu_node.csv")


def test_sias_job_list() -> None:
    recounts.check_sia(REAL / "sia_philly_11cb48_oct.csv")


def test_philly_in_the_columns_of_helios() -> None:
    recounts.check_helios(REAL / "philly_11cb48_14d_helios_form.csv")


def test_shockwaves_trace() -> None:
    assert recounts.check_shockwave(REAL / "shockwave_900_12col.trace") == 900


@pytest.mark.parametrize("path", sorted((DATA / "sia").glob("*-[0-9]*.csv")), ids=lambda path: path.name)
def test_traces_in_our_own_format_with_sias_table(path: Path) -> None:
    recounts.check_own_format(path, DATA / "sia" / "sia-rigid-throughputs.json")


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(REAL.glob("*")) if "node" not in path.name and path.suffix != ".md"],
    ids=lambda path: path.name,
)
def test_what_is_converted_is_read_back_the_same(path: Path, tmp_path: Path) -> None:
    recounts.check_round_trip(path, tmp_path / "t.csv")
