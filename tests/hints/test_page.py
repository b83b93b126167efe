"""docs/hints.md is what the program and the registry say."""

import re

from tests.hints.page import PAGE, SAFE, SHOWN, places, written
from tests.hints.test_inventory import hints


def test_the_page_has_every_hint_as_it_is() -> None:
    """Written anew by `python -m tests.hints.page`."""
    assert PAGE.read_text(encoding="utf-8") == written()
    assert {each.name for each in places()[0]} == set(hints())


def test_each_error_has_a_section_that_says_what_it_means_and_what_is_safe() -> None:
    """Under its name, so that a link leads there. A new error says what is safe in a paragraph of its docstring."""
    sections = dict(each.split("\n", 1) for each in PAGE.read_text(encoding="utf-8").split("\n## ")[1:])
    named = {name for each in places()[0] for name in each.errors} - SHOWN.keys()
    assert named == sections.keys() - {*SHOWN.values()}
    assert [name for name in named if not re.match(r"\n[A-Z].*\.\n\n\*\*Safe", sections[name])] == []
    silent = [name for name, text in sections.items() if not re.search(r"\n\*\*Safe\.\*\* .+\.\n\n\| hint \|", text)]
    assert silent == [], f"begin a paragraph of the docstring with {SAFE!r}"
