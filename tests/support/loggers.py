"""The loggers of this process, which all its tests share."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

SET_UP = ("", "aiokafka", "asyncio", "kafka", "uvicorn")
"""Those that a command with a log sets up, the root logger among them."""


@contextmanager
def loggers_put_back() -> Iterator[None]:
    """Let what a command sets up end with the block: each later test would log at another level, and elsewhere."""
    loggers = [logging.getLogger(name) for name in SET_UP]
    before = [(each.handlers[:], each.level, each.propagate) for each in loggers]
    try:
        yield
    finally:
        for each, (handlers, level, propagate) in zip(loggers, before, strict=True):
            each.handlers[:] = handlers
            each.setLevel(level)
            each.propagate = propagate
