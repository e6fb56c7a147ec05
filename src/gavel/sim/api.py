"""The simulator from Python: one run (`gavel.simulate`) and a comparison of many (`gavel.sweep`)."""

from __future__ import annotations

import difflib
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeAlias

from gavel.core.errors import GavelError, InputError
from gavel.core.throughputs import ThroughputTable, table_of
from gavel.limits import LONGEST_SECONDS, check_positive
from gavel.sim.experiment import Experiment, prepare, run
from gavel.sim.recorder import Recorder
from gavel.sim.report import Report
from gavel.sim.results import Result, ResultsFiles
from gavel.sim.rounds import RoundLog
from gavel.sim.sweep import Contender, Sweep, SweepOutcome, SweepPoint, run_sweep, said
from gavel.workload.trace import Trace, TraceJob

FileName: TypeAlias = str | os.PathLike[str]
SETTINGS = {field.name for field in fields(Experiment)}


class SweepError(GavelError):
    """Some points of a sweep failed; `outcome` has the results of the others, and the reasons."""

    def __init__(self, outcome: SweepOutcome) -> None:
        first = outcome.failures[0]
        number, points = len(outcome.failures), len(outcome.sweep.points)
        super().__init__(f"{number} of {points} points failed, the first ({first.point.label}): {first.reason}")
        self.outcome = outcome


def simulate(
    experiment: Experiment | None = None,
    *,
    trace: FileName | Trace | Iterable[TraceJob] | None = None,
    throughputs: FileName | ThroughputTable | Mapping[str, Any] | None = None,
    rounds: bool = False,
    plots: bool = False,
    **settings: Any,
) -> Report:
    """Run a workload in virtual time.

    Settings are those of `Experiment`, by name; they override those of a given experiment. A trace is a file, or jobs
    in memory; throughputs are a file, a table, or what a file would hold. A mechanism of your own is
    "module.NAME", or a class or function defined in a module. `rounds` keeps a record of every round for
    `Report.rounds()`; `plots` keeps what `gavel.plot` needs.

    >>> report = simulate(cluster="v100=2,k80=2", policy="fifo", jobs=8, seed=1, rounds=True)
    >>> report.figures.jobs_completed, [job.id for job in report.jobs()][:2]
    (8, ['job0', 'job1'])
    >>> report.rounds()[0].busy
    {'v100': 2, 'k80': 2}
    """
    jobs = None if trace is None or isinstance(trace, str | os.PathLike) else _trace(trace)
    table = None if throughputs is None or isinstance(throughputs, str | os.PathLike) else _table(throughputs)
    given = {"trace": trace, "throughputs": throughputs}
    files = {name: value for name, value in given.items() if isinstance(value, str | os.PathLike)}
    chosen = _experiment(experiment, settings | files)
    if (chosen.jobs is None) == (trace is None and chosen.trace is None):
        raise InputError("give either trace=..., or jobs=... to generate, with arrivals_per_hour=... or all at once")
    scene = prepare(chosen if jobs is None else replace(chosen, trace=None), table=table, trace=jobs)
    types = tuple(accelerator_type.name for accelerator_type in scene.cluster.types())
    return run(
        chosen,
        scene=scene,
        rounds=RoundLog(types) if rounds else None,
        recorder=Recorder() if plots else None,
    )


