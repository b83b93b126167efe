"""Pages that must agree with the tree: the index, names, the reference, tables drawn from the code, the README."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import pictures, reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"

# ------------------------------------------------------------------------------- the index

INDEX = DOCS / "README.md"
PAGES = sorted({*DOCS.glob("*.md"), ROOT / "deploy" / "README.md"} - {INDEX, DOCS / "FORMAT.md"})


def test_the_index_names_every_page_once_in_one_of_five_groups() -> None:
    """What is not for users is in docs/internals/, and FORMAT.md."""
    _, *groups = re.split(r"^## ", INDEX.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [group.split("\n")[0] for group in groups] == ["Start", "Guides", "Operate", "Reference", "Explain"]
    linked = re.findall(r"\]\(([^)#]+\.md)\)", "".join(groups))
    assert sorted((INDEX.parent / each).resolve() for each in linked) == PAGES


# ------------------------------------------------------------------------ tests as answers

ANSWER = re.compile(r"^\| … (.*\?) \| (.*) \| `(test_\w+)` in `(tests/\S+\.py)` \|$", re.MULTILINE)


def test_every_answer_names_a_test_that_exists() -> None:
    """A test that is renamed or removed takes its answer with it."""
    page = (DOCS / "guarantees.md").read_text(encoding="utf-8")
    rows = ANSWER.findall(page)
    assert len(rows) == page.count("| … ") == 20
    for question, answer, test, path in rows:
        assert re.search(rf"^(async )?def {test}\(", (ROOT / path).read_text(), re.MULTILINE), test
        assert answer.startswith(("No", "Yes", "What", "The state")), question


def test_every_test_that_a_page_cites_exists(sources: str) -> None:
    """A function in backticks, or a file. Else the page proves nothing there."""
    known = {*sources.splitlines(), "test_shop.py"}  # the reader writes it
    for path in (*DOCS.rglob("*.md"), ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"):
        cited = set(re.findall(r"`(?:tests/[\w/]+/)?(test_\w+(?:\.py)?)`", path.read_text(encoding="utf-8")))
        assert cited <= known, (path.name, cited - known)


@pytest.fixture(scope="module")
def sources() -> str:
    """The names of all tests, of files and of functions, one a line."""
    paths = list((ROOT / "tests").rglob("test_*.py"))
    functions = [each for path in paths for each in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))]
    return "\n".join([*functions, *(path.name for path in paths)])


# ------------------------------------------------------------------- made from the code


@pytest.mark.parametrize("path", reference.PAGES, ids=lambda path: path.name)
def test_a_page_is_what_the_code_makes(path: Path) -> None:
    """Else: `python -m tests.docs.reference`."""
    assert path.read_text(encoding="utf-8") == reference.PAGES[path]()


@pytest.mark.parametrize("path", pictures.DRAWN, ids=lambda path: path.name)
def test_a_picture_is_what_its_figures_make(path: Path) -> None:
    """Else: `python -m tests.docs.pictures`."""
    assert path.read_text(encoding="utf-8") == pictures.DRAWN[path]()


# ---------------------------------------------------------------------------- the README


def program_of_the_readme() -> str:
    """Return the first block of Python."""
    program: str = re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)[0]
    return program


def test_the_program_prints_what_the_page_shows(tmp_path: Path) -> None:
    """As a user runs it: a file of its own."""
    file = tmp_path / "ledger.py"
    file.write_text(program_of_the_readme())
    shown = re.findall(r"^```text\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    run = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
    assert run.stdout == shown
