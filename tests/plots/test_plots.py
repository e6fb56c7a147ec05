"""Plots and pages: what the recorder sees is what happened, pictures show something, pages need nothing else."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from gavel.plots.page import NumberTable, page
from gavel.plots.run_report import write_run_plots
from gavel.plots.sweep_report import write_sweep_report
from gavel.sim.experiment import Experiment, run
from gavel.sim.recorder import Deviations, Recorder, Timeline
from gavel.sim.report import Report
from gavel.sim.results import Result
from gavel.sim.sweep import Contender, Failure, Sweep, SweepCell, SweepOutcome
from gavel.version import __version__

CROWDED = Experiment(
    cluster="v100=8,p100=8,k80=8", jobs=40, arrivals_per_hour=8.0, space_sharing=True, multi_worker=True, seed=3
)


@pytest.fixture(scope="module")
def watched() -> tuple[Report, Recorder]:
    recorder = Recorder(jobs=20)
    return run(CROWDED, recorder=recorder), recorder


def colours_in(content: bytes) -> int:
    """How many colours a picture has; an empty one has a single."""
    pixels = np.asarray(imread(io.BytesIO(content)))
    height, width = pixels.shape[:2]
    assert (width, height >= 300) == (1500, True)
    red, green, blue = (pixels[::2, ::2, :3] * 15).round().astype(int).transpose(2, 0, 1)
    return len(np.unique(red * 256 + green * 16 + blue))


def check_self_contained(text: str) -> None:
    """Nothing is fetched, and every tag that opens is closed."""
    text, pictures = re.subn(r'src="data:image/png;base64,[A-Za-z0-9+/=]+"', "", text)
    assert pictures == text.count("<img")
    assert not re.search(r"//|url\(|@import|<script|<link|<iframe|src=|href=", text)
    void, opened = {"meta", "img"}, []

    class Checker(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
            if tag not in void:
                opened.append(tag)
            if tag == "img":
                assert dict(attrs)["alt"]

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Checker().feed(text)
    assert not opened


def test_the_recorder_sees_all_accelerator_time(watched: tuple[Report, Recorder]) -> None:
    report, recorder = watched
    edges, averages = recorder.timeline.averages(at_most=50)
    assert len(averages) <= 50
    seconds = np.diff(edges)[:, None] * averages
    assert seconds[:, :3].sum() == pytest.approx(report.outcome.given_seconds)
    assert (averages[:, :3] <= averages[:, 3:6] + 1e-9).all()
    assert edges[-1] == pytest.approx(report.outcome.end)
    in_cluster = sum(job.seconds for job in report.outcome.jobs.values())
    assert seconds[:, 6:].sum() == pytest.approx(in_cluster)


def test_the_recorder_keeps_what_finished_jobs_received(watched: tuple[Report, Recorder]) -> None:
    report, recorder = watched
    assert recorder.jobs_seen == len(report.outcome.jobs) == 40
    assert len(recorder.dues) == 20
    received = sum(total[1] for total in recorder.by_profile.values())
    told = sum(job.workers * job.received for job in report.outcome.jobs.values())
    assert (received <= told + 1e-6).all()  # what a job received before it was part of an allocation is left out
    assert received == pytest.approx(told, rel=0.01)
    for dues in recorder.dues:
        assert dues.target.sum() <= 1 + 1e-6
        assert dues.received.sum() <= 1 + 1e-6


def test_the_busiest_stretch_runs_no_job_twice(watched: tuple[Report, Recorder]) -> None:
    _, recorder = watched
    stretch = recorder.busiest_stretch()
    assert stretch is not None
    assert stretch is recorder.busiest_stretch()
    by_job: dict[str, list[tuple[float, float]]] = {}
    for segment in stretch.segments:
        assert stretch.begin <= segment.begin < segment.end <= stretch.end
        by_job.setdefault(segment.job, []).append((segment.begin, segment.end))
    for spans in by_job.values():
        ordered = sorted(spans)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(ordered))
    assert any(segment.shared for segment in stretch.segments)


def test_memory_does_not_grow_with_the_run() -> None:
    recorder = Recorder(bins=16, stretch_rounds=10, stretch_jobs=4, jobs=3)
    run(Experiment(cluster="v100=1,k80=1", jobs=25, arrivals_per_hour=1.0), recorder=recorder)
    assert recorder.timeline.sums.shape == (16, 7 + 2)
    assert len(recorder.dues) == 3
    stretch = recorder.busiest_stretch()
    assert stretch is not None
    assert len(stretch.present) <= 4
    assert stretch.rounds <= 11


def test_bins_that_grow_wider_keep_the_averages() -> None:
    timeline = Timeline.of(1, bins=8)
    for begin in range(100):
        timeline.add(float(begin), begin + 1.0, np.array([float(begin % 2)]))
    edges, averages = timeline.averages(at_most=4)
    assert edges[-1] == 100.0
    assert len(averages) <= 4
    assert averages[:, 0] == pytest.approx(0.5)


def test_quantiles_of_deviations() -> None:
    deviations = Deviations.none()
    deviations.add(3, np.linspace(0.0, 1.0, 101))
    deviations.add(4, np.array([0.5]))
    rounds, ((middle,), (high,)) = deviations.quantiles(0.5, 0.9, at_least=5)
    assert rounds.tolist() == [8.0]
    assert (middle, high) == (pytest.approx(0.5, abs=0.01), pytest.approx(0.9, abs=0.01))


def test_a_run_is_drawn(watched: tuple[Report, Recorder], tmp_path: Path) -> None:
    report, _ = watched
    files = write_run_plots(report, tmp_path / "new" / "plots")
    assert [path.name for path in files] == [
        "utilisation.png",
        "cdf.png",
        "received.png",
        "convergence.png",
        "gantt.png",
        "report.html",
    ]
    for path in files[:-1]:
        assert colours_in(path.read_bytes()) > 10, path.name
    text = files[-1].read_text()
    check_self_contained(text)
    assert f"gavel {__version__}" in text
    assert "average jct seconds" in text
    assert "v100=8,p100=8,k80=8" in text


def outcome(loads: tuple[float, ...], seeds: tuple[int, ...], *, many: bool = False) -> SweepOutcome:
    """An invented sweep: longer times at higher loads, and one cell that did not drain."""
    names = ["max_min_fairness", "fifo", *(["makespan", "isolated", "allox"] if many else [])]
    contenders = (*tuple(Contender(name) for name in names), Contender("fifo", ("agnostic", "space-sharing")))
    sweep = Sweep(Experiment(cluster="v100=1", jobs=50), contenders, loads, seeds)
    random = np.random.default_rng(0)
    cells = []
    for number, contender in enumerate(contenders):
        for load in loads:
            results = []
            for _ in seeds:
                seconds = random.exponential(3600.0 * (1 + number) * load**2, 50)
                figures = {"average_jct_seconds": seconds.mean(), "median_jct_seconds": np.median(seconds)}
                figures |= {"p99_jct_seconds": seconds.max(), "makespan_seconds": 1e5 * load, "utilization": 0.5}
                figures |= {"restarts_per_job": 2.0 * number, "average_finish_time_fairness": 1.0, "cost_dollars": 9.0}
                done = {"jobs_completed": 50, "drained": load < 9}
                results.append(Result(figures | done, seconds.tolist()))
            cells.append(SweepCell(contender, load, tuple(results)))
    return SweepOutcome(sweep, tuple(cells), (), 0)


@pytest.mark.parametrize("loads", [(2.0,), tuple(float(load) for load in range(1, 10))], ids=["one load", "many loads"])
def test_a_sweep_is_drawn(loads: tuple[float, ...], tmp_path: Path) -> None:
    drawn = outcome(loads, (0, 1) if len(loads) > 1 else (0,), many=len(loads) > 1)
    files = write_sweep_report(drawn, tmp_path)
    assert [path.name for path in files] == ["jct.png", "cdf.png", "figures.png", "report.html"]
    for path in files[:-1]:
        assert colours_in(path.read_bytes()) > 10, path.name
    text = files[-1].read_text()
    check_self_contained(text)
    assert text.count("<tr>") == 1 + len(drawn.cells)
    assert ("not all jobs finished" in text) == (max(drawn.sweep.loads) >= 9)


def test_a_sweep_without_results_still_has_its_page(tmp_path: Path) -> None:
    sweep = outcome((1.0,), (0,)).sweep
    nothing = SweepOutcome(sweep, (), tuple(Failure(point, "why") for point in sweep.points), 0)
    [only] = write_sweep_report(nothing, tmp_path)
    text = only.read_text()
    check_self_contained(text)
    assert "3 of 3 points failed" in text


def test_pages_spell_out_what_users_wrote() -> None:
    text = page("<b>&", [], NumberTable(["<i>"], [["<u>"]]), {"a<": ">b"}, ["<s>"])
    assert not {"<b>", "<i>", "<u>", "<s>"} & set(re.findall(r"<[a-z]+>", text))
