"""Numbers that make no sense, in every file and option: one sentence and exit code 2, never a crash or an infinity."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gavel.cli.app import run
from gavel.client.field_checks import FieldError
from gavel.client.messages import from_submission
from gavel.client.requests import JobRequest, Submission
from gavel.core.errors import InputError
from gavel.limits import LONGEST_SECONDS
from gavel.policies.registry import find_policy
from gavel.runtime.requests import checked
from gavel.runtime.server import read_entities
from gavel.wire import gavel_pb2 as pb

MANY_DIGITS = "1" + "0" * 400
MORE_DIGITS = "1" + "0" * 5000
"""More than Python itself reads or prints."""
ABSURD = (MANY_DIGITS, MORE_DIGITS, "1e308", "-1e308", "1e18", "Infinity")
ODD = ("NaN", "-1", "0", "", "abc", "1e-320")
"""Refused or, in logs where it means unknown, skipped."""

ALLOCATE = ("allocate", "FILE", "--space-sharing", "--policy", "min_cost_slo")
DESCRIBE = ("trace", "describe", "FILE")
SIMULATE = ("simulate", "--cluster", "v100=2,k80=2", "--limit-days", "2")
FAILURES = (*SIMULATE, "--static", "2", "--failures", "FILE")
ENTITIES = (*SIMULATE, "--static", "2", "--entities", "FILE", "--policy", "hierarchical")
TABLE = ("trace", "generate", "--jobs", "3", "--static", "--out", "out.csv", "--throughputs", "FILE")
SUBMIT = ("submit", "FILE", "--scheduler", "127.0.0.1:1", "--patience", "0")
SERVE = ("serve", "--config", "FILE", "--listen", "nowhere")

JOB = (
    '{"types": {"v100": {"count": COUNT, "price": PRICE}}, "entities": {"e": {"weight": SHARE}}, "jobs": '
    '[{"id": "a", "rates": {"v100": RATE}, "weight": WEIGHT, "steps": STEPS, "arrival": ARRIVAL, "age_seconds": AGE, '
    '"isolated_age_seconds": ISOLATED, "deadline_seconds": DEADLINE, "workers": WORKERS, "entity": "e"}, '
    '{"id": "b", "rates": {"v100": {"consolidated": TOGETHER, "unconsolidated": APART}}, "steps": 5}], '
    '"pairs": [{"jobs": ["a", "b"], "rates": {"v100": [FIRST, 1]}}]}'
)
OWN = "template,steps,arrival_seconds,weight,workers,deadline_seconds\nA3C,STEPS,ARRIVAL,WEIGHT,WORKERS,DEADLINE\n"
ARTEFACT = "A3C\t-\t-\t-\t0\tSTEPS\tSCALE\tWEIGHT\tSLO\tARRIVAL\n"
SLURM = "JobID|Submit|ElapsedRaw|AllocTRES\n1|SUBMIT|RAW|gres/gpu=GPUS\n2|2024-05-01|60|gres/gpu=1\n"
ELAPSED = "JobID|Submit|Elapsed|AllocTRES\n1|2024-05-01|DAYS-00:01:00|gres/gpu=1\n"
PHILLY = (
    '[{"jobid": "x", "submitted_time": "SUBMIT", "attempts": '
    '[{"start_time": "START", "end_time": END, "detail": [{"gpus": ["gpu0"]}]}]}]'
)
TASKS = "j,worker,INSTANCES,Terminated,START,END,600,10,GPU,T4\nk,worker,1,Terminated,500,4500,600,10,100,T4\n"
PODS = "name,num_gpu,creation_time,deletion_time,scheduled_time\na,GPUS,CREATION,DELETION,SCHEDULED\nb,1,1,9,2\n"
HELIOS = "job_id,gpu_num,submit_time,duration\n1,GPUS,SUBMIT,DURATION\n2,1,2020-06-09 18:41:27,249\n"
SIA = "timestamp,duration,num_gpus,gpu_time,cluster\nSUBMIT,DURATION,GPUS,60,c\n2017-10-09 07:01:55,66.0,1,66.0,c\n"
SHOCKWAVE = "A3C\t-\t-\t-\t0\tSTEPS\tSCALE\tgns\tWEIGHT\tSLO\tDURATION\tARRIVAL\n"
UNTIMED = "name,num_gpu,gpu_milli\na,GPUS,MILLI\nb,1,1000\n"
NODES = "sn,gpu,model\na,GPUS,V100M32\nb,4,P100\n"
OWN_TABLE = (
    '{"format": "gavel-throughputs/1", "types": ["v100"], "templates": {"A": {"1": {"v100": RATE}, "2": {"v100": '
    '{"consolidated": TOGETHER, "unconsolidated": APART}}}}, '
    '"pairs": [{"templates": ["A", "A"], "rates": {"v100": [PAIR, PAIR]}}]}'
)
PUBLIC_TABLE = """{"v100": {"('A', 1)": {"null": RATE, "('A', 1)": [PAIR, PAIR]}}}"""
USUAL: dict[str, str] = dict(
    re.findall(
        r"(\w+)=(\d+)",
        "COUNT=2 PRICE=1 SHARE=1 RATE=4 WEIGHT=1 STEPS=1000 ARRIVAL=0 AGE=0 ISOLATED=0 DEADLINE=99999 WORKERS=1 "
        "TOGETHER=2 APART=1 FIRST=1 SCALE=1 SLO=2 SUBMIT=1500000000 RAW=60 GPUS=1 DAYS=1 START=500 END=900 "
        "INSTANCES=1 GPU=100 CREATION=1 DELETION=9 SCHEDULED=2 DURATION=60 PAIR=1 COPIES=2 RETRIES=3 SECONDS=60 "
        "MILLI=500",
    )
)
JOB_FILE = "command: [train]\nsteps: STEPS\nweight: WEIGHT\nworkers: WORKERS\nretries: RETRIES\ndeadline_hours: 1\n"
JSON_JOB = '{"command": ["train"], "count": COPIES, "deadline_hours": DEADLINE}'
CONFIG = "round_seconds = SECONDS\nlog_megabytes = 16.0\n"

CASES = [
    (ALLOCATE, JOB, "COUNT", "types.v100.count"),
    (ALLOCATE, JOB, "PRICE", "types.v100.price"),
    (ALLOCATE, JOB, "SHARE", "entities.e.weight"),
    (ALLOCATE, JOB, "RATE", "job 'a'.rates.v100"),
    (ALLOCATE, JOB, "WEIGHT", "job 'a'.weight"),
    (ALLOCATE, JOB, "STEPS", "job 'a'.steps"),
    (ALLOCATE, JOB, "ARRIVAL", "job 'a'.arrival"),
    (ALLOCATE, JOB, "AGE", "job 'a'.age_seconds"),
    (ALLOCATE, JOB, "ISOLATED", "job 'a'.isolated_age_seconds"),
    (ALLOCATE, JOB, "DEADLINE", "job 'a'.deadline_seconds"),
    (ALLOCATE, JOB, "WORKERS", "job 'a'.workers"),
    (ALLOCATE, JOB, "TOGETHER", "job 'b'.rates.v100.consolidated"),
    (ALLOCATE, JOB, "APART", "job 'b'.rates.v100.unconsolidated"),
    (ALLOCATE, JOB, "FIRST", "pairs[0].rates.v100[0]"),
    (ENTITIES, '{"e": {"weight": SHARE}}', "SHARE", "entities.e.weight"),
    (DESCRIBE, OWN, "STEPS", "line 2, column 'steps'"),
    (DESCRIBE, OWN, "ARRIVAL", "line 2, column 'arrival_seconds'"),
    (DESCRIBE, OWN, "WEIGHT", "line 2, column 'weight'"),
    (DESCRIBE, OWN, "WORKERS", "line 2, column 'workers'"),
    (DESCRIBE, OWN, "DEADLINE", "line 2, column 'deadline_seconds'"),
    (DESCRIBE, ARTEFACT, "STEPS", "line 1, column 'total steps'"),
    (DESCRIBE, ARTEFACT, "SCALE", "line 1, column 'scale factor'"),
    (DESCRIBE, ARTEFACT, "WEIGHT", "line 1, column 'weight'"),
    (DESCRIBE, ARTEFACT, "SLO", "line 1, column 'SLO'"),
    (DESCRIBE, ARTEFACT, "ARRIVAL", "line 1, column 'arrival'"),
    (DESCRIBE, SLURM, "SUBMIT", "line 2, column 'Submit'"),
    (DESCRIBE, SLURM, "RAW", "line 2, column 'ElapsedRaw'"),
    (DESCRIBE, ELAPSED, "DAYS", "line 2, column 'Elapsed'"),
    (DESCRIBE, PHILLY, "SUBMIT", "job 1, 'submitted_time'"),
    (DESCRIBE, PHILLY, "START", "job 1, 'attempts' 1, 'start_time'"),
    (DESCRIBE, PHILLY, "END", "job 1, 'attempts' 1, 'end_time'"),
    (DESCRIBE, TASKS, "INSTANCES", "line 1, column 'inst_num'"),
    (DESCRIBE, TASKS, "START", "line 1, column 'start_time'"),
    (DESCRIBE, TASKS, "END", "line 1, column 'end_time'"),
    (DESCRIBE, TASKS, "GPU", "line 1, column 'plan_gpu'"),
    (DESCRIBE, PODS, "GPUS", "line 2, column 'num_gpu'"),
    (DESCRIBE, PODS, "CREATION", "line 2, column 'creation_time'"),
    (DESCRIBE, PODS, "DELETION", "line 2, column 'deletion_time'"),
    (DESCRIBE, PODS, "SCHEDULED", "line 2, column 'scheduled_time'"),
    (DESCRIBE, HELIOS, "GPUS", "line 2, column 'gpu_num'"),
    (DESCRIBE, HELIOS, "SUBMIT", "line 2, column 'submit_time'"),
    (DESCRIBE, HELIOS, "DURATION", "line 2, column 'duration'"),
    (DESCRIBE, SIA, "SUBMIT", "line 2, column 'timestamp'"),
    (DESCRIBE, SIA, "DURATION", "line 2, column 'duration'"),
    (DESCRIBE, SIA, "GPUS", "line 2, column 'num_gpus'"),
    (DESCRIBE, SHOCKWAVE, "STEPS", "line 1, column 'total steps'"),
    (DESCRIBE, SHOCKWAVE, "SCALE", "line 1, column 'scale factor'"),
    (DESCRIBE, SHOCKWAVE, "WEIGHT", "line 1, column 'weight'"),
    (DESCRIBE, SHOCKWAVE, "SLO", "line 1, column 'SLO'"),
    (DESCRIBE, SHOCKWAVE, "DURATION", "line 1, column 'duration'"),
    (DESCRIBE, SHOCKWAVE, "ARRIVAL", "line 1, column 'arrival'"),
    (DESCRIBE, UNTIMED, "GPUS", "line 2, column 'num_gpu'"),
    (DESCRIBE, UNTIMED, "MILLI", "line 2, column 'gpu_milli'"),
    (("trace", "cluster", "FILE"), NODES, "GPUS", "line 2, column 'gpu'"),
    (FAILURES, "seconds,event,server\nSECONDS,lost,v100-0\n", "SECONDS", "line 2, column 'seconds'"),
    (TABLE, OWN_TABLE, "RATE", "template 'A' with 1 worker, type 'v100'"),
    (TABLE, OWN_TABLE, "TOGETHER", "template 'A' with 2 workers, type 'v100', consolidated"),
    (TABLE, OWN_TABLE, "APART", "template 'A' with 2 workers, type 'v100', unconsolidated"),
    (TABLE, OWN_TABLE, "PAIR", "template 'A' with 1 worker next to template 'A', type 'v100'"),
    (TABLE, PUBLIC_TABLE, "RATE", "type 'v100', template 'A' with 1 worker"),
    (TABLE, PUBLIC_TABLE, "PAIR", "template 'A' with 1 worker next to template 'A' with 1 worker"),
    (SUBMIT, JOB_FILE, "STEPS", "line 2: steps"),
    (SUBMIT, JOB_FILE, "WEIGHT", "line 3: weight"),
    (SUBMIT, JOB_FILE, "WORKERS", "line 4: workers"),
    (SUBMIT, JOB_FILE, "RETRIES", "line 5: retries"),
    (SUBMIT, JSON_JOB, "COPIES", "line 1: count"),
    (SUBMIT, JSON_JOB, "DEADLINE", "line 1: deadline_hours"),
]
NAMES = [f"{case[0][0]} {case[3]}" for case in CASES]


def filled(text: str, slot: str, number: str) -> str:
    """The file with one of its numbers replaced."""
    for name, usual in USUAL.items():
        text = re.sub(rf"\b{name}\b", number if name == slot else usual, text)
    return text


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ran(capsys: pytest.CaptureFixture[str], command: tuple[str, ...], text: str) -> tuple[int, str, str]:
    Path("FILE").write_text(text, encoding="utf-8")
    code = run(list(command))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(("command", "text", "slot", "named"), CASES, ids=NAMES)
def test_an_absurd_number_in_a_file_is_one_sentence_that_names_its_field(
    command: tuple[str, ...], text: str, slot: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in ABSURD:
        for options in ((), ("--json",)):
            code, out, said = ran(capsys, (*command, *options), filled(text, slot, number))
            assert (code, out) == (2, "")
            assert said.startswith("gavel: ")
            assert said.count("\n") == 1
            assert "FILE" in said
            assert named in said
            assert number[:2] in said
            assert len(said) < 300


@pytest.mark.parametrize(("command", "text", "slot", "named"), CASES, ids=NAMES)
def test_values_that_are_not_numbers_are_refused_or_skipped(
    command: tuple[str, ...], text: str, slot: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in ODD:
        for options in ((), ("--json",)):
            code, out, said = ran(capsys, (*command, *options), filled(text, slot, number))
            unreachable = command is SUBMIT and "127.0.0.1:1" in said  # the file was valid
            assert code in {0, 2} or unreachable, (named, number)
            assert not re.search(r"\b(inf|nan|infinity)\b", out, re.IGNORECASE)


@pytest.mark.parametrize(("command", "text"), dict.fromkeys((command, text) for command, text, _, _ in CASES))
def test_the_files_of_these_tests_are_good_as_long_as_their_numbers_are(
    command: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = ran(capsys, command, filled(text, "", ""))
    assert code == 0 or "no scheduler" in said or "127.0.0.1:1" in said, said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            SLURM.replace("GPUS", MORE_DIGITS),
            "line 2, column 'AllocTRES': GPUs must be at most 1,000,000,000, not '1000",
        ),
        (TASKS.replace("INSTANCES", "1e9").replace("GPU", "1e11"), "line 1: 'inst_num' times 'plan_gpu' gives job 'j'"),
        (HELIOS.replace("SUBMIT", "9999-12-31"), "'9999-12-31' is not a time within 317 years of 1970"),
        (PHILLY.replace("START", "1700-01-01").replace("END", '"2200-01-01"'), "job 'x' ran for 1.57785e+10 s"),
        (ARTEFACT.replace("STEPS", "1e15").replace("SLO", "1e9"), "column 'SLO': '1e9' is not an SLO of a job of 1.3"),
        (HELIOS.replace("SUBMIT", "1700-01-01"), "was submitted after the first by 1.01"),
    ],
)
def test_numbers_that_add_up_to_something_absurd_are_refused(
    text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, sentence = ran(capsys, DESCRIBE, filled(text, "", ""))
    assert code == 2
    assert said in sentence


@pytest.mark.parametrize("moment", ["0", "1735689600", "1735689600.25", "2285-01-01"])
def test_a_moment_in_unix_time_or_as_a_date_is_valid(moment: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, DESCRIBE, filled(HELIOS, "SUBMIT", moment))[0] == 0


def test_the_longest_duration_is_valid_and_a_longer_one_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(capsys, DESCRIBE, filled(HELIOS, "DURATION", f"{LONGEST_SECONDS:.0f}"))[0] == 0
    assert ran(capsys, DESCRIBE, filled(HELIOS, "DURATION", f"{LONGEST_SECONDS + 1:.0f}"))[0] == 2


def test_arrivals_almost_at_once_have_no_infinite_rate(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, DESCRIBE, "template,steps,arrival_seconds\nA3C,1,0\nA3C,1,1e-320\n")
    assert code == 0
    assert "all at once" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--round-seconds", "1e308"],
            "--round-seconds must be at most 10,000,000,000 seconds (317 years), not 1e+308",
        ),
        (["--recompute-every-seconds", "1e18"], "--recompute-every-seconds must be at most 10,000,000,000 seconds"),
        (["--restart-seconds", "nan"], "--restart-seconds"),
        (["--limit-days", "1e308"], "--limit-days must be at most 115,740 days (317 years), not 1e+308"),
        (["--repair-hours", "1e18"], "--repair-hours must be at most 2,777,777 hours"),
        (["--profiling-minutes", MANY_DIGITS], "--profiling-minutes must be a finite number"),
        (["--failures-per-server-day", "1e15"], "--failures-per-server-day 1e+15 means about"),
        (["--prices", "v100=1e308"], "the price of v100 must be at most 1e+15, not 1e+308"),
        (["--prices", "v100=1e-320"], "the price of v100 must be at least 1e-15"),
        (["--durations", "60,1e18"], "a duration in seconds must be at most 10,000,000,000 s (317 years), not 1e+18"),
        (["--slo", "1e14"], "with an SLO factor of 1e+14 must be at most 10,000,000,000 s"),
        (["--window", f"0:{MORE_DIGITS}"], "write A:B with A < B"),
        (["--cluster", f"v100={MORE_DIGITS}"], "cluster"),
        (["--seed", MORE_DIGITS], "--seed"),
        (["--throughputs-known", "1e-15"], "no known template has pairs to compare new ones with"),
    ],
)
def test_an_absurd_option_of_a_simulation_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in ([], ["--json"]):
        assert run(["simulate", "--cluster", "v100=2", "--static", "3", *arguments, *options]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert said in captured.err
        assert len(captured.err) < 300


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trace", "generate", "--out", "o", "--jobs", "9", "--arrivals-per-hour", "1e-9"], "take more than 317 years"),
        (["trace", "generate", "--out", "o", "--jobs", "9", "--arrivals-per-hour", "1e308"], "must be at most 1e+15"),
        (["trace", "generate", "--out", "o", "--jobs", MANY_DIGITS, "--static"], "at most 10,000,000 jobs, not 1000"),
        (["submit", "--count", MANY_DIGITS, "--", "train"], "--count 1000"),
        (["submit", "--steps", "1e308", "--", "train"], "--steps: steps must be at most 1e+15, not 1e+308"),
        (["worker", "--emulate", "v100=1", "--time-scale", "1e308"], "--time-scale must be at most 1e+15"),
        (["worker", "--emulate", "v100=1", "--log-megabytes", "inf"], "--log-megabytes must be a finite number"),
        (["worker", "--accelerators", f"v100={MORE_DIGITS}"], "v100 must be 1 to 4096"),
        (["serve", "--round-seconds", "1e308", "--listen", "nowhere"], "--round-seconds must be at most"),
        (
            ["serve", "--longest-grace", "forever", "--listen", "nowhere"],
            "--longest-grace: 'forever' is not a duration",
        ),
        (["serve", "--longest-grace", "9e99", "--listen", "nowhere"], "--longest-grace-seconds must be at most"),
        (["serve", "--retry-seconds", "inf", "--listen", "nowhere"], "--retry-seconds must be a finite number"),
        (["demo", "--seconds", "1e308"], "--seconds must be at most"),
        (
            ["profile", "--template", "t", "--types", "v100", "--out", "o", "--seconds", "1e308", "--", "train"],
            "--seconds must be at most",
        ),
    ],
)
def test_an_absurd_option_of_other_commands_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    sentence = capsys.readouterr().err
    assert said in sentence
    assert len(sentence) < 300


@pytest.mark.parametrize("number", [MANY_DIGITS, "1e308", "inf", "nan", MORE_DIGITS])
def test_an_absurd_number_in_the_configuration_of_a_scheduler_is_refused(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = ran(capsys, SERVE, filled(CONFIG, "SECONDS", number))
    assert code == 2
    assert said.startswith("gavel: --config FILE: ")
    assert "at most 1e+15" in said
    assert len(said) < 300


@pytest.mark.parametrize("weight", [MORE_DIGITS, "1e308", "NaN", "-1", '"abc"'])
def test_a_scheduler_checks_the_weights_of_its_entities(weight: str) -> None:
    Path("teams.json").write_text(f'{{"research": {{"weight": {weight}}}}}', encoding="utf-8")
    with pytest.raises(InputError, match=r"^teams\.json: entities\.research\.weight must be "):
        read_entities(Path("teams.json"))


@pytest.mark.parametrize("field", ["steps", "weight", "deadline_seconds"])
@pytest.mark.parametrize("value", [1e308, float("nan"), -1.0])
def test_a_scheduler_refuses_absurd_numbers_of_any_client(field: str, value: float) -> None:
    request = pb.JobRequest(command=["train"])
    setattr(request, field, value)
    with pytest.raises(InputError, match=f"{field} is .*; it must be a positive number, at most "):
        checked(from_submission(request), find_policy("max_min_fairness"), None)


@pytest.mark.parametrize("number", [10**400, 10**5000, -(10**400)], ids=["large", "larger", "negative"])
@pytest.mark.parametrize("field", ["steps", "weight", "deadline_hours", "workers", "retries"])
def test_an_absurd_number_of_a_program_is_refused_by_name(field: str, number: int) -> None:
    with pytest.raises(FieldError, match=f"^{field} must be a finite number, not ") as refusal:
        JobRequest(["train"], **{field: number}).check()  # type: ignore[arg-type] # one field of several types
    assert len(str(refusal.value)) < 200


def test_a_job_may_not_ask_for_more_time_to_save_than_the_cluster_allows() -> None:
    policy = find_policy("max_min_fairness")
    allowed = Submission(command=("train",), grace_seconds=300.0)
    assert checked(allowed, policy, None, longest_grace=300.0).grace_seconds == 300.0
    with pytest.raises(InputError, match=r"grace is 5m1s, and this cluster allows at most 5m; ask for less time"):
        checked(replace(allowed, grace_seconds=301.0), policy, None, longest_grace=300.0)
