"""What rocm-smi lists."""

from __future__ import annotations

import json
import math
import re
import subprocess
from typing import Any

from gavel.errors import InputError
from gavel.runtime.agent.nvidia import Card, Listing

_GIB = 2**30
_QUERY = ("--showproductname", "--showuniqueid", "--showmeminfo", "vram", "--json")


def amd_cards() -> Listing | None:
    """Ask rocm-smi; None if it is not installed."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            ["rocm-smi", *_QUERY],  # noqa: S607 - wherever ROCm put it
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except FileNotFoundError:
        return None
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"rocm-smi does not answer ({error}); name the accelerators, for example v100=4") from error
    document = _document(done.stdout)
    if document is None:
        told = f"rocm-smi does not answer (exit code {done.returncode})"
        raise InputError(f"{told}; name the accelerators, for example mi250x=4")
    cards, warnings = [], []
    for name, told in sorted(document.items(), key=_number):
        if (found := re.fullmatch(r"card(\d+)", name)) is None or not isinstance(told, dict):
            continue
        card = _card(found[1], {key.lower(): str(value) for key, value in told.items()})
        if card is None:
            warnings.append(f"a GPU is left out, because rocm-smi does not say what {name} is")
        else:
            cards.append(card)
    return Listing(tuple(cards), tuple(warnings))


def _document(text: str) -> dict[str, Any] | None:
    """The JSON in the answer, which may follow warnings; None if there is none."""
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                return None
            return found if isinstance(found, dict) else None
    return None


def _number(item: tuple[str, Any]) -> int:
    digits = re.sub(r"\D", "", item[0])
    return int(digits) if digits else 0


def _card(index: str, told: dict[str, str]) -> Card | None:
    name = next((told[key] for key in ("card series", "card model", "card sku") if _says(told.get(key))), None)
    if name is None:
        return None
    unique = told.get("unique id", "")
    uuid = f"GPU-{unique.removeprefix('0x')}" if _says(unique) else ""
    total = told.get("vram total memory (b)", "")
    return Card(index, uuid, name, math.ceil(int(total) / _GIB) * _GIB if total.isdecimal() else 0)


def _says(text: str | None) -> bool:
    return bool(text) and str(text).strip().lower() not in {"n/a", "unknown", "none"}
