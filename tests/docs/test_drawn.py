"""ARCHITECTURE.md shows what the code is."""

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

from snapreplay.service.core import ownership, recovery
from tests.docs.drawn import DOCUMENT, document, place_of, reduced

MACHINES = {"recovery": recovery, "ownership": ownership}


class Drawn(NamedTuple):
    """The document as the code draws it, and the lines of each machine that ran for it."""

    text: str
    ran: dict[str, set[int]]


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    """All is drawn once: the walk through a recovery takes long."""
    ran: dict[str, set[int]] = {machine.__file__ or "": set() for machine in MACHINES.values()}

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            ran[frame.f_code.co_filename].add(frame.f_lineno)
        return line

    sys.settrace(lambda frame, *_: line if frame.f_code.co_filename in ran else None)
    try:
        return Drawn(document(), ran)
    finally:
        sys.settrace(None)


def test_what_is_drawn_from_the_code_is_as_the_code(drawn):
    """Else: `python -m tests.docs.drawn`."""
    assert DOCUMENT.read_text(encoding="utf-8") == drawn.text


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


@pytest.mark.parametrize("name", MACHINES)
def test_no_line_of_a_machine_is_left_out_of_its_table(drawn, name):
    """A table lists what can follow only if the walk met every branch; but for those that cannot be taken."""
    machine = MACHINES[name]
    source, file = inspect.getsource(machine), machine.__file__ or ""
    text = source.splitlines()
    missed = set(lines_of(compile(source, file, "exec"))) - drawn.ran[file]
    assert [
        text[n - 1]
        for n in sorted(missed)
        if not any(word in text[n - 1] for word in ("AssertionError", "assert_never", "case _:"))
    ] == []
