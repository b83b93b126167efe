"""docs/hints.md, made from the program: each hint, its error, the alert that may ring, the test that carries it out.

`python -m tests.hints.page` writes it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.hints.registry import OPEN_BECAUSE, ROOT, carried_out
from tests.hints.test_inventory import FUNCTIONS, PACKAGES, POSITIONAL, count_of

PAGE = ROOT / "docs" / "hints.md"
HEAD = """# Hints

This page is for operators and authors: it lists every hint, with its error, the alert that may ring, and its test.

Look for a few words of what you read, or for the name of the error. `…` stands for a name or a number. Several hints
of one place are divided by `/`. An alert rings only if a running service has the error, and keeps it: one of a command
rings none. [The runbook](runbook.md) says what an alert means, and what is safe. Each test carries out its hint as it
is printed. The page is made from the program, and a test compares them.
"""
PARTS = {
    "service": "The service, its topics and its cluster",
    "snapreplay": "Apps, states and tests of apps",
    "api": "Commands, HTTP and the page",
    "snapshots": "Proofs, audits and jobs",
}
FAILED, NOT_LIVE = "SnapreplayPartitionFailed", "SnapreplayPartitionNotLive"
ALERTS = {"STOP": FAILED, "REBUILD": FAILED, "HANDLER_POLICY": FAILED, "RETRY": NOT_LIVE}
"""Reaction of an error → the alert, if the error stays."""
SILENT = ("api/", "service/decisions/", "service/doctor/", "snapshots/", "snapreplay/testing/", "snapreplay/devbroker/")
"""Where commands, jobs and tests are: what they refuse rings nothing."""
SHOWN = {"Diagnosis": "a finding of `doctor`", "ProblemError": "an answer of HTTP"}


class Place(NamedTuple):
    """A function with hints: their texts, and the errors that have them."""

    name: str
    texts: list[str]
    errors: list[str]


class Errors(dict[str, tuple[list[str], str]]):
    """Name of a class → the names of its bases, and its own reaction."""

    def add(self, node: ast.ClassDef) -> None:
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
                    errors.add(node)
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
    tests, open_because = carried_out(), {place: why for why, all_of in OPEN_BECAUSE.items() for place in all_of}
    text = HEAD
    for part, title in PARTS.items():
        rows = sorted(
            _row(each, errors, tests.get(each.name, ""), open_because.get(each.name, ""))
            for each in found
            if each.name.startswith(f"{part}/") and "".join(each.texts).strip("… /")
        )
        text += f"\n## {title}\n\n| error | hint | alert | carried out by |\n| --- | --- | --- | --- |\n{''.join(rows)}"
    return text


def _row(place: Place, errors: Errors, test: str, open_because: str) -> str:
    names = [SHOWN.get(name, f"`{name}`") for name in place.errors] or ["–"]
    heard = [] if place.name.startswith(SILENT) else place.errors
    alerts = sorted({ALERTS[reaction] for name in heard if (reaction := errors.reaction(name)) in ALERTS})
    rung = ", ".join(f"[{each}](runbook.md#{each.lower()})" for each in alerts) or "–"
    said = " / ".join(dict.fromkeys(each.strip() for each in place.texts if each.strip(" …")))
    return f"| {', '.join(names)} | {_cell(said)} | {rung} | {f'`{test}`' if test else f'none: it {open_because}'} |\n"


def _cell(text: str) -> str:
    text = re.sub(r"(`snapreplay \w+)…", r"\1 …", text)
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
