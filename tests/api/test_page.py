"""The page and its files over HTTP. How it looks and what it does: tests/page."""

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from snapreplay.api.app import create_app
from snapreplay.api.page import Site, owns

SITE = Site.read()
ROOT = Path(__file__).resolve().parents[2]
PATHS = ["/", *(f"/static/{SITE.digest}/{name}" for name in SITE.files)]


@pytest.fixture(scope="module")
def asleep() -> TestClient:
    """HTTP over a service that cannot be asked anything."""
    no_control: Any = None
    return TestClient(create_app(no_control))


@pytest.mark.parametrize("path", PATHS)
def test_nothing_comes_from_elsewhere_and_nothing_is_inline(asleep, path):
    """Each answer has the policy, in any state of the service, and is what its media type says."""
    answer = asleep.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"].startswith("default-src 'self'; ")
    assert answer.headers["x-content-type-options"] == "nosniff"
    head = asleep.head(path)
    assert (head.status_code, head.content) == (200, b"")
    if path == "/":
        assert not re.search(r"<style|<script(?! src=)|style=|\son\w+=", answer.text)


def test_no_file_names_a_foreign_host():
    """Of ours; the vendored ones name their licences' and namespaces' addresses only."""
    ours = {name: text.decode() for name, text in SITE.files.items() if not name.startswith("vendor/")}
    assert len(ours) > 5
    assert not [name for name, text in ours.items() if re.search(r"//[a-z]+\.(?!w3\.org)", text)]


def test_all_that_is_vendored_has_its_licence():
    """One in each folder."""
    folders = {name.split("/")[1] for name in SITE.files if name.startswith("vendor/")}
    assert folders
    assert all(SITE.files[f"vendor/{folder}/LICENSE.txt"] for folder in folders)


def test_failures_that_lose_nothing_are_failures():
    """The page promises it of these by name: each name is that of an error in the code."""
    model = SITE.files["model.js"].decode()
    lists = re.findall(r"(?:AT_A_RECORD|NOT_LOST) = \[([^\]]*)\]", model)
    names = set(re.findall(r'"(\w+)"', " ".join(lists)))
    assert (len(lists), len(names)) == (2, 9)
    code = "\n".join(path.read_text() for folder in ("service", "snapreplay") for path in (ROOT / folder).rglob("*.py"))
    assert names <= set(re.findall(r"^class (\w+)\(", code, re.MULTILINE))


def test_an_upgrade_shows_the_new_page(asleep):
    """The document is asked for each time and sent when it has changed; a file of another version is not there."""
    first = asleep.get("/")
    assert first.headers["cache-control"] == "no-cache"
    assert SITE.digest in first.text
    again = asleep.get("/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert asleep.get("/", headers={"If-None-Match": '"older"'}).status_code == 200
    assert "immutable" in asleep.get(PATHS[-1]).headers["cache-control"]
    old = asleep.get("/static/0123456789abcdef/page.js")
    assert old.status_code == 404
    assert old.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("name", ["../page.py", "%2e%2e/page.py", "nothing.js", "", "vendor"])
def test_nothing_else_is_served(asleep, name):
    """Files are looked up by name among those that were read; no path leads out of them."""
    assert asleep.get(f"/static/{SITE.digest}/{name}").status_code == 404


def test_paths_of_the_api_are_not_of_the_page():
    """Those ask the service, and their answers are kept."""
    assert [path for path in ("/", "/healthz", "/static", "/static/x/y", "/metrics") if owns(path)] == [
        "/",
        "/static/x/y",
    ]


def test_the_page_knows_the_commands_that_ask_a_process() -> None:
    """They are copied and printed with its address: all that take the URL of a running service, and no others."""
    script = SITE.files["parts.js"].decode()
    (listed,) = re.findall(r"const ASKING = \[(.+?)\];", script, re.DOTALL)
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    sections = page.split("\n### `snapreplay ")[1:]
    takes_url = re.compile(r"^(Also|Options:) .*(`--url`|\[service options\])", re.MULTILINE)
    asking = [re.split(r"`| [A-Z]", each)[0] for each in sections if takes_url.search(each)]
    assert set(re.findall(r'"([^"]+)"', listed)) == set(asking)
