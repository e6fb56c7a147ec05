"""Tests that need a program which a machine may not have: they are skipped there, and the summary says how many.

`GAVEL_REQUIRED="torch chromium"` makes such tests fail instead: where these are expected, a skip would hide a fault.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

PREFIX = "needs "
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
REQUIRED = os.environ.get("GAVEL_REQUIRED", "").split()


def _needs(program: str, remedy: str, *, there: bool) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not there and program not in REQUIRED, reason=f"{PREFIX}{program}: {remedy}")


needs_torch = _needs("torch", "make test TORCH=1 installs it", there=find_spec("torch") is not None)
needs_frameworks = {
    library: _needs(library, "make test TORCH=1 installs it", there=find_spec(library) is not None)
    for library in ("transformers", "lightning", "accelerate", "jax")
}
needs_browser = _needs("chromium", "install the system's package of that name", there=BROWSER is not None)

needs_shell = {
    name: _needs(name, "install the system's package of that name", there=shutil.which(name) is not None)
    for name in ("bash", "zsh", "fish")
}
needs_podman = _needs("podman", "install the system's package of that name", there=shutil.which("podman") is not None)
needs_modules = _needs(
    "modules",
    "install the system's package environment-modules",
    there=any(Path(each).exists() for each in ("/etc/profile.d/modules.sh", "/usr/share/modules/init/bash")),
)

needs_root = _needs("root", "run as root to test jobs of other users", there=os.geteuid() == 0)
NEEDS_GROUPS = f"{PREFIX}control groups: run as a user who may make them"


def lines(reasons: Iterable[str]) -> list[str]:
    """How many tests were skipped because each program is missing.

    >>> lines(["Skipped: needs torch: run this", "Skipped: this is Linux", "Skipped: needs torch: run this"])
    ['2 tests skipped, needs torch: run this']
    """
    wanted = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    return [
        f"{count} {'test' if count == 1 else 'tests'} skipped, {reason}"
        for reason, count in sorted(wanted.items())
        if reason.startswith(PREFIX)
    ]
