"""The log of a service that runs in the foreground: standard error, one line per event, UTC."""

from __future__ import annotations

import logging
import sys
import time
from enum import StrEnum

_QUIET = ("aiokafka", "asyncio", "kafka", "uvicorn")  # libraries: their warnings are enough


class Level(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(level: Level) -> None:
    """Set up the root logger; libraries stay at warning unless `level` is debug."""
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s")
    formatter.converter = time.gmtime
    formatter.datefmt = "%Y-%m-%dT%H:%M:%S"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level is not Level.DEBUG:
        for name in _QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)
