"""Put what `gavel reproduce all --quick` left into docs/reproduce.md: `python tools/reproduce_docs.py DIR`."""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path

from gavel.reproduce.report import CLAIMS
from gavel.reproduce.study import all_studies

DOCS = Path(__file__).parents[1] / "docs"
BEGIN, END = "<!-- reproduced -->\n", "<!-- end reproduced -->\n"


def main(arguments: list[str]) -> None:
    """Copy the pictures, and write the claims as a table between the marks."""
    source = Path(arguments[0])
    pictures = DOCS / "reproduced"
    pictures.mkdir(exist_ok=True)
    with (source / CLAIMS).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    holds = sum(row["verdict"] == "holds" for row in rows)
    lines = [f"{holds} of {len(rows)} claims hold.", ""]
    for name, study in all_studies().items():
        mine = [row for row in rows if row["study"] == name]
        lines += [f"### {study.title}", "", "| claim | paper | ours | wanted | verdict |", "|---|---|---|---|---|"]
        lines += [
            f"| {row['claim']} | {row['paper']} | {row['ours']} | {row['wanted']} | {_verdict(row['verdict'])} |"
            for row in mine
        ]
        if (source / f"{name}.png").exists():
            shutil.copyfile(source / f"{name}.png", pictures / f"{name}.png")
            lines += ["", f"![{study.title}](reproduced/{name}.png)"]
        lines.append("")
    page = DOCS / "reproduce.md"
    start, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(start + BEGIN + "\n".join(lines) + END + rest.partition(END)[2], encoding="utf-8")


def _verdict(verdict: str) -> str:
    return f"**{verdict}**" if verdict == "FAILS" else verdict


if __name__ == "__main__":
    main(sys.argv[1:])
