"""Which devices the agent was given, by the variables of CUDA, HIP, Slurm and Kubernetes, and those of a job.

Names are kept as they were given: numbers, UUIDs ("GPU-…") or slices ("MIG-…").
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gavel.client.field_checks import shortened
from gavel.errors import InputError

Vendor = Literal["nvidia", "amd"]

CUDA, NVIDIA, HIP, ROCR = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)
SLURM = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "GPU_DEVICE_ORDINAL")
"""What Slurm tells; it may name devices as the whole server does while a job sees its own numbered from 0."""
MOST = 4096
"""More devices than this in a list are a mistake."""

_DEVICE = re.compile(r"\d{1,4}|(?:GPU|MIG)-[\w/.-]*", re.IGNORECASE)
_RANGE = re.compile(r"(\d{1,4})-(\d{1,4})")
_NOTHING = {"nodevfiles", "none"}


@dataclass(frozen=True, slots=True)
class Allotment:
    """The devices that the agent was given."""

    variable: str = ""
    """The variable that says so; empty: none does."""
    names: tuple[str, ...] | None = None
    """None: all of the server."""
    renumbered: bool = False
    """Whether the driver may list the same devices under other numbers, from 0."""

    def __str__(self) -> str:
        return f"{self.variable}={','.join(self.names or ())}"


def allotment(environment: Mapping[str, str], vendor: Vendor | None = None) -> Allotment:
    """The devices that the agent was given; without a vendor, those of the variables that are set.

    >>> allotment({"CUDA_VISIBLE_DEVICES": "1,3"}).names, allotment({}).names
    (('1', '3'), None)
    >>> allotment({"NVIDIA_VISIBLE_DEVICES": "all"}).names, allotment({"SLURM_JOB_GPUS": "1-2"}).names
    (None, ('1', '2'))
    """
    cuda, amd = _listed(environment, CUDA), _of_amd(environment)
    if vendor is None:
        if cuda is not None and amd is not None and set(cuda) != set(amd.names or ()):
            raise InputError(f"{CUDA}={','.join(cuda)} and {amd} contradict each other; unset one of them")
        vendor = "amd" if amd is not None and cuda is None else "nvidia"
    if vendor == "amd" and amd is not None:
        found = amd
    elif cuda is not None:
        found = Allotment(CUDA, cuda)
    else:
        found = (_of_kubernetes(environment) if vendor == "nvidia" else None) or _of_slurm(environment) or Allotment()
    _check_slurm(found, _of_slurm(environment))
    return found


def device_variables(
    devices: Sequence[int], names: Mapping[int, str], environment: Mapping[str, str], vendor: Vendor | None = None
) -> dict[str, str]:
    """The variables that show a job exactly these of the agent's devices, by the names that the agent was given.

    >>> device_variables([1], {}, {"CUDA_VISIBLE_DEVICES": "GPU-5f3a,GPU-91c2"})["CUDA_VISIBLE_DEVICES"]
    'GPU-91c2'
    """
    given = allotment(environment, vendor)
    listed = ",".join(named_devices(devices, names, environment, vendor))
    if given.variable == ROCR:  # HIP counts within what ROCR shows
        within = ",".join(map(str, range(len(devices))))
        return {ROCR: listed, HIP: within, CUDA: within}
    # By default CUDA numbers the fastest GPU first; by bus order it agrees with nvidia-smi.
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", CUDA: listed, HIP: listed}


def named_devices(
    devices: Sequence[int], names: Mapping[int, str], environment: Mapping[str, str], vendor: Vendor | None = None
) -> tuple[str, ...]:
    """What the driver calls these of the agent's devices."""
    given = allotment(environment, vendor)
    return tuple([names.get(device) or _name(device, given) for device in devices])


NO_DEVICES = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", CUDA: "", HIP: ""}
"""The variables of a job on emulated accelerators."""


def _name(device: int, given: Allotment) -> str:
    return str(device) if given.names is None else given.names[device]


def _of_amd(environment: Mapping[str, str]) -> Allotment | None:
    """What ROCm's variables say: HIP counts within what ROCR shows, unless both say the same."""
    rocr, hip = _listed(environment, ROCR), _listed(environment, HIP)
    if rocr is None or hip is None or rocr == hip:
        return None if rocr is hip is None else Allotment(HIP if rocr is None else ROCR, hip if rocr is None else rocr)
    if not all(name.isdecimal() and int(name) < len(rocr) for name in hip):
        told = f"{HIP}={','.join(hip)} counts within {ROCR}={','.join(rocr)}, which are {len(rocr)}"
        raise InputError(f"{told}; unset one of them, or name 0 to {len(rocr) - 1}")
    return Allotment(ROCR, tuple(rocr[int(name)] for name in hip))


def _of_kubernetes(environment: Mapping[str, str]) -> Allotment | None:
    """What the container runtime was told to show; "void" is what it is told where others have shown devices."""
    if environment.get(NVIDIA, "").strip().lower() in {"", "all", "void"}:
        return None
    names = _listed(environment, NVIDIA)
    return Allotment(NVIDIA, names, renumbered=all(name.isdecimal() for name in names or ()))


def _of_slurm(environment: Mapping[str, str]) -> Allotment | None:
    for variable in SLURM:
        if (names := _listed(environment, variable)) is not None:
            return Allotment(variable, names, renumbered=True)
    return None


def _check_slurm(found: Allotment, slurm: Allotment | None) -> None:
    """Refuse more devices than Slurm has granted."""
    if slurm is None or slurm.names is None or found.names is None or len(found.names) <= len(slurm.names):
        return
    granted = "no device" if not slurm.names else f"{len(slurm.names)}"
    raise InputError(
        f"{found} names {len(found.names)} devices, but Slurm has granted {granted} ({slurm}); name only what it grants"
    )


def _listed(environment: Mapping[str, str], variable: str) -> tuple[str, ...] | None:
    """The devices in a variable, up to a negative number, as CUDA reads it; None if it is not set."""
    text = environment.get(variable)
    if text is None:
        return None
    names: list[str] = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        if entry.lower() in _NOTHING or re.fullmatch(r"-\d+", entry):
            break
        names += _entries(entry, f"{variable}={shortened(text)}")
    if len(names) > MOST:
        raise InputError(f"{variable} names {len(names):,} devices; a server has at most {MOST:,}")
    if twice := next((name for number, name in enumerate(names) if name in names[:number]), None):
        raise InputError(f"{variable}={shortened(text)} names device {twice} twice; name each once")
    return tuple(names)


def _entries(entry: str, where: str) -> list[str]:
    if (both := _RANGE.fullmatch(entry)) is not None and int(both[1]) <= int(both[2]):
        return [str(number) for number in range(int(both[1]), int(both[2]) + 1)]
    if _DEVICE.fullmatch(entry) is None:
        raise InputError(f"{where}: {shortened(entry)} is no device; give numbers or UUIDs, for example 0,1")
    return [str(int(entry)) if entry.isdecimal() else entry]
