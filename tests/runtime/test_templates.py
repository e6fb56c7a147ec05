"""What was learned about templates without jobs leaves memory for the journal's table, and comes back as a fact."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fault_fixtures import Folders
from fault_scenarios import Scenario, base, crashed, restarts, submits
from virtual_fleet import VirtualFleet

from gavel.core.locality import Locality
from gavel.core.throughputs import Condition, builtin_table
from gavel.estimator.learned import LearnedTable
from gavel.journal.retention import Retention
from gavel.runtime import templates
from gavel.runtime.configuration import Configurator
from gavel.runtime.facts import TemplateRecalled, TemplatesForgotten
from gavel.runtime.recovery import recover
from journal_places import Place

TYPES = ["v100", "k80"]
KNOWN = "ResNet-18 (batch size 16)"


@pytest.fixture(autouse=True)
def few_spare_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "SPARE_TEMPLATES", 2)


@pytest.fixture
def world(fresh_folder: Folders) -> VirtualFleet:
    world = VirtualFleet(fresh_folder(), 1, round_seconds=4.0)
    world.boot()
    world.add_agent("a", "v100", 1)
    world.add_agent("b", "k80", 1)
    return world


def table_of(world: VirtualFleet) -> LearnedTable:
    assert world.engine is not None
    table = world.engine.scheduler.table
    assert isinstance(table, LearnedTable)
    return table


def run_jobs(world: VirtualFleet, *names: str) -> None:
    for name in names:
        world.submit(steps=60.0, template=name)
        world.run_until_over()


def rates(world: VirtualFleet, template: str) -> list[float]:
    return [float(rate) for rate in table_of(world).rates([(template, 1)], TYPES)[0, :, 0]]


def recalled(world: VirtualFleet) -> list[str]:
    return [fact.learned["template"] for fact in world.story if isinstance(fact, TemplateRecalled)]


# ---- a table ----


def taught() -> LearnedTable:
    table = LearnedTable(builtin_table())
    for name, rate in (("mine", 3.0), ("yours", 5.0)):
        table.learn(Condition(name, 1, "k80"), rate)
        table.learn(Condition(name, 2, "k80", locality=Locality.CLUSTER), 1.5 * rate)
        table.learn(Condition(name, 1, "v100", beside=KNOWN), rate)
        table.learn(Condition(KNOWN, 1, "v100", beside=name), 2 * rate)
    table.learn(Condition("mine", 1, "v100", beside="yours"), 1.0)
    table.learn(Condition("yours", 1, "v100", beside="mine"), 2.0)
    table.fail(Condition("mine", 1, "k80", beside=KNOWN), "out of memory")
    return table


def told(table: LearnedTable) -> list[object]:
    """What a scheduler asks a table."""
    profiles = [("mine", 1), ("yours", 1), ("mine", 2), (KNOWN, 1)]
    first, second, pairs = table.pairs(profiles, TYPES)
    measured = {key: sorted(map(str, part)) for key, part in table.measurements.document().items() if key != "ignored"}
    return [table.rates(profiles, TYPES).tolist(), first.tolist(), second.tolist(), pairs.tolist(), measured]


def test_a_template_that_is_forgotten_and_recalled_is_as_it_was() -> None:
    table = taught()
    before = told(table)
    taken = json.loads(json.dumps(table.forget(["mine", "yours"])))
    assert table.forgettable() == []
    assert table.rates([("mine", 1)], TYPES).tolist() == table.rates([("never seen", 1)], TYPES).tolist()
    for name in ("yours", "mine"):
        table.recall(taken[name])
    assert told(table) == before


def test_forgetting_one_template_leaves_what_is_known_of_others() -> None:
    table = taught()
    alone = table.rates([("yours", 1), (KNOWN, 1)], TYPES)
    fingerprint = table.fingerprint("yours")
    table.forget(["mine"])
    np.testing.assert_array_equal(table.rates([("yours", 1), (KNOWN, 1)], TYPES), alone)
    assert table.fingerprint("yours") == fingerprint
    assert not [c for c in table.measured() if "mine" in (c.template, c.beside)]


def test_what_was_measured_since_counts_more_than_what_is_recalled() -> None:
    table = taught()
    taken = table.forget(["mine"])
    table.learn(Condition("mine", 1, "k80"), 30.0)
    table.recall(taken["mine"])
    assert table.measured()[Condition("mine", 1, "k80")] == 30.0
    assert table.measured()[Condition("mine", 2, "k80", locality=Locality.CLUSTER)] == 4.5


def test_templates_of_the_table_and_profiled_ones_are_never_forgotten() -> None:
    table = taught()
    assert table.forgettable() == ["mine", "yours"]
    again = LearnedTable(builtin_table().only({KNOWN}))
    again.begin_with(builtin_table().only({"A3C"}))
    assert again.measurements.knows("A3C")
    assert again.forgettable() == []


# ---- a cluster ----


def test_memory_holds_few_templates_however_many_there_were(world: VirtualFleet) -> None:
    run_jobs(world, *(f"t{number}" for number in range(12)))
    assert len(table_of(world).forgettable()) <= 4
    assert [fact for fact in world.story if isinstance(fact, TemplatesForgotten)]
    world.finish()


def test_templates_with_jobs_are_not_forgotten(world: VirtualFleet) -> None:
    world.submit(steps=1e6, template="busy")
    world.run(10.0)
    assert table_of(world).measurements.knows("busy")
    for number in range(8):
        job = world.submit(steps=20.0, template=f"t{number}")
        world.run(16.0)
        assert world.record(job).finished
    gone = {name for fact in world.story if isinstance(fact, TemplatesForgotten) for name in fact.templates}
    assert gone >= {"t0", "t1"}
    assert "busy" not in gone
    assert table_of(world).measurements.knows("busy")
    world.finish()


@pytest.mark.parametrize("kept", [False, True])
def test_a_job_of_a_template_that_was_forgotten_begins_with_what_was_learned(world: VirtualFleet, kept: bool) -> None:
    """Whether the journal's table has it already, or it is still on its way there."""
    run_jobs(world, "mine")
    known = rates(world, "mine")
    assert known[0] == pytest.approx(10.0)
    run_jobs(world, *(f"t{number}" for number in range(6)))
    assert not table_of(world).measurements.knows("mine")
    engine = world.engine
    assert engine is not None
    if kept:
        engine.keep_state()
        assert not engine.state.forgotten
        assert "mine" in engine.journal.learned()
        world.kill_scheduler(0.5)
        world.run(3.0)
    world.submit(steps=60.0, template="mine")
    assert rates(world, "mine") == known
    assert recalled(world) == ["mine"]
    world.run_until_over()
    world.submit(steps=60.0, template="mine")
    assert recalled(world) == ["mine"], "what is in memory is not read again"
    world.finish()


