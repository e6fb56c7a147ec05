"""Problem files: what is read, what is assumed, and one sentence for every mistake."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gavel.core.errors import InputError
from gavel.core.jobs import Entity
from gavel.core.problem import Problem
from gavel.core.problem_file import parse_problem
from gavel.core.throughputs import builtin_table


def problem(**changes: Any) -> str:
    base: dict[str, Any] = {
        "types": {"v100": {"count": 2}, "k80": {"count": 4}},
        "jobs": [{"id": "a", "rates": {"v100": 4.0, "k80": 1.0}}, {"id": "b", "rates": {"v100": 3.0}}],
    }
    return json.dumps(base | changes)


def job(**fields: Any) -> str:
    return problem(jobs=[{"id": "a", "rates": {"v100": 1.0}} | fields])


def pair(**fields: Any) -> str:
    return problem(pairs=[{"jobs": ["a", "b"], "rates": {"v100": [2.0, 1.5]}} | fields])


def test_everything_but_count_id_and_rates_has_a_default() -> None:
    read = parse_problem(problem())
    assert [t.name for t in read.types] == ["v100", "k80"]
    assert read.jobs.ids == ("a", "b")
    assert read.jobs.weight.tolist() == [1.0, 1.0]
    assert np.isnan(read.jobs.steps).all()
    assert np.isinf(read.jobs.deadline).all()
    assert read.types[0].price == 2.48  # the list price of a known type
    assert len(read.pairs) == 0


def test_a_missing_or_zero_rate_means_that_it_cannot_run_there() -> None:
    read = parse_problem(problem(jobs=[{"id": "a", "rates": {"v100": 0}}, {"id": "b", "rates": {"k80": 1}}]))
    by_job = read.rates[read.jobs.profile]
    assert (by_job > 0).tolist() == [[False, False], [False, True]]


def test_placement_adds_a_column() -> None:
    read = parse_problem(job(rates={"v100": {"consolidated": 4.0, "unconsolidated": 3.1}}, workers=2))
    assert [(c.type_index, c.locality.name) for c in read.columns] == [(0, "CLUSTER"), (0, "SERVER"), (1, "CLUSTER")]
    assert read.rates.tolist() == [[3.1, 4.0, 0.0]]


@pytest.mark.parametrize(("servers", "sizes"), [(4, (4, 4, 2)), ([6, 4], (6, 4))])
def test_servers_are_one_size_or_a_list(servers: Any, sizes: tuple[int, ...]) -> None:
    assert parse_problem(problem(types={"v100": {"count": 10, "servers": servers}}, jobs=[])).types[0].servers == sizes


def test_entities_nest_by_path_or_by_parent_and_bring_their_ancestors() -> None:
    by_path = {"company/research": {"weight": 2, "policy": "fifo"}, "company/product": {}}
    read = parse_problem(job(entity="company/research")[:-1] + f', "entities": {json.dumps(by_path)}}}')
    assert list(read.entities) == ["company", "company/product", "company/research"]
    assert read.entities["company/research"] == Entity(2.0, "fifo")
    by_parent = {"research": {"parent": "company"}, "company": {"weight": 3}}
    other = parse_problem(job(entity="research")[:-1] + f', "entities": {json.dumps(by_parent)}}}')
    assert list(other.entities) == ["company", "company/research"]
    assert other.jobs.entity.tolist() == [1]


def test_templates_take_rates_and_pairs_from_the_table_and_form_classes() -> None:
    jobs = [{"id": str(n), "template": "A3C" if n % 2 else "LM (batch size 5)"} for n in range(10)]
    read = parse_problem(problem(jobs=jobs), table=builtin_table())
    assert len(read.classes("weight")) == 2
    assert len(read.pairs) == 3  # each with itself, and both together
    rates = builtin_table().rates([("A3C", 1)], ["v100", "k80"])[0, :, 0]
    assert read.rates[read.jobs.profile[1]].tolist() == rates.tolist()


def test_the_order_of_jobs_does_not_change_the_classes() -> None:
    def described(read: Problem) -> str:
        return str(read.profiles.rates.tolist())

    jobs = json.loads(problem())["jobs"]
    assert described(parse_problem(problem(jobs=jobs))) == described(parse_problem(problem(jobs=jobs[::-1])))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        ("[]", "the problem must be an object, not []"),
        ("{}", "the problem: 'types' is missing"),
        (problem(jobs=None), "the problem: 'jobs' is missing"),
        (problem(jobs={}), "jobs must be a list, not {}"),
        (problem(job=[]), "the problem: unknown field 'job'; did you mean 'jobs'?"),
        (problem(types=3), "types must be an object, not 3"),
        (problem(types={"v100": {}}), "types.v100: 'count' is missing"),
        (problem(types={"v100": {"count": -1}}), "types.v100.count must be at least 0, not -1"),
        (problem(types={"v100": {"count": 1.5}}), "types.v100.count must be a whole number, not 1.5"),
        (problem(types={"v100": {"count": True}}), "types.v100.count must be a number, not true"),
        (problem(types={"v100": {"count": 1, "price": -1}}), "types.v100.price must be at least 0, not -1"),
        (
            problem(types={"v100": {"count": 8, "servers": [4, 2]}}),
            "types.v100.servers add up to 6 accelerators, but the count is 8",
        ),
        (problem(jobs=[{"rates": {}}]), "jobs[0]: 'id' is missing"),
        (problem(jobs=[{"id": 7, "rates": {}}]), "jobs[0].id must be a non-empty string, not 7"),
        (problem(jobs=[{"id": "a"}]), "job 'a': 'rates' is missing"),
        (
            problem(jobs=[{"id": "a", "rates": {"a100": 1.0}}]),
            "job 'a'.rates: there is no accelerator type 'a100'; the problem's types are: v100, k80",
        ),
        (
            problem(jobs=[{"id": "a", "rates": {}}] * 2),
            "jobs: the id 'a' is given to more than one job; ids must differ",
        ),
        (job(rates={"v100": -1.0}), "job 'a'.rates.v100 must be at least 0, not -1.0"),
        (job(rates={"v100": "fast"}), "job 'a'.rates.v100 must be a number, not \"fast\""),
        (job(rates={"v100": float("nan")}), "job 'a'.rates.v100 must be a number, not NaN; leave out what is unknown"),
        (job(rates={"v100": float("inf")}), "job 'a'.rates.v100 must be at most 1,000,000,000, not Infinity"),
        (job(rates={"v100": {"unconsolidated": 1}}), "job 'a'.rates.v100: 'consolidated' is missing"),
        (job(workers=0), "job 'a'.workers must be at least 1, not 0"),
        (job(workers=10**30), f"job 'a'.workers must be at most 1,000,000,000, not {10**30}"),
        (job(workers=10**10), "job 'a'.workers must be at most 1,000,000,000, not 10000000000"),
        (job(steps=1e308), "job 'a'.steps must be at most 1e+15, not 1e+308"),
        (job(steps=10**400), f"job 'a'.steps must be at most 1e+15, not {10**56}..."),
        (job(weight=1e-320), "job 'a'.weight must be at least 1e-15, not 1e-320"),
        (job(rates={"v100": 1e-320}), "job 'a'.rates.v100 must be 0 or at least 1e-15, not 1e-320"),
        (
            job(age_seconds=1e18),
            "job 'a'.age_seconds must be at most 10,000,000,000 s (317 years), not 1e+18",
        ),
        (
            problem(types={"v100": {"count": 10**9, "servers": 4}}),
            "types.v100.servers: 1000000000 accelerators, 4 in each, are more than 1,000,000 servers",
        ),
        ("[" * 100_000, "not a problem: its brackets nest too deep"),
        (job(template="A3C"), "job 'a': give either 'rates' or 'template', not both"),
        (job(entity="x//y"), "job 'a'.entity: 'x//y' is not a path of names such as \"company/research\""),
        (
            '{"types": {"v": {"count": 1}, "v": {"count": 2}}, "jobs": []}',
            "key 'v' is given twice in one object; keep one",
        ),
        (job(workers=1.5), "job 'a'.workers must be a whole number, not 1.5"),
        (job(weight=0), "job 'a'.weight must be greater than 0, not 0"),
        (job(weight=-2), "job 'a'.weight must be greater than 0, not -2"),
        (job(steps=0), "job 'a'.steps must be greater than 0, not 0"),
        (job(age_seconds=-1), "job 'a'.age_seconds must be at least 0, not -1"),
        (job(deadline_seconds=0), "job 'a'.deadline_seconds must be greater than 0, not 0"),
        (job(wieght=2), "jobs[0]: unknown field 'wieght'; did you mean 'weight'?"),
        (pair(jobs=["a", "c"]), "pairs[0].jobs: there is no job 'c'"),
        (pair(jobs=["a"]), 'pairs[0].jobs must name two different jobs, not ["a"]'),
        (pair(jobs=["a", "a"]), 'pairs[0].jobs must name two different jobs, not ["a", "a"]'),
        (pair(rates={"v100": [1.0]}), "pairs[0].rates.v100 must be a list of two rates, not [1.0]"),
        (pair(rates={"v100": [1.0, -1]}), "pairs[0].rates.v100[1] must be at least 0, not -1"),
        (
            pair(rates={"t4": [1.0, 1.0]}),
            "pairs[0].rates: there is no accelerator type 't4'; the problem's types are: v100, k80",
        ),
        (
            problem(pairs=[{"jobs": ["a", "b"], "rates": {}}, {"jobs": ["b", "a"], "rates": {}}]),
            "pairs[1]: jobs 'b' and 'a' are paired twice",
        ),
        (
            problem(
                jobs=[{"id": "a", "rates": {}, "workers": 2}, {"id": "b", "rates": {}}],
                pairs=[{"jobs": ["a", "b"], "rates": {}}],
            ),
            "pairs[0].jobs: jobs that share accelerators need the same number of workers, not 2 and 1",
        ),
        (problem(entities={"x": {"weight": 0}}), "entities.x.weight must be greater than 0, not 0"),
        (problem(entities={"x": {"policy": "sjf"}}), 'entities.x.policy must be "fairness" or "fifo", not "sjf"'),
        (problem(entities={"x": {"parent": "y"}}), "entities.x.parent: there is no entity 'y'"),
        (
            problem(entities={"x": {"parent": "y"}, "y": {"parent": "x"}}),
            "entities.x: 'x' is its own ancestor; entities must form a tree",
        ),
        (problem(entities={"x//y": {}}), "entities.x//y: 'x//y' is not a path of names such as \"company/research\""),
        (
            problem(entities={"research": {}}, jobs=[{"id": "a", "rates": {}, "entity": "reserach"}]),
            "job 'a'.entity: there is no entity 'reserach'; did you mean 'research'?",
        ),
    ],
)
def test_a_mistake_is_one_sentence_naming_field_and_value(text: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_problem(text)
    assert str(raised.value) == said


def test_an_unknown_template_names_the_nearest() -> None:
    with pytest.raises(InputError, match="ResNet-50"):
        parse_problem(problem(jobs=[{"id": "a", "template": "ResNet-50 (batch size 65)"}]), table=builtin_table())
