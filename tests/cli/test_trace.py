"""`gavel trace` as a user runs it: what it prints and writes, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gavel.cli.app import run
from gavel.core.throughputs import builtin_table, write_table
from gavel.workload.formats import read_trace
from gavel.workload.generate import generate

SLURM = """\
JobID|JobName|Account|Submit|Elapsed|State|AllocTRES
1|train|vision|2024-05-01T10:00:00|01:00:00|COMPLETED|cpu=8,gres/gpu=2
2|cpu|vision|2024-05-01T10:00:00|01:00:00|COMPLETED|cpu=8
"""


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["trace", *arguments]) == 0
    return capsys.readouterr().out


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(printed(capsys, *arguments, "--json"))
    return document


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["trace", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gavel: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_generate_writes_what_the_library_draws(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "t.csv"
    options = ["--multi-worker", "--seed", "7", "--slo", "1.2,2,10", "--high-priority", "0.2", "--entities", "a, b"]
    said = answer(
        capsys,
        "generate",
        "--jobs",
        "50",
        "--arrivals-per-hour",
        "4",
        *options,
        "--durations",
        "60,600",
        "-o",
        str(out),
    )
    table = builtin_table()
    drawn = generate(
        jobs=50,
        arrivals_per_hour=4.0,
        multi_worker=True,
        table=table,
        seed=7,
        slo_factors=(1.2, 2.0, 10.0),
        high_priority_share=0.2,
        entities=("a", "b"),
        durations=(60.0, 600.0),
    )
    assert read_trace(out, table=table) == drawn
    assert said["file"] == str(out)
    assert said["jobs"] == said["with_deadline"] == 50
    assert said["entities"] == {"a": 25, "b": 25}
    assert set(said["weights"]) == {"1.0", "5.0"}


def test_generate_draws_from_named_templates_and_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, rates = tmp_path / "t.csv", tmp_path / "rates.json"
    write_table(builtin_table(), rates)
    asked = ["--jobs", "40", "--static", "--templates", "ResNet-50,A3C", "--throughputs", str(rates), "--out", str(out)]
    text = printed(capsys, "generate", *asked, "--reference", "k80")
    assert text.startswith(f"wrote {out}\n")
    assert "all at once" in text
    assert "duration on k80, p50" in text
    named = {job.template.split(" ")[0] for job in read_trace(out, table=builtin_table()).jobs}
    assert named == {"ResNet-50", "A3C"}


def test_describe_counts_and_passes_notes_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "sacct.txt"
    log.write_text(SLURM)
    said = answer(capsys, "describe", str(log))
    assert (said["format"], said["jobs"], said["workers"]) == ("slurm", 1, {"2": 1})
    assert said["reference_gpu_hours"] == pytest.approx(2.0)
    assert said["arrivals_per_hour"] is None
    assert "left out 1 job that used no GPU" in said["notes"]
    text = printed(capsys, "describe", str(log))
    assert "vision" in text
    assert "note: left out 1 job that used no GPU" in text


def test_convert_writes_our_own_format(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log, out = tmp_path / "sacct.txt", tmp_path / "t.csv"
    log.write_text(SLURM)
    said = answer(capsys, "convert", str(log), "--out", str(out), "--seed", "3", "--format", "slurm")
    assert "(seed 3)" in said["notes"][0]
    table = builtin_table()
    assert read_trace(out, table=table).jobs == read_trace(log, table=table, seed=3).jobs
    assert answer(capsys, "describe", str(out))["format"] == "gavel"


PODS = """\
name,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time
a,1,1000,P100|T4,0,60,0
b,1,1000,G2,0,60,0
"""


def test_types_are_counted_and_converted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log, out = tmp_path / "pods.csv", tmp_path / "t.csv"
    log.write_text(PODS)
    said = answer(capsys, "convert", str(log), "--out", str(out))
    assert said["types"] == answer(capsys, "describe", str(out))["types"] == {"p100": 1}
    assert "only on" in printed(capsys, "describe", str(out))
    assert [job.types for job in read_trace(out, table=builtin_table()).jobs] == [("p100",), None]


NODES = "sn,gpu,model\na,8,V100M32\nb,2,P100\nc,4,V100M16\nd,8,G2\n"


def test_a_list_of_nodes_is_printed_as_the_text_of_a_cluster(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text(NODES)
    assert run(["trace", "cluster", str(file)]) == 0
    captured = capsys.readouterr()
    assert captured.out == "v100=1x8+1x4,p100=1x2\n"
    assert captured.err.startswith("note: left out 1 node with 8 GPUs of models")
    said = answer(capsys, "cluster", str(file))
    assert said["cluster"] == "v100=1x8+1x4,p100=1x2"
    assert said["types"]["v100"] == {"accelerators": 12, "servers": 2}
    assert (said["nodes"], said["left_out"]) == (4, {"G2": {"accelerators": 8, "servers": 1}})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "--jobs", "5", "--out", "t"], "give either --arrivals-per-hour or --static"),
        (["generate", "--jobs", "5", "--static", "--arrivals-per-hour", "2", "--out", "t"], "give either"),
        (["generate", "--jobs", "0", "--static", "--out", "t"], "--jobs"),
        (["generate", "--jobs", "5", "--static"], "--out"),
        (["generate", "--jobs", "5", "--arrivals-per-hour", "-1", "--out", "t"], "greater than 0 and finite, not -1"),
        (["generate", "--jobs", "5", "--static", "--slo", "1.2;2", "--out", "t"], "--slo 1.2;2: give numbers"),
        (["generate", "--jobs", "5", "--static", "--high-priority", "2", "--out", "t"], "between 0 and 1, not 2"),
        (["generate", "--jobs", "5", "--static", "--templates", "GPT", "--out", "t"], "there is no template 'GPT'"),
        (["generate", "--jobs", "5", "--static", "--reference", "h100", "--out", "t"], "'h100' has no throughputs"),
        (["describe", "nowhere.csv"], "cannot read nowhere.csv: no such file"),
        (["convert", "nowhere.csv", "--out", "t"], "cannot read nowhere.csv"),
        (["describe", __file__, "--format", "pbs"], "there is no trace format 'pbs'"),
        (["describe", __file__], "its format is not recognised"),
        (["cluster", "nowhere.csv"], "cannot read nowhere.csv: no such file"),
        (["cluster", __file__], "column 'sn' is missing; a list of nodes has at least: sn, gpu, model"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal(capsys, *arguments)
    assert not list(tmp_path.iterdir())
