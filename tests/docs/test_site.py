"""The pages: they build, have no dead links, need no network, and agree with the program."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gavel.client.job_file import parse_jobs

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make docs` does. (With --quiet warnings would not count, and nothing would be strict.)"""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; a successful build means that every link and anchor resolves."""
    directory = tmp_path_factory.mktemp("site")
    done = build(ROOT, directory)
    assert done.returncode == 0, done.stderr
    return directory


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    for name in ("docs", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("mkdocs.yml", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    with (tmp_path / "docs" / "live.md").open("a") as page:
        page.write("[a page](missing.md), [an anchor](policies.md#nothing), [at the root](../ARCHITECTURE.md#nowhere)")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert all(link in done.stderr for link in ("missing.md", "policies.md#nothing", "architecture.md#nowhere"))


class Loaded(HTMLParser):
    """What a browser loads for a page, by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids.add(found.get("id") or "")
        if tag != "a":
            self.addresses += [address for name in ("src", "href") if (address := found.get(name))]


def loaded(page: Path) -> Loaded:
    parser = Loaded()
    parser.feed(page.read_text())
    return parser


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    assert (site / "architecture.html").exists()


def test_the_site_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not [address for address in loaded(page).addresses if "//" in address], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"""(url\(|@import)\s*["']?(https?:)?//""", sheet.read_text()), sheet.name


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_links_at_the_root_lead_somewhere(name: str, site: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]+)(?:#([^)]+))?\)", (ROOT / name).read_text()):
        assert (ROOT / target).exists(), target
        if anchor and target.startswith("docs/"):
            page = (site / target.removeprefix("docs/")).with_suffix(".html")
            assert anchor in loaded(page).ids, f"{target}#{anchor}"


def test_the_reference_of_commands_is_what_the_program_says() -> None:
    said = runpy.run_path(str(ROOT / "tools" / "commands_reference.py"))["page"]()
    assert (DOCS / "reference" / "commands.md").read_text() == said, "run python tools/commands_reference.py"


def test_the_map_of_the_paper_names_files_that_are_there() -> None:
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]*(?:\.[a-z]+)?)`", (DOCS / "paper.md").read_text())
    assert len(named) > 30
    for path in named:
        assert (ROOT / "src" / "gavel" / path).exists() or (ROOT / path).exists(), path


def block(page: str, title: str) -> str:
    """A block of code with a title."""
    [found] = re.findall(rf'```\w+ title="{re.escape(title)}"\n(.*?)```', (DOCS / page).read_text(), re.DOTALL)
    return str(found)


def test_the_script_of_the_tutorial_runs_without_gavel(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(block("tutorial.md", "train.py"))
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "step 500: loss 0.6064"


def test_the_jobs_of_the_tutorial_can_be_read() -> None:
    assert [job.name for job in parse_jobs(block("tutorial.md", "jobs.yaml"))] == ["resnet", "gan", "a3c"]
