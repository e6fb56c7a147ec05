"""Job files that extend others: what is merged, what is replaced, and whose line a mistake is on."""

from __future__ import annotations

from pathlib import Path

import pytest

from gavel.client.field_checks import FieldError
from gavel.client.job_file import read_jobs
from gavel.client.requests import JobRequest
from gavel.client.secret_values import SecretValues
from gavel.errors import InputError


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def one(path: Path) -> JobRequest:
    (job,) = read_jobs(str(path))
    return job


def test_mappings_merge_everything_else_is_replaced_and_null_removes(tmp_path: Path) -> None:
    write(
        tmp_path,
        base="command: [base]\ntypes: [v100, k80]\nsteps: 10\nretries: 9\nenvironment: {A: 1, B: 2}\ntags: {x: '1'}\n"
        "grid: {lr: [1, 2]}\nsecrets: {S: {value: s}, T: {value: t}}\n",
        middle="extends: base.yaml\nname: middle\ntypes: [p100]\nenvironment: {B: 3, C: 4}\nretries: null\n",
        top="extends: middle.yaml\nsteps: null\nenvironment: {A: null}\ntags: {y: '2'}\ngrid: {seed: 0..1}\n"
        "secrets: {T: {value: new}}\n",
    )
    job = one(tmp_path / "top.yaml")
    assert (job.command, job.name, job.types, job.steps, job.retries) == (("base",), "middle", ("p100",), None, 3)
    assert job.environment == {"B": "3", "C": "4"}
    assert job.tags == {"x": "1", "y": "2"}
    assert job.grid == {"lr": ("1", "2"), "seed": ("0", "1")}
    assert isinstance(job.secrets, SecretValues)
    assert dict(job.secrets) == {"S": "s", "T": "new"}


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    write(
        tmp_path,
        shared__base="command: a\nworking_directory: code\nsecrets: {S: {file: token}}\n",
        top="extends: shared/base.yaml\n",
        elsewhere="extends: shared/base.yaml\nworking_directory: mine\n",
    )
    (tmp_path / "shared" / "token").write_text("hidden\n")
    assert one(tmp_path / "top.yaml").working_directory == str(tmp_path / "shared" / "code")
    assert one(tmp_path / "elsewhere.yaml").working_directory == str(tmp_path / "mine")
    assert one(tmp_path / "top.yaml").secrets == SecretValues({"S": "hidden"})


def test_several_jobs_of_a_file_extend_the_same_one(tmp_path: Path) -> None:
    write(tmp_path, base="command: a\n", many="- {extends: base.yaml, name: x}\n- {extends: base.yaml, name: y}\n")
    assert [job.name for job in read_jobs(str(tmp_path / "many.yaml"))] == ["x", "y"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"top": "name: x\nextends: none.yaml"}, "top.yaml, line 2: extends: cannot read none.yaml: no such file"),
        ({"top": "extends: top.yaml"}, "circle: top.yaml -> top.yaml"),
        (
            {"top": "extends: a.yaml", "a": "extends: b.yaml", "b": "extends: ./a.yaml"},
            "b.yaml, line 1: extends: the files extend each other in a circle: top.yaml -> a.yaml -> b.yaml -> ./a",
        ),
        ({"top": "extends: base.yaml", "base": "command: a\n\nsteps: -1"}, "base.yaml, line 3: steps must be greater"),
        ({"top": "extends: base.yaml", "base": "command: a\nstep: 1"}, "base.yaml, line 2: there is no field 'step'"),
        ({"top": "\nextends: b.yaml\nsteps: 0", "b": "command: a\nsteps: 5"}, "top.yaml, line 3: steps must be"),
        (
            {"top": "\nextends: base.yaml", "base": "[{command: a}, {command: b}]"},
            "top.yaml, line 2: extends: base.yaml has 2",
        ),
        ({"top": "extends: base.yaml", "base": ""}, "base.yaml has 0 jobs"),
        ({"top": "extends: base.yaml", "base": "name: x"}, "top.yaml, line 1: command is missing"),
        ({"top": "extends: [a, b]"}, "top.yaml, line 1: extends must be the path of a job file, not a list"),
        (
            {"top": "extends: base.yaml", "base": "command: a\nenvironment:\n  A: 1\n  B:\n"},
            "base.yaml, line 4: environment: B has no value; write ''",
        ),
        ({"top": "extends: base.yaml\ncount: 0", "base": "command: a"}, "top.yaml, line 2: count must be between"),
    ],
)
def test_a_mistake_names_the_file_and_the_line_it_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, **files)
    with pytest.raises(InputError) as refusal:
        read_jobs("top.yaml")
    assert said in str(refusal.value)


def test_a_chain_that_is_too_long_is_refused(tmp_path: Path) -> None:
    for number in range(25):
        (tmp_path / f"{number}.yaml").write_text(f"extends: {number + 1}.yaml\n")
    with pytest.raises(InputError, match="more than 20 files extend each other"):
        read_jobs(str(tmp_path / "0.yaml"))


def test_overrides_win_over_files_and_merge_as_files_do(tmp_path: Path) -> None:
    write(tmp_path, job="command: a\nsteps: 5\nenvironment: {A: 1}\ncount: 2\n", none="name: x\n")
    overrides = {"steps": 7.0, "environment": {"B": "2"}}
    jobs = read_jobs(str(tmp_path / "job.yaml"), overrides)
    assert [(job.steps, dict(job.environment)) for job in jobs] == [(7.0, {"A": "1", "B": "2"})] * 2
    (job,) = read_jobs(str(tmp_path / "none.yaml"), {"command": ["b"]})
    assert job.command == ("b",)
    with pytest.raises(FieldError, match="steps must be greater than 0"):
        read_jobs(str(tmp_path / "job.yaml"), {"steps": -1.0})
