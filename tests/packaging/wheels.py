"""The two wheels, built from this tree without a network."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
PROJECTS = {"gavel-client": ROOT / "packages" / "client", "gavel-scheduler": ROOT}


def build(name: str, directory: Path, target: str = "wheel") -> Path:
    """Build a package into a directory: its wheel, or its source distribution ("sdist")."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory), "-t", target]
    subprocess.run(command, cwd=PROJECTS[name], check=True, capture_output=True)
    [built] = directory.glob(f"{name.replace('-', '_')}-*{'.whl' if target == 'wheel' else '.tar.gz'}")
    return built


def modules(wheel: Path) -> set[str]:
    """The files that a wheel puts into the import package."""
    return {name for name in ZipFile(wheel).namelist() if name.startswith("gavel/")}


def project(name: str) -> dict[str, Any]:
    """The pyproject.toml of a package."""
    return tomllib.loads((PROJECTS[name] / "pyproject.toml").read_text())
