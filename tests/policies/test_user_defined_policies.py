"""User-defined policies: how they are found, how their answers are checked, and how their errors are reported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gavel.core.cluster import AcceleratorType
from gavel.core.errors import GavelError, InputError
from gavel.core.jobs import Job
from gavel.core.problem import Problem
from gavel.policies.registry import allocate, find_policy
from gavel.sim.experiment import Experiment
from gavel.sim.results import digest, point_of, settings_of

PROBLEM = Problem.of([AcceleratorType("v100", 1)], [Job("a", {"v100": 2.0}), Job("b", {"v100": 1.0})])
WRAPPER = """
from dataclasses import replace
from gavel import Policy
from gavel.policies.fairness import max_min_fairness
def solve(problem, options):
    {body}
policy = Policy("mine", "Mine.", "an objective", solve)
"""
Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a module whose policy runs this code, and return the policy's name."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "theirs", raising=False)

    def write(body: str) -> str:
        (tmp_path / "theirs.py").write_text(WRAPPER.format(body=body))
        return "theirs.policy"

    return write


def test_a_policy_of_another_module_answers_under_its_full_name(write: Write) -> None:
    answer = allocate(PROBLEM, write("return max_min_fairness(problem)"))
    assert answer.policy == "theirs.policy"
    assert find_policy(answer.policy).objective == "an objective"
    assert answer.certificate.objective == allocate(PROBLEM).certificate.objective


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere.policy", "there is no module 'nowhere'; install it, or put its directory on PYTHONPATH"),
        ("gavel.nothing", "'nothing' of 'gavel' does not exist; it must be a gavel.Policy"),
        ("gavel.allocate", "'allocate' of 'gavel' is a function; it must be a gavel.Policy"),
        (".policy", "write module.NAME"),
    ],
)
def test_a_name_that_is_not_a_policy_is_refused_with_a_sentence(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^policy {name}: {sentence}"):
        find_policy(name)


def test_a_module_that_cannot_be_imported_is_refused_with_its_line(write: Write) -> None:
    name = write("return None\n1 / 0")
    with pytest.raises(InputError, match=r"cannot be imported: ZeroDivisionError.* \(theirs.py, line 7\)"):
        find_policy(name)


def test_an_error_in_a_policy_names_its_line(write: Write) -> None:
    with pytest.raises(GavelError, match=r"policy theirs.policy failed: ZeroDivisionError.* \(theirs.py, line 6\)"):
        allocate(PROBLEM, write("return 1 / 0"))


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("return {}", "returned a dict instead of an Allocation"),
        ("a = max_min_fairness(problem); return replace(a, instances=-a.instances)", "negative or not a number"),
        ("a = max_min_fairness(problem); return replace(a, instances=2 * a.instances)", "2 of 1 v100 would be in use"),
        ("a = max_min_fairness(problem); return replace(a, instances=9 * a.instances)", "times all of its time"),
    ],
)
def test_an_infeasible_answer_is_refused(write: Write, body: str, sentence: str) -> None:
    with pytest.raises(GavelError, match=sentence):
        allocate(PROBLEM, write(body))


def test_a_changed_policy_makes_another_point_of_a_sweep(write: Write) -> None:
    theirs = Experiment(cluster="v100=1", jobs=1, policy=write("return max_min_fairness(problem)"))
    assert settings_of(theirs)["policy_sha256"]
    assert not settings_of(replace(theirs, policy="fifo"))["policy_sha256"]
    before = point_of(settings_of(theirs))
    write("return None")
    digest.cache_clear()  # as in a new process
    assert point_of(settings_of(theirs)) != before
