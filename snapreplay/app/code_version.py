"""A version computed from an app's code, so that a change of the code is noticed.

It covers the modules that the app is made of (see `user_modules`), each as a whole: those of its
handlers and its state, and what these import. It also covers which part of them this app uses: what
a handler and the state's factory execute in their own module, and what their closures bind. It does
not cover installed packages, data, the environment, and imports by a name made at run time. It is
the same in every run of one Python version and on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from snapreplay.app.user_modules import code_text, constant_text, is_own, own_modules


def code_version(functions: Iterable[Callable[..., object]], modules: Iterable[str] = ()) -> str:
    """Return "code:" and 8 hex digits. The order of `functions` (handlers and factories) matters.

    Args:
        modules: names of further modules that the app is made of.
    """
    given, seen = list(functions), set[FunctionType | type]()
    used = [list(_reachable(_function_of(each), seen)) for each in given]
    own = own_modules({*modules, *(each.__module__ or "" for each in (*given, *seen))})
    digest = hashlib.sha256(b"".join(sorted(own.values())))
    for reached in used:
        digest.update("".join(_text_of(one, own) for one in reached).encode() + b"/")
    return f"code:{digest.hexdigest()[:8]}"


def place_of(function: Callable[..., object]) -> str:
    """Return name and place for a message: "on_payment (ledger.py:12)"."""
    code = getattr(_function_of(function), "__code__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    if code is None:
        return str(name)
    return f"{name} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"


def _function_of(handler: Any) -> Any:
    """Find the Python function behind a decorated one, a method, a partial or an object's `__call__`."""
    while not isinstance(handler, FunctionType | type) or hasattr(handler, "__wrapped__"):
        if hasattr(handler, "__wrapped__"):
            handler = handler.__wrapped__
        elif isinstance(handler, MethodType):
            handler = handler.__func__
        elif isinstance(handler, partial):
            handler = handler.func
        elif isinstance(getattr(type(handler), "__call__", None), FunctionType):  # noqa: B004 - the function itself is wanted
            handler = type(handler).__call__
        else:
            return handler
    return handler


def _reachable(value: Any, seen: set[FunctionType | type]) -> Iterator[FunctionType]:
    """Yield functions depth first, in the order of the names in the code, so the same in every run."""
    if not isinstance(value, FunctionType | type) or value in seen:
        return
    seen.add(value)
    if isinstance(value, FunctionType):
        yield value
    parts = _named_by(value) if isinstance(value, FunctionType) else vars(value).values()
    for part in parts:
        yield from _reachable(_function_of(part) if callable(part) else part, seen)


def _named_by(function: FunctionType) -> Iterator[Any]:
    """Yield the globals of its own module that it names, and the author's code in its closure."""
    for name in _names_of(function.__code__):
        value = function.__globals__.get(name)
        if getattr(value, "__module__", None) == function.__module__:
            yield value
    for value in _closure(function):
        module = getattr(value, "__module__", None) or ""
        if module == function.__module__ or is_own(module):
            yield value


def _closure(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)


def _text_of(function: FunctionType, own: Container[str]) -> str:
    """Return the function's name if the code of its whole module counts anyway, else its code."""
    code, name = function.__code__, function.__qualname__
    text = name if function.__module__ in own and "<lambda>" not in name else code_text(code)
    bound = [constant_text(value) for value in _closure(function)]
    return f"{text}{constant_text(function.__defaults__)}{bound}"
