"""Where tests look into a service, or break something in it: its private parts have their names here and nowhere else.

All of it is Any: a test that looks at what is not there fails, which is what it is for.
"""

from __future__ import annotations

from typing import Any


def supervisor(service: Any) -> Any:
    return service._supervisor


def runner(service: Any, partition: int = 0) -> Any:
    return service._supervisor.runners[partition]


def membership(service: Any) -> Any:
    return service._membership


def background(service: Any) -> Any:
    """The thread of its heartbeats and of HTTP."""
    return service._background


def live(runner: Any) -> Any:
    return runner._live


def committer(runner: Any) -> Any:
    return runner._live._committer


def producer(runner: Any) -> Any:
    """The one of the incarnation that is LIVE now."""
    return runner._live._committer._producer
