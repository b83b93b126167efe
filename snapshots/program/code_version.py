"""A version for handlers that were given none: made of their code, so that changed code is seen to
be changed.

Covers what a handler executes in its own module: its code object, those nested in it, the functions
and classes of the same module that it names, and theirs. Not covered: other modules, data. The same
on every run of one Python version; line numbers, names of files and of local variables do not
count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any


def code_version(handlers: Iterable[Callable[..., object]]) -> str:
    """ "code:" and 8 hex digits, depending on the order of `handlers`."""
    digest = hashlib.sha256()
    seen: set[FunctionType] = set()
    for handler in handlers:
        for function in _reachable(_function_of(handler), seen):
            digest.update(_text_of(function).encode())
        digest.update(b"/")
    return f"code:{digest.hexdigest()[:8]}"


def place_of(function: Callable[..., object]) -> str:
    """Name and place for a message: "on_payment (ledger.py:12)"."""
    code = getattr(_function_of(function), "__code__", None)
    name = getattr(function, "__qualname__", None) or repr(function)
    if code is None:
        return str(name)
    return f"{name} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"


def _function_of(handler: Any) -> Any:
    """The Python function behind a decorated one, a method, a partial or an object's `__call__`."""
    while not isinstance(handler, FunctionType) or hasattr(handler, "__wrapped__"):
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


def _reachable(function: Any, seen: set[FunctionType]) -> Iterator[FunctionType]:
    """Depth first, in the order of names in the code: the same on every run."""
    if not isinstance(function, FunctionType) or function in seen:
        return
    seen.add(function)
    yield function
    for name in _names_of(function.__code__):
        value = function.__globals__.get(name)
        if getattr(value, "__module__", None) != function.__module__:
            continue
        members = vars(value).values() if isinstance(value, type) else (value,)
        for member in members:
            yield from _reachable(_function_of(member) if callable(member) else member, seen)


def _names_of(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of(constant)


def _text_of(function: FunctionType) -> str:
    return _code_text(function.__code__) + _constant_text(function.__defaults__)


def _code_text(code: CodeType) -> str:
    constants = [_constant_text(constant) for constant in code.co_consts]
    return f"{code.co_code.hex()};{constants};{code.co_names}"


def _constant_text(constant: object) -> str:
    """With the type, as 1, 1.0 and True are equal; sets sorted, as their order depends on
    PYTHONHASHSEED.
    """
    if isinstance(constant, CodeType):
        return _code_text(constant)
    if isinstance(constant, tuple | frozenset):
        texts = [_constant_text(one) for one in constant]
        inner = sorted(texts) if isinstance(constant, frozenset) else texts
        return f"{type(constant).__name__}{inner}"
    if isinstance(constant, str | bytes | int | float | complex | None):
        return f"{type(constant).__name__}:{constant!r}"
    return type(constant).__name__
