"""No hint without the test that carries it out."""

from tests.hints.inventory import PACKAGES, hints
from tests.hints.registry import ELSEWHERE, ROOT, STILL_OPEN, carried_out, functions_in

OPEN_AT_MOST = 6


def test_every_hint_names_the_test_that_carries_it_out() -> None:
    """A new hint has one, what is gone is not named any more, and what is open is not claimed as well."""
    places, done = set(hints()), carried_out()
    known = done | STILL_OPEN
    assert not places - known, f"carried out by no test in tests/hints: {sorted(places - known)}"
    assert not known - places, f"gone: {sorted(known - places)}"
    assert not done & STILL_OPEN


def test_the_tests_that_are_named_exist() -> None:
    """A test of another folder that was renamed or deleted leaves its hints without one."""
    for place, named in ELSEWHERE.items():
        path, name = named.split("::")
        assert name in functions_in(ROOT / path), f"{place}: {named}"


def test_what_is_open_only_shrinks() -> None:
    """Nobody adds a hint to the open ones; who carries one out takes it away and lowers the number."""
    assert len(STILL_OPEN) == OPEN_AT_MOST


def test_no_hint_sends_to_kafkas_tools_for_what_we_do_ourselves() -> None:
    """Topics are created by `snapreplay topics ensure`; `snapreplay doctor` and the errors describe them."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert "kafka-topics.sh" not in text, path
