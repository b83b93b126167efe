"""Processes that run this package's own code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import snapreplay


def command(module: str) -> list[str]:
    """Return the words that run a module of this package, to be followed by its arguments."""
    # Without -P a file of the user in the working directory could stand before a library.
    return [sys.executable, "-P", "-m", module]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which `command` finds this code."""
    package = str(Path(snapreplay.__file__).parent.parent)
    paths = [package, *given.get("PYTHONPATH", "").split(os.pathsep)]
    return {**given, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
