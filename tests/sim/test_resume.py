"""Interrupted and resumed simulations have the same events and figures as uninterrupted ones."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gavel.cli.app import run as gavel
from gavel.core.codec import encode_event
from gavel.core.errors import InputError
from gavel.core.events import Event
from gavel.core.throughputs import builtin_table
from gavel.sim.experiment import Experiment, run
from gavel.sim.recorder import KEPT, Recorder
from gavel.sim.report import Report
from gavel.sim.resume_file import EVERY_SECONDS, ResumeFile, StoppedError
from gavel.sim.rounds import RoundLog
from gavel.sim.simulate import Underway
from gavel.sim.view import View
from gavel.sim.world import SimulatedWorld
from gavel.workload.formats import write_trace
from gavel.workload.generate import generate

LOAD: dict[str, Any] = {"cluster": "v100=4,p100=4,k80=4", "jobs": 12, "arrivals_per_hour": 1.5, "restart_seconds": 30.0}
VARIANTS: dict[str, dict[str, Any]] = {
    "credits": {},
    "plain": {"mechanism": "plain"},
    "pairs and gangs": {"space_sharing": True, "multi_worker": True, "recompute_every_seconds": 3000.0},
    "plain pairs and gangs": {"space_sharing": True, "multi_worker": True, "mechanism": "plain"},
    "failures": {"failures_per_server_day": 3.0, "repair_hours": 1.0, "multi_worker": True},
    "plain failures": {"failures_per_server_day": 3.0, "repair_hours": 1.0, "mechanism": "plain"},
    "every job differs": {"policy": "finish_time_fairness", "slo": (1.2, 2.0)},
    "random packing": {"policy": "gandiva", "space_sharing": True},
    "entities": {"policy": "hierarchical", "entities": "a,b/c"},
    "window": {"window": (4, 9)},
    "estimated": {"space_sharing": True, "throughputs_known": 0.2},
    "estimated gangs and failures": {"multi_worker": True, "throughputs_known": 0.5, "failures_per_server_day": 3.0},
    "ideal": {"ideal": True},
    "ideal pairs and failures": {"ideal": True, "space_sharing": True, "failures_per_server_day": 3.0},
}


class CutError(Exception):
    """The simulation was cut here."""


class Cutter:
    """Saves a simulation after a number of events, and ends it."""

    def __init__(self, after: int | None) -> None:
        self.after = after
        self.events = 0
        self.written: dict[str, Any] | None = None

    def between(self, simulation: Underway) -> None:
        self.events += 1
        if self.events == self.after:
            self.written = json.loads(json.dumps(simulation.dump(), allow_nan=False))
            raise CutError


class Listener:
    """Records all events."""

    def __init__(self) -> None:
        self.stream: list[dict[str, Any]] = []

    def after(self, event: Event, _: View) -> None:
        self.stream.append(encode_event(event))


def figures(report: Report) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Everything that was measured, except wall-clock times."""
    own = {"wall_seconds", "solver_seconds"}
    document = {name: value for name, value in report.document().items() if name not in own}
    outcome = {name: value for name, value in report.outcome.dump().items() if name not in own}
    return document, outcome


class Records(TypedDict, total=False):
    """The arguments of `run` that keep records."""

    rounds: RoundLog
    recorder: Recorder


def empty_records(variant: str) -> Records:
    """Small enough that bins are merged, stretches replaced and finished jobs sampled; none for the ideal."""
    if VARIANTS[variant].get("ideal"):
        return {}
    recorder = Recorder(bins=16, stretch_rounds=10, stretch_jobs=5, jobs=4)
    return {"rounds": RoundLog(("v100", "p100", "k80")), "recorder": recorder}


def recorded(report: Report) -> list[dict[str, Any]]:
    """All records, as they would be dumped."""
    return [one.dump() for one in (report.round_log, report.recorder) if one is not None]


@cache
def in_one_piece(variant: str) -> tuple[Report, int, list[dict[str, Any]]]:
    cutter, listener = Cutter(None), Listener()
    experiment = Experiment(**LOAD | VARIANTS[variant])
    report = run(experiment, attendants=[cutter], observers=[listener], **empty_records(variant))
    return report, cutter.events, listener.stream


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.data())
@settings(max_examples=4)
def test_a_resumed_simulation_gives_the_same_results_as_an_uninterrupted_one(variant: str, data: st.DataObject) -> None:
    whole, events, stream = in_one_piece(variant)
    experiment, listener, start = Experiment(**LOAD | VARIANTS[variant]), Listener(), None
    cuts = data.draw(st.lists(st.integers(1, events), min_size=1, max_size=3, unique=True).map(sorted))
    for before, after in zip([0, *cuts], cuts, strict=False):
        cutter = Cutter(after - before)
        with pytest.raises(CutError):
            run(experiment, attendants=[cutter], observers=[listener], start=start, **empty_records(variant))
        start = cutter.written
    resumed = run(experiment, observers=[listener], start=start, **empty_records(variant))
    assert figures(resumed) == figures(whole)
    assert resumed.jobs() == whole.jobs()
    assert recorded(resumed) == recorded(whole)
    assert listener.stream == stream


