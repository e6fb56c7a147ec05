"""Throughput tables: what files may contain, what callers get, and how close the built-in models are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artefact_table import write_artefact_table
from gavel.core import builtin
from gavel.core.errors import InputError
from gavel.core.throughputs import FORMAT, Profile, ThroughputTable, builtin_table, read_table, write_table

REPOSITORY = Path(__file__).parents[2]

A, B = "LM (batch size 5)", "A3C"

OWN: dict[str, Any] = {
    "format": FORMAT,
    "types": ["fast", "slow"],
    "templates": {
        A: {
            "1": {"fast": 10, "slow": 2.5},
            "2": {"fast": {"consolidated": 18.0, "unconsolidated": 9.0}, "slow": 4.0},
        },
        B: {"1": {"fast": 3.0}},
    },
    "pairs": [
        {"templates": [B, A], "rates": {"fast": [2.0, 6.0]}},
        {"templates": [A, A], "workers": 1, "rates": {"slow": [1.0, 1.0]}},
    ],
}

PUBLIC_SHAPE: dict[str, Any] = {
    "fast": {
        f"('{A}', 1)": {"null": 10.0, f"('{B}', 1)": [6.0, 2.0], f"('{A}', 1)": [0.0, 0.0]},
        f"('{B}', 1)": {"null": 3.0, f"('{A}', 1)": [2.0, 6.0]},
        f"('{A}', 2)": {"null": 18.0},
    },
    "slow": {f"('{A}', 1)": {"null": 2.5, f"('{A}', 1)": [1.0, 1.0]}, f"('{A}', 2)": {"null": 4.0}},
    "fast_unconsolidated": {f"('{A}', 1)": {"null": 7.0}, f"('{A}', 2)": {"null": 9.0}},
}


def saved(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "table.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def changed(content: dict[str, Any], *keys: str | int, to: Any) -> dict[str, Any]:
    """A copy of the content with the value at the path of keys replaced."""
    copy: dict[str, Any] = json.loads(json.dumps(content))
    inner: Any = copy
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    return copy


def assert_same(one: ThroughputTable, two: ThroughputTable) -> None:
    assert one.types == two.types
    assert one.templates == two.templates
    assert set(one.profiles) == set(two.profiles)
    np.testing.assert_array_equal(one.rates(one.profiles, one.types), two.rates(one.profiles, one.types), strict=True)
    for mine, other in zip(one.pairs(one.profiles, one.types), two.pairs(one.profiles, one.types), strict=True):
        np.testing.assert_array_equal(mine, other, strict=True)


# ---- both formats


@pytest.mark.parametrize("content", [OWN, PUBLIC_SHAPE], ids=["own", "public"])
def test_both_formats_are_recognised_and_give_the_same_table(tmp_path: Path, content: dict[str, Any]) -> None:
    table = read_table(saved(tmp_path, content))
    assert table.types == ("fast", "slow")
    assert table.templates == (A, B)
    assert table.workers(A) == (1, 2)
    rates = table.rates([(B, 1), (A, 2), (A, 1)], ["slow", "fast"])
    assert rates.tolist() == [[[0, 0], [3, 3]], [[4, 4], [18, 9]], [[2.5, 2.5], [10, 10]]]
    first, second, shared = table.pairs([(A, 1), (A, 2), (B, 1)], ["fast", "slow"])
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(0, 0), (0, 2)]
    assert shared.tolist() == [[[0, 1], [0, 1]], [[6, 0], [2, 0]]]


def test_a_pair_is_left_out_when_the_types_asked_for_cannot_run_it(tmp_path: Path) -> None:
    first, second, rates = read_table(saved(tmp_path, OWN)).pairs([(A, 1), (B, 1)], ["slow"])
    assert (first.tolist(), second.tolist(), rates.tolist()) == ([0], [0], [[[1], [1]]])


def test_asking_for_nothing_gives_empty_arrays_of_the_right_shape(tmp_path: Path) -> None:
    table = read_table(saved(tmp_path, OWN))
    assert table.rates([], ["fast"]).shape == (0, 1, 2)
    assert table.rates([(A, 1)], []).shape == (1, 0, 2)
    first, second, rates = table.pairs([], ["fast", "slow"])
    assert (first.shape, second.shape, rates.shape) == ((0,), (0,), (0, 2, 2))


def test_the_unconsolidated_figure_of_one_worker_in_a_public_file_is_not_used(tmp_path: Path) -> None:
    rates = read_table(saved(tmp_path, PUBLIC_SHAPE)).rates([(A, 1)], ["fast"])
    assert rates.tolist() == [[[10, 10]]]


def test_without_an_unconsolidated_figure_placement_does_not_matter(tmp_path: Path) -> None:
    rates = read_table(saved(tmp_path, PUBLIC_SHAPE)).rates([(A, 2)], ["slow"])
    assert rates.tolist() == [[[4, 4]]]


def test_a_written_table_reads_back_the_same(tmp_path: Path) -> None:
    for number, table in enumerate([read_table(saved(tmp_path, PUBLIC_SHAPE)), builtin_table()]):
        path = tmp_path / f"written-{number}.json"
        write_table(table, path)
        assert_same(table, read_table(path))


def test_a_template_that_runs_nowhere_survives_the_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "written.json"
    write_table(read_table(saved(tmp_path, changed(OWN, "templates", B, "1", to={"fast": 0}))), path)
    assert read_table(path).rates([(B, 1)], ["fast", "slow"]).tolist() == [[[0, 0], [0, 0]]]


def test_results_are_copies_and_the_table_itself_cannot_be_changed() -> None:
    table = builtin_table()
    before = table.rates([("A3C", 1)], table.types)
    table.rates([("A3C", 1)], table.types)[:] = 0
    np.testing.assert_array_equal(table.rates([("A3C", 1)], table.types), before)
    with pytest.raises(ValueError, match="read-only"):
        table.alone[0] = 1


# ---- unknown names


@pytest.mark.parametrize(
    ("profile", "types", "message"),
    [
        (
            ("ResNet50 (batch size 64)", 1),
            ["v100"],
            "has no throughputs; the nearest known are: 'ResNet-50 (batch size 64)', ",
        ),
        (("\N{SNOWMAN}", 1), ["v100"], "known are: 'ResNet-18 (batch size 16)', "),
        (("LM (batch size 5)", 3), ["v100"], "with 3 workers has no throughputs; use workers: 1, 2, 4, 8"),
        (("A3C", 2), ["v100"], "template 'A3C' with 2 workers has no throughputs; use workers: 1"),
        (("A3C", 1), ["v100", "a100"], "type 'a100' has no throughputs; use one of: v100, p100, k80"),
    ],
)
def test_an_unknown_name_is_refused_and_the_known_ones_are_named(
    profile: Profile, types: list[str], message: str
) -> None:
    for method in (builtin_table().rates, builtin_table().pairs):
        with pytest.raises(InputError) as error:
            method([profile], types)
        assert message in str(error.value)


# ---- files that cannot be used

ONE = f"template {A!r} with 1 worker"
NOT_A_RATE = "is not a rate; give finite steps per second, 0 if it cannot run"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON (Expecting property name"),
        ("[" * 100_000, "is not JSON ("),
        ("[1]", ": [1] is not an object; write {...}"),
        ('{"format": 1, "format": 2}', ": key 'format' is given twice in one object; keep one"),
        ({"format": "other"}, f": format 'other' is not known; write '{FORMAT}'"),
        ("{}", " has no throughputs; give at least one type with one template"),
        ({"fast": 1}, ": type 'fast': 1 is not an object"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    assert_refused(saved(tmp_path, content), message)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "absent.json", " cannot be read (No such file or directory); check the path")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(b'{"\xff": 1}')
    assert_refused(path, " is not JSON ('utf-8' codec")


@pytest.mark.parametrize("bad", [-1, "7", None, True, [1], float("nan"), float("inf"), 10**400])
def test_a_rate_that_is_not_finite_or_negative_is_refused_in_either_format(tmp_path: Path, bad: Any) -> None:
    own = changed(OWN, "templates", A, "1", "fast", to=bad)
    message = assert_refused(saved(tmp_path, own), f": {ONE}, type 'fast': ")
    assert NOT_A_RATE in message
    public = changed(PUBLIC_SHAPE, "fast", f"('{A}', 1)", "null", to=bad)
    message = assert_refused(saved(tmp_path, public), f": type 'fast', {ONE}: ")
    assert NOT_A_RATE in message


def test_the_bad_value_is_named(tmp_path: Path) -> None:
    content = changed(OWN, "templates", A, "2", "fast", "unconsolidated", to=-3.5)
    place = f": template {A!r} with 2 workers, type 'fast', unconsolidated: -3.5 is not a rate"
    assert_refused(saved(tmp_path, content), place)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["types"], "fast", ": types 'fast' is not a list of names"),
        (["types"], [], ": types [] is not a list of names"),
        (["types"], ["fast", "fast"], ": types ['fast', 'fast'] repeat a name"),
        (
            ["types"],
            ["fast"],
            f": {ONE}: type 'slow' is not among the file's types; add it, or use one of: fast",
        ),
        (["templates"], None, ": templates: None is not an object"),
        (["templates", A], 3, f": template {A!r}: 3 is not an object"),
        (["templates", A, "1"], 3, f": {ONE}: 3 is not an object"),
        (["templates", A, "0"], {}, f": template {A!r}: '0' is not a worker count; write 1 or more"),
        (["templates", A, "two"], {}, f": template {A!r}: 'two' is not a worker count"),
        (
            ["templates", A, "2", "fast"],
            {"consolidated": 1},
            ": {'consolidated': 1} must be a number, or have exactly consolidated and unconsolidated",
        ),
        (
            ["templates", A, "1", "fast"],
            {"consolidated": 1, "unconsolidated": 2},
            "is two rates, but one worker has no spread; give one number",
        ),
        (["pair"], [], ": key 'pair' is not known; use types, templates, pairs or about"),
        (["pairs"], {}, ": pairs: {} is not a list"),
        (["pairs", 0], 7, ": pair 7: 7 is not an object"),
        (["pairs", 0, "templates"], [A], ": write templates (two names), workers (1 if left out) and rates"),
        (["pairs", 0, "worker"], 1, ": write templates (two names), workers (1 if left out) and rates"),
        (["pairs", 0, "templates"], [A, "C"], ": template 'C' with workers 1 has no rate alone; add it"),
        (["pairs", 0, "workers"], 2, f": template {B!r} with workers 2 has no rate alone; add it"),
        (["pairs", 0, "workers"], [1], f": template {B!r} with workers [1] has no rate alone; add it"),
        (
            ["pairs", 0, "rates"],
            1,
            f": template {B!r} with 1 worker next to template {A!r}: 1 is not an object",
        ),
        (["pairs", 0, "rates"], {"a100": [1, 1]}, "type 'a100' is not among the file's types"),
        (["pairs", 0, "rates", "fast"], [1, 2, 3], ", type 'fast': [1, 2, 3] is not a pair of rates"),
        (["pairs", 0, "rates", "fast"], [1, -2], ", type 'fast': -2 is not a rate"),
        (
            ["pairs", 1, "rates", "slow"],
            [1, 2],
            f"{ONE} next to {ONE}: the rate is both 1.0 and 2.0; keep one",
        ),
    ],
)
def test_a_malformed_file_of_our_own_is_refused(
    tmp_path: Path, keys: list[str | int], value: Any, message: str
) -> None:
    assert_refused(saved(tmp_path, changed(OWN, *keys, to=value)), message)


KEY_A, KEY_B = f"('{A}', 1)", f"('{B}', 1)"


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (
            ["fast", "LM"],
            {},
            ": type 'fast': key 'LM' is not of the form ('template', workers); fix it, or write",
        ),
        (["fast", "('LM', 0)"], {}, ": type 'fast': key \"('LM', 0)\" is not of the form"),
        (["fast", "('LM', True)"], {}, ": type 'fast': key \"('LM', True)\" is not of the form"),
        (["fast", "(1, 2)"], {}, ": type 'fast': key '(1, 2)' is not of the form"),
        (["fast", KEY_A], [], f": type 'fast', {ONE}: [] is not an object"),
        (
            ["fast", KEY_A],
            {},
            f": type 'fast', {ONE}: the rate alone is missing; give it under the key 'null'",
        ),
        (["fast", KEY_A, KEY_B], 3, f" next to template {B!r} with 1 worker: 3 is not a pair of rates"),
        (["fast", KEY_A, KEY_B], [1, 2], "the rate is both 1.0 and 6.0; keep one"),
        (["fast", KEY_A, "('C', 1)"], [1, 2], ": template 'C' with workers 1 has no rate alone; add it"),
        (["fast", KEY_B, f"('{A}', 2)"], [1, 2], "only profiles with the same number of workers can share"),
        (["new_unconsolidated"], {}, ": type 'new_unconsolidated': type 'new' is not among the file's types"),
        (["slow_unconsolidated"], {KEY_A: {"null": -1}}, f": type 'slow_unconsolidated', {ONE}: -1 is not"),
    ],
)
def test_a_malformed_public_file_is_refused(tmp_path: Path, keys: list[str | int], value: Any, message: str) -> None:
    assert_refused(saved(tmp_path, changed(PUBLIC_SHAPE, *keys, to=value)), message)


def assert_refused(path: Path, message: str) -> str:
    """Assert that reading the file fails with one line that starts with its path and contains the message."""
    with pytest.raises(InputError) as error:
        read_table(path)
    text = str(error.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    assert message in text
    return text


# ---- the built-in table

SINGLE_WORKER_ONLY = ("A3C", "CycleGAN", *(f"Recommendation (batch size {size})" for size in (512, 8192)))


def singles(table: ThroughputTable) -> list[Profile]:
    return [(template, 1) for template in table.templates]


def test_the_builtin_table_has_26_templates_that_run_on_all_of_3_types() -> None:
    table = builtin_table()
    assert table.types == ("v100", "p100", "k80")
    assert len(table.templates) == 26
    assert (table.rates(singles(table), table.types) > 0).all()
    assert builtin_table() is table


def test_a_v100_speeds_resnet_50_up_much_more_than_a3c() -> None:
    table = builtin_table()
    resnet, a3c = table.rates([("ResNet-50 (batch size 64)", 1), ("A3C", 1)], ["v100", "k80"])[:, :, 0]
    assert 7 < resnet[0] / resnet[1] < 10
    assert 1.5 < a3c[0] / a3c[1] < 3


def test_with_one_worker_both_placements_are_equal() -> None:
    table = builtin_table()
    rates = table.rates(singles(table), table.types)
    np.testing.assert_array_equal(rates[..., 0], rates[..., 1])


@pytest.mark.parametrize("template", SINGLE_WORKER_ONLY)
def test_templates_measured_on_one_worker_are_known_with_one_worker_only(template: str) -> None:
    assert builtin_table().workers(template) == (1,)


def test_other_templates_are_known_with_1_2_4_and_8_workers_and_gain_from_8() -> None:
    table = builtin_table()
    several = [template for template in table.templates if table.workers(template) != (1,)]
    assert len(several) == 19
    assert {table.workers(template) for template in several} == {(1, 2, 4, 8)}
    one, eight = (table.rates([(template, count) for template in several], table.types)[..., 0] for count in (1, 8))
    assert (eight[eight > 0] > one[eight > 0]).all()
    # Only the largest ResNet-50 cannot train on several k80s.
    stuck = [(several[row], table.types[column]) for row, column in zip(*np.nonzero(eight == 0), strict=True)]
    assert stuck == [("ResNet-50 (batch size 128)", "k80")]


def test_spreading_a_language_model_over_servers_costs_most_of_its_speed() -> None:
    rates = builtin_table().rates([("LM (batch size 5)", 8)], ["v100"])
    assert rates[0, 0, 1] < rates[0, 0, 0] / 3


def test_sharing_never_makes_a_template_faster_and_never_stops_just_one_of_two() -> None:
    table = builtin_table()
    alone = table.rates(singles(table), table.types)[..., 0]
    first, second, rates = table.pairs(singles(table), table.types)
    assert (rates[:, 0] <= alone[first]).all()
    assert (rates[:, 1] <= alone[second]).all()
    np.testing.assert_array_equal(rates[:, 0] > 0, rates[:, 1] > 0)


def test_two_big_templates_do_not_fit_on_one_accelerator() -> None:
    big = ("ResNet-50 (batch size 128)", 1)
    assert builtin_table().pairs([big], builtin_table().types)[0].size == 0


def test_profiles_with_several_workers_do_not_share() -> None:
    table = builtin_table()
    first, second, _ = table.pairs(table.profiles, table.types)
    assert {table.profiles[index][1] for index in (*first, *second)} == {1}


def test_the_builtin_data_file_is_small() -> None:
    assert (Path(builtin.__file__).parent / "builtin_throughputs.json").stat().st_size < 40_000


@given(data=st.data())
def test_the_order_of_profiles_does_not_change_what_pairs_get(data: st.DataObject) -> None:
    table = builtin_table()
    profiles = data.draw(st.lists(st.sampled_from(table.profiles), unique=True, max_size=12))
    order = data.draw(st.permutations(profiles))
    types = data.draw(st.lists(st.sampled_from(table.types), unique=True))
    assert rates_by_pair(table, profiles, types) == rates_by_pair(table, order, types)


def rates_by_pair(
    table: ThroughputTable, profiles: list[Profile], types: list[str]
) -> dict[tuple[Profile, Profile], list[float]]:
    """By ordered pair: the rates of the first; asserts that the indices are ordered."""
    first, second, rates = table.pairs(profiles, types)
    assert (first <= second).all()
    found = {}
    for i, j, (mine, other) in zip(first, second, rates.tolist(), strict=True):
        found[profiles[i], profiles[j]] = mine
        found[profiles[j], profiles[i]] = other
    return found


# ---- against the public artefact


def test_a_file_in_the_artefacts_layout_can_be_read_and_survives_the_round_trip(tmp_path: Path) -> None:
    table = read_table(write_artefact_table(tmp_path / "theirs.json", noise=0.03))
    assert table.types == builtin_table().types
    assert table.templates == builtin_table().templates
    write_table(table, tmp_path / "ours.json")
    assert_same(table, read_table(tmp_path / "ours.json"))


def test_the_fit_finds_the_models_that_made_a_table(tmp_path: Path) -> None:
    output = tmp_path / "fitted.json"
    made = write_artefact_table(tmp_path / "made.json")
    command = [sys.executable, str(REPOSITORY / "tools" / "fit_throughputs.py"), str(made), "--output", str(output)]
    subprocess.run(command, check=True, capture_output=True)
    fitted, shipped = builtin.parse_parameters(output.read_text("utf-8")), builtin.load_parameters()
    np.testing.assert_allclose(builtin.scaled_rates(fitted), builtin.scaled_rates(shipped), rtol=0.01)
    apart = np.abs(builtin.shared_rates(fitted) - builtin.shared_rates(shipped)) / shipped.rate[:, None, :]
    assert apart.max() < 0.01
