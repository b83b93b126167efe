"""docs/internals/steps.md shows what the code does."""

from tests.docs.drawn import DOCUMENT, document


def test_what_is_drawn_from_the_code_is_as_the_code():
    """Else: `python -m tests.docs.drawn`."""
    assert DOCUMENT.read_text(encoding="utf-8") == document()
