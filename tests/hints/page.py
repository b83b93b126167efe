"""docs/hints.md, made from the program: a section for each error with its meaning, the alert that may fire, what is
safe, and its hints, each with the test that carries it out.

`python -m tests.hints.page` writes it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.hints.registry import OPEN_BECAUSE, ROOT, carried_out
from tests.hints.test_inventory import FUNCTIONS, PACKAGES, POSITIONAL, count_of

PAGE = ROOT / "docs" / "hints.md"
HEAD = """# Hints

This page is for operators and authors: it has a section for each error, with its meaning, what is safe, and each hint.

Look for the name of the error, or for a few words of what you read. `…` stands for a name or a number. Several hints
of one place are separated by `/`. An alert fires only if a running service has the error, and keeps it: an error of a
command fires none. [The runbook](runbook.md) says what an alert means, and has three rules that always hold. Each test
carries out its hint as it is printed. The page is made from the program, and a test compares them.
"""
FAILED, NOT_LIVE = "SnapreplayPartitionFailed", "SnapreplayPartitionNotLive"
ALERTS = {"STOP": FAILED, "REBUILD": FAILED, "HANDLER_POLICY": FAILED, "RETRY": NOT_LIVE}
"""Reaction of an error → the alert, if the error stays."""
SILENT = (
    *("api/", "service/decisions/", "service/doctor/", "service/redrive.py", "snapshots/jobs/", "snapshots/proof/"),
    *("snapreplay/testing/", "snapreplay/devbroker/"),
)
"""Where commands, jobs and tests are: what they refuse fires no alert."""
SHOWN = {"ProblemError": "Answers of HTTP", "Diagnosis": "Findings of `doctor`", "": "Hints that several errors share"}
"""What has hints and is no error, in this order behind the errors."""
SAFE_OF_SEVERAL = (
    "The section of the error that is printed with the hint says what is safe. If that error has no section, a"
    " partition that has it commits nothing, and loses nothing as long as the inputs' retention lasts."
)
SAFE = "Safe: "
"""So begins the paragraph of a docstring that says what may be done meanwhile, and what may not."""
NOT_INHERITED = ("StopError",)
"""The errors below it differ in what is safe, so each says so itself."""
OF_CALLS = ("GivenUp", "NoSuccessor", "NotCaughtUp", "PartitionNotLive", "SavepointsUnread", "Silent", "StateUnsaved")
"""Errors of a call, of a command that a running service answers, or of its end: no partition stays in them."""


class Place(NamedTuple):
    """A function with hints: their texts, and the errors that have them."""

    name: str
    texts: list[str]
    errors: list[str]


class Errors(dict[str, tuple[list[str], str]]):
    """Name of a class → the names of its bases, and its own reaction."""

    def __init__(self) -> None:
        super().__init__()
        self.meanings: dict[str, dict[str, str]] = {}
        """Name of a class → file → the first paragraph of its docstring."""
        self.own_safe: dict[str, str] = {}
        """Name of a class → what its docstring says is safe."""

    def add(self, node: ast.ClassDef, file: str) -> None:
        paragraphs = [" ".join(each.split()) for each in (ast.get_docstring(node) or "").split("\n\n")]
        self.meanings.setdefault(node.name, {})[file] = paragraphs[0]
        if safe := next((each for each in paragraphs if each.startswith(SAFE)), ""):
            self.own_safe[node.name] = safe.removeprefix(SAFE)
        own = [
            each.value.attr
            for each in node.body
            if isinstance(each, ast.Assign | ast.AnnAssign)
            and isinstance(each.value, ast.Attribute)
            and getattr(each.value.value, "id", "") == "Reaction"
        ]
        self[node.name] = ([getattr(base, "id", "") for base in node.bases], own[0] if own else "")

    def reaction(self, name: str) -> str:
        bases, own = self.get(name, ([], ""))
        return own or next(filter(None, map(self.reaction, bases)), "")

    def safe(self, name: str) -> str:
        """Say what is safe; a class without a sentence of its own has that of its base."""
        bases, _ = self.get(name, ([], ""))
        above = (self.safe(base) for base in bases if base not in NOT_INHERITED)
        return self.own_safe.get(name) or next(filter(None, above), "")


def text_of(node: ast.AST | None) -> str:
    """Return what is written there, with `…` for what only a run knows."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(text_of, values))
        case ast.BinOp(left=left, right=right):
            return text_of(left) + text_of(right)
        case ast.IfExp(body=body, orelse=other):
            return f"{text_of(body)} / {text_of(other)}" if text_of(other) else text_of(body)
        case ast.Call(func=ast.Attribute(value=ast.Constant() as text)):
            return text_of(text)
        case _:
            return "…"


