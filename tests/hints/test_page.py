"""docs/hints.md is what the program and the registry say."""

import re

from tests.hints.page import PAGE, SHOWN, places, said, written
from tests.hints.test_inventory import hints


def test_the_page_has_every_hint_as_it_is() -> None:
    """Written anew by `python -m tests.hints.page`."""
    assert PAGE.read_text(encoding="utf-8") == written()
    assert {each.name for each in places()[0]} == set(hints())


def test_each_error_has_a_section_that_begins_with_its_meaning() -> None:
    """Under its name, so that a link leads there."""
    sections = dict(each.split("\n", 1) for each in PAGE.read_text(encoding="utf-8").split("\n## ")[1:])
    named = {name for each in places()[0] if said(each) for name in each.errors} - SHOWN.keys()
    assert named == sections.keys() - {*SHOWN.values()}
    assert [name for name in named if not re.match(r"\n[A-Z].*\.\n\n\| hint \|", sections[name])] == []
