"""A version computed from an app's code, so that a change of the code is noticed.

It covers the modules that the app is made of, each as a whole: those of its handlers and its state, and those of the
same author that they import. It also covers what the closures of handlers bind, but not installed packages, data, the
environment, and imports by a name made at run time. It is the same in every run of one Python version and on every
machine.

The standard library, snapreplay and installed packages (site-packages, dist-packages) are not the author's, except the
top-level package of an app that is itself installed. Imports are read from the source text, so an import inside a
function counts even before it has run. A module not imported yet is searched for as an import would do, but not
imported. A module's code is its source without docstrings: comments, line numbers and the place of the file make no
difference.
"""

from __future__ import annotations

import ast
import hashlib
import pkgutil
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from functools import cache, partial
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from snapreplay.errors import UsageError

INSTALLED = frozenset({"site-packages", "dist-packages"})


def code_version(functions: Iterable[Callable[..., object]], modules: Iterable[str] = ()) -> str:
    """Return "code:" and 8 hex digits. The order of `functions` (handlers and factories) matters. `modules`: names of
    further modules that the app is made of."""
    given = list(functions)
    names = (getattr(_function_of(each), "__module__", None) or "" for each in given)
    own = own_modules({*modules, *names})
    digest = hashlib.sha256(b"".join(sorted(own.values())))
    seen: set[FunctionType] = set()
    for each in given:
        digest.update(_text_of(each, own, seen).encode() + b"/")
    return f"code:{digest.hexdigest()[:8]}"


def _text_of(given: object, own: Container[str], seen: set[FunctionType]) -> str:
    """Return the name of a function and what is bound in it; its code, too, unless that of its whole module counts."""
    function = _function_of(given)
    if not isinstance(function, FunctionType) or function in seen:
        return getattr(function, "__qualname__", None) or constant_text(given)
    seen.add(function)
    name = function.__qualname__
    code = "" if function.__module__ in own and "<lambda>" not in name else code_text(function.__code__)
    bound = [_text_of(value, own, seen) for value in _closure(function)]
    return f"{name}{code}{constant_text(function.__defaults__)}{bound}"