def places() -> tuple[list[Place], Errors]:
    """Return all places with hints, and the classes of errors."""
    found: list[Place] = []
    errors = Errors()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    errors.add(node, str(path.relative_to(ROOT)))
            found += _in(tree, str(path.relative_to(ROOT)), "")
    return found, errors


def _in(node: ast.AST, file: str, where: str) -> Iterator[Place]:
    texts = [each for each in _own(node) if count_of(each)]
    returned = [each.value for each in _own(node) if isinstance(each, ast.Return)] if where.endswith(FUNCTIONS) else []
    if texts or returned:
        said = [text_of(given) for each in texts for given in _given(each)] + [text_of(each) for each in returned]
        named = [name for each in _own(node) if isinstance(each, ast.Call) for name in _error(each, where)]
        yield Place(f"{file}::{where or 'module'}", said, sorted(set(named)))
    for child in _own(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _in(child, file, f"{where}.{child.name}".lstrip("."))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Walk, but not into functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _own(child)


def _given(node: ast.AST) -> Iterator[ast.AST | None]:
    match node:
        case ast.Call(func=function, args=arguments, keywords=keywords):
            yield from (word.value for word in keywords if word.arg == "hint")
            at = POSITIONAL.get(getattr(function, "id", getattr(function, "attr", "")))
            yield from arguments[at : at + 1] if at is not None else ()
        case ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.AugAssign(value=value):
            yield value
        case _:
            pass


def _error(call: ast.Call, where: str) -> Iterator[str]:
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if not any(word.arg == "hint" for word in call.keywords) and name not in POSITIONAL:
        return
    if name == "__init__":
        name = where.split(".")[-2] if "." in where else ""
    if name[:1].isupper():
        yield name


def written() -> str:
    """Write the page."""
    found, errors = places()
    by_error: dict[str, list[Place]] = {}
    for place in found:
        for name in place.errors or [""]:
            if said(place) or name not in SHOWN:
                by_error.setdefault(name, []).append(place)
    text = HEAD
    for name in sorted(by_error.keys() - SHOWN.keys()):
        text += f"\n## {name}\n\n{_about(name, by_error[name], errors)}\n\n{_hints(by_error[name])}"
    for name, title in SHOWN.items():
        text += f"\n## {title}\n\n**Safe.** {errors.safe(name) or SAFE_OF_SEVERAL}\n\n{_hints(by_error[name])}"
    return text


def _about(name: str, those: list[Place], errors: Errors) -> str:
    """Write what the error means, which alert may fire, and what is safe."""
    meaning = " Or: ".join(dict.fromkeys(errors.meanings[name].values()))
    alert = ALERTS.get(errors.reaction(name), "")
    is_heard = name not in OF_CALLS and not all(each.name.startswith(SILENT) for each in those)
    fires = f" [{alert}](runbook.md#{alert.lower()}) may fire." if alert and is_heard else ""
    return f"{meaning}{fires}\n\n**Safe.** {errors.safe(name)}"


def _hints(those: list[Place]) -> str:
    rows = sorted({f"| {_cell(said(each))} | {_tests()[each.name]} |\n" for each in those})
    return f"| hint | carried out by |\n| --- | --- |\n{''.join(rows)}"


def said(place: Place) -> str:
    """Return the hints of a place as one text; empty: nothing of them is known before a run."""
    return " / ".join(dict.fromkeys(each.strip() for each in place.texts if each.strip(" …")))


@cache
def _tests() -> dict[str, str]:
    """Return who carries out the hints of each place, or why nobody does."""
    nobody = {place: f"none: it {why}" for why, all_of in OPEN_BECAUSE.items() for place in all_of}
    return nobody | {place: f"`{test}`" for place, test in carried_out().items()}


def _cell(text: str) -> str:
    if not {*re.findall(r"\w+", text)} - {"or", "then"}:
        return "(known only when it is printed)"
    text = re.sub(r"(`snapreplay \w+)…", r"\1 …", text)
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
