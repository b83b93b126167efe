"""No hint without the test that carries it out: every hint of the tree is found by reading it.

A hint is what is given as `hint=` to an error, what a variable `hint` is made of, the remedy of a doctor's finding,
the second argument of the local broker's errors, and a constant or function whose name says so. Handing on another
error's hint is none.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.hints.registry import ELSEWHERE, ROOT, STILL_OPEN, carried_out

PACKAGES = ("api", "service", "snapreplay", "snapshots")
POSITIONAL = {"LocalBrokerUnavailable": 1, "LocalBrokerFailed": 1, "Diagnosis": 3}
"""Classes that take theirs without a name, and where."""
FUNCTIONS = ("_hint", "new_app", "nothing_left", "_with_changes", "_way_out", "_remedy", "alter")
CONSTANTS = ("HINT", "WAYS_OUT", "INSTEAD", "OLD_VERSION_FIRST")


def hints() -> Counter[str]:
    """Return how many each place has: "service/topics/requirements.py::missing_topic" → 1."""
    found: Counter[str] = Counter()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            place = str(path.relative_to(ROOT))
            found.update(f"{place}::{name}" for name in _in(tree, ""))
    return found


def _in(node: ast.AST, where: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if child.name.endswith(FUNCTIONS):
                yield f"{where}.{child.name}".lstrip(".")
            yield from _in(child, f"{where}.{child.name}".lstrip("."))
            continue
        yield from [where or "module"] * count_of(child)
        yield from _in(child, where)


def count_of(node: ast.AST) -> int:
    """Count the hints of this call or assignment."""
    match node:
        case ast.Call(func=function, args=arguments, keywords=keywords):
            given = [word.value for word in keywords if word.arg == "hint"]
            name = getattr(function, "id", getattr(function, "attr", ""))
            at = POSITIONAL.get(name)
            if at is not None and len(arguments) > at:
                given.append(arguments[at])
            return sum(not _handed_on(each) for each in given)
        case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
            return int(_is_hint(target) and not _handed_on(value))
        case ast.AugAssign(target=target):
            return int(_is_hint(target))
        case _:
            return 0


def _is_hint(target: ast.expr) -> bool:
    name = getattr(target, "id", getattr(target, "attr", ""))
    return name == "hint" or name.endswith(CONSTANTS)


def _handed_on(value: ast.expr) -> bool:
    """A name, another error's hint, whether there is to be one, or nothing at all."""
    match value:
        case ast.Name() | ast.Attribute():
            return True
        case ast.Constant(value=text):
            return not text
        case ast.Call(func=ast.Name(id=name)):
            return name == "str" or name.endswith(FUNCTIONS)
        case ast.Call(func=ast.Attribute(attr="get" | "hint_line")) | ast.Compare():
            return True
        case ast.BoolOp(values=parts):
            return all(_handed_on(part) for part in parts)
        case ast.IfExp(body=body, orelse=other):
            return _handed_on(body) and _handed_on(other)
        case ast.Subscript() | ast.Await():
            return True
        case _:
            return False


OPEN_AT_MOST = 6


def test_every_hint_names_the_test_that_carries_it_out() -> None:
    """A new hint has one, what is gone is not named any more, and what is open is not claimed as well."""
    places, done = set(hints()), set(carried_out())
    known = done | STILL_OPEN
    assert not places - known, f"carried out by no test in tests/hints: {sorted(places - known)}"
    assert not known - places, f"gone: {sorted(known - places)}"
    assert not done & STILL_OPEN


def test_the_tests_that_are_named_exist() -> None:
    """A test of another folder that was renamed or deleted leaves its hints without one."""
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in ELSEWHERE.values() if f"def {name}(" not in tests} == set()


def test_what_is_open_only_shrinks() -> None:
    """Nobody adds a hint to the open ones; who carries one out takes it away and lowers the number."""
    assert len(STILL_OPEN) == OPEN_AT_MOST


def test_no_hint_sends_to_kafkas_tools_for_what_we_do_ourselves() -> None:
    """Topics are created by `snapreplay topics ensure`; `snapreplay doctor` and the errors describe them."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert "kafka-topics.sh" not in text, path
