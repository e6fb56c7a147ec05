"""The page on adding a policy: its code is run as it stands there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given

from gavel.cli.app import run
from gavel.core.problem_file import parse_problem
from gavel.policies.policy import Options
from gavel.policies.registry import allocate
from gavel.policies.scores import runnable_jobs
from gavel.policies.user_defined import load
from gavel.sim.experiment import Experiment
from gavel.sim.experiment import run as simulate
from judging import assert_certificate_sane, assert_feasible
from strategies import Case, cases

ROOT = Path(__file__).parents[2]
THREE = str(ROOT / "examples" / "three-jobs.json")
PROBLEM = parse_problem(Path(THREE).read_text())
NAME = "my_policies.least_slowdown"


def shown() -> str:
    """The code block of the page."""
    page = (ROOT / "docs" / "add-a-policy.md").read_text()
    [code] = re.findall(r'```python title="my_policies.py"\n(.*?)```', page, re.DOTALL)
    return str(code)


@pytest.fixture(autouse=True, scope="module")
def importable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The block as the file that the page calls it."""
    directory = tmp_path_factory.mktemp("own")
    (directory / "my_policies.py").write_text(shown())
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        yield


def test_it_takes_less_than_thirty_lines() -> None:
    assert len(shown().splitlines()) < 30


@given(cases())
def test_its_allocations_are_valid_and_optimal(case: Case) -> None:
    allocation = allocate(case.problem(), NAME)
    assert allocation.policy == NAME
    assert_feasible(allocation, case)
    assert_certificate_sane(allocation, case)
    assert allocation.certificate.gap <= 1e-6
    score = load(NAME).score
    assert score is not None
    if runnable_jobs(case.problem()).any():
        assert score(Options())(allocation) == pytest.approx(allocation.certificate.objective)


def test_it_gives_what_the_page_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["allocate", THREE, "--policy", NAME, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["policy"] == NAME
    assert document["objective"] == pytest.approx(0.5)
    assert [row["shares"]["v100"] for row in document["allocation"]] == pytest.approx([0.5, 0.5, 0.0])


def test_it_decides_agnostically_too() -> None:
    assert allocate(PROBLEM, NAME, heterogeneity_agnostic=True).certificate.gap > 0.01


def test_it_can_be_simulated() -> None:
    report = simulate(Experiment(cluster="v100=2,k80=2", jobs=12, policy=NAME))
    assert report.document()["jobs_completed"] == 12
