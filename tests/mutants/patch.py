"""A patch that finds its place in the syntax tree: how the source is wrapped and commented does not matter to it."""

import ast
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple


class PatchDoesNotFit(Exception):
    """The source has changed: the gallery must follow it."""


_tree = cache(ast.parse)
"""Hundreds of patches look into a hundred files."""


class Patch(NamedTuple):
    """`old` stands exactly once in the function or class that `where` names, and becomes `new`.

    Both are expressions, statements (an empty `new` takes them out), `case` and a pattern, or `keyword` and keyword
    arguments of a call. `...` in `old` is any expression, any arguments or any body. The n-th `...` in `new` is what
    the n-th one in `old` was.

    Attributes:
        where: path::QUALIFIED.NAME
    """

    where: str
    old: str
    new: str

    @property
    def path(self) -> str:
        return self.where.partition("::")[0]

    def applied(self, source: str) -> str:
        """The source with that place changed, all else as it was.

        Raises:
            PatchDoesNotFit: there is no such place, there are several, or nothing would change.
        """
        old, new = _parsed(self.old), _parsed(self.new)
        if [[type(node) for node in code] for code in (old, new)] == [[ast.Expr], [ast.Expr]]:
            old, new = [old[0].value], [new[0].value]
        places = list(_places(_named(_tree(source), self.where.partition("::")[2]), old))
        if len(places) != 1:
            raise PatchDoesNotFit(f"{len(places)} times in {self.where}: {self.old!r}")
        ((found, meant),) = places
        filling = _Filled(meant).visit(ast.Module(new, []))
        if list(map(ast.dump, filling.body)) == list(map(ast.dump, found)):
            raise PatchDoesNotFit(f"changes nothing in {self.where}: {self.old!r}")
        if isinstance(found[0], ast.keyword):
            filled = ", ".join(map(ast.unparse, filling.body))
        elif isinstance(found[0], ast.stmt):
            filled = ast.unparse(filling) or "pass"
        else:
            filled = f"({ast.unparse(filling)})"
        inserted = textwrap.indent(filled, " " * found[0].col_offset).lstrip()
        lines = source.encode().splitlines(keepends=True)  # a column is one of bytes
        before = [*lines[: found[0].lineno - 1], lines[found[0].lineno - 1][: found[0].col_offset]]
        last = found[-1].end_lineno
        after = [lines[last - 1][found[-1].end_col_offset :], *lines[last:]]
        return b"".join([*before, inserted.encode(), *after]).decode()


class _Filled(ast.NodeTransformer):
    """A tree with what each `...` was."""

    def __init__(self, meant: list[Any]) -> None:
        self._meant = iter(meant)

    def visit(self, node: ast.AST) -> Any:
        return next(self._meant) if _is_anything(node) else super().visit(node)


def _parsed(code: str) -> list[Any]:
    if code.startswith("case "):
        return [_parsed(f"match _:\n {code}: pass")[0].cases[0].pattern]
    if code.startswith("keyword "):
        (call,) = ast.parse(f"_({code.removeprefix('keyword ')})").body
        return call.value.keywords  # type: ignore[attr-defined, no-any-return]
    return ast.parse(textwrap.dedent(code)).body


def _is_anything(node: Any) -> bool:
    """Say whether it is a `...`, also as a statement."""
    value = node.value if isinstance(node, ast.Expr) else node
    return isinstance(value, ast.Constant) and value.value is ...


def _named(tree: ast.AST, name: str) -> ast.AST:
    """An empty tree where there is none of that name."""
    for part in name.split("."):
        inner = (node for node in ast.iter_child_nodes(tree) if getattr(node, "name", None) == part)
        tree = next(inner, ast.Module([], []))
    return tree


def _places(scope: ast.AST, old: list[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    """The nodes that are like `old`, and what its `...` are there."""
    for parent in ast.walk(scope):
        for _, value in ast.iter_fields(parent):
            held = value if isinstance(value, list) else [value]
            for at in range(len(held) - len(old) + 1):
                meant: list[Any] = []
                if _is_like(old, held[at : at + len(old)], meant):
                    yield held[at : at + len(old)], meant


def _is_like(pattern: Any, found: Any, meant: list[Any]) -> bool:
    """Appends to `meant` what each `...` is."""
    if _is_anything(pattern):
        meant.append(found)
        return True
    if isinstance(pattern, list):
        if len(pattern) == 1 and _is_anything(pattern[0]):
            meant.append(found)
            return True
        return len(pattern) == len(found) and all(
            _is_like(one, other, meant) for one, other in zip(pattern, found, strict=True)
        )
    if isinstance(pattern, ast.AST):
        # Not in `ctx`: whether a name is read or written is said by its place.
        fields = [field for field in pattern._fields if field != "ctx"]
        return type(pattern) is type(found) and all(
            _is_like(getattr(pattern, field), getattr(found, field), meant) for field in fields
        )
    return type(pattern) is type(found) and bool(pattern == found)
