"""Hooks of mkdocs: files at the root become pages, and links between them and docs/ hold in both places.

A link is written so that it works in the repository (`../ARCHITECTURE.md`, `docs/live.md`) and is turned for the site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_TO_A_PAGE = re.compile(rf"\]\((?P<up>(?:\.\./)*)(?P<name>{'|'.join(map(re.escape, PAGES))})")


def on_files(files: Files, *, config: Any, **_: object) -> Files:
    """Add the pages that stand at the root."""
    for name, page in PAGES.items():
        content = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Point links to files at the root at their pages: one directory less up."""
    return _TO_A_PAGE.sub(lambda link: f"]({link['up'].removeprefix('../')}{PAGES[link['name']]}", markdown)
