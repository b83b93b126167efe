"""Patches of the syntax tree fit whatever the source looks like, and only where it says what they say."""

import ast
from typing import Any

import pytest

from tests.mutants.patch import Patch, PatchDoesNotFit

BEFORE = """\
# before
class Cell:
"""
VALUE = """\
    @property
    def value(self):
        \"""Sum of

        all.\"""
        if self.kept(  # a comment
            1,
        ):
            first()
            second()  # another
        return (self._ö +
                1)
"""
AFTER = """
    async def other(self):
        return  self._ö + 1
"""
SOURCE = BEFORE + VALUE + AFTER


def test_a_keyword_argument_is_found_whatever_stands_beside_it():
    """And several may stand in its place."""
    source = "def build():\n    return make(\n        first=[],  # empty\n        second=0,\n    )\n"
    patched = Patch("a.py::build", "keyword first=[]", "keyword first=old.first, third=1").applied(source)
    assert ast.unparse(ast.parse(patched)) == "def build():\n    return make(first=old.first, third=1, second=0)"
    with pytest.raises(PatchDoesNotFit):
        Patch("a.py::build", "keyword second=[]", "keyword second=1").applied(source)


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("self._ö + 1", "0", "if self.kept(1):|first()|second()|return 0"),
        ("second()", "", "if self.kept(1):|first()|pass|return self._ö + 1"),
        ("first(); second()", "", "if self.kept(1):|pass|return self._ö + 1"),
        ("if ...: ...", "x = 1", "x = 1|return self._ö + 1"),
        ("if ...: ...", "if not ...: ...", "if not self.kept(1):|first()|second()|return self._ö + 1"),
        ("if ...: ...", "while ...:\n  y()\n  ...", "while self.kept(1):|y()|first()|second()|return self._ö + 1"),
        ("self.kept(...)", "kept(2, ...)", "if kept(2, 1):|first()|second()|return self._ö + 1"),
    ],
)  # fmt: skip
def test_what_it_says_is_replaced_and_nothing_else(old, new, left) -> None:
    """Expressions and statements; comments and wrapping do not count; all else, a docstring too, is as it was."""
    patched = Patch("cell.py::Cell.value", old, new).applied(SOURCE)
    assert patched.startswith(SOURCE[: SOURCE.index("        if")])
    assert patched.endswith(AFTER)
    tree: Any = ast.parse(patched)
    changed = ast.unparse(tree.body[0].body[0].body[1:])
    assert "|".join(map(str.strip, changed.splitlines())) == left


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("Cell.value", "third()"),
        ("Cell", "self._ö + 1"),  # twice
        ("Cell.gone", "first()"),
        ("Cell.value", "self.kept(2)"),
        ("Cell.value", "self.kept(1, ...)"),
        ("Cell.value", "first(); ...; second()"),
        ("Cell.value", "self.kept(True)"),  # equal to 1, and something else
    ],
)
def test_what_fits_nowhere_or_twice_is_refused(name, old) -> None:
    """The message says where, what and how often."""
    with pytest.raises(PatchDoesNotFit, match=rf"[02] times in cell\.py::{name}: "):
        Patch(f"cell.py::{name}", old, "0").applied(SOURCE)


def test_a_case_has_another_pattern() -> None:
    """What a `match` compares with is neither an expression nor a statement."""
    source = "def react(error):\n    match error:\n        case A() | B() as it:\n            stop()\n"
    patch = Patch("react.py::react", "case A() | B() as it", "case A() as it")
    assert ast.unparse(ast.parse(patch.applied(source))) == source.replace(" | B()", "").strip()
