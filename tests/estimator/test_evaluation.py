"""Estimates on a table with noise, as measured tables have."""

from __future__ import annotations

import numpy as np
import pytest

from artefact_table import write_artefact_table
from gavel.core.throughputs import read_table
from gavel.estimator.evaluation import ESTIMATORS, matches, scores
from gavel.estimator.references import References


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> References:
    return References.of(read_table(write_artefact_table(tmp_path_factory.mktemp("t") / "t.json", noise=0.03)))


def test_at_a_fifth_of_the_pairs_the_error_is_clearly_below_both_baselines(references: References) -> None:
    found = scores(references, 0.2)
    ours, nearest, alone, mean = (found[name] for name in ESTIMATORS)
    assert ours.mean < 0.05
    assert ours.p90 < 0.08
    assert max(ours.mean, nearest.mean) < 0.7 * min(alone.mean, mean.mean)


def test_known_templates_are_recognised(references: References) -> None:
    assert matches(references, 1.0) == 1.0
    assert matches(references, 0.5) == 1.0
    assert np.mean([matches(references, 0.5, seed=seed) for seed in range(3)]) >= 0.9
