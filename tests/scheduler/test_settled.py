"""The cache of settled plans and the rules alone give the same commands for any sequence of events."""

from __future__ import annotations

import pytest
from hypothesis import given

from gavel.core.codec import encode_command
from gavel.core.throughputs import builtin_table
from gavel.estimator.learned import LearnedTable
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Scheduler, Settings, check_invariants
from gavel.scheduler.patience import Patience
from gavel.scheduler.rounds import Plan, RoundInput
from gavel.scheduler.rules import Rules
from gavel.scheduler.settled import Settled
from stories import Story, Teller, stories

TABLE = builtin_table()
PATIENT, IMPATIENT = Rules(), Rules(patience=Patience(horizon_seconds=36_000.0, turn_restarts=3.0))


class Uncached(Credits):
    """The reference: applies the rules in every round."""

    def decide(self, given: RoundInput) -> Plan:
        self._settled = None
        return super().decide(given)


@pytest.mark.parametrize("space_sharing", [False, True])
@pytest.mark.parametrize("rules", [PATIENT, IMPATIENT], ids=["patient", "impatient"])
@given(story=stories(at_most=60))
def test_settled_plans_change_no_command(rules: Rules, space_sharing: bool, story: Story) -> None:
    how = Settings(space_sharing=space_sharing, open_entities=True)
    cached, reference = (Scheduler(LearnedTable(TABLE), kind(rules), how) for kind in (Credits, Uncached))
    teller = Teller(story, open=True)
    for event in teller.events(cached):
        commands = cached.handle(event)
        assert [*map(encode_command, commands)] == [*map(encode_command, reference.handle(event))]
        check_invariants(cached)
        teller.hear(commands)


def test_stories_with_many_rounds_settle() -> None:
    """Otherwise the test above would compare the rules with themselves."""
    scheduler = Scheduler(LearnedTable(TABLE), Credits(), Settings())
    teller = Teller([("submit", 1, 0), ("submit", 2, 1), *[("round", 0, 0)] * 12])
    for event in teller.events(scheduler):
        teller.hear(scheduler.handle(event))
    assert isinstance(scheduler.mechanism, Credits)
    assert isinstance(scheduler.mechanism._settled, Settled)
