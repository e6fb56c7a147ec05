"""The page of a reproduction as a browser shows it, not as text."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from gavel.reproduce.measured import Measured
from gavel.reproduce.measures import MEASURES
from gavel.reproduce.report import page
from gavel.reproduce.study import Claim, Scope, all_studies
from needs import BROWSER, needs_browser

LOOK = """
<script>
addEventListener("load", () => document.body.setAttribute("data-seen", JSON.stringify({
  broken: [...document.images].filter(image => !image.naturalWidth).length,
  images: document.images.length,
  red: getComputedStyle(document.querySelector(".fails")).color,
  lost: [...document.querySelectorAll("nav a")].filter(link => !document.querySelector(link.hash)).length,
  fetched: performance.getEntriesByType("resource").map(entry => entry.name).filter(name => !name.startsWith("data:")),
  overflows: document.documentElement.scrollWidth > innerWidth,
})));
</script>
"""


def seen(path: Path, width: int) -> dict[str, Any]:
    """What a browser makes of a page."""
    assert BROWSER is not None, "there is no chromium on this machine"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},900"]
    profile = f"--user-data-dir={path.parent / 'profile'}"
    shown = subprocess.run(
        [BROWSER, *options, profile, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    found = re.search(r'data-seen="([^"]*)"', shown.stdout)
    assert found is not None, shown.stderr
    document: dict[str, Any] = json.loads(unescape(found[1]))
    return document


@needs_browser
@pytest.mark.parametrize("width", [1280, 500])
def test_the_page_shows_everything_by_itself(tmp_path: Path, width: int) -> None:
    study = all_studies()["colocation-heatmap"]
    measured = MEASURES[study.kind](study, Scope())
    fails = Claim(says="what does not hold", value=next(iter(measured.values)), at_least=1e9)
    wrong = Measured(replace(study, name="other", claims=(fails,)), values=measured.values)
    path = tmp_path / "report.html"
    path.write_text(page([measured, wrong], Scope(), "gavel reproduce") + LOOK, encoding="utf-8")
    look = seen(path, width)
    assert look["images"] == len(measured.plots) > 0
    assert (look["broken"], look["lost"], look["fetched"], look["overflows"]) == (0, 0, [], False)
    assert look["red"] == "rgb(176, 0, 32)"
