"""What an agent may offer: checked by the agent before it starts and by the scheduler when it attaches."""

from __future__ import annotations

from collections.abc import Mapping

from gavel.client.field_checks import label_fault, shortened
from gavel.limits import (
    LONGEST_LABEL,
    MOST_ACCELERATORS_OF_AN_AGENT,
    MOST_BYTES,
    MOST_CORES,
    MOST_TASKS_OF_AN_AGENT,
    MOST_TYPES,
)
from gavel.runtime.messages import Hello
from gavel.wire import gavel_pb2 as pb

LONGEST_IDENTITY = LONGEST_LABEL + 100
"""Characters of an identity: that of an agent of an earlier version is made of its name."""


def size_fault(packed: pb.FromAgent) -> str | None:
    """Why a message lists more than any agent has, in a sentence; None if it does not. Cheap, whatever it lists."""
    hello, handled = packed.hello, packed.checkpoints
    if len(hello.accelerators) > MOST_TYPES:
        return f"an agent offers at most {MOST_TYPES} types of accelerators, not {len(hello.accelerators):,}"
    if len({group.type for group in hello.accelerators}) < len(hello.accelerators):
        return "the agent offers a type of accelerators twice; offer each once"
    most = max(len(hello.tasks), len(packed.heartbeat.tasks), len(handled.removed), len(handled.kept))
    if most > MOST_TASKS_OF_AN_AGENT:
        return f"a message of an agent lists at most {MOST_TASKS_OF_AN_AGENT:,} tasks or jobs, not {most:,}"
    return None


def hello_fault(hello: Hello) -> str | None:
    """Why the scheduler cannot accept a Hello, in a sentence; None if it can."""
    told = {
        "identity": hello.agent,
        "incarnation": hello.incarnation,
        "address": hello.address,
        "version": hello.version,
        "cluster id": hello.cluster,
    }
    for what, text in told.items():
        if (fault := label_fault(text, LONGEST_IDENTITY if what == "identity" else LONGEST_LABEL)) is not None:
            return f"the agent's {what} {fault}: {shortened(text)}"
    fault = figures_fault(hello.cpus, hello.memory_bytes, hello.accelerator_memory)
    return fault or offer_fault(hello.name, hello.accelerators)


def figures_fault(cpus: float, memory: int, accelerator_memory: Mapping[str, int]) -> str | None:
    """Why a server cannot have these cores, this RAM and this memory of accelerators; None if it can.

    >>> figures_fault(-1.0, 0, {})
    'a server has 0 to 65,536 CPU cores for jobs, not -1'
    """
    if not 0.0 <= cpus <= MOST_CORES:  # also refuses NaN
        return f"a server has 0 to {MOST_CORES:,} CPU cores for jobs, not {cpus:g}"
    each = {f"memory of each {shortened(name)}": amount for name, amount in accelerator_memory.items()}
    for what, amount in {"RAM for jobs": memory, **each}.items():
        if not 0 <= amount <= MOST_BYTES:
            return f"{what}: {amount} bytes is not between 0 and 1024T"
    return None


def offer_fault(name: str, accelerators: Mapping[str, int]) -> str | None:
    """Why an agent cannot have this name and these accelerators, in a sentence; None if it can.

    >>> offer_fault("lab", {"v100": 5000})
    'an agent offers at most 4,096 accelerators, not 5,000'
    """
    if (fault := label_fault(name)) is not None:
        return f"the agent's name {fault}: {shortened(name)}; give another --name"
    if len(accelerators) > MOST_TYPES:
        return f"an agent offers at most {MOST_TYPES} types of accelerators, not {len(accelerators):,}"
    for type_name, count in accelerators.items():
        if not type_name or (fault := label_fault(type_name)) is not None:
            return f"the type {shortened(type_name)} {fault}" if type_name else "a type of accelerators has no name"
        if count < 1:
            return f"the agent offers no accelerator of type {shortened(type_name)}; leave the type out"
    if (total := sum(accelerators.values())) > MOST_ACCELERATORS_OF_AN_AGENT:
        return f"an agent offers at most {MOST_ACCELERATORS_OF_AN_AGENT:,} accelerators, not {total:,}"
    return None
