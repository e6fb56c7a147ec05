"""Snapshots of a scheduler for people: the figures add up, and taking a snapshot changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from gavel.core.cluster import Server
from gavel.core.codec import encode_command
from gavel.core.events import JobSubmitted, RoundDue, ServerJoined
from gavel.core.jobs import Entity, JobSpec
from gavel.core.throughputs import builtin_table
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Scheduler, Settings
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.rounds import Mechanism
from gavel.scheduler.snapshot import meant_for, server_snapshots, type_views
from stories import Story, Teller, stories

TABLE = builtin_table()


def machine(mechanism: Mechanism, *, space_sharing: bool = False) -> Scheduler:
    entities = {"lab": Entity(), "lab/vision": Entity(2.0)}
    return Scheduler(TABLE, mechanism, Settings(space_sharing=space_sharing), entities=entities)


def told(scheduler: Scheduler, story: Story) -> None:
    teller = Teller(story)
    for event in teller.events(scheduler):
        teller.hear(scheduler.handle(event))


def look(scheduler: Scheduler, time: float) -> None:
    server_snapshots(scheduler)
    type_views(scheduler, time)
    for job in scheduler.roster.slot_of:
        meant_for(scheduler, job)


@pytest.mark.parametrize("mechanism", [Credits, Priorities])
@pytest.mark.parametrize("space_sharing", [False, True])
@given(story=stories())
@settings(max_examples=10)
def test_looking_changes_no_command(mechanism: type[Mechanism], space_sharing: bool, story: Story) -> None:
    watched, alone = (machine(mechanism(), space_sharing=space_sharing) for _ in range(2))
    teller = Teller(story)
    for event in teller.events(watched):
        look(watched, event.time + 17.0)
        commands = watched.handle(event)
        assert [*map(encode_command, commands)] == [*map(encode_command, alone.handle(event))]
        teller.hear(commands)


@pytest.mark.parametrize("space_sharing", [False, True])
@given(story=stories())
@settings(max_examples=15)
def test_servers_and_types_agree_about_what_is_in_use(space_sharing: bool, story: Story) -> None:
    scheduler = machine(Credits(), space_sharing=space_sharing)
    told(scheduler, story)
    servers = server_snapshots(scheduler)
    used = dict.fromkeys(scheduler.types, 0)
    for server in servers:
        used[server.type] += server.accelerators - server.free
    assert {kind.name: kind.busy for kind in type_views(scheduler, 1e5)} == used
    placed = {
        (name, scheduler.roster.ids[slot])
        for run, where in scheduler.placed.items()
        for name in where
        for slot in run.members
    }
    assert {(server.name, job) for server in servers for job in server.jobs} == placed
    for job in scheduler.roster.slot_of:
        shares, _ = meant_for(scheduler, job)
        assert shares is None or sum(shares.values()) <= 1 + 1e-6


@given(story=stories())
@settings(max_examples=15)
def test_time_given_is_brought_up_to_date(story: Story) -> None:
    scheduler = machine(Credits(), space_sharing=True)
    told(scheduler, story)
    received = {job: scheduler.received_until(slot, 1e5).tolist() for job, slot in scheduler.roster.slot_of.items()}
    given_seconds = [kind.given_seconds for kind in type_views(scheduler, 1e5)]
    scheduler.account(1e5)
    after = scheduler.roster.received
    assert received == {job: after[slot].tolist() for job, slot in scheduler.roster.slot_of.items()}
    assert given_seconds == pytest.approx(scheduler.accelerator_seconds.tolist())


def test_the_shares_of_a_job_are_known_once_an_allocation_includes_it() -> None:
    scheduler = machine(Credits())
    story: Story = []
    told(scheduler, story)  # one server of two V100
    scheduler.handle(ServerJoined(0.0, Server("other", "k80", 4)))
    scheduler.handle(JobSubmitted(5.0, JobSpec("gang", "LM (batch size 5)", 2, 1e6, 3.0, "lab/vision", 600.0)))
    teller = Teller(story, time=5.0, due=[RoundDue(5.0)])
    while teller.due:
        teller.hear(scheduler.handle(teller.due.pop(0)))
    scheduler.handle(JobSubmitted(6.0, JobSpec("late", "A3C", 1, 1e6)))
    shares, limit = meant_for(scheduler, "gang")
    assert shares == {"v100": pytest.approx(1.0), "p100": 0.0, "k80": 0.0}
    assert limit == "has all of its time"
    assert meant_for(scheduler, "late") == (None, None)
    base = next(server for server in server_snapshots(scheduler) if server.name == "base")
    assert (base.type, base.accelerators, base.free, base.jobs) == ("v100", 2, 0, ("gang",))
    v100 = next(kind for kind in type_views(scheduler, 105.0) if kind.name == "v100")
    assert (v100.busy, v100.given_seconds) == (2, 200.0)


def test_an_empty_scheduler_has_given_nothing() -> None:
    scheduler = machine(Credits())
    assert server_snapshots(scheduler) == []
    assert [(kind.accelerators, kind.busy, kind.given_seconds) for kind in type_views(scheduler, 3.0)] == [
        (0, 0, 0.0) for _ in scheduler.types
    ]
