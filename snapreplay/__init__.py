"""Exactly-once, crash-proof in-memory state for Kafka programs in Python.

Public names are imported at their first use (PEP 562). `import snapreplay` needs no Kafka client and
no web server, so tests start fast and Spark executors can import it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapreplay.app.app import App as App
    from snapreplay.app.codecs import Codec as Codec
    from snapreplay.app.codecs import i64 as i64
    from snapreplay.app.codecs import json as json
    from snapreplay.app.codecs import msgpack as msgpack
    from snapreplay.app.codecs import nullable as nullable
    from snapreplay.app.codecs import raw as raw
    from snapreplay.app.codecs import utf8 as utf8
    from snapreplay.app.out import Out as Out
    from snapreplay.app.record import Record as Record
    from snapreplay.app.timer import Timer as Timer
    from snapreplay.app.topic import Topic as Topic
    from snapreplay.errors import RecordError as RecordError
    from snapreplay.errors import SnapreplayError as SnapreplayError
    from snapreplay.errors import StopError as StopError
    from snapreplay.errors import UsageError as UsageError
    from snapreplay.service.config.settings import Settings as Settings
    from snapreplay.service.kafka.client_log import summarise_client_log as summarise_client_log
    from snapreplay.service.service import Service as Service
    from snapreplay.service.service import run as run
    from snapreplay.service.service import running as running
    from snapreplay.state.contract import State as State
    from snapreplay.state.map import MapState as MapState
    from snapreplay.state.stores import Stores as Stores

__version__ = "0.1.0"

_HOME = {
    "App": "app.app",
    "Codec": "app.codecs",
    "MapState": "state.map",
    "Out": "app.out",
    "Record": "app.record",
    "RecordError": "errors",
    "Service": "service.service",
    "Settings": "service.config.settings",
    "SnapreplayError": "errors",
    "State": "state.contract",
    "StopError": "errors",
    "Stores": "state.stores",
    "Timer": "app.timer",
    "Topic": "app.topic",
    "UsageError": "errors",
    "i64": "app.codecs",
    "json": "app.codecs",
    "msgpack": "app.codecs",
    "nullable": "app.codecs",
    "raw": "app.codecs",
    "run": "service.service",
    "running": "service.service",
    "summarise_client_log": "service.kafka.client_log",
    "utf8": "app.codecs",
}

__all__ = [*_HOME, "__version__"]  # noqa: PLE0604 - made from the table above


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
