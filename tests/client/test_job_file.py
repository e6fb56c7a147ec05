"""Job files: what is read from them, and how a mistake is said."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gavel.client.job_file import parse_jobs, read_jobs, write_jobs
from gavel.client.messages import from_request, to_request
from gavel.client.requests import JobRequest
from gavel.errors import InputError
from gavel.limits import LARGEST, LONGEST_HOURS, LONGEST_SECONDS, SMALLEST


def test_a_job_with_every_field() -> None:
    text = """
    name: resnet
    template: ResNet-18 (batch size 64)
    command: [python, train.py, --lr, 1e-3, --amp, no]
    steps: 1e6
    workers: 2
    weight: 1.5
    entity: research
    deadline_hours: 12
    types: [v100, k80]
    environment: {OMP_NUM_THREADS: 4, DEBUG: off, RATE: 0.10}
    retries: 0
    working_directory: /data/resnet
    """
    assert parse_jobs(text) == [
        JobRequest(
            ("python", "train.py", "--lr", "1e-3", "--amp", "no"),
            name="resnet",
            template="ResNet-18 (batch size 64)",
            steps=1e6,
            workers=2,
            weight=1.5,
            entity="research",
            deadline_hours=12.0,
            types=("v100", "k80"),
            environment={"OMP_NUM_THREADS": "4", "DEBUG": "off", "RATE": "0.10"},
            retries=0,
            working_directory="/data/resnet",
        )
    ]


def test_a_string_is_run_by_the_shell() -> None:
    (job,) = parse_jobs("command: |\n  for i in 1 2; do echo $i; done\n")
    assert job.command == ("/bin/sh", "-c", "for i in 1 2; do echo $i; done\n")


def test_one_job_a_list_and_several_documents() -> None:
    text = "command: [a]\n---\n- command: [b]\n- command: [c]\n  count: 2\n---\n"
    assert [job.command[0] for job in parse_jobs(text)] == ["a", "b", "c", "c"]


def test_json_is_read_as_well() -> None:
    job = {"command": ["echo", "😀 \\ud83d", "a/b"], "steps": 5, "environment": {"A": "1"}, "name": None}
    for text in (json.dumps(job), json.dumps([job], indent=2), json.dumps(job, ensure_ascii=False)):
        (read,) = parse_jobs(text)
        assert (list(read.command), read.steps, read.environment) == (job["command"], 5.0, {"A": "1"})


def test_common_fields_of_jobs_are_merged_from_an_anchor() -> None:
    text = "- &base {command: [a], weight: 2, name: x}\n- {<<: *base, name: y}\n- {<<: [{name: z}, *base]}\n"
    assert [(job.name, job.weight) for job in parse_jobs(text)] == [("x", 2.0), ("y", 2.0), ("z", 2.0)]


def test_directories_are_those_of_the_file_or_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    folder = tmp_path / "jobs"
    folder.mkdir()
    file = folder / "job.yaml"
    text = "- {command: a, working_directory: runs/1}\n- {command: a, working_directory: ~/x}\n- {command: a}\n"
    file.write_text(text)
    monkeypatch.chdir(tmp_path)
    expected = [str(folder / "runs" / "1"), "/home/me/x", str(tmp_path)]
    assert [job.working_directory for job in read_jobs("jobs/job.yaml")] == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert read_jobs("-")[0].working_directory == str(tmp_path / "runs" / "1")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("steps: 3", 1, "command is missing"),
        ("name: x\ncommand:", 1, "command is missing"),
        ("command: []", 1, "command is missing"),
        ("command: ['']", 1, "command is missing"),
        ("command: ' '", 1, "command is empty"),
        ("command: {a: b}", 1, "command must be a list, for example [python, train.py], not a mapping"),
        ("command: [a, [b]]", 1, "command must be text, not a list"),
        ("command: [a, ~]", 1, "command has no value; write '' for an empty one"),
        ('command: ["a\\0b"]', 1, "command contains a NUL"),
        ("command: a\nstep: 3", 2, "there is no field 'step'; did you mean 'steps'?"),
        ("command: a\nworker_count: 3", 2, "there is no field 'worker_count'; did you mean 'workers'?"),
        ("command: a\nxyzzy: 3", 2, "there are: command, name, template"),
        ("command: a\nsteps: 1\nsteps: 2", 3, "the field 'steps' is given twice"),
        ("command: a\nenvironment:\n  A: 1\n  A: 2", 4, "the field 'A' is given twice"),
        ("- command: a\n- command: b\n  steps: -3", 3, "steps must be greater than 0, not -3"),
        ("command: a\nsteps: 0", 2, "steps must be greater than 0, not 0"),
        ("command: a\nsteps: many", 2, "steps must be a number, not many"),
        ("command: a\nsteps: '10'", 2, "steps must be a number, not the text '10'"),
        ("command: a\nsteps: [10]", 2, "steps must be a number, not a list"),
        ("command: a\nsteps: true", 2, "steps must be a number, not true"),
        ("command: a\nsteps: 1:30", 2, "steps must be a number, not 1:30"),
        ("command: a\nsteps: nan", 2, "steps must be a finite number"),
        ("command: a\nsteps: 1e400", 2, "steps must be a finite number, not 1e400"),
        ("command: a\nworkers: 1e400", 2, "workers must be a finite number, not 1e400"),
        ("command: a\nweight: 1e-320", 2, "weight must be at least 1e-15"),
        ("command: a\ndeadline_hours: 1e15", 2, "deadline_hours must be at most 2,777,777 (317 years), not 1e+15"),
        ("command: a\nsteps: 1e300", 2, "steps must be at most 1e+15"),
        ("command: a\nworkers: 0", 2, "workers must be at least 1, not 0"),
        ("command: a\nworkers: 1.5", 2, "workers must be a whole number, not 1.5"),
        ("command: a\nworkers: 1e9", 2, "workers must be at most 1,000,000"),
        ("command: a\nretries: -1", 2, "retries must be at least 0, not -1"),
        ("command: a\nweight: -1", 2, "weight must be greater than 0, not -1"),
        ("command: a\ndeadline_hours: -1", 2, "deadline_hours must be greater than 0, not -1"),
        ("command: a\ncount: 0", 2, "count must be between 1 and 1,000,000, not 0"),
        ("command: a\ncount: 2.5", 2, "count must be a whole number, not 2.5"),
        ("command: a\ntypes: v100", 2, "types must be a list, for example [v100, k80], not v100"),
        ("command: a\ntypes: [v100, v100]", 2, "types names 'v100' twice"),
        ("command: a\ntypes: ['']", 2, "types contains an empty name"),
        ("command: a\nenvironment: [A]", 2, "environment must be a mapping"),
        ("command: a\nenvironment: {A: [1]}", 2, "environment: A must be text, not a list"),
        ("command: a\nenvironment: {A: }", 2, "environment: A has no value"),
        ("command: a\nenvironment: {A=B: c}", 2, "'A=B' cannot be the name of a variable"),
        ("command: a\nname: [x]", 2, "name must be text, not a list"),
        ('command: a\nname: "x\\ny"', 2, "name contains a character that cannot be printed"),
        ("just text", 1, "a job must be a mapping of fields such as command and steps, not just text"),
        ("- a\n", 1, "a job must be a mapping"),
        ("- - command: a\n", 1, "a job must be a mapping"),
        ("? [a]\n: b", 1, "a field's name must be text, not a list"),
        ("command: a: b", 1, "not valid YAML: mapping values are not allowed"),
        ("command: 'a", 1, "not valid YAML"),
        ("a: 1\ncommand: \x07", 2, "a character that YAML does not allow"),
        ("command: a\nname: \ud800", 2, "a character that YAML does not allow"),
        ("command: !!python/name:os.system", 1, "has no meaning here"),
        ("!!set {command}", 1, "has no meaning here"),
        ("command: *gone", 1, "*gone refers to an anchor that is not defined"),
        ("&a {<<: *a}", 1, "*a refers to an anchor that is not defined"),
        ("<<: [x]\ncommand: a", 1, "<< merges the fields of a mapping, not of x"),
        ("[" * 100_000, 1, "nested more than 20 levels deep"),
        ("{" * 100_000, 1, "nested more than 20 levels deep"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_line_and_field(text: str, line: int, said: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_jobs(text, source="job.yaml")
    assert str(refusal.value).startswith(f"job.yaml, line {line}: ")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n---\n", "[]", "~"])
def test_a_file_without_jobs_is_a_mistake(text: str) -> None:
    with pytest.raises(InputError, match=r"job\.yaml holds no job"):
        parse_jobs(text, source="job.yaml")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read nowhere\.yaml: no such file"):
        read_jobs("nowhere.yaml")
    with pytest.raises(InputError, match="is a directory"):
        read_jobs(str(tmp_path))
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        read_jobs(str(binary))


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
label = st.text(st.characters(exclude_categories=["C", "Z"])).filter(str.isprintable)
positive = st.floats(SMALLEST, LARGEST)
requests = st.builds(
    JobRequest,
    command=st.tuples(text.filter(bool)) | st.lists(text, min_size=1).filter(lambda parts: bool(parts[0])),
    name=label,
    template=label,
    steps=st.none() | positive,
    workers=st.integers(1, 1_000_000),
    weight=positive,
    entity=label,
    deadline_hours=st.none() | st.floats(SMALLEST, LONGEST_HOURS),
    types=st.lists(label.filter(bool), unique=True),
    environment=st.dictionaries(label.filter(lambda name: bool(name) and "=" not in name), text),
    retries=st.integers(0, 1_000_000),
    working_directory=label.map(lambda part: os.path.normpath("/" + part.lstrip("/"))),
    private=st.booleans(),
    secrets=st.lists(st.from_regex(r"[A-F_][A-Z0-9_]{0,20}", fullmatch=True), unique=True, max_size=5),
    launcher=st.just("per-server"),
    grace=st.none() | positive.filter(lambda value: value <= LONGEST_SECONDS),
    time_limit=st.none() | st.floats(1.0, LONGEST_SECONDS),
    idle_timeout=st.none() | st.floats(1.0, LONGEST_SECONDS),
    hold=st.booleans(),
    after=st.lists(st.sampled_from(["38", "prepare:any", "a7:failed"]), unique=True, max_size=2),
    tags=st.dictionaries(label.filter(lambda name: bool(name) and "=" not in name), label, max_size=2),
    gpu_memory=st.none() | st.integers(2**20, 2**50),
    cpus=st.none() | st.floats(0.1, 1000.0),
    memory=st.none() | st.integers(2**20, 2**50),
    notify=st.just(("https://example.org/hook",)) | st.just(()),
    venv=label.map(lambda part: f"/{part}"),
    modules=st.lists(st.sampled_from(["cuda/12.4", "gcc", "nccl/2.21-1"]), unique=True, max_size=2),
    array=st.sampled_from(["", "0-9%2", "1,3,5"]),
    grid=st.dictionaries(st.sampled_from(["lr", "seed"]), st.just(("1", "2")), max_size=2),
)


@given(st.lists(requests, min_size=1, max_size=3))
@example(
    [JobRequest(["no", "1e6", "~", "", "\x85\u2028\ufeff\x07", " x ", "a: b", "#"], "null", working_directory="/~")]
)
def test_what_is_written_is_read_back_the_same(jobs: list[JobRequest]) -> None:
    assert parse_jobs(write_jobs(jobs)) == jobs


@given(requests)
def test_what_is_sent_arrives_the_same(request: JobRequest) -> None:
    request.check()
    arrived = from_request(to_request(request))
    if request.deadline_hours is not None:  # seconds on the wire
        assert arrived.deadline_hours == pytest.approx(request.deadline_hours)
    same = {**request.document(), "deadline_hours": None}
    assert {**arrived.document(), "deadline_hours": None} == same


names = st.sampled_from(
    [
        "command",
        "steps",
        "workers",
        "types",
        "environment",
        "count",
        "name",
        "retries",
        "deadline_hours",
        "weight",
        "secrets",
        "private",
        "<<",
    ]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.binary()
junk = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | names, inner))


@given(st.dictionaries(names | st.text(max_size=8), junk | st.lists(st.text(max_size=3))))
def test_any_mapping_gives_jobs_or_one_sentence(mapping: dict[str, Any]) -> None:
    _jobs_or_sentence(yaml.safe_dump(mapping, allow_unicode=True))


@given(st.text() | st.text(alphabet="{}[]:,-&*!|>'\"%@`#?<\n ab~"))
def test_any_text_gives_jobs_or_one_sentence(text: str) -> None:
    _jobs_or_sentence(text)


def _jobs_or_sentence(text: str) -> None:
    try:
        jobs = parse_jobs(text)
    except InputError:
        return
    for job in jobs[:3]:
        job.check()
        to_request(job)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(JobRequest.__dataclass_fields__, junk)))
@example({"user": []})
def test_any_request_is_good_or_says_what_is_wrong(fields: dict[str, Any]) -> None:
    """Requests that a program makes without a type checker, too."""
    try:
        request = JobRequest(**{"command": ["x"], **fields})
        request.check()
    except InputError:
        return
    to_request(request)
