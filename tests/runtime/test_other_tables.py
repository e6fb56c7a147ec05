"""A scheduler may be restarted with another throughput table: types are known by name, and running jobs stay put."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fault_fixtures import Folders
from virtual_fleet import VirtualFleet, job_request

from gavel.core.errors import InputError
from gavel.core.jobs import Entity
from gavel.core.throughputs import Condition, ThroughputTable, builtin_table, write_table
from gavel.estimator.learned import LearnedTable
from gavel.runtime.events import JobsSubmitted
from gavel.scheduler.machine import check_invariants

TEMPLATE, OTHER = "ResNet-18 (batch size 16)", "A3C"


def with_types(*types: str) -> ThroughputTable:
    """The built-in table with these types in this order; one that it lacks is twice as fast as its first."""
    table = builtin_table()
    columns = [table.types.index(kind) if kind in table.types else 0 for kind in types]
    scale = np.array([1.0 if kind in table.types else 2.0 for kind in types])
    return ThroughputTable(
        types, table.profiles, table.alone[:, columns] * scale[:, None], table.shared[..., columns] * scale
    )


TABLES = {
    "in another order": ("k80", "p100", "v100"),
    "that lacks a type of agents": ("v100", "p100"),
    "that lacks all types of agents": ("h100",),
    "with one more, first": ("h100", "v100", "p100", "k80"),
}


@pytest.mark.parametrize("types", TABLES.values(), ids=TABLES)
def test_running_jobs_stay_in_place_and_everything_completes_with_a_table(
    types: tuple[str, ...], fresh_folder: Folders, tmp_path: Path
) -> None:
    path = tmp_path / "table.json"
    write_table(with_types(*types), path)
    world = VirtualFleet(fresh_folder(), 1, round_seconds=4.0)
    world.boot()
    world.add_agent("a", "v100", 1)
    world.add_agent("b", "k80", 1)
    jobs = [world.submit(steps=80.0, template=TEMPLATE), world.submit(steps=40.0, template=OTHER)]
    world.run(3.0)
    assert world.engine is not None
    before = {job: dict(world.record(job).places) for job in jobs}
    assert all(before.values())
    world.with_settings(throughputs=str(path))
    world.kill_scheduler(0.5)
    world.run(1.0)
    assert world.engine is not None
    assert {job: dict(world.record(job).places) for job in jobs} == before
    assert [world.record(job).attempts for job in jobs] == [1, 1]
    check_invariants(world.engine.scheduler)
    assert world.engine.state.settings["throughputs"] == str(path)
    table = world.engine.scheduler.table
    assert isinstance(table, LearnedTable)
    assert table.base.types == types
    world.add_agent("c", "h100", 1)
    more = world.submit(steps=20.0, template="new")
    world.run_until_over()
    assert all(world.record(job).state == "completed" for job in (*jobs, more))
    world.kill_scheduler(0.5)
    world.run(2.0)
    assert world.engine is not None
    assert set(world.engine.scheduler.types) >= {"v100", "k80", "h100"}
    world.finish()


def test_figures_of_a_type_that_no_server_has_yet_are_taken_up_by_a_restart(
    fresh_folder: Folders, tmp_path: Path
) -> None:
    """They come with a profile; the type is one of the scheduler's once a server has it."""
    path = tmp_path / "profile.json"
    write_table(with_types("h100").only({OTHER}), path)
    world = VirtualFleet(fresh_folder(), 1, round_seconds=4.0)
    world.boot()
    world.add_agent("a", "v100", 1)
    job = world.submit(steps=60.0, template=OTHER)
    world.run(2.0)
    world.with_settings(profiled=(str(path),))
    world.kill_scheduler(0.5)
    world.run(1.0)
    assert world.record(job).attempts == 1
    assert world.engine is not None
    assert "h100" not in world.engine.scheduler.types
    world.run_until_over()
    world.add_agent("c", "h100", 1)
    world.run(2.0)
    world.submit(steps=1e6, template=OTHER)
    listed = float(with_types("h100").rates([(OTHER, 1)], ["h100"])[0, 0, 0])
    assert world.engine.scheduler.rates_of("2")["h100"] == pytest.approx(listed)
    world.finish()


def test_settings_that_do_not_fit_what_the_journal_has_end_the_start_with_a_sentence(fresh_folder: Folders) -> None:
    """They were left out without a word, and the old ones stayed in force."""
    world = VirtualFleet(fresh_folder(), 1)
    world.with_settings(entities={"lab": Entity(), "shop": Entity()})
    world.boot()
    assert world.engine is not None
    request = job_request(60.0, entity="lab")
    world.engine.post(JobsSubmitted(world.now, (request,), "key"))
    world.engine.take_in()
    world.close()
    world.with_settings(entities={"shop": Entity()})
    with pytest.raises(InputError, match="jobs belong to lab, but no such entity is described any more"):
        world.boot()
    world.finish()


@pytest.mark.parametrize("order", [("v100", "p100", "k80"), ("k80", "v100", "p100"), ("h100", "k80", "v100", "p100")])
def test_rates_and_pairs_are_those_of_their_type_in_any_order(order: tuple[str, ...]) -> None:
    usual, other = LearnedTable(builtin_table()), LearnedTable(with_types(*order), types=("v100", "p100", "k80"))
    for table in (usual, other):
        table.learn(Condition("mine", 1, "k80"), 3.0)
        table.learn(Condition("mine", 1, "v100", beside=TEMPLATE), 5.0)
        table.learn(Condition(TEMPLATE, 1, "v100", beside="mine"), 9.0)
    profiles, types = [("mine", 1), (TEMPLATE, 1), (OTHER, 1), (OTHER, 2)], ["k80", "v100", "p100"]
    if "h100" not in order:  # else the usual speed of types is another, and with it that of a template without figures
        np.testing.assert_allclose(other.rates(profiles, types), usual.rates(profiles, types))
    np.testing.assert_allclose(other.rates(profiles[1:], types), usual.rates(profiles[1:], types))
    listed = [(TEMPLATE, 1), (OTHER, 1)]
    for found, wanted in zip(other.pairs(listed, types), usual.pairs(listed, types), strict=True):
        np.testing.assert_allclose(found, wanted)


def test_a_type_that_the_table_lacks_is_taken_to_be_as_fast_as_its_fastest() -> None:
    table = LearnedTable(with_types("p100", "v100"), types=("k80", "v100", "p100"))
    k80, v100, p100 = table.rates([(TEMPLATE, 1)], ["k80", "v100", "p100"])[0, :, 0]
    assert k80 == max(v100, p100)
    assert v100 != p100
