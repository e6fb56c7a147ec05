"""What `import gavel` gives, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gavel

HEAVY = ("numpy", "scipy", "highspy", "grpc", "torch", "sqlalchemy", "matplotlib")


@pytest.mark.parametrize("names", ["GavelIterator", "report", "GavelIterator, report, CheckpointError"])
def test_what_training_needs_loads_no_solver_and_no_numpy(names: str) -> None:
    program = f"import sys; from gavel import {names}; print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("name", gavel.__all__)
def test_every_public_name_is_there_and_listed(name: str) -> None:
    assert getattr(gavel, name) is not None
    assert name in dir(gavel)


def test_every_lazy_name_is_public() -> None:
    assert {*gavel._MODULE_OF, "__version__"} == set(gavel.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'gravel'"):
        gavel.gravel  # noqa: B018
