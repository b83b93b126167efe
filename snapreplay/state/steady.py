"""What makes a function give another result at each call: a clock, a random number, the environment, a global that it
changes. Pure.

A default must be the same at each call: a stored value without the field would get another one at each load, and a
record without it in each replay. It is called twice, and its code is read. Of other functions only the code is read, to
name the likely cause of a difference that was seen. That does not find everything: what is called through an object is
not looked through.
"""

from __future__ import annotations

import dataclasses
import dis
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from random import Random
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from snapreplay.errors import UsageError
from snapreplay.interrupts import of_a_signal
from snapreplay.state.canonical import nodes_in

_CONSTANTS = (list, dict, set, frozenset, tuple, bytearray, str, bytes, int, float, bool)
HINT = "give it a constant default, and set it in the handler: `record.timestamp_ms`, `record.random`"


class UnsteadyDefault(NamedTuple):
    """A default that is another one at each call, as messages name it: "'id' of Order", "calls uuid.uuid4"."""

    field: str
    why: str


def unsteady(make: Callable[[], Any]) -> str | None:
    """Say why what `make` returns is not the same at each call; None: it seems to be. Calls it."""
    if any(make is each for each in _CONSTANTS):
        return None
    called = unsteady_call(make)
    if called is not None:
        return f"calls {called}"
    try:
        one, other = make(), make()
        differ = bool(one != other) and msgspec.json.encode(one) != msgspec.json.encode(other)
    except BaseException as error:  # whatever the user's function raises: it raises it where it is used
        if of_a_signal(error):
            raise
        return None
    return "gives another value at each call" if differ else None


def unsteady_default(node: inspect.Type) -> UnsteadyDefault | None:
    """Find a field in a declared type whose default is not the same at each call."""
    for each in nodes_in(node):
        cls: Any = getattr(each, "cls", None)
        for field in getattr(each, "fields", ()):
            factory = getattr(field, "default_factory", msgspec.NODEFAULT)
            why = None if factory is msgspec.NODEFAULT else unsteady(factory)
            if why is not None:
                return UnsteadyDefault(f"{field.name!r} of {cls.__name__}", why)
    return None


def refuse_unsteady(node: inspect.Type) -> None:
    """Raise UsageError if stored values of this type could be others at each load."""
    found = unsteady_default(node)
    if found is not None:
        raise UsageError(
            f"MapState: the default of {found.field} {found.why}: a value that was stored without the field would be"
            " a different one at each load",
            hint=HINT,
        )


_CLOCKS = frozenset(
    {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "localtime"}
    | {"ctime"}
)
_CALLS: Mapping[str, frozenset[str]] = {
    "time": _CLOCKS,
    "uuid": frozenset({"uuid1", "uuid4", "getnode"}),
    "secrets": frozenset({"token_bytes", "token_hex", "token_urlsafe", "randbits", "choice", "randbelow"}),
    "posix": frozenset({"urandom", "getpid", "listdir", "getenv"}),
    "os": frozenset({"urandom", "getpid", "listdir", "getenv"}),
    "builtins": frozenset({"id", "open", "input"}),
    "io": frozenset({"open"}),
    "_io": frozenset({"open"}),
}
"""Module → functions whose result no argument determines."""

_NETWORK = frozenset({"socket", "urllib", "http", "requests", "httpx", "aiohttp", "redis", "sqlite3", "psycopg"})
_NOW = frozenset({"now", "utcnow", "today"})
_CHANGES = frozenset(
    {"append", "add", "update", "pop", "popitem", "setdefault", "clear", "extend", "insert", "remove", "discard"}
    | {"appendleft", "popleft", "__setitem__", "__delitem__", "__next__"}
)
_MUTABLE = (dict, list, set, bytearray, deque)
_DEPTH_MAX = 5
_UNKNOWN = object()


class LikelyCause(NamedTuple):
    """A cause, as messages name it: "time.time"; and the line that has it."""

    what: str
    line: int
    is_hash: bool = False
    is_global: bool = False


def causes_in(function: object) -> Iterator[LikelyCause]:
    """Yield what the function, and those of its author that it calls, use: most likely causes first."""
    found = list(_found_in(function, set(), 0))
    yield from sorted(found, key=lambda each: (each.is_global, each.is_hash))


def unsteady_call(function: object) -> str | None:
    """Name the clock, random number or environment that the function uses; None: none is known."""
    return next((each.what for each in causes_in(function) if not each.is_hash and not each.is_global), None)


def _found_in(function: Any, seen: set[int], depth: int) -> Iterator[LikelyCause]:
    name = _unsteady_name(function)
    if name is not None:
        yield LikelyCause(name, 0)
        return
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType) or id(function) in seen or depth > _DEPTH_MAX or not _is_own(function):
        return
    seen.add(id(function))
    yield from _in_code(function.__code__, function, seen, depth)


