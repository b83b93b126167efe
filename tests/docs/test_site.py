"""The site of the documentation is built from the pages as they are, and needs no other host."""

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

ROOT = Path(__file__).parents[2]
HERE = "http://site/"


class Found(HTMLParser):
    """Collects the ids of an HTML page, its links, and what a browser loads for it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: set[str] = {"", "__skip"}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one element."""
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        target = given.get("href", given.get("src"))
        if target is not None:
            (self.links if tag == "a" else self.loaded).append(target)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A link of a page that leads nowhere makes the build fail."""
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(built)]
    told = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    return built


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Found]:
    """Address → page."""
    found = {}
    for path in site.rglob("*.html"):
        address = HERE + path.relative_to(site).as_posix().removesuffix("index.html")
        found[address] = Found(path.read_text(encoding="utf-8"))
    return found


def test_every_link_leads_to_a_page_and_a_heading(site: Path, pages: dict[str, Found]) -> None:
    """Also those of the navigation, and those from page to page in both directions."""
    dead = []
    for address, found in pages.items():
        for link in found.links:
            target, anchor = map(unquote, urldefrag(urljoin(address, link)))
            if not target.startswith(HERE) or address.endswith("/404.html"):
                continue
            there = pages.get(target)
            is_file = (site / target.removeprefix(HERE)).is_file()
            if not is_file and (there is None or anchor not in there.ids):
                dead.append(f"{address}: {link}")
    assert not dead
    assert len(pages) > 80


def test_nothing_is_loaded_from_another_host(pages: dict[str, Found]) -> None:
    """Neither fonts, nor scripts, nor pictures."""
    loaded = {urljoin(address, each) for address, found in pages.items() for each in found.loaded}
    assert loaded
    assert not [each for each in loaded if not each.startswith((HERE, "data:"))]


def test_a_setting_is_found(site: Path) -> None:
    """Search knows each heading with its text."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {each["location"] for each in index["docs"] if "standby.replicas" in each["text"]}
    assert "settings/#standby" in found, found
