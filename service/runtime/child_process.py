"""Processes of our own code: how they are started, and how they end with the process that has started them."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import snapreplay

_PR_SET_PDEATHSIG = 1


def command(module: str) -> list[str]:
    """Return the words that run a module of ours, to be followed by its arguments."""
    # Without -P a file of the user in the working directory could stand before a library.
    return [sys.executable, "-P", "-m", module]


def without_interpreter() -> str:
    """Say why this program cannot start a Python process: it is frozen, so it is its own executable. Empty: it can."""
    if getattr(sys, "frozen", False):
        return "it is frozen"
    return "" if sys.executable else "sys.executable is empty"


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which `command` finds this code."""
    package = str(Path(snapreplay.__file__).parent.parent)
    paths = [package, *given.get("PYTHONPATH", "").split(os.pathsep)]
    return {**given, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def end_with(parent: int, number: int) -> None:
    """Let the kernel send this process a signal when the thread that started it ends, also by SIGKILL. A line alone
    would not do: a process that a handler has forked keeps the other end of it open."""
    if (prctl := getattr(ctypes.CDLL(None), "prctl", None)) is not None:  # elsewhere than on Linux its line ends it
        prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        sys.exit(1)


SESSION_NICE_MAX = 10
"""A tenth of what an equal would get: also on a machine that is never idle, work in the background ends some day."""


def go_behind(nice: int) -> None:
    """Let others go first where CPU is short: with a `nice` of 5 this thread, and those that it starts, get a third of
    what an equal would get."""
    with suppress(OSError):  # not allowed to be polite
        os.nice(nice)
    # A session of its own is weighed as a whole, so that a nice process in it would get as much as all others.
    # Elsewhere than on Linux, or without CONFIG_SCHED_AUTOGROUP; and but for root, once in 0.1 s for all processes.
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(min(nice, SESSION_NICE_MAX)))
