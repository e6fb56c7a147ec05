"""Which accelerators a server has: as its user writes them, or as its GPU driver reports them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from gavel.errors import InputError

MOST = 4096
"""A higher count for one server is a typing error."""

Indices = dict[str, tuple[int, ...]]
"""The device numbers of each type."""


def parse_accelerators(text: str) -> Indices:
    """Read "type=count,type=count"; devices are numbered in the order given.

    >>> parse_accelerators("v100=2,k80=1")
    {'v100': (0, 1), 'k80': (2,)}
    """
    found: Indices = {}
    first = 0
    for part in text.split(","):
        name, separator, number = (piece.strip() for piece in part.partition("="))
        if not (name and separator and number.isdecimal()):
            raise InputError(f"accelerators {text!r}: {part.strip()!r} is not type=count, for example v100=4")
        if name in found:
            raise InputError(f"accelerators {text!r}: type {name!r} is given twice; add the counts up")
        if len(number) > len(str(MOST)) or not 1 <= int(number) <= MOST:
            raise InputError(f"accelerators {text!r}: {name} must be 1 to {MOST}, not {number}")
        found[name] = tuple(range(first, first + int(number)))
        first += int(number)
    return found


def given_devices(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """The devices that the agent was given, by number or UUID, as in a Slurm allocation; None: all of the server.

    >>> given_devices({"CUDA_VISIBLE_DEVICES": "1,3"}), given_devices({})
    (('1', '3'), None)
    """
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    return None if listed is None else tuple(name.strip() for name in listed.split(",") if name.strip())


def device_name(device: int, environment: Mapping[str, str]) -> str:
    """What CUDA calls one of the agent's devices, which are numbered as they were given to it.

    >>> device_name(1, {"CUDA_VISIBLE_DEVICES": "GPU-5f3a,GPU-91c2"}), device_name(1, {})
    ('GPU-91c2', '1')
    """
    given = given_devices(environment)
    return str(device) if given is None else given[device]


def installed_accelerators(environment: Mapping[str, str]) -> Indices:
    """Ask nvidia-smi; a server may hold several types in any order. Only devices that the agent was given count."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=index,uuid,name", "--format=csv,noheader"],  # noqa: S607 - wherever the driver put it
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
    except FileNotFoundError:
        raise InputError("nvidia-smi is not installed here; name the accelerators, for example v100=4") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"nvidia-smi does not answer ({error}); name the accelerators, for example v100=4") from error
    names = _given_names([line.split(",", 2) for line in listed.splitlines() if line.strip()], environment)
    if not names:
        raise InputError("nvidia-smi finds no GPU here; name the accelerators, for example v100=4")
    return by_type(map(short_type, names))


def _given_names(rows: Sequence[Sequence[str]], environment: Mapping[str, str]) -> list[str]:
    """The driver's names of the devices that the agent was given, in that order; of all if it was given no list."""
    installed = [(index.strip(), uuid.strip(), name.strip()) for index, uuid, name in rows]
    given = given_devices(environment)
    if given is None:
        return [name for _, _, name in installed]
    names = []
    for wanted in given:
        found = [name for index, uuid, name in installed if wanted == index or uuid.startswith(wanted)]
        if len(found) != 1:
            raise InputError(
                f"CUDA_VISIBLE_DEVICES names {wanted}, which nvidia-smi does not list as one GPU; say what there is, "
                "for example v100=4"
            )
        names += found
    return names


def by_type(names: Iterable[str]) -> Indices:
    """Device numbers by type, given the type of each device.

    >>> by_type(["v100", "k80", "v100"])
    {'v100': (0, 2), 'k80': (1,)}
    """
    found: Indices = {}
    for index, name in enumerate(names):
        found[name] = (*found.get(name, ()), index)
    return found


_BRANDS = {"nvidia", "tesla", "quadro", "geforce", "grid", "graphics", "generation", "amd", "instinct"}
_SERIES = {"rtx", "gtx", "titan"}
_VARIANTS = {"ti", "super", "ada", "blackwell"}


def short_type(name: str) -> str:
    """Shorten a driver's GPU name to the one that tables and job files use.

    >>> [short_type(name) for name in ("Tesla V100-SXM2-16GB", "NVIDIA A100 80GB PCIe", "NVIDIA RTX A6000")]
    ['v100', 'a100', 'a6000']
    >>> [short_type(name) for name in ("NVIDIA GeForce RTX 3080 Ti", "NVIDIA RTX 6000 Ada Generation", "TITAN Xp")]
    ['rtx3080ti', 'rtx6000ada', 'titanxp']
    """
    words = [word for word in re.split(r"[\s\-_/()]+", name.lower()) if word and word not in _BRANDS]
    if not words:
        return "gpu"
    model = next((word for word in words if re.fullmatch(r"[a-z]{1,3}\d+[a-z]{0,2}", word)), None)
    if model is not None:
        return model
    if words[0] in _SERIES:
        variants = [word for word in words[2:] if word in _VARIANTS]
        return "".join([*words[:2], *variants])
    return words[0]
