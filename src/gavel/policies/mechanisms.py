"""Every mechanism by name, and the settings that go with it: the one place where all worlds get theirs."""

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
"""Ours: the restart-aware one; the paper's priorities; and those to the letter, where jobs start with a round only."""

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
    """A new mechanism of that name for a policy; `module.NAME` is one of the user's own.

    Policies that keep deadlines are realised by priorities: credits would miss them. A `forgiving` mechanism of the
    user's keeps what runs where its plan fails; `rules` are those of credits.
    """
    if is_user_defined(name):
        return load(name, forgiving=forgiving)
    _check_ours(name)
    knows_speeds = policy.knows_speeds and not agnostic
    if _weighs_restarts(policy, name):
        return Credits(rules, knows_speeds=knows_speeds, price_aware=policy.price_aware)
    return Priorities(knows_speeds=knows_speeds, price_aware=policy.price_aware)


def suited(settings: Settings, policy: Policy, name: str = DEFAULT) -> Settings:
    """Settings under which a scheduler works with the mechanism of that name for a policy.

    Jobs start during a round on idle accelerators, though in the paper they start with a round. What restarts cost
    matters only to mechanisms that decide by it.
    """
    return replace(settings, start_mid_round=name != "plain", weigh_restarts=_weighs_restarts(policy, name))


def _weighs_restarts(policy: Policy, name: str) -> bool:
    return is_user_defined(name) or (name == "credits" and not policy.deadline_bound)


def check_mechanism(name: str, *, resumed_by: str | None = None) -> None:
    """Refuse what is no mechanism, and for what `resumed_by` names, one whose state cannot be written down."""
    if not is_user_defined(name):
        _check_ours(name)
    elif not load(name).can_be_written_down and resumed_by is not None:
        raise InputError(
            f"mechanism {name}: {resumed_by} writes its state down; give it the methods dump and restore of "
            "gavel.Mechanism"
        )


def trouble_of(mechanism: Mechanism) -> str:
    """Why what runs could not be planned by a user's mechanism; empty if it was."""
    return mechanism.trouble if isinstance(mechanism, CheckedMechanism) else ""


def _check_ours(name: str) -> None:
    if name not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise InputError(f"there is no mechanism {name!r}; the mechanisms are: {known}; module.NAME is one of your own")
