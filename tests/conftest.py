"""Hypothesis for all tests: the same examples every time, and no deadline, since solvers take what they take."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "gavel",
    derandomize=True,
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("gavel")
