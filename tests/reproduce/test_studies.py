"""Studies as files, claims that can fail, and what is made of results."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gavel.core.errors import InputError
from gavel.reproduce import drawings
from gavel.reproduce.drawings import published_table, sweep_table, with_drawings
from gavel.reproduce.measured import Measured, checks
from gavel.reproduce.measures import MEASURES
from gavel.reproduce.report import CLAIMS, page, write_reproduction
from gavel.reproduce.run import run_studies
from gavel.reproduce.study import Claim, Scope, Study, all_studies
from gavel.sim.experiment import check_settings
from gavel.sim.results import FIGURES, Result, ResultsFiles

QUICK, FULL = Scope(), Scope(full=True)
STUDIES = all_studies()

TINY = """
title = "A small study"
section = "0"
about = "Two policies on two accelerators."
cluster = { v100 = 4, k80 = 4 }

[full]
loads = [2.0, 4.0]

[quick]
scale = 2
loads = [2.0]
jobs = 12

[contenders.aware]
label = "aware"
policy = "max_min_fairness"
published = { "2.0" = 5.0 }

[contenders.agnostic]
label = "agnostic"
policy = "max_min_fairness"
agnostic = true

[[claims]]
says = "aware is better"
paper = 2.0
of = "agnostic"
to = "aware"
at_least = 0.5
"""


def results(**by_load: dict[float, float]) -> dict[tuple[str, float], list[Result]]:
    empty = dict.fromkeys(FIGURES)
    return {
        (key, load): [Result({**empty, "average_jct_seconds": seconds}, [])]
        for key, series in by_load.items()
        for load, seconds in series.items()
    }


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
@pytest.mark.parametrize("scope", [QUICK, FULL], ids=["quick", "full"])
def test_every_study_means_experiments_that_can_run(study: Study, scope: Scope) -> None:
    points = list(study.points(scope))
    assert bool(points) is (study.kind not in MEASURES)
    for point in points:
        check_settings(point.experiment)
    assert study.claims
    assert study.about.strip()


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_every_claim_names_a_figure_that_is_measured(study: Study) -> None:
    for claim in study.claims:
        if claim.value is None:
            assert (claim.figure or study.figure) in FIGURES
            assert claim.of is not None


def test_a_quick_run_has_the_load_of_a_full_one_for_each_accelerator() -> None:
    study = STUDIES["las-single"]
    quick = {p.load: p.experiment for p in study.points(QUICK) if p.contender == "aware"}
    full = {p.load: p.experiment for p in study.points(FULL) if p.contender == "aware" and p.experiment.seed == 0}
    for load, experiment in quick.items():
        assert experiment.cluster == "v100=12,p100=12,k80=12"
        assert experiment.arrivals_per_hour == pytest.approx((full[load].arrivals_per_hour or 0) / 3)


@pytest.mark.parametrize(
    ("pick", "from_load", "expected"),
    [("most", 0.0, 4.0), ("least", 0.0, 1.0), ("last", 0.0, 2.0), ("least", 2.0, 2.0)],
)
def test_a_claim_is_about_the_loads_that_it_picks(pick: str, from_load: float, expected: float) -> None:
    claim = Claim("x", of="agnostic", to="aware", pick=pick, from_load=from_load, at_least=2.0)  # type: ignore[arg-type]
    study = replace(STUDIES["las-single"], claims=(claim,))
    series = {"agnostic": {1.0: 10.0, 2.0: 40.0, 3.0: 40.0, 4.0: 99.0}, "aware": {1.0: 10.0, 2.0: 10.0, 3.0: 20.0}}
    (check,) = checks(Measured(study, results(**series)), FULL)
    assert check.ours == pytest.approx(expected)
    assert check.passed is (expected >= 2.0)


def test_a_claim_with_a_yardstick_averages_over_jobs_what_each_takes_relative_to_it() -> None:
    claim = Claim("x", of="agnostic", to="aware", yardstick="filling", at_least=2.0)
    study = replace(STUDIES["las-single"], claims=(claim,))
    times = {("agnostic", 1.0): [10.0, 90.0], ("aware", 1.0): [5.0, 30.0], ("filling", 1.0): [10.0, 30.0]}
    times |= {("agnostic", 2.0): [99.0], ("aware", 2.0): [1.0]}  # no yardstick
    times |= {("agnostic", 3.0): [9.0, 9.0], ("aware", 3.0): [1.0], ("filling", 3.0): [1.0]}  # a job is missing
    measured = Measured(study, {key: [Result(dict.fromkeys(FIGURES), seconds)] for key, seconds in times.items()})
    assert measured.against("agnostic", "filling") == {1.0: pytest.approx(2.0)}  # of 1 and 3; not 100 over 40
    (check,) = checks(measured, FULL)
    assert check.ours == pytest.approx(2.0 / 0.75)


def test_what_was_not_measured_neither_holds_nor_fails() -> None:
    assert {check.verdict for check in checks(Measured(STUDIES["las-single"]), QUICK)} == {"not measured"}


def test_quick_runs_ask_for_less() -> None:
    claim = Claim("x", value="v", at_least=3.0, quick_at_least=1.2)
    study = replace(STUDIES["las-single"], claims=(claim,))
    verdicts = [checks(Measured(study, values={"v": 2.0}), scope)[0].verdict for scope in (QUICK, FULL)]
    assert verdicts == ["holds", "FAILS"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("at_least = 0.5", ""), "cannot fail"),
        (('to = "aware"', 'to = "missing"'), "not a contender"),
        (("agnostic = true", "agnostik = true"), "'agnostik' is not a setting"),
        (("scale = 2", "scale = 2\nloads = 3"), "study tiny"),
        (("[[claims]]", "[[claims]]\nsay = 1"), "say"),
        (("paper = 2.0", 'yardstick = "aware"\nfigure = "cost_dollars"'), "give `of` and `to`, not `figure`"),
        (("paper = 2.0", 'yardstick = "missing"'), "not a contender"),
    ],
)
def test_a_study_with_a_mistake_is_refused(change: tuple[str, str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Study.read("tiny", TINY.replace(*change))


def test_a_small_study_runs_resumes_and_leaves_everything(tmp_path: Path) -> None:
    study = Study.read("tiny", TINY)
    done: list[str] = []
    for expected in (2, 0):
        done.clear()
        with ResultsFiles(tmp_path) as files:
            (measured,) = run_studies([study], QUICK, files, workers=1, notice=lambda step: done.append(step.what))
        assert len(done) == expected
    (check,) = checks(measured, QUICK)
    assert check.ours is not None
    assert check.ours > 0.5
    written = write_reproduction(tmp_path / "out", [measured], QUICK, "gavel reproduce tiny")
    assert {path.name for path in written} == {CLAIMS, "tiny.csv", "tiny.png", "report.html"}
    with (tmp_path / "out" / CLAIMS).open() as file:
        (row,) = csv.DictReader(file)
    assert (row["claim"], row["paper"], row["verdict"]) == ("aware is better", "2", "holds")


def test_a_failed_simulation_is_reported_and_the_rest_continues(tmp_path: Path) -> None:
    study = Study.read("tiny", TINY.replace("agnostic = true", 'reference = "tpu"'))
    with ResultsFiles(tmp_path) as files:
        (measured,) = run_studies([study], QUICK, files, workers=1)
    assert any("failed" in note for note in measured.notes)
    assert measured.series("aware", "average_jct_seconds")


def test_failures_are_red_and_text_is_escaped() -> None:
    claim = Claim("<b>this</b>", value="v", at_least=3.0, why="a & b")
    study = replace(STUDIES["worked-examples"], claims=(claim,))
    html = page([Measured(study, values={"v": 1.0})], FULL, "gavel reproduce")
    assert '<td class="fails">FAILS</td>' in html
    assert "&lt;b&gt;this&lt;/b&gt;" in html
    assert "a &amp; b" in html
    assert "http" not in html


def test_our_figures_are_shown_beside_the_authors() -> None:
    measured = Measured(Study.read("tiny", TINY), results(aware={2.0: 3600.0 * 6}, agnostic={2.0: 7200.0}))
    found = published_table(measured)
    assert found is not None
    assert found[1].rows == [["aware", "2", "5.00", "6.00", "1.20"]]
    assert sweep_table(measured)[1].rows == [["aware", "6.00"], ["agnostic", "2.00"]]
    assert len(with_drawings(measured, measured.study, compare=False).tables) == 1


@pytest.mark.parametrize(
    ("series", "axis", "said"),
    [
        ({2.0: 21600.0}, "x", ["6"]),
        ({2.0: 21600.0, 4.0: 720000.0}, "y", []),
        ({2.0: 720000.0}, "x", ["200"]),
    ],
    ids=["one load: bars", "two: lines", "large figures are whole"],
)
def test_a_figure_against_load_is_drawn(series: dict[float, float], axis: str, said: list[str]) -> None:
    measured = Measured(Study.read("tiny", TINY), results(aware=series))
    (axes,) = drawings.sweep_plot(measured).figure.axes
    assert getattr(axes, f"get_{axis}label")() == "average JCT (h)"
    assert [text.get_text() for text in axes.texts] == said


def test_the_times_of_all_jobs_are_drawn_at_the_highest_load_that_all_were_run_at() -> None:
    times = {("aware", 1.0): [1.0], ("aware", 2.0): [3600.0, 7200.0], ("agnostic", 2.0): [7200.0, 36000.0]}
    times |= {("aware", 3.0): [9.0]}
    known = {key: [Result({**dict.fromkeys(FIGURES), "average_jct_seconds": 1.0}, ran)] for key, ran in times.items()}
    claim = Claim("x", of="agnostic", to="aware", yardstick="aware", at_least=1.0)
    for claims, panels in (((), 2), ((claim,), 3)):
        study = replace(Study.read("tiny", TINY), claims=claims)
        drawn = drawings.distribution_plot(Measured(study, known))
        assert drawn is not None
        axes = drawn.figure.axes
        assert [np.asarray(line.get_xdata()).tolist() for line in axes[0].lines] == [[1.0, 2.0], [2.0, 10.0]]
        assert axes[0].get_title(loc="left") == "2 jobs/hour"
        assert len(axes) == panels
    assert [np.asarray(line.get_xdata()).tolist() for line in axes[2].lines] == [
        [2.0, 5.0],
        [1.0, 1.0],
    ]  # relative to aware
    lacking = known | {("agnostic", 2.0): known["agnostic", 2.0] * 2}  # one more seed: they cannot be compared
    drawn = drawings.distribution_plot(Measured(study, lacking))
    assert drawn is not None
    assert not drawn.figure.axes[2].lines
    alone = {key: ran for key, ran in known.items() if key[0] == "agnostic"}
    assert drawings.distribution_plot(Measured(Study.read("tiny", TINY), alone)) is not None
    assert drawings.distribution_plot(Measured(Study.read("tiny", TINY))) is None
    without_jobs = {key: [Result(result.figures, []) for result in ran] for key, ran in known.items()}
    assert drawings.distribution_plot(Measured(Study.read("tiny", TINY), without_jobs)) is None


@pytest.mark.parametrize(
    "name",
    ["worked-examples", "heterogeneity-bars", "colocation-heatmap", "hierarchical-fairness", "hierarchical-fifo"],
)
def test_small_studies_bear_out_the_paper(name: str) -> None:
    study = STUDIES[name]
    measured = MEASURES[study.kind](study, QUICK)
    assert [check.claim.says for check in checks(measured, QUICK) if not check.passed] == []
    assert all(np.isfinite(value) for value in measured.values.values())
