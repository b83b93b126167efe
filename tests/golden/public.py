"""The public names of the package with their signatures, one a line, for `api/` beside this file: one list per release.

    python -m tests.golden.public

writes the list of the version that pyproject.toml names.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import snapreplay

LISTS = Path(__file__).with_name("api")
MODULES = ("snapreplay", "snapreplay.errors", "snapreplay.testing", "snapreplay.spark", "snapreplay.windows")


def public() -> list[str]:
    """List every public name of the modules, and what is public in each class."""
    found = set()
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            found |= set(_lines(f"{module}.{name}", getattr(importlib.import_module(module), name)))
    return sorted(found)


def path(version: str = snapreplay.__version__) -> Path:
    """Name the file of a version."""
    return LISTS / f"{version}.txt"


def lists() -> list[Path]:
    """Name the file of each version, the oldest one first."""
    return sorted(LISTS.glob("*.txt"), key=lambda each: [int(part) for part in each.stem.split(".")])


def untold(before: list[str], now: list[str], changelog: str) -> list[str]:
    """List the lines that are gone or changed, and whose name the changelog does not have in backticks."""
    told = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", changelog))))
    return [line for line in before if line not in now and _name(line).rpartition(".")[2] not in told]


def _name(line: str) -> str:
    return re.split(r"[(:]", line)[0]


def _lines(name: str, value: Any) -> Iterator[str]:
    if not callable(value):
        yield f"{name}: {type(value).__name__}"
        return
    yield f"{name}{_signature(value)}"
    if inspect.isclass(value):
        ours = [vars(each) for each in value.__mro__ if each.__module__.startswith("snapreplay")]
        for each, member in sorted({key: member for names in reversed(ours) for key, member in names.items()}.items()):
            if not each.startswith("_"):
                function = getattr(member, "__func__", member)
                yield f"{name}.{each}{_signature(function) if callable(function) else ''}"


def _signature(value: Any) -> str:
    try:
        return re.sub(r"<[^<>]* at 0x[0-9a-f]+>|<factory>", "…", str(inspect.signature(value)))
    except ValueError:  # of a class in C, or of one without an __init__ of its own
        return ""


if __name__ == "__main__":
    path().write_text("".join(f"{line}\n" for line in public()), encoding="utf-8")
