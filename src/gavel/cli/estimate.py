"""`gavel estimate`: estimate how fast a template runs beside others from a few pairs, with the error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from gavel.cli.options import AsJson, Throughputs
from gavel.cli.render import console, print_json, table
from gavel.core.errors import InputError
from gavel.core.throughputs import ThroughputTable, find_table
from gavel.estimator.fingerprint import CONFIDENT, Fingerprint, Pair, Shares, fingerprint, profiling_plan
from gavel.estimator.references import References


@dataclass(frozen=True, slots=True)
class _Row:
    """One pair: the shares of their rates that the template and its partner keep."""

    partner: str
    type: str
    measured: bool
    estimated: Shares
    known: Shares | None
    alone: Shares
    """Steps per second of both."""


def estimate_command(
    template: Annotated[str, typer.Argument(help="A template of the table.", metavar="TEMPLATE")],
    throughputs: Throughputs = "builtin",
    references: Annotated[
        str | None,
        typer.Option(
            help="The table of reference jobs; all pairs with them that the other table lists count as measured. "
            "Default: the same table without the template.",
            metavar="FILE",
        ),
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(help="Treat this many of its pairs as measured, the most informative ones.", min=0, metavar="N"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate how fast a template runs beside others.

    The template is treated as new: only some of its pairs count as measured, and for the others the table's values are
    shown beside the estimates.
    """
    known = find_table(throughputs)
    known.rates([(template, 1)], known.types)  # refuses unknown templates
    if references is not None and pairs is not None:
        raise InputError(
            "--pairs selects pairs of one table, but with --references all listed pairs count; leave one of them out"
        )
    others = References.of(known if references is None else find_table(references)).without(template)
    if len(others.templates) < 2:
        raise InputError("there are fewer than two reference jobs; give a table that lists pairs of templates")
    truth = _true_shares(known, template, others)
    plan = list(truth) if references is not None else profiling_plan(others, pairs)
    found = fingerprint(others, {pair: truth[pair] for pair in plan if pair in truth})
    rows = _rows(known, template, others, found, truth, set(plan))
    if as_json:
        print_json(_document(template, found, rows))
    else:
        _print(template, others, found, rows)


def _true_shares(known: ThroughputTable, template: str, others: References) -> dict[Pair, Shares]:
    """The table's shares of the template beside references, where both are listed and the template can run."""
    shares: dict[Pair, Shares] = {}
    for partner in others.templates:
        if 1 not in known.workers(partner):
            continue
        for type_name in (type_name for type_name in others.types if type_name in known.types):
            mine, its = known.single_rates([template, partner], [type_name])[:, 0].tolist()
            together = known.together((template, 1), (partner, 1), type_name)
            if mine > 0 and its > 0:
                shares[partner, type_name] = (together[0] / mine, together[1] / its)
    return shares


def _rows(
    known: ThroughputTable,
    template: str,
    others: References,
    found: Fingerprint,
    truth: dict[Pair, Shares],
    measured: set[Pair],
) -> list[_Row]:
    rows = []
    for partner, own in zip(others.templates, others.alone, strict=True):
        for type_name, rate in zip(others.types, own.tolist(), strict=True):
            where = others.row[partner], others.column[type_name]
            room = float(found.fits[where])
            mine = float(known.single_rates([template], [type_name])[0, 0]) if type_name in known.types else 0.0
            rows.append(
                _Row(
                    partner,
                    type_name,
                    (partner, type_name) in measured & truth.keys(),
                    (float(found.kept[where]) * room, float(found.left[where]) * room),
                    truth.get((partner, type_name)),
                    (mine, rate),
                )
            )
    return rows


def _document(template: str, found: Fingerprint, rows: list[_Row]) -> dict[str, Any]:
    return {
        "template": template,
        "reference": found.reference,
        "distance": found.distance,
        "error": found.error,
        "confidence": found.confidence,
        "trusted": found.trusted,
        "measured_figures": found.measured,
        "pairs": [
            {
                "partner": row.partner,
                "type": row.type,
                "measured": row.measured,
                "estimated_shares": list(row.estimated),
                "known_shares": None if row.known is None else list(row.known),
                "estimated_rates": _times(row.estimated, row.alone),
                "known_rates": None if row.known is None else _times(row.known, row.alone),
            }
            for row in rows
        ],
    }


def _times(shares: Shares, alone: Shares) -> list[float]:
    return [share * rate for share, rate in zip(shares, alone, strict=True)]


def _print(template: str, others: References, found: Fingerprint, rows: list[_Row]) -> None:
    out = console()
    out.print(f"[bold]{template}[/bold]: {sum(row.measured for row in rows)} pairs measured")
    verdict = "high enough to pack jobs" if found.trusted else f"too low, jobs are packed only from {CONFIDENT:.0%}"
    out.print(f"most similar to {found.reference}, at a distance of {found.distance:.3f}", markup=False)
    out.print(f"confidence {found.confidence:.0%} (expected error {found.error:.3f}): {verdict}\n")
    by_pair = {(row.partner, row.type): row for row in rows}
    cells = [[name, *(_cell(by_pair[name, type_name]) for type_name in others.types)] for name in others.templates]
    out.print(table(["share of its rate kept beside", *others.types], cells))
    out.print("\nestimated / known; * measured, - the two do not fit in memory", style="dim")
    unseen = [row for row in rows if row.known and not row.measured]
    errors = [abs(a - b) for row in unseen for a, b in zip(row.estimated, row.known or (), strict=True)]
    if errors:
        out.print(f"mean error of both shares over pairs that were not measured: {sum(errors) / len(errors):.3f}")


def _cell(row: _Row) -> str:
    estimated = _share(row.estimated[0])
    return f"{estimated} / {_share(row.known[0])}{'*' if row.measured else ' '}" if row.known else f"{estimated}    "


def _share(value: float) -> str:
    return f"{value:.2f}" if value > 0 else "-"
