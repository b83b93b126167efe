"""Exactly-once, crash-proof in-memory state for Kafka programs in Python.

Public names are imported when first used (PEP 562): `import snapreplay` needs no Kafka client and
no web server, so that tests start fast and Spark executors can have it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapreplay.service.embed import Service as Service
    from snapreplay.service.embed import run as run
    from snapreplay.service.embed import running as running
    from snapreplay.service.kafka.client_log import summarise_client_log as summarise_client_log
    from snapreplay.service.settings import Settings as Settings
    from snapreplay.snapshots.errors import RecordError as RecordError
    from snapreplay.snapshots.errors import SnapreplayError as SnapreplayError
    from snapreplay.snapshots.errors import StopError as StopError
    from snapreplay.snapshots.errors import UsageError as UsageError
    from snapreplay.snapshots.program.app import App as App
    from snapreplay.snapshots.program.codecs import Codec as Codec
    from snapreplay.snapshots.program.codecs import i64 as i64
    from snapreplay.snapshots.program.codecs import json as json
    from snapreplay.snapshots.program.codecs import msgpack as msgpack
    from snapreplay.snapshots.program.codecs import nullable as nullable
    from snapreplay.snapshots.program.codecs import raw as raw
    from snapreplay.snapshots.program.codecs import utf8 as utf8
    from snapreplay.snapshots.program.out import Out as Out
    from snapreplay.snapshots.program.record import Record as Record
    from snapreplay.snapshots.program.topic import Topic as Topic
    from snapreplay.snapshots.state.contract import State as State
    from snapreplay.snapshots.state.map import MapState as MapState

__version__ = "0.1.0"

_HOME = {
    "App": "snapshots.program.app",
    "Codec": "snapshots.program.codecs",
    "MapState": "snapshots.state.map",
    "Out": "snapshots.program.out",
    "Record": "snapshots.program.record",
    "RecordError": "snapshots.errors",
    "Service": "service.embed",
    "Settings": "service.settings",
    "SnapreplayError": "snapshots.errors",
    "State": "snapshots.state.contract",
    "StopError": "snapshots.errors",
    "Topic": "snapshots.program.topic",
    "UsageError": "snapshots.errors",
    "i64": "snapshots.program.codecs",
    "json": "snapshots.program.codecs",
    "msgpack": "snapshots.program.codecs",
    "nullable": "snapshots.program.codecs",
    "raw": "snapshots.program.codecs",
    "run": "service.embed",
    "running": "service.embed",
    "summarise_client_log": "service.kafka.client_log",
    "utf8": "snapshots.program.codecs",
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
