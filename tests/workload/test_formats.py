"""Traces and logs that users have: small samples of each format, and how each refuses a bad line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gavel.core.errors import InputError
from gavel.core.throughputs import builtin_table, read_table
from gavel.workload.formats import FORMATS, read_trace, recognise, write_trace
from gavel.workload.generate import drawn_seconds, generate
from gavel.workload.reference import Reference, gpu_hours_on
from gavel.workload.rows import Source
from gavel.workload.trace import Trace, TraceJob

TABLE = builtin_table()
V100 = Reference.of(TABLE, "v100")

ARTEFACT = [
    "LM (batch size 5)\tpython3 main.py --bs 5\tlm\t--steps\t1\t1000.5\t2\t5\t-1.000000\t10",
    "A3C\t-\t-\t-\t0\t717.6\t1\t1\t2.0\t0",
]
SLURM = """\
JobID|JobName|User|Account|Submit|Start|End|Elapsed|State|AllocTRES|ReqTRES
100|train|ann|vision|2024-05-01T10:00:00|2024-05-01T10:05:00|2024-05-01T11:05:00|01:00:00|COMPLETED|billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1|cpu=8
100.batch|batch|||2024-05-01T10:05:00|2024-05-01T10:05:00|2024-05-01T11:05:00|01:00:00|COMPLETED|cpu=8,gres/gpu=2|
101_3|tune|bob||2024-05-01T09:59:00|2024-05-01T10:00:00|Unknown|1-00:00:30|RUNNING|gres/gpu:v100=1,gres/gpu:p100=2|
102|cpu|bob|nlp|2024-05-01T10:01:00|2024-05-01T10:01:00|2024-05-01T10:02:00|00:01:00|COMPLETED|cpu=8,mem=4G|cpu=8
103|gone|bob|nlp|2024-05-01T10:01:00|Unknown|2024-05-01T10:02:00|00:00:00|CANCELLED by 1000||gres/gpu=8
"""
PHILLY: list[dict[str, object]] = [
    {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": "application_1",
        "attempts": [
            {
                "start_time": "2017-10-07 01:12:09",
                "end_time": "2017-10-07 01:13:09",
                "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}],
            },
            {
                "start_time": "2017-10-07 01:14:00",
                "end_time": "2017-10-07 02:14:00",
                "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}],
            },
            {"start_time": "2017-10-07 03:00:00", "end_time": None, "detail": []},
        ],
        "submitted_time": "2017-10-07 01:11:39",
        "user": "ce2f4c",
    },
    {"status": "Killed", "vc": "x", "jobid": "application_2", "attempts": [], "submitted_time": "2017-10-07 01:11:00"},
    {
        "status": "Failed",
        "vc": "None",
        "user": "u",
        "jobid": "application_3",
        "attempts": [{"start_time": "2017-10-07 01:12:09", "end_time": "None", "detail": []}],
        "submitted_time": "2017-10-07 01:11:00",
    },
]
TASKS = """\
4f05,tensorflow,1.0,Terminated,1000.0,1600.0,600.0,29.296875,50.0,MISC
aa,ps,2.0,Terminated,500.0,4000.0,600.0,10.0,,
aa,worker,2.0,Terminated,900.0,4500.0,600.0,10.0,200.0,V100
bb,worker,1.0,Running,2000.0,,600.0,10.0,100.0,T4
cc,worker,1.0,Terminated,2000.0,2100.0,600.0,10.0,,
"""
TASKS_HEADER = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0017,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437500
openb-pod-0022,4000,15258,1,220,V100M16|V100M32,BE,Running,9437400,9437500,9437410
openb-pod-0048,8000,30517,0,0,,BE,Running,9992086,10013821,9992086
openb-pod-0061,11908,47104,1,1000,,BE,Pending,10001278,10001403,
"""
HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
1425512,uVMrF,vchbv,16,16,2,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
1425513,uzqls,,3,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-09 18:41:38,10,0
1425514,uzqls,vcpDC,0,1,1,COMPLETED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
"""
SIA = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 07:00:55,30.5,16,488.0,
2017-10-09 07:00:55,10.0,0,0.0,11cb48
"""
SHOCKWAVE = [
    "LM (batch size 5)\tpython3 main.py\tlm\t--steps\t1\t1000\t2\tgns\t5\t-1.000000\t36\t10",
    "A3C\t-\t-\t-\t0\t7176\t1\tstatic\t1\t2.0\t3600\t0",
]
SAMPLES = {
    "artefact": "\n".join(ARTEFACT),
    "slurm": SLURM,
    "philly": json.dumps(PHILLY),
    "alibaba-2020": TASKS,
    "alibaba-2023": PODS,
    "helios": HELIOS,
    "sia": SIA,
    "shockwave": "\n".join(SHOCKWAVE),
    "gavel": "template,steps,arrival_seconds\nA3C,1,0\n",
}


