"""`gavel verify`: check an answer of `gavel allocate --json` without a solver."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gavel.cli.allocate import read_problem
from gavel.cli.options import AsJson
from gavel.cli.render import console, print_json
from gavel.core.answer_file import Answer, parse_answer
from gavel.core.errors import InputError
from gavel.policies.verify import verify
from gavel.workload.rows import Source


def verify_command(
    answer: Annotated[Path, typer.Argument(help="What `gavel allocate --json` printed.", metavar="ANSWER.json")],
    problem: Annotated[Path, typer.Argument(help="The problem that was solved.", metavar="PROBLEM.json")],
    throughputs: Annotated[
        str, typer.Option(help="Throughput table for jobs that name a template.", metavar="FILE")
    ] = "builtin",
    as_json: AsJson = False,
) -> None:
    """Check an answer of `gavel allocate` without a solver.

    Checks feasibility, every bound and every job that cannot rise, by weak duality alone. Exit code 1 if anything is
    wrong.
    """
    if str(answer) == "-" == str(problem):
        raise InputError("only one of the two files can come from standard input; name a file for the other")
    found = _read(answer)
    report = verify(read_problem(problem, throughputs), found)
    if as_json:
        print_json({"ok": report.ok, "checked": report.checked, "wrong": report.wrong})
    else:
        out = console()
        for line in report.checked:
            out.print(f"checked: {line}" if not line.startswith("not checked") else line, markup=False)
        for line in report.wrong:
            out.print(f"WRONG: {line}", markup=False, style="red")
        verdict = "no faults found" if report.ok else f"the answer is wrong: {len(report.wrong)} faults"
        out.print(f"{found.policy}: {verdict}", markup=False)
    if not report.ok:
        raise typer.Exit(1)


def _read(path: Path) -> Answer:
    source = Source.of(path)
    try:
        return parse_answer(source.text)
    except InputError as error:
        raise InputError(f"{source.name}: {error}") from None
