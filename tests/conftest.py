"""Hypothesis for all tests: the same examples every time, and no deadline, because solving times vary.

Linear algebra uses one thread per test process: with more, small problems compete for few cores.
The summary ends with the number of tests that were skipped because a program is missing.

`pytest --hypothesis-profile=broad` tries many more examples, new ones each time, and does not shrink failures.
"""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, Phase, settings

import needs

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
collect_ignore_glob = [
    *([] if find_spec("torch") else ["client/torch_program.py"]),
    *([] if "GAVEL_PUBLIC_DATA" in os.environ else ["public/*"]),
]
"""Doctests are looked for in every file, which imports it."""
pytest_plugins = ["job_fixtures", "journal_places"]
settings.register_profile(
    "gavel",
    derandomize=True,
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "broad",
    parent=settings.get_profile("gavel"),
    derandomize=False,
    max_examples=400,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("gavel")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell: processes that tests start and interrupt would inherit the ignored signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what runs for minutes, except in the broad profile."""
    if settings.default is settings.get_profile("broad"):
        return
    campaigns = [item for item in items if item.get_closest_marker("campaign")]
    items[:] = [item for item in items if item not in campaigns]
    config.hook.pytest_deselected(items=campaigns)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.getreports("skipped")
    for line in needs.lines(report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)):
        terminalreporter.write_line(line, yellow=True)
