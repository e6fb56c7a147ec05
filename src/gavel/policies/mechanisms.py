"""Every mechanism by name: the one place where simulator and live scheduler get theirs."""

from __future__ import annotations

from typing import Literal, get_args

from gavel.core.errors import InputError
from gavel.core.user_code import is_user_defined
from gavel.policies.policy import Policy
from gavel.scheduler.credits import Credits
from gavel.scheduler.patience import Patience
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
    patience: Patience | None = None,
) -> Mechanism:
    """A new mechanism of that name for a policy; `module.NAME` is one of the user's own.

    Policies that keep deadlines are realised by priorities: credits would miss them. A `forgiving` mechanism of the
    user's keeps what runs where its plan fails.
    """
    if is_user_defined(name):
        return load(name, forgiving=forgiving)
    _check_ours(name)
    knows_speeds = policy.knows_speeds and not agnostic
    if weighs_restarts(policy, name):
        rules = None if patience is None else Rules(patience=patience)
        return Credits(rules, knows_speeds=knows_speeds, price_aware=policy.price_aware)
    return Priorities(knows_speeds=knows_speeds, price_aware=policy.price_aware)


def starts_mid_round(name: str) -> bool:
    """Whether jobs start during a round on idle accelerators; in the paper they start with a round."""
    return name != "plain"


def weighs_restarts(policy: Policy, name: str) -> bool:
    """Whether the mechanism of that name for a policy decides by what restarts cost; priorities do not."""
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


def kind_of(mechanism: Mechanism) -> str:
    """What a mechanism calls itself in the state that it writes down."""
    if isinstance(mechanism, CheckedMechanism):
        return mechanism.name
    return "credits" if isinstance(mechanism, Credits) else "priorities"


def trouble_of(mechanism: Mechanism) -> str:
    """Why what runs could not be planned by a user's mechanism; empty if it was."""
    return mechanism.trouble if isinstance(mechanism, CheckedMechanism) else ""


def _check_ours(name: str) -> None:
    if name not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise InputError(f"there is no mechanism {name!r}; the mechanisms are: {known}; module.NAME is one of your own")
