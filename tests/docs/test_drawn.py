"""ARCHITECTURE.md shows what the code is."""

from tests.docs.drawn import DOCUMENT, document, place_of, reduced


def test_what_is_drawn_from_the_code_is_as_the_code():
    """Else: `python -m tests.docs.drawn`."""
    assert DOCUMENT.read_text(encoding="utf-8") == document()


def test_only_imports_that_do_not_follow_are_drawn():
    """A folder stands for its modules."""
    assert reduced({("a", "b"), ("b", "c"), ("a", "c")}) == {("a", "b"), ("b", "c")}
    assert place_of("snapreplay.service.live.committer") == "service/live"
    assert place_of("snapreplay.state.map") == "state"
