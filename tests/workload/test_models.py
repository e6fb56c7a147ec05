"""Names of GPU models, and the types that they mean."""

from __future__ import annotations

import pytest

from gavel.workload.models import type_of

TYPES = ("v100", "p100", "k80", "t4", "RTX 2080Ti", "a100", "a100m80")


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("V100M16", "v100"),
        ("V100M32", "v100"),
        ("V100", "v100"),
        ("v100", "v100"),
        ("P100", "p100"),
        ("T4", "t4"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("nvidia_tesla_k80", "k80"),
        ("rtx2080ti", "RTX 2080Ti"),
        ("NVIDIA A100", "a100"),
        ("A100M80", "a100m80"),
        ("A100M40", "a100"),
        ("A10", None),
        ("G2", None),
        ("MISC", None),
        ("", None),
        ("P1000", None),
    ],
)
def test_a_model_means_the_type_of_its_name(model: str, kind: str | None) -> None:
    assert type_of(model, TYPES) == kind
