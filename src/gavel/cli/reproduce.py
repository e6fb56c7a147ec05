"""`gavel reproduce`: rerun the paper's tables and figures, with its claims beside our results."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from gavel.cli.options import AsJson, Workers
from gavel.cli.progress import steps
from gavel.cli.render import console, print_json, table
from gavel.core.errors import InputError
from gavel.core.throughputs import find_table
from gavel.reproduce.measured import Check, Measured, checks
from gavel.reproduce.report import write_reproduction
from gavel.reproduce.run import Step, open_steps, run_studies
from gavel.reproduce.study import Scope, Study, all_studies
from gavel.sim.results import ResultsFiles

COLOURS = {"holds": "green", "FAILS": "bold red", "not measured": "dim"}


def reproduce_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names of studies, or all; without names, list them.", metavar="[NAME…|all]"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A smaller cluster at the same load, short windows, one seed (default).")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="The paper's cluster and loads, three seeds: hours on two cores.")
    ] = False,
    throughputs: Annotated[
        str, typer.Option(help="A throughput table instead of the built-in one.", metavar="FILE")
    ] = "builtin",
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Directory for results; the same command again resumes.", metavar="DIR")
    ] = Path("reproduce"),
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Rerun the paper's evaluation and check its claims.

    You can interrupt it at any time: the same command resumes it.
    """
    known = all_studies()
    if not names:
        _list(known, as_json=as_json)
        return
    if quick and full:
        raise InputError("--quick and --full exclude each other; give only one")
    scope = Scope(full, throughputs)
    chosen = _chosen(names, known)
    find_table(throughputs)  # refuse an unreadable file before hours of work
    try:
        with ResultsFiles(out) as files:
            found = _run(chosen, scope, files, workers or len(os.sched_getaffinity(0)))
    except KeyboardInterrupt:
        print(f"gavel: interrupted; run the same command again to resume from {out}", file=sys.stderr)
        raise typer.Exit(130) from None
    written = write_reproduction(out, found, scope, _command(names, scope))
    _show(found, scope, written, as_json=as_json)


def _run(chosen: Sequence[Study], scope: Scope, files: ResultsFiles, workers: int) -> list[Measured]:
    total, known = open_steps(chosen, scope, files)
    if known:
        print(f"gavel: {known} of {total} steps are already done", file=sys.stderr)
    with steps("reproduce", total, known) as tell:

        def notice(step: Step) -> None:
            what = f"{step.what}: {step.failure}" if step.failure else step.what
            tell(step.study, said=what, failed=bool(step.failure), doing=step.study)

        return list(run_studies(chosen, scope, files, workers=workers, notice=notice))


def _command(names: Sequence[str], scope: Scope) -> str:
    table_option = [] if scope.throughputs == "builtin" else ["--throughputs", Path(scope.throughputs).name]
    return shlex.join(["gavel", "reproduce", *names, f"--{scope.name}", *table_option])


def _chosen(names: Sequence[str], known: dict[str, Study]) -> list[Study]:
    """The selected studies, in the order of the paper."""
    for name in names:
        if name != "all" and name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(known)}"
            raise InputError(f"there is no study {name!r}{hint}")
    return [study for name, study in known.items() if name in names or "all" in names]


def _list(known: dict[str, Study], *, as_json: bool) -> None:
    if as_json:
        studies = [{"name": s.name, "title": s.title, "section": s.section, "about": s.about} for s in known.values()]
        print_json({"studies": studies})
        return
    out = console()
    rows = [[study.name, study.title, study.section, str(len(study.claims))] for study in known.values()]
    out.print(table(["name", "what", "section", "claims"], rows, left=3))
    out.print("gavel reproduce NAME…, or all; --quick takes minutes, --full hours", style="dim")


def _show(found: Sequence[Measured], scope: Scope, written: Sequence[Path], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "scope": scope.name,
                "throughputs": scope.throughputs,
                "claims": [_document(m.study.name, check) for m in found for check in checks(m, scope)],
                "values": {m.study.name: dict(m.values) for m in found if m.values},
                "files": [str(path) for path in written],
            }
        )
        return
    out = console()
    for measured in found:
        out.print(f"{measured.study.title} [dim]({measured.study.name}, section {measured.study.section})[/dim]")
        rows: list[list[str | Text]] = [
            [c.claim.says, _number(c.claim.paper), _number(c.ours), c.wanted, Text(c.verdict, COLOURS[c.verdict])]
            for c in checks(measured, scope)
        ]
        out.print(table(["claim", "paper", "ours", "wanted", "verdict"], rows, left=1))
        for note in measured.notes:
            out.print(note, style="dim", markup=False)
        out.print()
    every = [check.verdict for measured in found for check in checks(measured, scope)]
    out.print(f"{every.count('holds')} of {len(every)} claims hold, {every.count('FAILS')} fail; {written[-1]}")


def _document(study: str, check: Check) -> dict[str, Any]:
    claim = check.claim
    return {
        "study": study,
        "claim": claim.says,
        "paper": claim.paper,
        "ours": check.ours,
        "at_least": check.at_least,
        "at_most": check.at_most,
        "verdict": check.verdict,
        "why": claim.why,
    }


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
