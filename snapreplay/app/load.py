"""Loads an app by its name: "module:app", "path/to/file.py" or "path/to/file.py:attr"."""

from __future__ import annotations

import difflib
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

from snapreplay.app.app import App
from snapreplay.errors import UsageError, described, line_of

DEFAULT_ATTRIBUTE = "app"
_FORMS = "use module:app, path/to/file.py, or path/to/file.py:app"


def load_app(name: str) -> App[Any]:
    """Import and validate. A file is imported under its stem, so that others can import it by that name.

    The working directory (for a module) or the file's directory goes to the front of `sys.path`. Raises UsageError: it
    cannot be imported, has no such attribute, or is not a complete `App`; the hint names similar ones."""
    place, colon, attribute = name.rpartition(":")
    if not colon:
        place, attribute = name, DEFAULT_ATTRIBUTE
    if not place or not attribute:
        raise UsageError(f"{name!r} does not name an app", hint=_FORMS)
    app = _attribute(load_module(place), attribute, place)
    app.validate()
    return app


def load_module(place: str, what: str = "app") -> ModuleType:
    """Import a module, or a file ending in .py, as `load_app` does. Messages call it the module of this `what`.

    Raises:
        UsageError: it cannot be imported.
    """
    if place == "__main__":
        raise UsageError(
            f"{what} module {place!r} is another module in every process",
            hint="name the file, path/to/file.py, or the module that it can be imported as",
        )
    return _import_file(Path(place), what) if _is_file(place) else _import_module(place, what)


def check_together(names: Sequence[str]) -> None:
    """Check, without an import, that apps to be loaded in one process find their own modules.

    Raises:
        UsageError: they lie in different folders that have a module of the same name; both apps would get one of them.
    """
    for one, two in combinations(dict.fromkeys(map(_folder_of, names)), 2):
        for module in _shared_modules(one, two):
            raise UsageError(
                f"the apps cannot share a process: {one} and {two} both have a module {module!r}",
                hint="rename one of the two modules, or run the apps in separate processes",
            )


def checked_app(app: str, app_id: str) -> App[Any]:
    """Load the app, or raise UsageError: it cannot be loaded, or is another app."""
    loaded = load_app(app)
    if loaded.app_id != app_id:
        raise UsageError(f"{app} is app {loaded.app_id!r}, the topics are of {app_id!r}")
    return loaded


def name_of(app: App[Any]) -> str | None:
    """Return a name by which another process in this directory can import the app; None if there is none (the app was
    made in a function or in __main__)."""
    return global_name(app, {getattr(handler, "__module__", "") for handler in app.handlers.values()})


def global_name(wanted: object, near: set[str]) -> str | None:
    """Return the name of any object of a module, as `name_of` does; it is looked for in the modules `near` first."""
    main = sys.modules["__main__"]  # `multiprocessing` also has it as "__mp_main__"
    others = sorted(sys.modules.keys() - near)  # for example, the handlers of an app may have been made by a function
    for module_name in (*sorted(near), *others):
        module = sys.modules.get(module_name)
        if module is main or not isinstance(module, ModuleType):
            continue
        attribute = _attribute_in(module, wanted)
        if attribute is not None:
            return f"{_place_of(module)}:{attribute}"
    return None


def name_in_main(app: App[Any]) -> str | None:
    """Return the name of an app in the file that Python was started with; None if the app is not there.

    Only for commands that a person types: a child process that imports this file would run the program again.
    """
    main = sys.modules["__main__"]
    attribute, file = _attribute_in(main, app), getattr(main, "__file__", None)
    return f"{os.path.relpath(file)}:{attribute}" if attribute and file else None


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or not place.strip(".")


def _folder_of(name: str) -> Path:
    """Return the folder that `load_app` puts on the path."""
    place = name.rpartition(":")[0] or name
    # Path.resolve raises for a link to itself, which `_import_file` explains.
    return Path(os.path.realpath(place)).parent if _is_file(place) else Path.cwd()


