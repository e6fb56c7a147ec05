"""Rates of calls and failed logins: what is admitted in any interval, and how much is remembered."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.security.rates import Buckets, Failures, Rates, network_of


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    gaps=st.lists(st.floats(0.0, 3.0) | st.just(0.0), min_size=1, max_size=120),
    rate=st.floats(0.1, 20.0),
    burst=st.integers(1, 10),
)
@settings(max_examples=200)
def test_no_interval_admits_more_than_its_rate_and_the_burst(gaps: list[float], rate: float, burst: int) -> None:
    clock = Clock()
    buckets = Buckets(rate, burst, clock)
    admitted = []
    for now in accumulate(gaps):
        clock.now = now
        if not buckets.take("ann"):
            admitted.append(now)
    for first, begin in enumerate(admitted):
        for last in range(first, len(admitted)):
            assert last - first + 1 <= burst + rate * (admitted[last] - begin) + 1e-6


@given(gaps=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=60), rate=st.floats(0.1, 20.0), burst=st.integers(1, 10))
def test_a_refused_call_is_admitted_after_the_wait_that_it_was_told(gaps: list[float], rate: float, burst: int) -> None:
    clock = Clock()
    buckets = Buckets(rate, burst, clock)
    for gap in gaps:
        clock.now += gap
        if wait := buckets.take("ann"):
            assert buckets.wait("ann") == pytest.approx(wait)
            clock.now += wait * (1 + 1e-9) + 1e-9
            assert not buckets.take("ann")


def test_two_hundred_calls_at_once_are_admitted_and_fifty_more_each_second() -> None:
    clock = Clock()
    rates = Rates(clock)
    assert [rates.admit("token") for _ in range(200)] == [None] * 200
    assert rates.admit("token") == "too many calls: at most 50 a second, 200 at once; wait 0.02 s and try again"
    assert rates.admit("another token") is None
    clock.now += 1.0
    assert sum(rates.admit("token") is None for _ in range(200)) == 50


def test_a_clock_that_is_set_back_admits_nothing_more() -> None:
    clock = Clock()
    clock.now = 100.0
    buckets = Buckets(1.0, 2, clock)
    assert [buckets.take("ann"), buckets.take("ann")] == [0.0, 0.0]
    clock.now = 0.0
    assert buckets.take("ann") == pytest.approx(1.0)
    clock.now = 100.5
    assert buckets.take("ann") == pytest.approx(0.5)


@given(st.lists(st.text(max_size=3), max_size=100))
def test_memory_stays_bounded_however_many_keys_call(keys: list[str]) -> None:
    buckets = Buckets(1.0, 1, Clock(), remembered=5)
    for key in keys:
        buckets.take(key)
        buckets.wait(key + "x")
        assert len(buckets) <= 5


def test_long_keys_are_cut() -> None:
    buckets = Buckets(1.0, 1, Clock())
    buckets.take("x" * 1_000_000)
    assert all(len(key) <= 200 for key in buckets._buckets)


def test_the_key_used_longest_ago_is_forgotten_first() -> None:
    buckets = Buckets(1.0, 1, Clock(), remembered=2)
    for key in ("ann", "bob", "ann", "eve"):
        buckets.take(key)
    assert buckets.take("ann") == pytest.approx(1.0)
    assert buckets.take("bob") == 0.0


def test_ten_failed_logins_block_an_address_for_a_while_and_no_other() -> None:
    clock = Clock()
    failures = Failures(clock)
    for _ in range(10):
        assert failures.blocked("192.0.2.7") is None
        failures.note("192.0.2.7")
    assert failures.blocked("192.0.2.7") == (
        "too many failed logins from this address: at most 10 a minute; check the token, and try again in 6 s"
    )
    assert failures.blocked("192.0.2.8") is None
    clock.now += 6.1
    assert failures.blocked("192.0.2.7") is None
    failures.note("192.0.2.7")
    assert failures.blocked("192.0.2.7") is not None


def test_asking_about_an_address_remembers_nothing() -> None:
    failures = Failures(Clock())
    for number in range(100):
        failures.blocked(f"192.0.2.{number}")
    assert len(failures._buckets) == 0


def test_the_addresses_of_one_ipv6_network_count_together() -> None:
    failures = Failures(Clock())
    for number in range(10):
        failures.note(f"2001:db8:0:1::{number:x}")
    assert failures.blocked("2001:db8:0:1::ffff")
    assert not failures.blocked("2001:db8:0:2::ffff")


@pytest.mark.parametrize("address", ["", "unix", "not an address", "::ffff:192.0.2.1", "fe80::1%eth0"])
def test_any_text_can_be_an_address(address: str) -> None:
    assert isinstance(network_of(address), str)
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"
