"""Gavel: share a cluster of mixed accelerators among training jobs, by policies that know how fast each job runs where.

>>> import gavel
>>> types = [gavel.AcceleratorType("v100", 1), gavel.AcceleratorType("k80", 1)]
>>> speeds = {"cnn": 4.0, "gan": 3.0, "rl": 2.0}  # steps/s on a V100; all make 1 step/s on a K80
>>> jobs = [gavel.Job(name, {"v100": fast, "k80": 1.0}) for name, fast in speeds.items()]
>>> allocation = gavel.allocate(gavel.Problem.of(types, jobs), "max_min_fairness")
>>> for row in allocation.rows():
...     print(row.jobs[0], {name: round(share, 2) for name, share in row.shares.items()})
cnn {'v100': 0.45, 'k80': 0.0}
gan {'v100': 0.45, 'k80': 0.09}
rl {'v100': 0.09, 'k80': 0.91}
>>> str(allocation.limits()["cnn"]), round(allocation.certificate.prices["v100"], 2)
('limited by v100', 0.44)

`gavel.simulate` runs a workload in virtual time, `gavel.sweep` compares policies, and `gavel.plot` draws either:

>>> gavel.simulate(cluster="v100=2,k80=2", jobs=4).figures.jobs_completed
4

Names are loaded on first use: a training script that needs only `GavelIterator` loads no solver, and needs only the
package gavel-client. Without gavel-scheduler, all other names say that it must be installed.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gavel.errors import NotInstalledError
from gavel.version import __version__

if TYPE_CHECKING:
    from gavel.client.api import Client
    from gavel.client.errors import (
        CheckpointError,
        GangError,
        NoSuchJob,
        NotReachable,
        Preempted,
        Refused,
        SchedulerFailed,
        TimedOut,
        TrainingError,
    )
    from gavel.client.iterator import GavelIterator
    from gavel.client.own_loop import checkpoint_dir, finished, report, seconds_left, should_leave
    from gavel.client.requests import JobRequest
    from gavel.client.selection import Selection
    from gavel.client.views import JobState
    from gavel.client.webhooks import verify_notification
    from gavel.core.allocation import Allocation, Certificate, Limit
    from gavel.core.cluster import AcceleratorType
    from gavel.core.jobs import Entity, Job, Pair, PlacedRate
    from gavel.core.problem import Problem
    from gavel.core.problem_file import parse_problem
    from gavel.core.throughputs import ThroughputTable
    from gavel.errors import GavelError, InputError, SolverError
    from gavel.plots.plot import plot
    from gavel.policies.policy import Options, Policy
    from gavel.policies.registry import POLICIES, allocate
    from gavel.scheduler.rounds import Elapsed, Mechanism, Plan, RoundInput, Run
    from gavel.sim.api import SweepError, simulate, sweep
    from gavel.sim.experiment import Experiment
    from gavel.sim.records import JobRecord
    from gavel.sim.report import Figures, Report
    from gavel.sim.rounds import RoundRecord
    from gavel.sim.sweep import PointRecord, SweepOutcome
    from gavel.workload.trace import Trace, TraceJob

_NAMES_BY_MODULE = {
    "gavel.client.api": ("Client",),
    "gavel.client.errors": (
        *("CheckpointError", "GangError", "Preempted", "TrainingError"),
        *("NoSuchJob", "NotReachable", "Refused", "SchedulerFailed", "TimedOut"),
    ),
    "gavel.client.iterator": ("GavelIterator",),
    "gavel.client.own_loop": ("checkpoint_dir", "finished", "report", "seconds_left", "should_leave"),
    "gavel.client.requests": ("JobRequest",),
    "gavel.client.selection": ("Selection",),
    "gavel.client.views": ("JobState",),
    "gavel.client.webhooks": ("verify_notification",),
    "gavel.core.allocation": ("Allocation", "Certificate", "Limit"),
    "gavel.core.cluster": ("AcceleratorType",),
    "gavel.errors": ("GavelError", "InputError", "SolverError"),
    "gavel.core.jobs": ("Entity", "Job", "Pair", "PlacedRate"),
    "gavel.core.problem": ("Problem",),
    "gavel.core.problem_file": ("parse_problem",),
    "gavel.core.throughputs": ("ThroughputTable",),
    "gavel.plots.plot": ("plot",),
    "gavel.policies.policy": ("Options", "Policy"),
    "gavel.policies.registry": ("POLICIES", "allocate"),
    "gavel.scheduler.rounds": ("Elapsed", "Mechanism", "Plan", "RoundInput", "Run"),
    "gavel.sim.api": ("SweepError", "simulate", "sweep"),
    "gavel.sim.experiment": ("Experiment",),
    "gavel.sim.records": ("JobRecord",),
    "gavel.sim.report": ("Figures", "Report"),
    "gavel.sim.rounds": ("RoundRecord",),
    "gavel.sim.sweep": ("PointRecord", "SweepOutcome"),
    "gavel.workload.trace": ("Trace", "TraceJob"),
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

__all__ = [
    "POLICIES",
    "AcceleratorType",
    "Allocation",
    "Certificate",
    "CheckpointError",
    "Client",
    "Elapsed",
    "Entity",
    "Experiment",
    "Figures",
    "GangError",
    "GavelError",
    "GavelIterator",
    "InputError",
    "Job",
    "JobRecord",
    "JobRequest",
    "JobState",
    "Limit",
    "Mechanism",
    "NoSuchJob",
    "NotReachable",
    "Options",
    "Pair",
    "PlacedRate",
    "Plan",
    "PointRecord",
    "Policy",
    "Preempted",
    "Problem",
    "Refused",
    "Report",
    "RoundInput",
    "RoundRecord",
    "Run",
    "SchedulerFailed",
    "Selection",
    "SolverError",
    "SweepError",
    "SweepOutcome",
    "ThroughputTable",
    "TimedOut",
    "Trace",
    "TraceJob",
    "TrainingError",
    "__version__",
    "allocate",
    "checkpoint_dir",
    "finished",
    "parse_problem",
    "plot",
    "report",
    "seconds_left",
    "should_leave",
    "simulate",
    "sweep",
    "verify_notification",
]


_FRAMEWORKS = ("accelerate", "hf", "lightning", "torch")
"""Modules that import the framework of their name, and so are imported on first use."""


def __getattr__(name: str) -> Any:
    if name in _FRAMEWORKS:
        return import_module(f"gavel.{name}")
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_load(name, module), name)
    return value


def _load(name: str, module: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise NotInstalledError(f"gavel.{name}", "gavel-scheduler", "gavel-scheduler") from None


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