def _shared_modules(one: Path, two: Path, above: str = "") -> Iterator[str]:
    here, there = ({each.name for each in pkgutil.iter_modules([str(folder)])} for folder in (one, two))
    yield from (above + each for each in sorted(here & there))
    for folder in sorted(one.glob("*/")):  # without an __init__.py it is a package, too, and may lie in both
        # Every project of `snapreplay new` has the same tests, which no app imports.
        if folder.name.isidentifier() and folder.name != "tests" and (two / folder.name).is_dir():
            yield from _shared_modules(folder, two / folder.name, f"{above}{folder.name}.")


def _attribute_in(module: ModuleType, wanted: object) -> str | None:
    held = vars(module).copy()
    if id(wanted) not in map(id, held.values()):  # fast: most of the modules of a process do not hold it
        return None
    return next(name for name, value in held.items() if value is wanted)


def _place_of(module: ModuleType) -> str:
    """Return the module's name, or its file if another process would not find the name."""
    file = getattr(module, "__file__", None)
    if "." in module.__name__ or file is None or Path(file).resolve().parent == Path.cwd().resolve():
        return module.__name__
    return str(os.path.relpath(file))


def _import_module(name: str, what: str) -> ModuleType:
    _put_first(Path.cwd())
    try:
        return _import(name, name, what)
    except ModuleNotFoundError as error:
        here = sorted(path.stem for path in Path.cwd().glob("*.py"))
        raise UsageError(
            f"{what} module {name!r} was not found: {error}", hint=_near(name, here, "modules here")
        ) from error


def _import_file(path: Path, what: str) -> ModuleType:
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for a name that no file can have
        is_folder = os.path.isdir(path)  # noqa: PTH112 - as above
        state = "is a directory" if is_folder else "is no file" if os.path.lexists(path) else "does not exist"
        there = sorted(map(str, (path if is_folder else path.parent).glob("*.py")))
        raise UsageError(f"{what} file {path} {state}", hint=_near(str(path), there, "files there"))
    stem = path.stem
    if not stem.isidentifier() or stem in sys.stdlib_module_names:
        raise UsageError(
            f"{what} file {path} cannot be imported as {stem!r}",
            hint="rename it to a Python name that is not a module of the standard library",
        )
    _put_first(path.resolve().parent)
    module = _import(stem, str(path), what)
    found = getattr(module, "__file__", None)
    if found is None or not path.samefile(found):
        raise UsageError(f"{what} file {path}: the name {stem} is taken by {found or module!r}", hint="rename the file")
    return module


def _put_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import(name: str, shown: str, what: str) -> ModuleType:
    """Import, or raise ModuleNotFoundError: this module was not found; one that it imports is a UsageError."""
    try:
        importlib.invalidate_caches()
        return importlib.import_module(name)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (name == missing or name.startswith(f"{missing}.")):
            raise
        raise UsageError(
            f"{what} {shown} cannot be imported: {described(error)}{line_of(error)}", hint=_import_hint(error)
        ) from error


def _import_hint(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return 'run the program only under `if __name__ == "__main__":`'
    if isinstance(error, ModuleNotFoundError):
        return "install it, or start in the directory that it can be imported from"
    return ""


def _attribute(module: ModuleType, attribute: str, place: str) -> App[Any]:
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    found = getattr(module, attribute, None)
    if isinstance(found, App):
        return found
    what = (
        f"has no attribute {attribute!r}"
        if found is None
        else f"has an attribute {attribute!r} of type {type(found).__name__}, not App"
    )
    hint = _near(attribute, apps, "apps in it")
    if apps:
        hint += f"; use {place}:{apps[0]}"
    elif hasattr(module, "__path__"):
        inner = sorted(each.stem for folder in module.__path__ for each in Path(folder).glob("[!_]*.py"))
        hint = _near(attribute, (f"{place}.{each}" for each in inner), "modules in it")
    raise UsageError(f"app module {module.__name__} {what}", hint=hint)


def _near(name: str, known: Iterable[str], what: str) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    return (f"did you mean {near[0]}? " if near else "") + f"{what}: {shown or 'none'}"