def read(tmp_path: Path, text: str, *, seed: int = 0, format: str | None = None) -> Trace:  # noqa: A002
    file = tmp_path / "t"
    file.write_text(text, encoding="utf-8")
    return read_trace(file, table=TABLE, seed=seed, format=format)


def told(trace: Trace) -> list[tuple[str, float, int, float, str | None]]:
    """What a log says of its jobs: id, arrival, workers, run time and whose they are."""
    return [
        (j.id, j.arrival, j.workers, round(j.steps / V100.rate(j.template, j.workers), 6), j.entity) for j in trace.jobs
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_recognised_by_its_content(name: str, tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text(SAMPLES[name], encoding="utf-8")
    assert recognise(file) == name
    assert read_trace(file, table=TABLE) == read_trace(file, table=TABLE, format=name)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_converts_to_our_own(name: str, tmp_path: Path) -> None:
    trace = read(tmp_path, SAMPLES[name])
    out = tmp_path / "out.csv"
    write_trace(trace, out)
    assert read_trace(out, table=TABLE).jobs == trace.jobs


def test_the_artefacts_10_columns(tmp_path: Path) -> None:
    trace = read(tmp_path, SAMPLES["artefact"])
    slo = 2.0 * 717.6 / V100.rate("A3C", 1)  # a multiple of the duration on a V100
    assert trace.jobs == (
        TraceJob("job1", "A3C", 1, 717.6, 0.0, deadline_seconds=slo),
        TraceJob("job0", "LM (batch size 5)", 2, 1000.5, 10.0, weight=5.0, command="python3 main.py --bs 5"),
    )
    assert trace.notes == ("arrivals were out of order; the jobs were sorted by arrival",)


def test_the_artefacts_older_layouts(tmp_path: Path) -> None:
    job = TraceJob("job0", "LM (batch size 5)", 2, 1000.0, 6.0, command="run %s")
    for line in (
        "LM (batch size 5)\trun %s\t--steps\t1\t1000\t2\t1\t-1.0\t6",
        "LM (batch size 5)\trun %s\t--steps\t1\t1000\t6.000000\t2",
        "LM (batch size 5)\trun %s\t--steps\t1000\t6\t2",
    ):
        assert read(tmp_path, line + "\n").jobs == (job,)


def test_workers_that_the_table_does_not_know_become_the_nearest_known_with_a_note(tmp_path: Path) -> None:
    line = "A3C\tpython3 main.py\t--max-steps\t0\t1934260\t343918.000000\t4"
    trace = read(tmp_path, line)
    assert (trace.jobs[0].workers, trace.jobs[0].steps) == (1, 1934260.0)
    assert trace.notes == (
        (
            "the throughput table lists template 'A3C' only with 1 worker; 1 job with other counts runs with the "
            "nearest of these and the same steps: 100.0% of all GPU-hours on v100"
        ),
    )


def test_slurm(tmp_path: Path) -> None:
    trace = read(tmp_path, SLURM)
    assert told(trace) == [("101_3", 0.0, 3, 86430.0, "bob"), ("100", 60.0, 2, 3600.0, "vision")]
    assert [job.command for job in trace.jobs] == ["tune", "train"]
    assert trace.notes == (
        (
            "the log does not say what jobs ran: templates were drawn at random (seed 0), and steps are the recorded "
            "run time times the template's rate on v100"
        ),
        "arrivals were out of order; the jobs were sorted by arrival",
        "left out 1 job that used no GPU",
        "left out 1 job that never ran",
        (
            "the throughput table does not list 3 workers, which 1 job requests; the rates are scaled from the numbers "
            "that it lists (docs/throughputs.md)"
        ),
        "1 job was still running; the time so far counts",
    )


@pytest.mark.parametrize(
    ("gres", "workers"), [("gpu:4", 4), ("gpu:a100:2(IDX:0,3)", 2), ("gpu", 1), ("mps:100,gpu:8", 8)]
)
def test_older_slurm_has_other_columns_and_a_delimiter_at_the_end(gres: str, workers: int, tmp_path: Path) -> None:
    text = f"JobID|Submit|ElapsedRaw|AllocGRES|\n7|2024-05-01T10:00:00|90|{gres}|\n"
    assert told(read(tmp_path, text)) == [("7", 0.0, workers, 90.0, None)]


def test_slurm_without_elapsed_takes_the_time_from_start_to_end(tmp_path: Path) -> None:
    text = "JobID|Submit|Start|End|ReqTRES\n7|1700000000|1700000010|1700000070|gres/gpu=1\n"
    assert told(read(tmp_path, text)) == [("7", 0.0, 1, 60.0, None)]


def test_philly(tmp_path: Path) -> None:
    trace = read(tmp_path, json.dumps(PHILLY))
    assert told(trace) == [("application_1", 0.0, 4, 3660.0, "ee9e8c")]
    assert trace.notes[1:] == ("left out 1 job that never ran", "left out 1 job that lacked a recorded end")


@pytest.mark.parametrize("header", ["", TASKS_HEADER])
def test_alibaba_2020_with_and_without_a_header(header: str, tmp_path: Path) -> None:
    trace = read(tmp_path, header + TASKS)
    assert told(trace) == [("aa", 0.0, 4, 3600.0, None), ("4f05", 100.0, 1, 600.0, None)]
    # 0.5 GPUs for 600 s become 1; the other job has 4 GPUs for 3,600 s
    assert "fractions of a GPU were rounded up to whole GPUs for 1 job: GPU-hours +2.0%" in trace.notes


def test_alibaba_2023(tmp_path: Path) -> None:
    trace = read(tmp_path, PODS)
    assert told(trace) == [
        ("openb-pod-0022", 0.0, 1, 90.0, None),
        ("openb-pod-0017", 97.0, 8, 1332354.0, None),
    ]
    assert [job.types for job in trace.jobs] == [("v100",), None]
    assert trace.notes[2:] == (
        "left out 1 job that used no GPU",
        "left out 1 job that never ran",
        "fractions of a GPU were rounded up to whole GPUs for 1 job: GPU-hours +0.0%",
        "kept the GPU models that 1 job may run on, as types: v100",
    )


def test_models_that_the_table_does_not_have_are_noted_and_bind_no_job(tmp_path: Path) -> None:
    lines = PODS.splitlines()
    wide, bound = lines[1], lines[2]
    trace = read(
        tmp_path,
        "\n".join(
            [
                lines[0],
                wide,
                bound,
                bound.replace("0022", "0023").replace("V100M16|V100M32", "T4"),
                bound.replace("0022", "0024").replace("V100M16|V100M32", "p100|G2|V100M32"),
                bound.replace("0022", "0025").replace("V100M16|V100M32", "G2|T4"),
            ]
        ),
    )
    assert {job.id[-2:]: job.types for job in trace.jobs} == {
        "17": None,
        "22": ("v100",),
        "23": None,
        "24": ("v100", "p100"),
        "25": None,
    }
    assert trace.notes[-2:] == (
        (
            "kept the GPU models that 2 jobs may run on, as types: p100, v100; the table does not have all models of 1 "
            "job of these"
        ),
        (
            "the throughput table has none of the GPU models that 2 jobs may run on; these may run on every type: "
            "T4 (1), G2|T4 (1)"
        ),
    )


def test_a_job_that_is_bound_to_a_type_is_given_a_template_that_runs_there(tmp_path: Path) -> None:
    # ResNet-50 (batch size 128) does not train on several k80s.
    lines = [f"p{n},1,1,2,1000,K80,BE,Running,0,60,0" for n in range(200)]
    trace = read(tmp_path, "\n".join([PODS.splitlines()[0], *lines]))
    assert {job.types for job in trace.jobs} == {("k80",)}
    assert {job.template for job in trace.jobs} == set(V100.templates(2)) - {"ResNet-50 (batch size 128)"}


UNTIMED = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1,1,1,500\np1,1,1,0,0\np2,1,1,8,1000\n"


def test_a_pod_list_without_times_is_a_static_trace_with_drawn_durations(tmp_path: Path) -> None:
    assert recognise(Source("t", UNTIMED)) == "alibaba-2023"
    trace = read(tmp_path, UNTIMED, seed=5)
    durations = drawn_seconds(2, 5)
    assert told(trace) == [
        ("p0", 0.0, 1, round(durations[0], 6), None),
        ("p2", 0.0, 8, round(durations[1], 6), None),
    ]
    assert trace.notes[1:3] == (
        (
            "the file has no times: all jobs arrive at once, and the durations of 2 jobs were drawn as for generated "
            "workloads (seed 5)"
        ),
        "left out 1 job that used no GPU",
    )


def test_drawn_durations_are_those_of_a_generated_workload() -> None:
    trace = generate(jobs=9, arrivals_per_hour=None, multi_worker=False, table=TABLE, seed=3)
    assert [job.steps / V100.rate(job.template, 1) for job in trace.jobs] == pytest.approx(drawn_seconds(9, 3))


def test_sia(tmp_path: Path) -> None:
    trace = read(tmp_path, SIA)
    assert told(trace) == [("job1", 0.0, 16, 30.5, None), ("job0", 60.0, 1, 66.0, "11cb48")]
    assert "left out 1 job that used no GPU" in trace.notes


def test_shockwaves_12_columns(tmp_path: Path) -> None:
    trace = read(tmp_path, SAMPLES["shockwave"])
    slo = 2.0 * 7176 / V100.rate("A3C", 1)
    assert trace.jobs == (
        TraceJob("job1", "A3C", 1, 7176.0, 0.0, deadline_seconds=slo),
        TraceJob("job0", "LM (batch size 5)", 2, 1000.0, 10.0, weight=5.0, command="python3 main.py"),
    )
    ours = (2 * 1000.0 / V100.rate("LM (batch size 5)", 2) + 7176.0 / V100.rate("A3C", 1)) / 3600.0
    theirs = (2 * 36.0 + 3600.0) / 3600.0
    assert trace.notes[:2] == (
        "1 job would change the batch size while training (gns 1); here each keeps its initial one",
        (
            f"steps are kept and durations are not used: by this throughput table the steps take {ours:.1f} GPU-hours "
            f"on v100, the durations in the file {theirs:.1f} (GPU-hours {ours / theirs - 1:+.1%})"
        ),
    )


def test_helios(tmp_path: Path) -> None:
    trace = read(tmp_path, HELIOS)
    assert told(trace) == [
        ("1425511", 0.0, 1, 36848.0, "vcJkd"),
        ("1425512", 26.0, 16, 249.0, "vchbv"),
        ("1425513", 27.0, 3, 10.0, "uzqls"),
    ]
    assert trace.notes[-1].startswith("the throughput table does not list 3, 16 workers, which 2 jobs request")


def test_gangs_keep_their_gpus_and_their_gpu_hours(tmp_path: Path) -> None:
    lines = [f"{n},u,v,{gpus},1,1,COMPLETED,2020-06-09 18:41:01,,,600,0" for n, gpus in enumerate((5, 12, 128))]
    trace = read(tmp_path, HELIOS.splitlines()[0] + "\n" + "\n".join(lines))
    assert [job.workers for job in trace.jobs] == [5, 12, 128]
    assert gpu_hours_on(V100, trace.jobs) == pytest.approx(145 * 600 / 3600)


def test_a_table_that_lists_one_number_of_workers_cuts_gangs_and_says_what_that_costs(tmp_path: Path) -> None:
    file, log = tmp_path / "table.json", tmp_path / "log.csv"
    file.write_text('{"format": "gavel-throughputs/1", "types": ["v100"], "templates": {"A": {"4": {"v100": 2}}}}')
    log.write_text(HELIOS)
    trace = read_trace(log, table=read_table(file))
    assert [job.workers for job in trace.jobs] == [4, 4, 4]
    changed = (3 * 36848 - 12 * 249 + 1 * 10) / (36848 + 16 * 249 + 3 * 10)
    assert trace.notes[-1] == (
        "rounded the GPUs of 3 jobs to a number of workers that the throughput table knows: 1 to 4, 3 to 4, 16 to 4: "
        f"GPU-hours {changed:+.1%}"
    )


def test_templates_of_a_log_are_drawn_by_seed_among_those_with_that_many_workers(tmp_path: Path) -> None:
    lines = [f"{n},u,v,{1 + n % 8},1,1,COMPLETED,2020-06-09 18:41:01,,,60,0" for n in range(1000)]
    text = HELIOS.splitlines()[0] + "\n" + "\n".join(lines)
    drawn = [read(tmp_path, text, seed=seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1]
    assert [j.template for j in drawn[0].jobs] != [j.template for j in drawn[2].jobs]
    assert {j.template for j in drawn[0].jobs if j.workers == 1} == set(V100.templates(1))
    assert {j.template for j in drawn[0].jobs if j.workers > 1} == set(V100.templates(2))
    assert {j.workers for j in drawn[0].jobs} == set(range(1, 9))


def test_ids_that_a_log_repeats_are_told_apart(tmp_path: Path) -> None:
    line = "5|2024-05-01T10:00:00|60|gres/gpu=1\n"
    trace = read(tmp_path, "JobID|Submit|ElapsedRaw|AllocTRES\n" + 3 * line)
    assert [job.id for job in trace.jobs] == ["5", "5#2", "5#3"]
    assert trace.notes[-1] == "2 jobs repeat an id and got a suffix such as #2"


def philly(**changes: object) -> str:
    return json.dumps([PHILLY[0] | changes])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello\nworld\n", "its format is not recognised; name it with --format, one of: artefact (tab-separated"),
        (ARTEFACT[0] + "\nA3C\t1\n", "t, line 2: 2 columns, but the first line has 10"),
        (ARTEFACT[0].replace("1000.5", "many"), "t, line 1, column 'total steps': 'many' is not a number of steps"),
        (ARTEFACT[0].replace("\t2\t5", "\t0\t5"), "column 'scale factor': '0' is not a number of workers"),
        (ARTEFACT[0].removesuffix("10") + "-3", "column 'arrival': '-3' is not an arrival"),
        (ARTEFACT[1].replace("2.0", "0"), "column 'SLO': '0' is not an SLO"),
        (ARTEFACT[0].replace("LM (batch size 5)", "LM"), "template 'LM' (line 1; closest: 'LM ("),
        (SLURM.replace("2024-05-01T10:00:00", "yesterday", 1), "t, line 2, column 'Submit': 'yesterday' is not a time"),
        (SLURM.replace("|01:00:00|", "|an hour|", 1), "t, line 2, column 'Elapsed': 'an hour' is not a run time"),
        (SLURM.replace("|train|", "|a|b|", 1), "t, line 2: 12 columns, but the first line has 11"),
        ("JobID|Elapsed|AllocTRES\n1|1:00|gres/gpu=1\n", "line 1: column 'Submit' is missing; a sacct dump has"),
        ("JobID|Submit|Elapsed\n1|2024-05-01|1:00\n", "no column lists the GPUs; add one of AllocTRES, ReqTRES"),
        ("JobID|Submit|AllocTRES\n1|2024-05-01|gres/gpu=1\n", "no column lists the run time; add Elapsed"),
        ("JobID|Submit|Elapsed|AllocTRES\n", "t has no jobs"),
        ("JobID|Submit|Elapsed|AllocTRES\n1|2024-05-01|1:00|cpu=1\n", "none of its 1 jobs can be replayed: 1 used no"),
        ("[{]", "t, line 1, column 3: not valid JSON (expecting property name"),
        ("{}", "t: {} is not a list"),
        ("[]", "t has no jobs"),
        ("[3]", "t, job 1: 3 is not an object"),
        (philly(submitted_time=None), "t, job 1: 'submitted_time' is missing"),
        (philly(submitted_time="noon"), "t, job 1, 'submitted_time': 'noon' is not a time"),
        (philly(jobid=None), "t, job 1: 'jobid' is missing"),
        (philly(attempts=7), "t, job 1, 'attempts': 7 is not a list"),
        (TASKS.replace("50.0", "half"), "t, line 1, column 'plan_gpu': 'half' is not a number from 0"),
        (TASKS.replace("1000.0", "-4", 1), "t, line 1, column 'start_time': '-4' is not a time in seconds"),
        (
            "4b3f,8cb3,5854,Terminated,4550879.0,4551416.0\n",
            "the job table does not list GPUs; give the task table",
        ),
        (PODS.replace(",8,1000", ",many,1000"), "t, line 2, column 'num_gpu': 'many' is not a number of GPUs"),
        (HELIOS.replace("vcJkd,1,", "vcJkd,1.5,"), "t, line 2, column 'gpu_num': '1.5' is not a number of GPUs"),
        (UNTIMED.replace("500", "half"), "t, line 2, column 'gpu_milli': 'half' is not thousandths of a GPU"),
        (
            PODS.replace(",deletion_time", ",end"),
            "t, line 1: column 'deletion_time' is missing; an openb pod list has at least: name, num_gpu, creation",
        ),
        (SIA.replace("66.0", "long", 1), "t, line 2, column 'duration': 'long' is not a run time in seconds"),
        (SIA.replace("2017-10-09 07:00:55", "noon", 1), "t, line 3, column 'timestamp': 'noon' is not a time such as"),
        (SIA.replace(",16,", ",1.5,"), "t, line 3, column 'num_gpus': '1.5' is not a number of GPUs"),
        (SIA.replace(",30.5,16,", ",,16,"), "t, line 3, column 'duration': a value is missing"),
        (
            SHOCKWAVE[0].replace("gns", "auto"),
            "line 1, column 'mode': 'auto' is not a mode of Shockwave; it has static",
        ),
        (SHOCKWAVE[0].replace("\t36\t", "\t0\t"), "t, line 1, column 'duration': '0' is not a duration; give seconds"),
        (
            SHOCKWAVE[0].replace("\t2\tgns", "\ttwo\tgns"),
            "line 1, column 'scale factor': 'two' is not a number of work",
        ),
        (SHOCKWAVE[0] + "\nA3C\t1\n", "t, line 2: 2 columns, but the first line has 12"),
        (HELIOS.replace("36848", "long"), "t, line 2, column 'duration': 'long' is not a run time in seconds"),
    ],
)
def test_a_bad_line_is_one_sentence_that_names_it(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        read(tmp_path, text)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


@given(data=st.data())
def test_any_damaged_file_gives_a_trace_or_one_sentence(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name = data.draw(st.sampled_from(sorted(SAMPLES)))
    text = SAMPLES[name]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 12))
        extra = data.draw(
            st.sampled_from(["", "-", "9" * 30, "1e308", "inf", '"', "\n", "\t", ",", "|", "[", "null", "²"])
        )
        text = text[:at] + extra + text[at + gone :]
    file = tmp_path_factory.getbasetemp() / "mangled"
    file.write_text(text, encoding="utf-8")
    try:
        trace = read_trace(file, table=TABLE, format=data.draw(st.sampled_from([None, name])))
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert all(0 < job.steps < float("inf") and 0 <= job.arrival < float("inf") for job in trace.jobs)


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no trace format 'pbs'; known are: artefact, slurm, philly"):
        read(tmp_path, SLURM, format="pbs")


def test_a_wrong_format_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 1: column 'job_id' is missing; a Helios log has at least: job_id"):
        read(tmp_path, SLURM, format="helios")
    with pytest.raises(InputError, match="a trace of the Gavel artefact has 10 or 9 or 7 or 6 columns, not 1"):
        read(tmp_path, HELIOS, format="artefact")
    with pytest.raises(InputError, match="a PAI task table has 10 columns, not 12"):
        read(tmp_path, HELIOS, format="alibaba-2020")