def test_what_restarts_cost_comes_back_too(world: VirtualFleet) -> None:
    scheduler = world.engine.scheduler if world.engine else None
    assert scheduler is not None
    run_jobs(world, "mine")
    scheduler.beliefs.restarts["mine"] = 77.0
    run_jobs(world, *(f"t{number}" for number in range(6)))
    assert "mine" not in scheduler.measured_restarts()
    world.submit(steps=60.0, template="mine")
    assert scheduler.measured_restarts()["mine"] == 77.0
    world.finish()


def test_recovery_needs_no_row_of_the_table(world: VirtualFleet) -> None:
    run_jobs(world, "mine", *(f"t{number}" for number in range(6)))
    engine = world.engine
    assert engine is not None
    engine.keep_state()
    world.submit(steps=1e4, template="mine")
    world.run(5.0)
    before = json.dumps(engine.state.document(), sort_keys=True)
    with engine.journal._writer.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM learned")
    state = recover(engine.journal, Configurator(world.settings.scheduling))
    assert json.dumps(state.document(), sort_keys=True) == before
    world.finish()


FORGETFUL = Scenario(
    (
        *((4.0 * number, submits(f"j{number}", 20.0, template=f"t{number % 5}")) for number in range(7)),
        (14.0, restarts(0.5)),
    ),
    world={"facts_between_states": 9},
    lasts=200.0,
)


def test_templates_come_and_go_safely_wherever_the_scheduler_ends(fresh_folder: Folders) -> None:
    world = base(FORGETFUL, fresh_folder())
    assert recalled(world)
    world.checker.check_prefixes()
    world.finish()
    for at in range(1, world.points + 1, 3):
        crashed(FORGETFUL, fresh_folder(), at).finish()


# ---- the table ----


def test_what_was_learned_is_kept_with_the_state_for_a_limited_number_of_templates(
    place: Place, tmp_path: Path
) -> None:
    del tmp_path
    learned = {f"t{number}": {"template": f"t{number}", "time": float(number % 7)} for number in range(14)}
    with place.open() as journal:
        journal.append([{"kind": "tick", "time": 1.0}])
        journal.keep({}, 1, learned=learned)
        assert Retention(learned_templates=14).apply(journal, 1.0).learned == 0
        assert Retention(learned_templates=4).apply(journal, 1.0).learned == 10
        assert sorted(journal.learned()) == ["t12", "t13", "t5", "t6"]
        assert journal.check().problems == ()
