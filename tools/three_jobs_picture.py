"""Draw docs/three-jobs.svg from the solver's own answers: who has which accelerator, agnostic and aware."""

from __future__ import annotations

from pathlib import Path

import gavel

ROOT = Path(__file__).parents[1]
COLOURS = {"resnet": "#4269d0", "gan": "#efb118", "a3c": "#3ca951"}
WIDTH, LEFT, BAR, SCALE = 860, 70, 34, 300


def main() -> None:
    """Write the picture."""
    problem = gavel.parse_problem((ROOT / "examples" / "three-jobs.json").read_text()).without_pairs()
    panels = [
        ("agnostic: types taken to be equally fast", gavel.allocate(problem, heterogeneity_agnostic=True)),
        ("heterogeneity-aware", gavel.allocate(problem)),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 250" font-family="sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="250" fill="white"/>',
        '<text x="20" y="26" font-size="16" font-weight="bold">max-min fairness: who runs where, how long</text>',
    ]
    for index, (title, allocation) in enumerate(panels):
        parts += _panel(title, allocation, LEFT + index * 410)
    (ROOT / "docs" / "three-jobs.svg").write_text("\n".join([*parts, "</svg>"]) + "\n")


def _panel(title: str, allocation: gavel.Allocation, left: int) -> list[str]:
    parts = [f'<text x="{left}" y="58">{title}</text>']
    for line, kind in enumerate(t.name for t in allocation.problem.types):
        top, at = 72 + line * (BAR + 12), float(left)
        parts.append(f'<text x="{left - 10}" y="{top + 22}" text-anchor="end">{kind.upper()}</text>')
        for row in allocation.rows():
            width = row.shares[kind] * SCALE
            if width > 1:
                parts.append(
                    f'<rect x="{at:.1f}" y="{top}" width="{width:.1f}" height="{BAR}" fill="{COLOURS[row.jobs[0]]}"/>'
                )
            if width > 30:
                middle = at + width / 2
                parts.append(
                    f'<text x="{middle:.1f}" y="{top + 22}" text-anchor="middle" fill="white">{row.jobs[0]}</text>'
                )
            at += width
    for line, (name, rate) in enumerate(allocation.throughput.items()):
        x = left + line * 118
        parts.append(f'<rect x="{x}" y="178" width="12" height="12" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{x + 17}" y="189">{name} {rate:.2f}/s</text>')
    smallest = allocation.certificate.objective
    parts.append(f'<text x="{left}" y="222" font-weight="bold">smallest normalised throughput {smallest:.3f}</text>')
    return parts


if __name__ == "__main__":
    main()
