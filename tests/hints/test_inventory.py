"""No hint without the test that carries it out."""

import ast
from pathlib import Path

from tests.hints.inventory import PACKAGES, ROOT, hints
from tests.hints.registry import CARRIED_OUT, STILL_OPEN

OPEN_AT_MOST = 6


def test_every_hint_names_the_test_that_carries_it_out() -> None:
    """A new hint has an entry, one that is gone has none, and what is open is not claimed as well."""
    places, known = set(hints()), set(CARRIED_OUT) | STILL_OPEN
    assert not places - known, f"add to tests/hints/registry.py: {sorted(places - known)}"
    assert not known - places, f"gone: {sorted(known - places)}"
    assert not set(CARRIED_OUT) & STILL_OPEN


def test_the_tests_that_are_named_exist() -> None:
    """A test that was renamed or deleted leaves its hints without one."""
    for place, named in CARRIED_OUT.items():
        path, name = named.split("::")
        functions = {
            node.name
            for node in ast.parse((ROOT / Path(path)).read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in functions, f"{place}: {named}"


def test_what_is_open_only_shrinks() -> None:
    """Nobody adds a hint to the open ones; who carries one out takes it away and lowers the number."""
    assert len(STILL_OPEN) == OPEN_AT_MOST


def test_no_hint_sends_to_kafkas_tools_for_what_we_do_ourselves() -> None:
    """Topics are created by `snapreplay topics ensure`."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert "kafka-topics.sh --create" not in text, path
