"""Servers of different sizes: no more is allocated than can be placed, and jobs receive close to that."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gavel.core.allocation import Allocation
from gavel.core.problem import Problem
from gavel.core.throughputs import builtin_table
from gavel.policies.mechanisms import MechanismName
from gavel.policies.registry import allocate
from gavel.scheduler.machine import Settings
from gavel.sim.experiment import Experiment, mechanism_of, prepare
from gavel.sim.ideal import simulate_ideally
from gavel.sim.simulate import simulate

ROOT = Path(__file__).parents[2]
SIZES = (8, 4, 4, 2, 2, 2, 2)
SERVERS = "v100=1x8+2x4+4x2"
MODEL = "LM (batch size 5)"
"""Eight workers make eight times as many steps on one server as on several."""


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_servers", ROOT / "tools" / "compare_servers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def lab(folder: Path, jobs: dict[int, int], mechanism: MechanismName = "credits") -> Experiment:
    """Jobs of ten hours on V100s that all arrive at the start; `jobs` has their number by workers."""
    hours = {workers: 36_000.0 * builtin_table().rates([(MODEL, workers)], ["v100"])[0, 0, 0] for workers in jobs}
    lines = [f"{MODEL},{workers},{hours[workers]},0" for workers, number in jobs.items() for _ in range(number)]
    file = folder / "lab.csv"
    file.write_text("\n".join(["template,workers,steps,arrival_seconds", *lines, ""]))
    return Experiment(cluster=SERVERS, trace=str(file), mechanism=mechanism)


def together(allocation: Allocation, workers: int) -> float:
    """The number of gangs of at least this size that are allocated consolidated time."""
    problem = allocation.problem
    size = dict(zip(problem.jobs.ids, problem.profiles.workers[problem.jobs.profile].tolist(), strict=True))
    return sum(row.consolidated.get("v100", 0.0) for row in allocation.rows() if size[row.jobs[0]] >= workers)


@pytest.mark.parametrize("agnostic", [False, True])
@pytest.mark.parametrize("ideal", [False, True])
def test_no_more_consolidated_gangs_are_allocated_than_servers_hold(
    ideal: bool, agnostic: bool, tmp_path: Path
) -> None:
    experiment = lab(tmp_path, {8: 3, 4: 6, 2: 3, 1: 8})
    scene, fullest = prepare(experiment), dict.fromkeys((2, 4, 8), 0.0)

    def solver(problem: Problem) -> Allocation:
        assert problem.types[0].servers == SIZES
        allocation = allocate(problem, heterogeneity_agnostic=agnostic, compare=False)
        for workers in fullest:
            room = sum(size // workers for size in SIZES)
            fullest[workers] = max(fullest[workers], together(allocation, workers) / room)
        return allocation

    if ideal:
        outcome = simulate_ideally(scene.trace, scene.cluster, scene.table, solver, Settings())
    else:
        outcome = simulate(scene.trace, scene.cluster, scene.table, solver, mechanism_of(experiment), Settings())
    assert outcome.drained
    assert fullest[8] == pytest.approx(1.0)
    assert max(fullest.values()) <= 1.0 + 1e-9


@pytest.mark.parametrize("mechanism", ["credits", "plain"])
@pytest.mark.parametrize("jobs", [{8: 3, 4: 4, 1: 8}, {8: 2, 4: 2, 1: 6}], ids=["crowded", "less crowded"])
def test_large_gangs_receive_about_their_allocation_if_it_accounts_for_servers(
    mechanism: MechanismName, jobs: dict[int, int], tmp_path: Path
) -> None:
    experiment, figures = lab(tmp_path, jobs, mechanism), tool().figures
    hidden, known = (figures(experiment, hidden=hidden) for hidden in (True, False))
    allocated_by_made, apart, *_ = range(6)
    assert hidden[allocated_by_made] > 1.5
    assert 0.9 < known[allocated_by_made] < 1.15
    assert known[apart] < 0.65 * hidden[apart]
