"""Snapshots: they tell the truth, all of it as JSON, and looking changes nothing."""

from __future__ import annotations

import json

import numpy as np
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
from gavel.scheduler.snapshot import take
from stories import Story, Teller, stories

TABLE = builtin_table()


def machine(mechanism: Mechanism, *, space_sharing: bool = False) -> Scheduler:
    entities = {"lab": Entity(), "lab/vision": Entity(2.0)}
    return Scheduler(TABLE, mechanism, Settings(space_sharing=space_sharing), entities=entities)


def told(scheduler: Scheduler, story: Story) -> None:
    teller = Teller(story)
    for event in teller.events(scheduler):
        teller.hear(scheduler.handle(event))


@pytest.mark.parametrize("mechanism", [Credits, Priorities])
@pytest.mark.parametrize("space_sharing", [False, True])
@given(story=stories())
@settings(max_examples=10)
def test_looking_changes_no_command(mechanism: type[Mechanism], space_sharing: bool, story: Story) -> None:
    watched, alone = (machine(mechanism(), space_sharing=space_sharing) for _ in range(2))
    teller = Teller(story)
    for event in teller.events(watched):
        take(watched, event.time + 17.0)
        commands = watched.handle(event)
        assert [*map(encode_command, commands)] == [*map(encode_command, alone.handle(event))]
        teller.hear(commands)


@pytest.mark.parametrize("space_sharing", [False, True])
@given(story=stories())
@settings(max_examples=15)
def test_everything_in_a_snapshot_adds_up(space_sharing: bool, story: Story) -> None:
    scheduler = machine(Credits(), space_sharing=space_sharing)
    told(scheduler, story)
    snapshot = take(scheduler, 1e5)
    assert len(snapshot.jobs) == snapshot.running + snapshot.waiting
    assert snapshot.running == sum(job.state == "running" for job in snapshot.jobs)
    assert snapshot.busy == sum(server.accelerators - server.free for server in snapshot.servers)
    assert snapshot.busy == sum(kind.busy for kind in snapshot.types)
    on_servers = {(server.name, job) for server in snapshot.servers for job in server.jobs}
    assert on_servers == {(name, job.id) for job in snapshot.jobs if job.place for name in job.place.servers}
    for job in snapshot.jobs:
        if job.place and job.place.beside:
            partner = next(other for other in snapshot.jobs if other.id == job.place.beside)
            assert partner.place is not None
            assert (partner.place.beside, partner.place.servers) == (job.id, job.place.servers)
        if job.shares is not None:
            assert sum(job.shares.values()) <= 1 + 1e-6
    assert json.loads(json.dumps(snapshot.document(), allow_nan=False)) == snapshot.document()


@given(story=stories())
@settings(max_examples=15)
def test_time_received_is_brought_up_to_date(story: Story) -> None:
    scheduler = machine(Credits(), space_sharing=True)
    told(scheduler, story)
    snapshot = take(scheduler, 1e5)
    scheduler.account(1e5)
    received = scheduler.roster.received
    for job in snapshot.jobs:
        assert list(job.received.values()) == received[scheduler.roster.slot_of[job.id]].tolist()
    assert [kind.given_seconds for kind in snapshot.types] == pytest.approx(scheduler.accelerator_seconds.tolist())


def test_a_snapshot_tells_what_is_known_of_a_job() -> None:
    scheduler = machine(Credits())
    story: Story = []
    told(scheduler, story)  # one server of two V100
    scheduler.handle(ServerJoined(0.0, Server("other", "k80", 4)))
    scheduler.handle(JobSubmitted(5.0, JobSpec("gang", "LM (batch size 5)", 2, 1e6, 3.0, "lab/vision", 600.0)))
    teller = Teller(story, time=5.0, due=[RoundDue(5.0)])
    while teller.due:
        teller.hear(scheduler.handle(teller.due.pop(0)))
    scheduler.handle(JobSubmitted(6.0, JobSpec("late", "A3C", 1, 1e6)))
    gang, late = take(scheduler, 105.0).jobs
    assert gang.place is not None
    assert (gang.place.type, gang.place.servers, gang.place.consolidated) == ("v100", {"base": 2}, True)
    assert (gang.state, gang.entity, gang.weight, gang.deadline) == ("running", "lab/vision", 3.0, 605.0)
    assert gang.received["v100"] == 100.0
    assert gang.shares == {"v100": pytest.approx(1.0), "p100": 0.0, "k80": 0.0}
    assert gang.limit == "has all of its time"
    assert (late.state, late.has_run, late.place, late.shares, late.limit) == ("waiting", False, None, None, None)
    allocation = take(scheduler, 105.0).allocation
    assert allocation is not None
    assert (allocation.policy, allocation.solved_at, allocation.jobs) == ("max_min_fairness", 5.0, 1)
    assert allocation.bound == pytest.approx(allocation.objective)


def test_an_empty_scheduler_has_an_empty_snapshot() -> None:
    snapshot = take(machine(Credits()), 3.0)
    assert (snapshot.jobs, snapshot.servers, snapshot.allocation, snapshot.round_ends) == ((), (), None, None)
    assert np.isclose(sum(kind.given_seconds for kind in snapshot.types), 0.0)
