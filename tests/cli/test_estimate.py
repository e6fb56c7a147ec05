"""`gavel estimate`: a readable table, one JSON document, and one sentence for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artefact_table import write_artefact_table
from gavel.cli.app import run
from gavel.core.throughputs import builtin_table, write_table

TEMPLATE = "ResNet-50 (batch size 32)"


def test_the_table_names_the_reference_and_how_sure_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", TEMPLATE]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        f"{TEMPLATE}: 15 pairs measured\nmost similar to ResNet-50 (batch size 16), at a distance of 0.0"
    )
    assert "confidence 7" in out
    assert "high enough to pack jobs" in out
    assert len([line for line in out.splitlines() if "batch size" in line]) > 20


def test_json_has_estimated_and_known_rates_of_every_pair(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", TEMPLATE, "--pairs", "20", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["trusted"] is True
    assert len(document["pairs"]) == 75
    assert sum(pair["measured"] for pair in document["pairs"]) == 20
    for pair in document["pairs"]:
        true = builtin_table().together((TEMPLATE, 1), (pair["partner"], 1), pair["type"])
        assert pair["known_rates"] == pytest.approx(true)
        if pair["measured"]:
            assert pair["estimated_rates"] == pytest.approx(true)


def test_without_measurements_it_says_that_no_jobs_are_packed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", TEMPLATE, "--pairs", "0"]) == 0
    assert "confidence 0% (expected error 0." in (out := capsys.readouterr().out)
    assert "too low, jobs are packed only from 30%" in out


def test_a_profiled_template_is_estimated_from_other_references(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = (TEMPLATE, *builtin_table().templates[:4])
    write_table(builtin_table().only(few), tmp_path / "mine.json")
    assert run(["estimate", TEMPLATE, "--throughputs", str(tmp_path / "mine.json"), "--references", "builtin"]) == 0
    assert "12 pairs measured" in capsys.readouterr().out


def test_a_table_in_the_artefacts_layout_can_be_estimated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write_artefact_table(tmp_path / "t.json", noise=0.03)
    assert run(["estimate", TEMPLATE, "--throughputs", str(table), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["confidence"] > 0.5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["ResNet-51 (batch size 32)"],
            "template 'ResNet-51 (batch size 32)' has no throughputs; the nearest known are",
        ),
        ([TEMPLATE, "--throughputs", "nowhere.json"], "nowhere.json cannot be read"),
        ([TEMPLATE, "--pairs", "3", "--references", "builtin"], "--pairs selects pairs of one table"),
        ([TEMPLATE, "--pairs", "-1"], "--pairs"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["estimate", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.splitlines()) == 1


def test_a_table_without_pairs_is_no_table_of_references(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = {"format": "gavel-throughputs/1", "types": ["v100"], "templates": {"a": {"1": {"v100": 1.0}}}}
    (tmp_path / "alone.json").write_text(json.dumps(table))
    assert run(["estimate", "a", "--throughputs", str(tmp_path / "alone.json")]) == 2
    assert "fewer than two reference jobs" in capsys.readouterr().err
