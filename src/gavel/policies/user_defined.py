"""User-defined policies: `module.NAME` is a Policy in a module that Python can import.

Such a policy is not tested by us, so each of its answers is checked here, and every error names the policy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gavel.core.allocation import Allocation
from gavel.core.errors import GavelError
from gavel.core.problem import Problem
from gavel.core.user_code import find, misfit, told
from gavel.policies.policy import Options, Policy

ROUNDING = 1e-6
"""The relative tolerance for a share or a type before it counts as overallocated."""


def load(name: str) -> Policy:
    """Load the policy `module.NAME`. It keeps this full name, by which other processes find it, too."""
    found = find("policy", name, "a Policy")
    if not isinstance(found, Policy):
        raise misfit("policy", name, found, "a gavel.Policy")
    return replace(found, name=name, solve=_CheckedPolicy(name, found), user_defined=True)


class _CheckedPolicy:
    """The function of a user-defined policy, with checks of its answers."""

    def __init__(self, name: str, policy: Policy) -> None:
        self._name, self._policy = name, policy

    def __call__(self, problem: Problem, options: Options) -> Allocation:
        try:
            answer = self._policy.solve(problem, options)
        except GavelError:
            raise
        except Exception as error:
            raise GavelError(f"policy {self._name} failed: {told(error, self._name)}") from error
        if not isinstance(answer, Allocation):
            raise GavelError(f"policy {self._name} returned a {type(answer).__name__} instead of an Allocation")
        if wrong := _fault(answer):
            raise GavelError(f"policy {self._name} returned an allocation that is not feasible: {wrong}")
        return replace(answer, policy=self._name)


def _fault(answer: Allocation) -> str | None:
    """Why an allocation is not valid; None if it is."""
    if not (np.isfinite(answer.instances).all() and (answer.instances >= 0).all()):
        return "some share is negative or not a number"
    if (late := answer.class_time > 1 + ROUNDING).any():
        job = answer.problem.jobs.ids[int(answer.classes.first[int(late.argmax())])]
        return f"job {job!r} would get {answer.class_time[late][0]:.3g} times all of its time"
    if (over := answer.busy > answer.problem.counts * (1 + ROUNDING)).any():
        accelerator_type = answer.problem.types[int(over.argmax())]
        return f"{answer.busy[over][0]:.3g} of {accelerator_type.count} {accelerator_type.name} would be in use"
    return None
