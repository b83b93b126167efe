"""Finds lost changes: a value that stood in for a missing one, was changed in place, and never stored."""

from __future__ import annotations

import ast
import copy
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

from snapreplay.app.record import InputRecord, id_of
from snapreplay.state.map import MapState
from snapreplay.state.stores import maps_of

_MISSING = object()


class LostChange(AssertionError):
    """The handler changed what stood in for a missing value and did not store it."""


class _HandedOut(NamedTuple):
    """The answer of `get` for a missing key: its default, as it was then; or None, to this frame at this line."""

    key: Any
    default: Any
    before: Any
    frame: FrameType | None = None
    line: int = 0


class DefaultWatch:
    """Watches the maps of a state; does nothing for a state that is no map."""

    def __init__(self, view: object) -> None:
        self._maps = [
            (f"state.{name}" if name else "state", each, _watched(each)) for name, each in maps_of(view).items()
        ]

    def check(self, records: Sequence[InputRecord]) -> None:
        """Check after these records were applied, or raise LostChange: a stand-in was changed in place and its key is
        still missing."""
        for place, view, handed_out in self._maps:
            for given in handed_out:
                found = given
                if given.frame is not None:
                    found = self._stood_in(given, given.frame)
                if found.default != found.before and found.key not in view:
                    where = f"up to {id_of(records[-1])}" if records else "a timer"
                    raise LostChange(
                        f"{where}: {place}.get({found.key!r}{', …' if given.frame is None else ''}) returned"
                        f" {'its default' if given.frame is None else 'None, and in its place stood'}"
                        f" {found.before!r}, which was changed to {found.default!r}, and the change is lost:"
                        f" use {place}[key] with MapState(default=…) or {place}.setdefault, or store the value"
                    )
        self.forget()

    def forget(self) -> None:
        for _, _, handed_out in self._maps:
            handed_out.clear()

    def _stood_in(self, given: _HandedOut, frame: FrameType) -> _HandedOut:
        """Return it with what the handler took for None, as it left it and as it was made."""
        for name, made in _stand_ins(frame, given.line):
            left = frame.f_locals.get(name, _MISSING)
            fresh = _made_again(made, frame)
            if type(left) is type(fresh) and _can_change(left) and not self._is_stored(left):
                return given._replace(default=left, before=fresh)
        return given

    def _is_stored(self, value: object) -> bool:
        lives = (view.__snapreplay_store__().live for _, view, _ in self._maps)
        return any(value is each for live in lives for each in live.values())


def _can_change(value: object) -> bool:
    """Say whether it can change in place: what is hashed by its value, such as a Decimal, must not."""
    try:
        hash(value)
    except TypeError:
        return True
    return type(value).__hash__ is object.__hash__


def _watched(view: MapState[Any, Any]) -> list[_HandedOut]:
    """Replace the class of this object only, to note each answer of `get` for a missing key. A proxy would not do,
    because handlers may test for MapState."""
    handed_out: list[_HandedOut] = []
    plain: Any = type(view)

    def get(self: Any, key: Any, default: Any = None) -> Any:
        value = plain.get(self, key, default)
        if default is not None and value is default:
            handed_out.append(_HandedOut(key, default, copy.deepcopy(default)))
        elif value is None and key not in self:
            caller = sys._getframe(1)  # noqa: SLF001 - CPython's, and public by its documentation
            handed_out.append(_HandedOut(key, None, None, caller, caller.f_lineno))
        return value

    view.__class__ = type(plain.__name__, (plain,), {"get": get, "__module__": plain.__module__})
    return handed_out


def _stand_ins(frame: FrameType, line: int) -> Iterator[tuple[str, ast.expr]]:
    """Find the name that the answer of a `get` at this line is given, and the expression for what stands in for
    None: `x = state.get(k) or Account()`, or `x = state.get(k)` and later `if x is None: x = Account()`."""
    try:
        source = textwrap.dedent(inspect.getsource(frame.f_code))
        tree = ast.parse(source)
    except (OSError, SyntaxError):
        return
    at = line - frame.f_code.co_firstlineno + 1
    named = list(_assignments(tree))
    for name, value in named:
        if not value.lineno <= at <= (value.end_lineno or value.lineno):
            continue
        if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or):
            if _is_get(value.values[0]) and _makes(value.values[-1]):
                yield name, value.values[-1]
        elif _is_get(value):
            yield from ((n, made) for n, made in named if n == name and _makes(made))


def _made_again(made: ast.expr, frame: FrameType) -> object:
    """Evaluate the handler's own expression once more; if that fails, nothing can be said."""
    code = compile(ast.Expression(made), "<stand-in>", "eval")
    try:
        return eval(code, frame.f_globals, frame.f_locals)  # noqa: S307 - of the app under test
    except Exception:  # noqa: BLE001 - whatever its type raises
        return _MISSING


def _assignments(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                yield name, value
            case _:
                pass


def _is_get(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "get"


def _makes(value: ast.expr) -> bool:
    """Say whether this is a new object, of nothing but constants."""
    match value:
        case ast.Dict() | ast.List() | ast.Set():
            return True
        case ast.Call(func=ast.Name() | ast.Attribute(), args=args, keywords=words):
            given = [*args, *(word.value for word in words)]
            return not _is_get(value) and all(isinstance(each, ast.Constant) for each in given)
        case _:
            return False