def _is_own(function: FunctionType) -> bool:
    top = (function.__module__ or "").partition(".")[0]
    file = function.__code__.co_filename
    return top not in sys.stdlib_module_names - {"__main__"} and "site-packages" not in file and top != "snapreplay"


def _in_code(code: CodeType, function: FunctionType, seen: set[int], depth: int) -> Iterator[LikelyCause]:
    """Follow each name to what it is now, as far as that is known without running anything."""
    names = _closure(function)
    line, current, mutable = code.co_firstlineno, _UNKNOWN, dict[str, int]()
    for each in dis.get_instructions(code):
        # Since Python 3.13 `starts_line` is a bool, and the line has a field of its own.
        line = getattr(each, "line_number", each.starts_line) or line
        name = each.argval
        match each.opname:
            case "LOAD_GLOBAL" | "LOAD_NAME":
                current = function.__globals__.get(name, vars(sys.modules["builtins"]).get(name, _UNKNOWN))
                if isinstance(current, _MUTABLE):
                    mutable[name] = line
                    continue
            case "LOAD_DEREF" | "LOAD_FAST":
                current = names.get(name, _UNKNOWN) if isinstance(name, str) else _UNKNOWN
            case "LOAD_ATTR" | "LOAD_METHOD":
                if isinstance(current, _MUTABLE) and name in _CHANGES:
                    changed = next(iter(each for each in mutable), "")
                    yield LikelyCause(f"the global {changed}, which it changes", line, is_global=True)
                current = _attribute(current, name)
            case "IMPORT_NAME" | "IMPORT_FROM":
                current = sys.modules.get(name, _UNKNOWN) if each.opname == "IMPORT_NAME" else _attribute(current, name)
            case "STORE_FAST":
                names[name] = current
                continue
            case "STORE_GLOBAL":
                yield LikelyCause(f"the global {name}, which it changes", line, is_global=True)
                continue
            case "STORE_SUBSCR" | "DELETE_SUBSCR":
                for changed, at in mutable.items():
                    yield LikelyCause(f"the global {changed}, which it may change", at, is_global=True)
                continue
            case "BUILD_SET" | "SET_ADD":
                yield LikelyCause("the order of a set", line, is_hash=True)
                continue
            case _:
                continue
        yield from _used(current, line, seen, depth)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _in_code(constant, function, seen, depth)


def _used(current: Any, line: int, seen: set[int], depth: int) -> Iterator[LikelyCause]:
    name = _unsteady_name(current)
    if name is not None:
        yield LikelyCause(name, line)
    elif current is set or current is frozenset:  # by identity: `==` of an array, say, is no bool
        yield LikelyCause("the order of a set", line, is_hash=True)
    elif current is hash:
        yield LikelyCause("hash()", line, is_hash=True)
    elif isinstance(current, FunctionType | MethodType):
        for inner in _found_in(current, seen, depth + 1):
            yield inner._replace(line=inner.line or line)
    elif isinstance(current, type):
        for name, factory in _factories(current):
            for inner in _found_in(factory, seen, depth + 1):
                yield LikelyCause(f"{inner.what}, the default of {name!r} in {current.__name__}", line, inner.is_hash)


def _factories(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a Struct or dataclass whose default is made by a call."""
    fields: Iterable[Any] = ()
    if issubclass(cls, msgspec.Struct):
        fields = msgspec.structs.fields(cls)
    elif dataclasses.is_dataclass(cls):
        fields = dataclasses.fields(cls)
    for field in fields:
        if field.default_factory not in (msgspec.NODEFAULT, dataclasses.MISSING):
            yield field.name, field.default_factory


def _attribute(value: Any, name: str) -> Any:
    """Return the attribute where looking it up runs nothing of the user's."""
    if isinstance(value, ModuleType | type | Random):
        return getattr(value, name, _UNKNOWN)
    return _UNKNOWN


def _closure(function: FunctionType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return found


def _unsteady_name(value: Any) -> str | None:
    """Name what gives another result each time; None: it is not known to."""
    if value is sys.modules["os"].environ:
        return "os.environ"
    if isinstance(value, Random):
        return "random"
    if not callable(value):
        return None
    name, module = getattr(value, "__name__", ""), getattr(value, "__module__", None) or ""
    if not isinstance(name, str) or not isinstance(module, str):  # an object that has any attribute, such as a mock
        return None
    owner = getattr(value, "__self__", None)
    if isinstance(owner, type) and issubclass(owner, date) and name in _NOW:
        return f"{owner.__name__}.{name}"
    if isinstance(owner, Random):
        return f"random.{name}"
    if module.partition(".")[0] in _NETWORK and isinstance(value, FunctionType | type):
        return f"{module}.{name}"
    if name in _CALLS.get(module, ()):
        shown = {"posix": "os.", "builtins": "", "io": "", "_io": ""}.get(module, f"{module}.")
        return f"{shown}{name}"
    return None
