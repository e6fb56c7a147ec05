"""Put what `gavel reproduce` left into the docs: `python tools/reproduce_docs.py DIR [--full]`.

A quick run goes to docs/reproduce.md, a full one to docs/reproduce-full.md, which also has the tables. Of studies that
were not run again the page keeps what it says.
"""

from __future__ import annotations

import csv
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gavel.reproduce.report import CLAIMS
from gavel.reproduce.study import Study, all_studies

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- reproduced -->\n", "<!-- end reproduced -->\n"
SHOWN = ("claim", "paper", "ours", "wanted", "verdict")


def main(arguments: list[str]) -> None:
    """Copy the pictures, and write claims (and tables) between the marks of the page."""
    source, full = Path(arguments[0]), "--full" in arguments
    name = "reproduce-full" if full else "reproduce"
    pictures = DOCS / ("reproduced/full" if full else "reproduced")
    pictures.mkdir(exist_ok=True, parents=True)
    with (source / CLAIMS).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    page = DOCS / f"{name}.md"
    start, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    before, _, after = rest.partition(END)
    kept, sections = _sections(before), []
    for study in all_studies().values():
        mine = [row for row in rows if row["study"] == study.name]
        sections.append(
            "\n".join(_section(study, mine, source, pictures, tables=full)) if mine else kept.get(study.title)
        )
    text = "\n".join(filter(None, sections))
    holds, fails = text.count("| holds |\n"), text.count("| **FAILS** |\n")
    page.write_text(f"{start}{BEGIN}{holds} of {holds + fails} claims hold.\n\n{text}{END}{after}", encoding="utf-8")


def _sections(text: str) -> dict[str, str]:
    """What the page says of each study, by its title: those that were not run again stay."""
    parts = text.split("### ")[1:]
    return {part.partition("\n")[0]: f"### {part.rstrip()}\n" for part in parts}


def _section(
    study: Study, claims: Sequence[dict[str, str]], source: Path, pictures: Path, *, tables: bool
) -> Iterator[str]:
    yield from (f"### {study.title}", "")
    yield from _table(SHOWN, [[*(row[name] for name in SHOWN[:-1]), _verdict(row["verdict"])] for row in claims])
    for name in (f"{study.name}.png", f"{study.name}-cdf.png"):
        if (source / name).exists():
            shutil.copyfile(source / name, pictures / name)
            yield from (f"![{study.title}]({pictures.relative_to(DOCS).as_posix()}/{name})", "")
    for path in sorted(source.glob(f"{study.name}*.csv")) if tables else ():
        if path.stem.removeprefix(study.name).strip("-0123456789") == "":  # not a study with a longer name
            with path.open(encoding="utf-8") as file:
                headings, *rows = csv.reader(file)
            yield from _table(headings, rows)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from (f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *rows))
    yield ""


def _verdict(verdict: str) -> str:
    return f"**{verdict}**" if verdict == "FAILS" else verdict


if __name__ == "__main__":
    main(sys.argv[1:])
