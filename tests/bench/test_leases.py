"""How renewals are sorted into rounds, and what counts as late."""

from __future__ import annotations

import pytest

from gavel.bench.fleet.leases import rounds_of, spread_of


def test_a_renewal_is_late_by_the_time_since_the_announced_end_of_the_round() -> None:
    found = rounds_of([(0.0, 5.0), (5.3, 10.3), (10.3, 15.3)], 5.0)
    assert found.late == pytest.approx([0.3, 0.0])


def test_message_delay_to_a_slow_agent_does_not_move_the_announced_end() -> None:
    found = rounds_of([(0.9, 5.9), (0.0, 5.0), (5.0, 10.0), (5.4, 10.4)], 5.0)
    assert found.late == pytest.approx([0.0, 0.4])
    assert found.spread == pytest.approx([0.0, 0.9, 0.0, 0.4])


def test_a_round_that_begins_late_is_not_on_time_however_quickly_it_is_told() -> None:
    found = rounds_of([(0.0, 5.0), (8.0, 13.0), (8.01, 13.01), (13.1, 18.1)], 5.0)
    assert len(found.starts) == 3
    assert found.on_time(0.5) == 1


def test_without_renewals_there_are_no_rounds_and_no_figures() -> None:
    found = rounds_of([], 5.0)
    assert (found.starts, found.on_time(1.0), spread_of("renewal", found.late)) == ([], 0, {})
