"""Preferred types: a job waits for them for a while, and never where they cannot come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from virtual_fleet import VirtualFleet

from gavel.client.views import JobState
from gavel.core.events import TypesAllowed
from gavel.core.facts import RoundPlanned
from gavel.runtime.facts import document_of
from gavel.runtime.preferences import PREFERENCE_ROUNDS
from gavel.runtime.timeline import sentence
from gavel.runtime.views import reason_of

Boot = Callable[..., VirtualFleet]


@pytest.fixture(name="boot")
def _boot(tmp_path: Path) -> Iterator[Boot]:
    made: list[VirtualFleet] = []

    def make(**agents: int) -> VirtualFleet:
        world = VirtualFleet(tmp_path, round_seconds=4.0)
        world.with_settings(policy="fifo")
        world.solving = lambda: 0.0
        world.boot()
        for kind, count in agents.items():
            world.add_agent(f"with-{kind}", kind, count)
        world.run(2.0)
        made.append(world)
        return world

    yield make
    for each in made:
        each.finish()


def submitted(world: VirtualFleet, label: str, steps: float = 1e4, **wanted: object) -> None:
    world.client_submits(label, steps, **wanted)
    world.run(1.0)


def type_of(world: VirtualFleet, label: str) -> str:
    return world.record(world.keys[label]).type


def allowed(world: VirtualFleet) -> list[TypesAllowed]:
    return [fact for fact in world.story if isinstance(fact, TypesAllowed)]


def test_a_job_waits_for_a_preferred_type_for_a_few_rounds_and_then_takes_any(boot: Boot) -> None:
    here = boot(v100=1, k80=1)
    submitted(here, "busy", types=("v100",))
    submitted(here, "picky", prefer=("v100",))
    assert type_of(here, "busy") == "v100"
    assert here.engine is not None
    assert reason_of(here.engine, here.record(here.keys["picky"])).endswith(
        f"it prefers v100, and may use its other types after {PREFERENCE_ROUNDS} more rounds"
    )
    here.run(4.0 * (PREFERENCE_ROUNDS - 1))
    assert type_of(here, "picky") == ""
    assert allowed(here) == []
    here.run(8.0)
    assert type_of(here, "picky") == "k80"
    [waived] = allowed(here)
    assert (waived.types, waived.cause.code) == (None, "waited")
    waited = [
        fact
        for fact in here.story
        if isinstance(fact, RoundPlanned) and not fact.mid_round and fact.time <= waived.time
    ]
    assert len(waited) >= PREFERENCE_ROUNDS
    document = document_of(waived)
    told = f"job {here.keys['picky']} may run on any type: it has waited for a preferred type for 5 rounds"
    assert sentence(document["kind"], document["fact"]) == told


def test_a_preferred_type_that_is_idle_is_used_even_if_another_is_faster(boot: Boot) -> None:
    here = boot(h100=1, k80=1)
    submitted(here, "x", prefer=("k80",))
    assert type_of(here, "x") == "k80"


def test_a_job_does_not_wait_for_a_type_that_no_server_has_or_has_too_few_of(boot: Boot) -> None:
    here = boot(v100=1, k80=2)
    submitted(here, "absent", prefer=("h100",))
    submitted(here, "small", prefer=("v100",), workers=2)
    here.run(4.0)
    assert {fact.cause.code for fact in allowed(here)} == {"no_preferred_type"}
    assert type_of(here, "absent") in {"v100", "k80"}


def test_a_job_that_can_run_nowhere_keeps_its_preference_until_its_type_comes(boot: Boot) -> None:
    here = boot(k80=1)
    submitted(here, "x", prefer=("v100",), types=("v100", "p100"))
    here.run(30.0)
    assert allowed(here) == []
    here.add_agent("late", "v100", 1)
    here.run(6.0)
    assert type_of(here, "x") == "v100"


def test_a_waiting_job_prefers_again_when_a_preferred_type_comes_back(boot: Boot) -> None:
    here = boot(k80=1)
    submitted(here, "busy", steps=1e6, types=("k80",))
    submitted(here, "x", prefer=("v100",))
    assert [fact.cause.code for fact in allowed(here)] == ["no_preferred_type"]
    here.add_agent("late", "v100", 1)
    here.run(6.0)
    assert [fact.cause.code for fact in allowed(here)] == ["no_preferred_type", "preferred"]
    assert allowed(here)[-1].types == ("v100",)
    assert type_of(here, "x") == "v100"


def test_rounds_in_which_a_job_could_not_run_do_not_count_as_waiting(boot: Boot) -> None:
    here = boot(v100=1, k80=1)
    submitted(here, "busy", types=("v100",))
    submitted(here, "picky", prefer=("v100",))
    assert here.engine is not None
    state, job = here.engine.state, here.keys["picky"]
    here.run(9.0)
    assert state.preferences.rounds[job] > 0
    slot = state.scheduler.roster.slot_of[job]
    state.scheduler._on_hold.add(slot)
    here.run(4.0)
    assert state.preferences.rounds[job] == 0
    state.scheduler._on_hold.discard(slot)


def test_an_edit_of_the_preference_of_a_running_job_stops_nothing_and_counts_when_it_waits(boot: Boot) -> None:
    here = boot(v100=1, k80=1)
    submitted(here, "busy", types=("v100",))
    submitted(here, "x", types=("k80", "v100"), prefer=("k80",))
    assert type_of(here, "x") == "k80"
    here.client_edits("x", prefer=("v100",))
    here.run(1.0)
    record = here.record(here.keys["x"])
    assert (record.state, record.type, record.attempts) == (JobState.RUNNING, "k80", 1)
    assert here.engine is not None
    preferences = here.engine.state.preferences
    assert preferences.free == {record.id: "no_preferred_type"}
    here.client_edits("x", weight=2.0)
    here.run(1.0)
    assert preferences.free == {record.id: "no_preferred_type"}
    here.client_edits("x", prefer=())
    here.run(1.0)
    assert (preferences.free, preferences.rounds) == ({}, {})


def test_what_a_job_prefers_and_has_waited_survives_a_restart(boot: Boot) -> None:
    here = boot(v100=1, k80=1)
    submitted(here, "busy", types=("v100",))
    submitted(here, "picky", prefer=("v100",))
    here.run(9.0)
    assert here.engine is not None
    before = here.engine.state.preferences.document()
    assert before["rounds"][here.keys["picky"]] > 0
    here.kill_scheduler(0.25)
    here.run(0.5)
    assert here.engine is not None
    assert here.engine.state.preferences.document() == before
