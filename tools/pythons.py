"""Install Gavel under every supported Python that this machine has and try it: `make test-pythons`.

The versions are the classifiers of pyproject.toml. Absent ones are named; a failure ends with exit code 1.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PREFIX = "Programming Language :: Python :: "
TRIED = (
    ("allocate", "examples/three-jobs.json", "--space-sharing", "--json"),
    ("simulate", "--cluster", "v100=2,k80=2", "--static", "6", "--json"),
    ("demo", "--jobs", "3", "--seconds", "2", "--json"),
)


def main() -> None:
    """Try each version; say what came out."""
    failed = [version for version in versions() if not tried(version)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def versions() -> list[str]:
    """The supported versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [line.removeprefix(PREFIX) for line in project["classifiers"] if line.startswith(PREFIX)]


def tried(version: str) -> bool:
    """Whether it works with this version, or there is nothing to try."""
    python = found(version)
    if python is None:
        print(f"python{version}: absent", flush=True)
        return True
    with tempfile.TemporaryDirectory(prefix="gavel-python-") as folder:
        try:
            smoke(python, Path(folder))
        except subprocess.CalledProcessError as error:
            print(f"python{version}: failed: {error}\n{error.stderr}", flush=True)
            return False
    print(f"python{version}: works", flush=True)
    return True


def found(version: str) -> str | None:
    """The interpreter of this version, if it runs: a name on the path may lead to none."""
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "--version"], check=False, capture_output=True).returncode:
        return None
    return python


def smoke(python: str, folder: Path) -> None:
    """Install both packages into an empty environment and run some commands."""
    run(python, "-m", "venv", str(folder))
    own = str(folder / "bin" / "python")
    run(own, "-m", "pip", "install", "--quiet", "--editable", "packages/client", "--editable", ".")
    for arguments in TRIED:
        json.loads(run(own, "-m", "gavel", *arguments))


def run(*command: str) -> str:
    """Run a command to its end and return what it printed."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=600).stdout


if __name__ == "__main__":
    main()
