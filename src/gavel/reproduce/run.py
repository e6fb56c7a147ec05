"""Run studies, resumably: simulations on all cores, and studies with their own measurements one by one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gavel.core.errors import GavelError
from gavel.plots.figures import Picture, Plot
from gavel.plots.page import NumberTable
from gavel.reproduce.drawings import with_drawings
from gavel.reproduce.measured import Measured, gather
from gavel.reproduce.measures import MEASURES
from gavel.reproduce.study import Scope, Study, StudyPoint
from gavel.sim.pool import answers
from gavel.sim.results import Result, ResultsFiles, digest, settings_of
from gavel.sim.resume_file import replace_file
from gavel.version import __version__


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step, for progress display."""

    study: str
    what: str
    failure: str = ""


Notice = Callable[[Step], None]


def open_steps(studies: Sequence[Study], scope: Scope, files: ResultsFiles) -> tuple[int, int]:
    """The number of steps, and how many are already done."""
    names = {point.id for study in studies for point in study.points(scope)}
    own = [study for study in studies if study.kind in MEASURES]
    kept = sum(_kept(study, scope, files.directory).exists() for study in own)
    return len(names) + len(own), len(names & files.known.keys()) + kept


def run_studies(
    studies: Sequence[Study], scope: Scope, files: ResultsFiles, *, workers: int, notice: Notice = lambda _: None
) -> Iterator[Measured]:
    """The measurements of each study, once all simulations are done. Results on disk are reused."""
    for study in studies:
        if study.kind in MEASURES and not _kept(study, scope, files.directory).exists():
            notice(Step(study.name, "measured", _measure(study, scope, files.directory)))
    failed = _simulate(studies, scope, files, workers, notice)
    for study in studies:
        if study.kind in MEASURES:
            measured = _read(study, _kept(study, scope, files.directory))
        else:
            found = gather(study, study.points(scope), files.known)
            measured = with_drawings(found, study, compare=scope.full and scope.throughputs != "builtin")
        notes = [*measured.notes, *failed.get(study.name, [])]
        yield Measured(study, measured.results, measured.values, measured.tables, measured.plots, notes)


def _simulate(
    studies: Sequence[Study], scope: Scope, files: ResultsFiles, workers: int, notice: Notice
) -> dict[str, list[str]]:
    """Run every simulation without a result, shared ones only once. Returns sentences about failures."""
    wanted: dict[str, tuple[str, StudyPoint]] = {}
    for study in studies:
        for point in study.points(scope):
            if point.id not in files.known:
                wanted.setdefault(point.id, (study.name, point))
    failed: dict[str, list[str]] = {}
    todo = list(wanted.values())
    with closing(answers([point.experiment for _, point in todo], workers)) as arriving:
        for index, answer in arriving:
            study_name, point = todo[index]
            what = f"{point.contender} at {point.load:g}, seed {point.experiment.seed}"
            if isinstance(answer, Result):
                files.append(settings_of(point.experiment), answer)
                notice(Step(study_name, what))
            else:
                failed.setdefault(study_name, []).append(f"{what} failed: {answer}")
                notice(Step(study_name, what, answer))
    return failed


def _kept(study: Study, scope: Scope, directory: Path) -> Path:
    """The file for the numbers of a study with its own measurements."""
    file = scope.throughputs
    table = file if file == "builtin" else f"{Path(file).stem}-{digest(file)}"
    return directory / "measured" / f"{study.name}-{scope.name}-{table}-{__version__}.json"


def _measure(study: Study, scope: Scope, directory: Path) -> str:
    """Measure and store; returns a sentence on failure."""
    try:
        measured = MEASURES[study.kind](study, scope)
    except GavelError as error:
        return str(error)
    document = {
        "values": dict(measured.values),
        "tables": [[title, asdict(table)] for title, table in measured.tables],
        "plots": [_document(plot) for plot in measured.plots],
        "notes": list(measured.notes),
    }
    path = _kept(study, scope, directory)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(document))
    return ""


def _document(plot: Plot | Picture) -> dict[str, str]:
    png = base64.b64encode(plot.png).decode()
    return {"name": plot.name, "title": plot.title, "caption": plot.caption, "png": png}


def _read(study: Study, path: Path) -> Measured:
    if not path.exists():
        return Measured(study, notes=["It could not be measured."])
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Measured(
        study,
        values=document["values"],
        tables=[(title, NumberTable(**table)) for title, table in document["tables"]],
        plots=[Picture(**{**plot, "png": base64.b64decode(plot["png"])}) for plot in document["plots"]],
        notes=document["notes"],
    )
