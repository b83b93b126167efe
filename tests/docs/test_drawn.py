"""ARCHITECTURE.md shows what the code is."""

import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest

from snapreplay.service.core import ownership, recovery
from tests.docs import ownerships, recoveries
from tests.docs.drawn import DOCUMENT, document, place_of, reduced


def test_what_is_drawn_from_the_code_is_as_the_code():
    """Else: `python -m tests.docs.drawn`."""
    assert DOCUMENT.read_text(encoding="utf-8") == document()


def test_only_imports_that_do_not_follow_are_drawn():
    """A folder stands for its modules."""
    assert reduced({("a", "b"), ("b", "c"), ("a", "c")}) == {("a", "b"), ("b", "c")}
    assert place_of("snapreplay.service.live.committer") == "service/live"
    assert place_of("snapreplay.state.map") == "state"


def lines_of(code: CodeType) -> Iterator[int]:
    """Yield the lines of all functions in it, without their first ones."""
    for part in code.co_consts:
        if isinstance(part, CodeType):
            if part.co_flags & inspect.CO_OPTIMIZED:  # no class
                yield from (n for *_, n in part.co_lines() if n and n != part.co_firstlineno)
            yield from lines_of(part)


def walked(module: ModuleType, walk: Callable[[], object]) -> set[int]:
    """The lines of the module that ran."""
    seen: set[int] = set()

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            seen.add(frame.f_lineno)
        return line

    sys.settrace(lambda frame, *_: line if frame.f_code.co_filename == module.__file__ else None)
    try:
        walk()
    finally:
        sys.settrace(None)
    return seen


@pytest.mark.parametrize(
    ("machine", "walk"), [(recovery, recoveries.table), (ownership, ownerships.drawing)], ids=["recovery", "ownership"]
)
def test_no_line_of_a_machine_is_left_out_of_its_table(machine, walk):
    """A table lists what can follow only if the walk met every branch; but for those that cannot be taken."""
    source = inspect.getsource(machine)
    text = source.splitlines()
    missed = set(lines_of(compile(source, machine.__file__, "exec"))) - walked(machine, walk)
    assert [
        text[n - 1]
        for n in sorted(missed)
        if not any(word in text[n - 1] for word in ("AssertionError", "assert_never", "case _:"))
    ] == []
