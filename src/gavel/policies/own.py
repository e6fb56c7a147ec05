"""Policies that are not ours: `module.NAME` is a Policy in a module that Python can import.

Nobody has checked such a policy before, so each of its answers is checked here, and whatever goes wrong names it.
"""

from __future__ import annotations

import traceback
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.errors import GavelError, InputError
from gavel.core.problem import Problem
from gavel.policies.policy import Options, Policy

ROUNDING = 1e-6
"""What a share or a type may have too much of, relatively, before it counts as given twice."""


def is_own(name: str) -> bool:
    """Whether a name is that of a user's policy: none of ours has a dot."""
    return "." in name


def load(name: str) -> Policy:
    """The policy at `module.NAME`. It goes by this whole name, by which other processes find it too."""
    module, _, attribute = name.rpartition(".")
    if not all(part.isidentifier() for part in name.split(".")):
        raise InputError(f"policy {name}: write module.NAME, where NAME is a Policy in a module of your own")
    try:
        found = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        raise InputError(
            f"policy {name}: there is no module {error.name!r}; install it, or put its directory on PYTHONPATH"
        ) from error
    except Exception as error:
        raise InputError(f"policy {name}: {module!r} cannot be imported: {_told(error, name)}") from error
    if not isinstance(found, Policy):
        what = "is not there" if found is None else f"is a {type(found).__name__}"
        raise InputError(f"policy {name}: {attribute!r} of {module!r} {what}; it must be a gavel.Policy")
    return replace(found, name=name, solve=_Checked(name, found), user_defined=True)


def file_of(name: str) -> Path | None:
    """The file in which a user's policy stands."""
    spec = find_spec(name.rpartition(".")[0])
    return Path(spec.origin) if spec and spec.has_location and spec.origin else None


class _Checked:
    """The function of a user's policy, whose answers are checked."""

    def __init__(self, name: str, policy: Policy) -> None:
        self._name, self._policy = name, policy

    def __call__(self, problem: Problem, options: Options) -> Allocation:
        try:
            answer = self._policy.solve(problem, options)
        except GavelError:
            raise
        except Exception as error:
            raise GavelError(f"policy {self._name} failed: {_told(error, self._name)}") from error
        if not isinstance(answer, Allocation):
            raise GavelError(f"policy {self._name} gave a {type(answer).__name__} and not an Allocation")
        if wrong := _fault(answer):
            raise GavelError(f"policy {self._name} gave an allocation that nobody can grant: {wrong}")
        return replace(answer, policy=self._name)


def _fault(answer: Allocation) -> str | None:
    """Why an allocation is not valid."""
    if not (np.isfinite(answer.instances).all() and (answer.instances >= 0).all()):
        return "some share is negative or no number"
    if (late := answer.class_time > 1 + ROUNDING).any():
        job = answer.problem.jobs.ids[int(answer.classes.first[int(late.argmax())])]
        return f"job {job!r} would run {answer.class_time[late][0]:.3g} times all of its time"
    if (over := answer.busy > answer.problem.counts * (1 + ROUNDING)).any():
        kind = answer.problem.types[int(over.argmax())]
        return f"{answer.busy[over][0]:.3g} of {kind.count} {kind.name} would be in use"
    return None


def _told(error: Exception, name: str) -> str:
    """An error of the user's code, with the line of their file."""
    file = file_of(name)
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if file and frame.filename == str(file)
    ]
    where = f" ({file.name}, line {lines[-1]})" if file and lines else ""
    return f"{type(error).__name__}: {error}{where}"
