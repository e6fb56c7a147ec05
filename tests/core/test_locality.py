"""Localities are ordered, index rates, and are stored as the booleans that files and journals always held."""

from __future__ import annotations

import pytest

from gavel.core.codec import decode_event, decode_problem, encode_command, encode_event, encode_problem
from gavel.core.errors import InputError
from gavel.core.events import Launch, RateMeasured
from gavel.core.jobs import PlacedRate
from gavel.core.locality import FILE_NAMES, Locality
from gavel.core.problem import Problem
from gavel.core.problem_file import parse_problem
from gavel.core.throughputs import Condition, builtin_table
from gavel.estimator.measurements import Measurements

SENSITIVE = (
    '{"types": {"k80": {"count": 4}, "v100": {"servers": [4, 4]}}, "jobs": [{"id": "a", "workers": 2, '
    '"rates": {"k80": 1.0, "v100": {"consolidated": 4.0, "unconsolidated": 3.0}}}]}'
)


def sensitive() -> Problem:
    return parse_problem(SENSITIVE)


def no_problem(number: int) -> Problem:
    raise AssertionError(number)


def test_localities_run_from_the_closest_to_anywhere_without_gaps() -> None:
    assert [*Locality] == [*range(len(Locality))]
    assert [locality.wider for locality in [*Locality][:-1]] == [*Locality][1:]
    assert [*FILE_NAMES] == [*Locality]


def test_the_last_axis_of_rates_is_locality() -> None:
    rates = builtin_table().rates([("ResNet-18 (batch size 16)", 8)], ["v100"])
    assert rates.shape == (1, 1, len(Locality))
    assert rates[0, 0, Locality.SERVER] > rates[0, 0, Locality.CLUSTER]


def test_every_closer_column_knows_the_wider_one_of_its_type() -> None:
    problem = sensitive()
    (column,) = problem.closer_columns
    assert column.type.name == "v100"
    assert problem.columns[column.index].locality is Locality.SERVER
    assert problem.columns[column.wider].locality is Locality.CLUSTER
    assert problem.columns[column.wider].type_index == problem.columns[column.index].type_index
    assert problem.profiles.rates[0, [column.index, column.wider]].tolist() == [4.0, 3.0]
    assert column.most_gangs(2) == 4


def test_only_localities_that_servers_limit_have_a_most() -> None:
    v100 = sensitive().types[1]
    assert [v100.gangs_at_once(3, locality) for locality in Locality] == [2, None]


@pytest.mark.parametrize("locality", Locality)
def test_a_placed_rate_has_one_figure_for_each_locality(locality: Locality) -> None:
    assert PlacedRate(4.0, 3.0).at(locality) == {"consolidated": 4.0, "unconsolidated": 3.0}[FILE_NAMES[locality]]


def test_events_commands_and_problems_store_a_locality_as_whether_it_is_consolidated() -> None:
    event = RateMeasured(1.0, "j", "v100", 2.0, Locality.CLUSTER)
    assert encode_event(event)["consolidated"] is False
    assert "consolidated" not in encode_event(RateMeasured(1.0, "j", "v100", 2.0))
    assert decode_event(encode_event(event), no_problem) == event
    assert encode_command(Launch("j", "v100", {"a": 1}, 9.0, Locality.CLUSTER))["consolidated"] is False
    stored = encode_problem(sensitive())
    assert [column["consolidated"] for column in stored["columns"]] == [False, False, True]
    assert decode_problem(stored).columns == sensitive().columns


def test_a_number_is_no_stored_locality() -> None:
    stored = encode_event(RateMeasured(1.0, "j", "v100", 2.0, Locality.CLUSTER)) | {"consolidated": 1}
    with pytest.raises(InputError, match="consolidated is 1, not true or false"):
        decode_event(stored, no_problem)


def test_measurements_store_a_locality_as_whether_it_is_consolidated() -> None:
    measurements = Measurements()
    for locality, rate in ((Locality.SERVER, 4.0), (Locality.CLUSTER, 3.0)):
        measurements.take_in(Condition("mine", 2, "v100", locality), rate, 0.0)
    document = measurements.document()
    assert [entry[3] for entry in document["estimates"]] == [True, False]
    assert all(type(entry[3]) is bool for entry in document["estimates"])
    restored = Measurements.of(document)
    assert [restored.used("mine", 2, "v100", locality) for locality in Locality] == [4.0, 3.0]