def test_every_attribute_of_a_recorder_is_dumped_or_given_to_its_constructor() -> None:
    given = {"_bins", "_stretch_rounds", "_stretch_jobs", "_jobs"}
    assert vars(Recorder()).keys() == KEPT.keys() | given | {"_random"}


@pytest.mark.parametrize(("asked", "said"), [("recorder", "plots"), ("rounds", "rounds")])
def test_records_cannot_begin_in_the_middle_of_a_run(asked: str, said: str) -> None:
    cutter = Cutter(40)
    with pytest.raises(CutError):
        run(Experiment(**LOAD), attendants=[cutter])
    wanted: Any = {asked: empty_records("credits")[asked]}  # type: ignore[literal-required]
    with pytest.raises(InputError, match=f"cannot resume with {said}: the run was started without it"):
        run(Experiment(**LOAD), start=cutter.written, **wanted)


def test_records_that_are_no_longer_wanted_are_dropped() -> None:
    cutter = Cutter(40)
    with pytest.raises(CutError):
        run(Experiment(**LOAD), attendants=[cutter], **empty_records("credits"))
    assert figures(run(Experiment(**LOAD), start=cutter.written)) == figures(in_one_piece("credits")[0])


def test_time_spent_before_the_interruption_counts() -> None:
    cutter = Cutter(40)
    with pytest.raises(CutError):
        run(Experiment(**LOAD), attendants=[cutter])
    assert cutter.written is not None
    cutter.written["outcome"] |= {"wall_seconds": 1000.0, "solver_seconds": 500.0}
    outcome = run(Experiment(**LOAD), start=cutter.written).outcome
    assert outcome.wall_seconds > 1000.0
    assert 500.0 < outcome.solver_seconds < outcome.wall_seconds


def test_every_attribute_of_a_world_is_dumped_or_known_from_outside() -> None:
    """A new attribute of the world must be listed here, with what becomes of it in a dump."""
    written = {"now", "left", "running", "progress", "_come", "_ahead", "_serial", "_wake", "_ran", "_unmeasured"}
    written.add("_leased_until")
    brought = {"table", "solver", "restart_seconds", "starts", "measures", "_outside"}
    assert {field.name for field in fields(SimulatedWorld)} == written | brought | {"_specs", "_rates", "_orderly"}


class Clock:
    """A clock that advances by a number of seconds with each call."""

    def __init__(self, step: float) -> None:
        self.step = step
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_the_state_is_saved_every_minute_and_can_be_resumed(tmp_path: Path) -> None:
    experiment, file = Experiment(**LOAD), tmp_path / "state"
    resume_file = ResumeFile(file, experiment, clock=Clock(EVERY_SECONDS / 50))
    assert resume_file.found() is None
    whole = run(experiment, attendants=[resume_file])
    start = ResumeFile(file, experiment).found()
    assert start is not None
    assert 0 < len(start["outcome"]["jobs"]["id"]) < 12
    assert figures(run(experiment, start=start)) == figures(whole)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    resume_file.remove()
    assert not file.exists()


def test_a_state_that_takes_long_to_write_is_saved_less_often(tmp_path: Path) -> None:
    class Nothing:
        jobs_done = (0, 1)
        dumps = 0

        def dump(self) -> dict[str, Any]:
            self.dumps += 1
            return {}

    clock, simulation = Clock(10.0), Nothing()
    resume_file = ResumeFile(tmp_path / "state", Experiment(**LOAD), clock=clock)
    for _ in range(60):
        resume_file.between(simulation)  # type: ignore[arg-type] # no figures are needed
    assert simulation.dumps == 3  # writing takes 10 s of each 200 s, not of each minute


def test_a_second_interrupt_does_not_wait_for_the_next_event(tmp_path: Path) -> None:
    resume_file = ResumeFile(tmp_path / "state", Experiment(**LOAD))
    resume_file.interrupt(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        resume_file.interrupt(signal.SIGINT, None)


def kept(file: Path, experiment: Experiment) -> Path:
    """The state of a run that was stopped at once."""
    resume_file = ResumeFile(file, experiment)
    resume_file.interrupt(signal.SIGTERM)
    with pytest.raises(StoppedError, match="interrupted after 0 of 12 jobs") as stopped:
        run(experiment, attendants=[resume_file])
    assert stopped.value.signal == signal.SIGTERM
    return file


def test_the_state_of_another_run_is_refused_and_the_difference_named(tmp_path: Path) -> None:
    file = kept(tmp_path / "state", Experiment(**LOAD))
    for changed, said in (
        ({"policy": "fifo"}, "its run has policy = max_min_fairness, this one has fifo; give what it was started with"),
        ({"seed": 3}, "its run has seed = 0, this one has 3"),
        ({"window": (2, 4)}, "its run has window = nothing, this one has 2:4"),
    ):
        with pytest.raises(InputError, match=said):
            ResumeFile(file, Experiment(**LOAD | changed)).found()
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"identity": document["identity"] | {"gavel_version": "0.0.1"}}))
    with pytest.raises(InputError, match=r"it was written by Gavel 0\.0\.1, but this is"):
        ResumeFile(file, Experiment(**LOAD)).found()
    file.write_text(json.dumps(document | {"format": 0}))
    with pytest.raises(InputError, match="has format 0; this version of Gavel resumes format 3"):
        ResumeFile(file, Experiment(**LOAD)).found()