def sweep(
    experiment: Experiment | None = None,
    *,
    policies: str | Sequence[str],
    loads: Iterable[float] = (),
    static: Iterable[int] = (),
    seeds: Iterable[int] = (0,),
    out: FileName | None = None,
    workers: int | None = None,
    progress: Callable[[str], object] | None = None,
    **settings: Any,
) -> SweepOutcome:
    """Compare policies over loads and seeds, several simulations at a time.

    Policies may have variants, as in "fifo:agnostic". Loads are jobs an hour, of `jobs` jobs each; `static` is numbers
    of jobs that all arrive at the start. All other settings are those of `Experiment`. With `out`, results are
    kept in that directory, and repeating the sweep runs only what is missing. `progress` is called with a line for
    each point that ends: `progress=print`. Raises SweepError if points fail.

    >>> outcome = sweep(cluster="v100=2,k80=2", policies=["fifo", "max_min_fairness"], static=[4], workers=1)
    >>> [(point.policy, point.load, point.figures.jobs_completed) for point in outcome.points()]
    [('fifo', 4.0, 4), ('max_min_fairness', 4.0, 4)]
    """
    rates, counts = ([*map(float, values)] for values in (loads, static))
    if bool(rates) == bool(counts):
        raise InputError("give either loads=[...] with jobs=..., or static=[...]")
    for name in settings.keys() & {"policy", "seed", "arrivals_per_hour", "trace"}:
        raise TypeError(f"a sweep takes no {name}: it has policies, seeds, and loads or static")
    compared = Sweep(
        _experiment(experiment, settings),
        contenders=tuple(dict.fromkeys(map(Contender.parse, _names(policies)))),
        loads=tuple(dict.fromkeys(rates or counts)),
        seeds=tuple(dict.fromkeys(map(int, seeds))),
        static=bool(counts),
    )
    compared.check()
    with ExitStack() as opened:
        directory = out if out is not None else opened.enter_context(tempfile.TemporaryDirectory(prefix="gavel-"))
        files = opened.enter_context(ResultsFiles(Path(directory)))
        workers = workers or len(os.sched_getaffinity(0))
        outcome = run_sweep(compared, files, workers=workers, on_end=_telling(progress))
    if outcome.failures:
        raise SweepError(outcome)
    return outcome


def _experiment(base: Experiment | None, settings: Mapping[str, Any]) -> Experiment:
    """The base with these settings, or an experiment of the settings alone."""
    for name in settings.keys() - SETTINGS:
        near = difflib.get_close_matches(name, SETTINGS, n=1)
        raise TypeError(f"there is no setting {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    given = {name: _plain(name, value) for name, value in settings.items()}
    if base is not None:
        return replace(base, **given)
    if "cluster" not in given:
        raise TypeError('there is no cluster; give for example cluster="v100=4,k80=8"')
    return Experiment(**given)


def _plain(name: str, value: Any) -> Any:
    """Convert a setting to the plain value that an experiment holds."""
    if isinstance(value, ThroughputTable | Mapping):
        raise TypeError(f"{name} must be the name of a file here: processes of a sweep do not see objects in memory")
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if name == "mechanism" and callable(value):  # found by name, also in the processes of a sweep
        return f"{value.__module__}.{value.__qualname__}"
    return tuple(value) if isinstance(value, list) else value


def _names(policies: str | Sequence[str]) -> list[str]:
    return [name.strip() for name in policies.split(",")] if isinstance(policies, str) else list(policies)


def _telling(progress: Callable[[str], object] | None) -> Callable[[SweepPoint, Result | str], None]:
    def on_end(point: SweepPoint, answer: Result | str) -> None:
        if progress is not None:
            progress(f"{point.label}: {said(answer)}")

    return on_end


def _table(throughputs: ThroughputTable | Mapping[str, Any]) -> ThroughputTable:
    return throughputs if isinstance(throughputs, ThroughputTable) else table_of(throughputs)


def _trace(jobs: Trace | Iterable[TraceJob]) -> Trace:
    """A trace of jobs in memory, with the same checks as for a file."""
    trace = jobs if isinstance(jobs, Trace) else Trace.of(jobs)
    if not trace.jobs:
        raise InputError("the trace has no jobs; give at least one")
    name, times = Counter(job.id for job in trace.jobs).most_common(1)[0]
    if times > 1:
        raise InputError(f"{times} jobs are called {name!r}; ids must differ")
    for job in trace.jobs:
        _check(job)
    return trace


def _check(job: TraceJob) -> None:
    check_positive(f"job {job.id!r}: the number of steps", job.steps)
    check_positive(f"job {job.id!r}: the weight", job.weight)
    if job.deadline_seconds is not None:
        check_positive(f"job {job.id!r}: the deadline", job.deadline_seconds, LONGEST_SECONDS)
    if not 0.0 <= job.arrival <= LONGEST_SECONDS or math.isnan(job.arrival):
        raise InputError(f"job {job.id!r}: arrival must be 0 or more seconds, at most 317 years, not {job.arrival:g}")
