"""docs/hints.md is what the program and the registry say."""

from tests.hints.page import PAGE, places, written
from tests.hints.test_inventory import hints


def test_the_page_has_every_hint_as_it_is() -> None:
    """Written anew by `python -m tests.hints.page`."""
    assert PAGE.read_text(encoding="utf-8") == written()
    assert {each.name for each in places()[0]} == set(hints())