def test_files_that_a_run_reads_must_not_change_before_it_is_resumed(tmp_path: Path) -> None:
    def write(seed: int) -> Path:
        trace = generate(jobs=12, arrivals_per_hour=1.5, multi_worker=False, table=builtin_table(), seed=seed)
        write_trace(trace, tmp_path / f"trace{seed}.csv")
        return tmp_path / f"trace{seed}.csv"

    first, other = write(0), write(1)
    experiment = Experiment(cluster="v100=4", trace=str(first))
    file = kept(tmp_path / "state", experiment)
    document = json.loads(file.read_text())
    changed = ResumeFile(tmp_path / "else", Experiment(cluster="v100=4", trace=str(other)))._identity
    document["identity"]["trace_sha256"] = changed["trace_sha256"]
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match="the content of the file of --trace has changed"):
        ResumeFile(file, experiment).found()


def test_a_trace_that_cannot_be_read_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="standard input is read only once; give --trace FILE"):
        ResumeFile(tmp_path / "state", Experiment(cluster="v100=4", trace="-"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}'])
def test_a_file_that_resume_did_not_write_is_refused_and_left_unchanged(tmp_path: Path, text: str) -> None:
    file = tmp_path / "diary"
    file.write_text(text)
    with pytest.raises(InputError, match="is not a file that --resume has written"):
        ResumeFile(file, Experiment(**LOAD)).found()
    assert file.read_text() == text


def test_a_place_that_cannot_be_written_to_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write to --resume .*: no such file or directory"):
        ResumeFile(tmp_path / "none" / "state", Experiment(**LOAD)).found()
    with pytest.raises(InputError, match=r"cannot read .*: is a directory"):
        ResumeFile(tmp_path, Experiment(**LOAD)).found()


def page(directory: Path) -> str:
    """The page of a run's plots, without the figures that differ from run to run."""
    text = (directory / "report.html").read_text()
    return re.sub(r"<tr><td>(wall|solver) seconds</td><td>[^<]*</td></tr>", "", text)


def test_plots_and_jobs_of_an_interrupted_run_equal_those_of_an_uninterrupted_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(name: str) -> list[str]:
        written = [f"--plots={tmp_path / name}", f"--jobs-csv={tmp_path / name}.csv"]
        return ["simulate", "--cluster=v100=4,k80=4", "--static=12", *written]

    resume = [*command("pieces"), f"--resume={tmp_path / 'state'}"]
    assert gavel(command("whole")) == 0
    between, seen = ResumeFile.between, 0

    def interrupted(resume_file: ResumeFile, simulation: Underway) -> None:
        nonlocal seen
        seen += 1
        if seen in {60, 150}:
            resume_file.interrupt(signal.SIGTERM)
        between(resume_file, simulation)

    monkeypatch.setattr(ResumeFile, "between", interrupted)
    assert [gavel(resume) for _ in range(3)] == [128 + signal.SIGTERM, 128 + signal.SIGTERM, 0]
    capsys.readouterr()
    assert page(tmp_path / "pieces") == page(tmp_path / "whole")
    assert (tmp_path / "pieces.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert not (tmp_path / "state").exists()


AT_ONCE = "from gavel.cli.progress import ProgressBar; ProgressBar.PATIENCE_SECONDS = 0.0"
GAVEL = [sys.executable, "-c", f"{AT_ONCE}; from gavel.cli.app import main; main()"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_real_process_that_is_interrupted_resumes_when_run_again(tmp_path: Path, number: signal.Signals) -> None:
    """The progress bar on a terminal shows when the simulation has started."""
    load = {"cluster": "v100=6,p100=6,k80=6", "jobs": 120, "arrivals_per_hour": 1.0}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in load.items()]
    file = tmp_path / "state"
    command = [*GAVEL, "simulate", *options, "--json", "--resume", str(file)]
    terminal, its_end = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=its_end) as process:
        os.close(its_end)
        seen = b""
        while b"rounds/s" not in seen:
            seen += os.read(terminal, 1000)
        process.send_signal(number)
        while chunk := _read(terminal):
            seen += chunk
    os.close(terminal)
    assert process.returncode == 128 + number
    said = " ".join(seen.decode().split())
    assert "jobs; run the same command again to resume from" in said
    assert file.exists()
    again = subprocess.run(command, capture_output=True, check=True)
    assert again.stderr.decode() == f"gavel: resuming from {file}\n"
    document, ours = json.loads(again.stdout), run(Experiment(**load)).document()  # type: ignore[arg-type]
    for mine in ("wall_seconds", "solver_seconds"):
        del document[mine], ours[mine]
    assert document == json.loads(json.dumps(ours))
    assert not file.exists()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1000)
    except OSError:  # the other side has closed it
        return b""
