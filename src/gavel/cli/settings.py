"""The settings of an experiment as options of `gavel simulate` and `gavel sweep`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields
from functools import wraps
from typing import Any

from gavel.cli import experiment_options as own
from gavel.cli import options as shared
from gavel.sim.experiment import Experiment

OPTIONS: dict[str, Any] = {
    "cluster": own.ClusterText,
    "per_server": own.PerServer,
    "prices": own.Prices,
    "failures": own.Failures,
    "failures_per_server_day": own.FailuresPerServerDay,
    "repair_hours": own.RepairHours,
    "policy": shared.PolicyName,
    "agnostic": shared.Agnostic,
    "space_sharing": shared.SpaceSharing,
    "normalised": shared.Normalised,
    "mechanism": own.MechanismOption,
    "ideal": own.Ideal,
    "round_seconds": own.RoundSeconds,
    "restart_seconds": own.RestartSeconds,
    "min_seconds_between_allocations": own.MinSecondsBetweenAllocations,
    "recompute_every_seconds": own.RecomputeEverySeconds,
    "window": own.Window,
    "limit_days": own.LimitDays,
    "throughputs": shared.Throughputs,
    "throughputs_known": own.ThroughputsKnown,
    "profiling_share": own.ProfilingShare,
    "profiling_minutes": own.ProfilingMinutes,
    "reference": own.ReferenceType,
    "seed": own.Seed,
    "entities": own.Entities,
    "multi_worker": own.MultiWorker,
    "slo": own.Slo,
    "high_priority": own.HighPriority,
    "templates": own.Templates,
    "durations": own.Durations,
    "trace": own.Trace,
    "trace_format": own.FormatName,
    "jobs": own.JobCount,
    "arrivals_per_hour": own.ArrivalsPerHour,
}
"""The option of each setting, in the order in which the help lists them."""
Settings = dict[str, Any]
"""Values of an experiment's fields."""


def takes_settings(*, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options for an experiment's fields; it receives their values in a dictionary called `settings`.

    The help lists them where `settings` appears among the command's own parameters.
    """
    chosen = [name for name in OPTIONS if name not in without]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**values: Any) -> None:
            settings = _read({name: values.pop(name) for name in chosen})
            command(settings=settings, **values)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            parameters += map(_parameter, chosen) if parameter.name == "settings" else [parameter]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # typer reads it
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del called.__wrapped__  # it has another signature
        return called

    return decorate


def _parameter(name: str) -> inspect.Parameter:
    """An option with the experiment's default."""
    [default] = [field.default for field in fields(Experiment) if field.name == name]
    if default is MISSING:
        default = inspect.Parameter.empty
    # Lists are passed as text.
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default="" if default == () else default, annotation=OPTIONS[name]
    )


def _read(given: Settings) -> Settings:
    """Convert an option's text to the experiment's value."""
    return given | {
        "cluster": ",".join(part.strip() for part in given["cluster"].split(",")),
        "window": own.parse_window(given["window"]),
        "slo": own.parse_numbers("--slo", given["slo"]),
        "templates": own.parse_names(given["templates"]),
        "durations": own.parse_numbers("--durations", given["durations"]),
    }
