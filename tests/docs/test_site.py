"""The site of the documentation is built from the pages as they are, and needs no other host."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from playwright.async_api import Page, expect

from tests.page.conftest import browser, page

__all__ = ["browser", "page"]

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


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The address of a server that has the site."""
    handler = functools.partial(_Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.mark.parametrize("width", [360, 1440])
async def test_a_reader_searches_and_finds(address: str, page: Page, width: int) -> None:
    """On a phone and on a screen. No request leaves the machine, and nothing is wider than the screen."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    await page.set_viewport_size({"width": width, "height": 900})
    await page.goto(address)
    await expect(page.locator(".md-search-result__meta")).to_have_text("Type to start searching")  # it has its index
    if width == 360:
        await page.locator("header label[for=__search]").first.click()
    await page.get_by_role("textbox", name="Search").press_sequentially("standby.replicas")
    await page.locator(".md-search-result__item").first.get_by_role("link").first.click()
    await expect(page).to_have_url(re.compile(r"/[\w-]+/\?h="))
    for path in ("introduction/", "how-it-works/", "settings/", "benchmarks/", "ARCHITECTURE/"):
        await page.goto(address + path)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
    assert not [each for each in asked if not each.startswith((address, "data:"))]
