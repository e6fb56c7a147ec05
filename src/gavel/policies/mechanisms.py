"""Every mechanism by name, and its settings: the one place where all worlds get their mechanism."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from gavel.core.errors import InputError
from gavel.core.user_code import is_user_defined
from gavel.policies.policy import Policy
from gavel.scheduler.credits import Credits
from gavel.scheduler.machine import Settings
from gavel.scheduler.priorities import Priorities
from gavel.scheduler.rounds import Mechanism
from gavel.scheduler.rules import Rules
from gavel.scheduler.user_defined import CheckedMechanism, load

MechanismName = Literal["credits", "priorities", "plain"]
"""Restart-aware credits; the paper's priorities; and plain priorities, where jobs start only with a round."""

MECHANISMS: tuple[str, ...] = get_args(MechanismName)
DEFAULT: MechanismName = "credits"


def mechanism_for(
    policy: Policy,
    name: str = DEFAULT,
    *,
    agnostic: bool = False,
    forgiving: bool = False,
    rules: Rules | None = None,
) -> Mechanism:
    """Create the mechanism of that name for a policy; `module.NAME` is a user-defined one.

    Policies with deadlines are realised by priorities, because credits would miss deadlines. A `forgiving` user-defined
    mechanism keeps what runs if its plan fails; `rules` are for credits.
    """
    if is_user_defined(name):
        return load(name, forgiving=forgiving)
    _check_ours(name)
    knows_speeds = policy.knows_speeds and not agnostic
    if _weighs_restarts(policy, name):
        return Credits(rules, knows_speeds=knows_speeds, price_aware=policy.price_aware)
    return Priorities(knows_speeds=knows_speeds, price_aware=policy.price_aware)


def suited(settings: Settings, policy: Policy, name: str = DEFAULT) -> Settings:
    """The settings of a scheduler that suit the mechanism of that name and a policy.

    Jobs start during a round on idle accelerators, except under `plain`, as in the paper. The cost of restarts
    matters only to mechanisms that take it into account.
    """
    return replace(settings, start_mid_round=name != "plain", weigh_restarts=_weighs_restarts(policy, name))


def _weighs_restarts(policy: Policy, name: str) -> bool:
    return is_user_defined(name) or (name == "credits" and not policy.deadline_bound)


def check_mechanism(name: str, *, resumed_by: str | None = None) -> None:
    """Raise InputError if there is no such mechanism, or if `resumed_by` needs its state and it cannot be dumped."""
    if not is_user_defined(name):
        _check_ours(name)
    elif not load(name).can_be_written_down and resumed_by is not None:
        raise InputError(
            f"mechanism {name}: {resumed_by} stores its state; give it the methods dump and restore of gavel.Mechanism"
        )


def trouble_of(mechanism: Mechanism) -> str:
    """Why a user-defined mechanism failed last; empty if it did not."""
    return mechanism.trouble if isinstance(mechanism, CheckedMechanism) else ""


def _check_ours(name: str) -> None:
    if name not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise InputError(f"there is no mechanism {name!r}; the mechanisms are: {known}; module.NAME is one of your own")
