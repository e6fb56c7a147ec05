"""A mutation check: changes decisive lines one at a time, in a copy of the tree, and runs the tests that should notice.

`make mutate` runs all of `tools/mutants.py`; `--only TEXT` those with TEXT in their names. Exit code 1 if one survives
or the table no longer matches the code. The checkout itself is never changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("src", "tests", "tools", "examples", "docs", "pyproject.toml")
FAREWELL_SECONDS = 15.0
"""Time for tests to clean up when theirs has run out."""
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.pyc", ".hypothesis")


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one mutant."""

    mutant: Mutant
    outcome: str
    """killed, survived, time limit (which counts as killed) or broken (the tests could not be run)."""
    seconds: float
    output: str


def mismatches(mutants: Iterable[Mutant], root: Path = ROOT) -> list[str]:
    """Entries that no longer fit the code."""
    entries = list(mutants)
    repeated = [name for name, count in Counter(mutant.name for mutant in entries).items() if count > 1]
    wrong = [f"{name}: the name is used more than once" for name in repeated]
    for mutant in entries:
        code = (root / mutant.file).read_text()
        for old, new in mutant.changes():
            count = code.count(old)
            if count != 1:
                wrong.append(
                    f"{mutant.name}: an old text is {count} times in {mutant.file}, not once; update the table"
                )
            if old == new:
                wrong.append(f"{mutant.name}: nothing is changed")
        for test in mutant.tests:
            file = test.partition("::")[0]
            if file.startswith("tests/") and not (root / file).exists():
                wrong.append(f"{mutant.name}: there is no test file {file}")
    return wrong


class Copy:
    """A copy of the tree, in which one mutant at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=NOT_COPIED)
            else:
                shutil.copy2(source, folder / name)

    def environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(self.folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}

    def is_used(self) -> bool:
        """Whether this interpreter imports the copy, and not the checkout that it was installed from."""
        command = [sys.executable, "-c", "import gavel; print(gavel.__file__)"]
        found = subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=True)  # noqa: S603
        return Path(found.stdout.strip()).is_relative_to(self.folder)

    def run(self, tests: Iterable[str], limit: float) -> tuple[int | None, str]:
        """Run tests up to the first failure; the exit code, None if time ran out, and the end of what was printed."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests]
        with subprocess.Popen(  # noqa: S603 - our own tests
            command,
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                return None, _ended(process)[-1500:]
        return process.returncode, output[-1500:]

    def try_mutant(self, mutant: Mutant, limit: float) -> Result:
        """Change the code, run the tests, and change it back."""
        path = self.folder / mutant.file
        original = path.read_text()
        began = time.monotonic()
        path.write_text(mutant.applied(original))
        try:
            compile(path.read_text(), mutant.file, "exec")
            code, output = self.run(mutant.tests, limit)
        except SyntaxError as error:
            code, output = -1, f"the mutant is no Python: {error}"
        finally:
            path.write_text(original)
        outcomes = {0: "survived", 1: "killed", None: "time limit"}
        return Result(mutant, outcomes.get(code, "broken"), time.monotonic() - began, output)


def _ended(process: subprocess.Popen[str]) -> str:
    """Interrupt tests, so that they end the processes that they started; what they printed."""
    process.send_signal(signal.SIGINT)
    try:
        output, _ = process.communicate(timeout=FAREWELL_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    return output


def tried(mutants: list[Mutant], folder: Path, jobs: int, limit: float) -> list[Result]:
    """Try all of them, in as many copies as there are jobs."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for number in range(jobs):
        copied = Copy(folder / f"copy-{number}")
        if not copied.is_used():
            raise SystemExit(f"{sys.executable} imports gavel from elsewhere than PYTHONPATH; use another environment")
        free.put(copied)

    def one(mutant: Mutant) -> Result:
        copy = free.get()
        try:
            result = copy.try_mutant(mutant, limit)
        finally:
            free.put(copy)
        print(f"{result.outcome:10} {result.seconds:6.1f} s  {mutant.name}", flush=True)
        return result

    if failed := _fail_unchanged(mutants, free, limit):
        raise SystemExit(f"the tests fail without any change, so they can tell nothing:\n{failed}")
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, mutants))


def _fail_unchanged(mutants: list[Mutant], free: SimpleQueue[Copy], limit: float) -> str:
    """Run all the tests on the code as it is; what they print if they do not pass."""
    files = sorted({test for mutant in mutants for test in mutant.tests if test.startswith("tests/")})
    copied = free.get()
    try:
        code, output = copied.run([*files, "-k", "not postgres"], 10 * limit)
    finally:
        free.put(copied)
    return "" if code == 0 else output or "no test was run"


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="TEXT", action="append", help="mutants with this in their names")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--jobs", type=int, default=1, help="how many to try at once")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for the tests of one mutant")
    parser.add_argument("--verbose", action="store_true", help="print what the tests of survivors printed")
    return parser.parse_args()


def main() -> int:
    """Try the mutants that are wanted; 1 if one survives."""
    chosen = options()
    if wrong := mismatches(MUTANTS):
        print("\n".join(wrong), file=sys.stderr)
        return 1
    wanted = [mutant for mutant in MUTANTS if not chosen.only or any(text in mutant.name for text in chosen.only)]
    if chosen.list or not wanted:
        print("\n".join(mutant.name for mutant in wanted) or "no mutant has such a name; --list prints all")
        return 0 if wanted else 2
    with tempfile.TemporaryDirectory(prefix="gavel-mutants-") as folder:
        results = tried(wanted, Path(folder), max(chosen.jobs, 1), chosen.limit)
    return report(results, verbose=chosen.verbose)


def report(results: list[Result], *, verbose: bool) -> int:
    """Print the score and what survived."""
    killed = [result for result in results if result.outcome in {"killed", "time limit"}]
    print(f"\n{len(killed)} of {len(results)} mutants were killed")
    alive = [result for result in results if result not in killed]
    for result in alive:
        print(f"{result.outcome}: {result.mutant.name} ({result.mutant.file}; {' '.join(result.mutant.tests)})")
        if verbose or result.outcome == "broken":
            print(result.output)
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
