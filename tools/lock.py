"""Write requirements/*.lock: the exact versions that `make` installs for development. Run it as `make lock`.

The newest versions that pyproject.toml admits are installed into an empty environment and listed by name and version.
What torch and the frameworks add is in its own file: only the tests that need it install it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "requirements"
HEADER = "# {what}. Made by `make lock` with Python {version}; do not edit.\n"


def main() -> None:
    """Install, list, install torch, list the rest."""
    with tempfile.TemporaryDirectory(prefix="gavel-lock-") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        known = installed(python, "dev")
        write("dev", "What development, tests and documentation use", known)
        write("torch", "What torch and the frameworks add for their tests", installed(python, "dev,frameworks") - known)


def installed(python: str, extras: str) -> set[str]:
    """Install our packages with extras; return all others with their versions."""
    packages = ["--editable", "packages/client", "--editable", f".[{extras}]"]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], cwd=ROOT, check=True)
    command = [python, "-m", "pip", "list", "--format", "freeze", "--exclude-editable"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    # A local version, such as 2.0+cpu, names one builder's file: others have another.
    return {line.partition("+")[0] for line in listed if not line.startswith(("pip==", "setuptools=="))}


def write(name: str, what: str, lines: set[str]) -> None:
    """Write one file, sorted as pip sorts."""
    header = HEADER.format(what=what, version=f"{sys.version_info.major}.{sys.version_info.minor}")
    (LOCKS / f"{name}.lock").write_text(header + "".join(f"{line}\n" for line in sorted(lines, key=str.lower)))


if __name__ == "__main__":
    main()
