"""Our simulator beside the authors' prototype, on its own traces, with the same knobs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from place import DATA

ROOT = Path(__file__).parents[2]
CHOSEN = {
    ("c12_single_l2700_s0", "max_min_fairness_perf"),
    ("c12_single_l2700_s0", "max_min_fairness"),
    ("c12_single_l2700_s0", "max_min_fairness_packed"),
    ("c12_single_l2700_s0", "gandiva"),
    ("c12_single_l2700_s0", "allox"),
    ("c12_multi_l7200_s0", "max_min_fairness"),
    ("c36_static100_s0", "min_total_duration_perf"),
    ("c36_static100_s0", "min_total_duration"),
    ("physical-continuous", "max_min_fairness_perf"),
    ("physical-continuous", "finish_time_fairness_perf"),
    ("physical-static", "min_total_duration_perf"),
}


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_prototype", ROOT / "tools" / "compare_prototype.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_our_figures_are_within_5_percent_of_the_prototypes_or_up_to_12_percent_better() -> None:
    for comparison in tool().comparisons(DATA, CHOSEN):
        assert 0.88 <= comparison.ratio <= 1.05, comparison
