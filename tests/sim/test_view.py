"""Observers, plots and figures read a view of the scheduler; the parts that drive it change it by events alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings

from gavel.core.codec import encode_command
from gavel.core.throughputs import builtin_table
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Scheduler, Settings
from gavel.sim.view import View
from stories import Story, Teller, stories

SIM = Path(__file__).parents[2] / "src" / "gavel" / "sim"
MODULES = sorted(SIM.glob("*.py"))
DRIVERS = {"simulate.py", "ideal.py"}
"""The modules that create a scheduler, send it events and dump it."""
ASKED_BY_DRIVERS = {"handle", "problem", "table", "unanswered"}


@pytest.mark.parametrize("path", [path for path in MODULES if path.name not in {*DRIVERS, "view.py"}], ids=str)
def test_only_the_drivers_and_the_view_know_the_scheduler(path: Path) -> None:
    imported = {
        alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert "Scheduler" not in imported


@pytest.mark.parametrize("name", sorted(DRIVERS))
def test_a_simulation_sends_events_to_the_scheduler_and_reads_it_only_through_its_view(name: str) -> None:
    used = {
        node.attr
        for node in ast.walk(ast.parse((SIM / name).read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).split(".")[-1] in {"scheduler", "books"}
    }
    assert "handle" in used
    assert used <= ASKED_BY_DRIVERS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_part_of_a_simulation_reads_private_attributes_of_another(path: Path) -> None:
    assert "SLF001" not in path.read_text(), "the lint rule for private access is switched off here"


@given(story=stories())
@settings(max_examples=15)
def test_looking_changes_no_command(story: Story) -> None:
    watched, alone = machine(), machine()
    teller, view = Teller(story), View(watched)
    for event in teller.events(watched):
        look(view, event.time + 17.0)
        commands = watched.handle(event)
        assert [*map(encode_command, commands)] == [*map(encode_command, alone.handle(event))]
        teller.hear(commands)


def look(view: View, later: float) -> None:
    for job in view.jobs:
        assert view.figures(job, later).received.tolist() == view.received_until(job, later).tolist()
        assert view.figures(job, later).restarts == view.restarts(job)
    assert len(view.given_seconds(later)) == len(view.types)
    assert sum(len(run.jobs) for run in view.placed()) == view.running_count == len(list(view.running()))
    assert len(view.steps_left(view.jobs)) == view.job_count


@given(story=stories())
@settings(max_examples=15)
def test_time_received_at_any_time_equals_what_the_scheduler_accounts_for_then(story: Story) -> None:
    scheduler = told(story)
    view, later = View(scheduler), 1e6
    figures = {job: view.figures(job, later).received.tolist() for job in view.jobs}
    given_seconds = view.given_seconds(later).tolist()
    scheduler.account(later)
    assert figures == {job: view.received[view.slot(job)].tolist() for job in view.jobs}
    assert given_seconds == scheduler.accelerator_seconds.tolist()


@pytest.mark.parametrize("name", ["received", "slots"])
def test_arrays_of_a_view_are_read_only(name: str) -> None:
    shown = getattr(View(told([])), name)
    with pytest.raises(ValueError, match="read-only"):
        shown[...] = 1


def machine() -> Scheduler:
    return Scheduler(builtin_table(), Credits(), Settings(space_sharing=True))


def told(story: Story) -> Scheduler:
    """A scheduler that has handled the events of a story."""
    scheduler, teller = machine(), Teller(story)
    for event in teller.events(scheduler):
        teller.hear(scheduler.handle(event))
    return scheduler