def _closure(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue


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


# -------------------------------------------------------------------- the modules of an app


class _Place(NamedTuple):
    """The place of a module: its file, the package that its relative imports start from, and where its submodules
    are."""

    file: str | None
    package: str
    inside: Iterable[str] | None


def own_modules(roots: Iterable[str]) -> dict[str, bytes]:
    """Return the author's modules that the module names in `roots` lead to: name → hash of the code. Raises UsageError:
    one of them is not valid Python."""
    waiting = sorted(set(roots))
    tops = {_top(name) for name in waiting}
    found: dict[str, bytes] = {}
    while waiting:
        name = waiting.pop()
        place = _place_of(name) if name not in found else None
        if place is None or not _is_own(name, place, tops):
            continue
        source = _source_of(place)
        if source is None:
            continue
        found[name], imported = _read(*source, place.package)
        waiting += imported
    return found


def is_own(name: str, tops: Iterable[str] = ()) -> bool:
    """Say whether the module counts as the author's, for an app in the top-level packages `tops`."""
    place = _place_of(name)
    return place is not None and _is_own(name, place, tops)


def _is_own(name: str, place: _Place, tops: Iterable[str]) -> bool:
    top, file = _top(name), place.file
    if file is None or top == "snapreplay" or top in sys.stdlib_module_names:
        return False
    return top in tops or INSTALLED.isdisjoint(Path(file).parts)


def _place_of(name: str) -> _Place | None:
    """Find a module's place, the same before and after an import; None if there is no such module."""
    module = sys.modules.get(name)
    if module is not None:
        package = getattr(module, "__package__", None) or name.rpartition(".")[0]
        file = getattr(module, "__file__", None)
        return _Place(file, package, getattr(module, "__path__", None))
    spec = _spec_of(name)
    if spec is None:
        return None
    file = spec.origin if spec.has_location else None
    return _Place(file, spec.parent or "", spec.submodule_search_locations)


def _spec_of(name: str) -> ModuleSpec | None:
    """Find it as an import would, but without importing the packages above it."""
    parent = name.rpartition(".")[0]
    if not parent:
        return find_spec(name) if name else None
    package = _place_of(parent)
    portions: list[str] = []
    for folder in (package and package.inside) or ():
        importer = pkgutil.get_importer(folder)
        spec = importer.find_spec(name) if importer is not None else None
        if spec is not None and spec.loader is not None:
            return spec
        portions += (spec and spec.submodule_search_locations) or ()
    if not portions:
        return None
    namespace = ModuleSpec(name, None, is_package=True)
    namespace.submodule_search_locations = portions
    return namespace


def code_text(code: CodeType) -> str:
    """Return what the code does, without line numbers and the names of files and local variables."""
    constants = [constant_text(constant) for constant in code.co_consts]
    arguments = code.co_argcount + code.co_kwonlyargcount
    return (
        f"{code.co_code.hex()};{code.co_exceptiontable.hex()};{constants};{code.co_names};"
        f"{code.co_varnames[:arguments]}"
    )


def constant_text(constant: object) -> str:
    """Return the value with its type, because 1, 1.0 and True are equal. Sets are sorted, because their order depends
    on PYTHONHASHSEED."""
    if isinstance(constant, CodeType):
        return code_text(constant)
    if isinstance(constant, tuple | frozenset):
        texts = [constant_text(one) for one in constant]
        inner = sorted(texts) if isinstance(constant, frozenset) else texts
        return f"{type(constant).__name__}{inner}"
    if isinstance(constant, str | bytes | int | float | complex | None):
        return f"{type(constant).__name__}:{constant!r}"
    return type(constant).__name__


def _top(name: str) -> str:
    return name.partition(".")[0]


def _source_of(place: _Place) -> tuple[str, int, int] | None:
    """Return the path, and what changes when somebody writes to the file; None if there is no source."""
    file = place.file
    if file is None or not file.endswith(".py"):
        return None
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return file, status.st_mtime_ns, status.st_size


@cache
def _read(
    file: str,
    modified_ns: int,  # noqa: ARG001 - part of the key
    size_bytes: int,  # noqa: ARG001 - part of the key
    package: str,
) -> tuple[bytes, tuple[str, ...]]:
    """Hash of the code, and the names that it may import. Raises UsageError: it is not valid Python; perhaps it is only
    half written."""
    try:
        return _parsed(Path(file).read_bytes(), package)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{file}, a module of the app, cannot be compiled: {error}") from error


def _parsed(source: bytes, package: str) -> tuple[bytes, tuple[str, ...]]:
    tree = _tree(source)
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            _strip_docstring(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imported.update(_imported(node, package))
    code = compile(tree, "", "exec", dont_inherit=True)
    return hashlib.sha256(code_text(code).encode()).digest(), tuple(sorted(imported))


def _tree(source: bytes) -> ast.Module:
    try:
        return ast.parse(source)
    except SystemError:  # CPython 3.11: the collector ran a finalizer meanwhile, and another tree was made in it
        return ast.parse(source)


def _strip_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    match node.body[:1]:
        case [ast.Expr(ast.Constant(str()))]:
            node.body[:1] = [] if len(node.body) > 1 or isinstance(node, ast.Module) else [PASS]
        case _:
            pass


PASS = ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [each.name for each in node.names]
    else:
        base = node.module or ""
        if node.level:
            try:
                base = resolve_name("." * node.level + base, package)
            except ImportError:  # beyond the top: it was not imported either
                return
        names = [f"{base}.{each.name}" for each in node.names]
    for name in names:
        parts = name.split(".")
        yield from (".".join(parts[: end + 1]) for end in range(len(parts)))
