"""Exactly-once, crash-proof in-memory state for Kafka programs in Python.

Public names are imported at their first use (PEP 562). `import snapreplay` needs no Kafka client and
no web server, so tests start fast and Spark executors can import it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapreplay.api.server import HttpServer as HttpServer
    from snapreplay.app.app import App as App
    from snapreplay.app.call import Answer as Answer
    from snapreplay.app.call import AsyncCall as AsyncCall
    from snapreplay.app.call import Call as Call
    from snapreplay.app.call import CallRefused as CallRefused
    from snapreplay.app.codecs import Codec as Codec
    from snapreplay.app.codecs import i32 as i32
    from snapreplay.app.codecs import i64 as i64
    from snapreplay.app.codecs import json as json
    from snapreplay.app.codecs import msgpack as msgpack
    from snapreplay.app.codecs import nullable as nullable
    from snapreplay.app.codecs import raw as raw
    from snapreplay.app.codecs import utf8 as utf8
    from snapreplay.app.out import Out as Out
    from snapreplay.app.record import Record as Record
    from snapreplay.app.tables import Pair as Pair
    from snapreplay.app.tables import Table as Table
    from snapreplay.app.timer import Timer as Timer
    from snapreplay.app.topic import Topic as Topic
    from snapreplay.app.windowed import Closed as Closed
    from snapreplay.app.windowed import Sessions as Sessions
    from snapreplay.app.windowed import Windows as Windows
    from snapreplay.errors import NotBegun as NotBegun
    from snapreplay.errors import NotCaughtUp as NotCaughtUp
    from snapreplay.errors import NotLive as NotLive
    from snapreplay.errors import PartitionNotLive as PartitionNotLive
    from snapreplay.errors import RecordError as RecordError
    from snapreplay.errors import RegistryUnavailable as RegistryUnavailable
    from snapreplay.errors import RetryableError as RetryableError
    from snapreplay.errors import ServiceClosed as ServiceClosed
    from snapreplay.errors import SnapreplayError as SnapreplayError
    from snapreplay.errors import StopError as StopError
    from snapreplay.errors import UnknownPartition as UnknownPartition
    from snapreplay.errors import UsageError as UsageError
    from snapreplay.registry.registry import SchemaRegistry as SchemaRegistry
    from snapreplay.registry.registry import avro as avro
    from snapreplay.service.config.groups import BatchSettings as BatchSettings
    from snapreplay.service.config.groups import ChangelogSettings as ChangelogSettings
    from snapreplay.service.config.groups import ErrorSettings as ErrorSettings
    from snapreplay.service.config.groups import GroupSettings as GroupSettings
    from snapreplay.service.config.groups import HttpSettings as HttpSettings
    from snapreplay.service.config.groups import RestoreSettings as RestoreSettings
    from snapreplay.service.config.groups import RetentionSettings as RetentionSettings
    from snapreplay.service.config.groups import SnapshotSettings as SnapshotSettings
    from snapreplay.service.config.groups import StandbySettings as StandbySettings
    from snapreplay.service.config.groups import StreamTimeSettings as StreamTimeSettings
    from snapreplay.service.config.groups import TimeoutSettings as TimeoutSettings
    from snapreplay.service.config.settings import Settings as Settings
    from snapreplay.service.config.settings import load_settings as load_settings
    from snapreplay.service.kafka.client_log import summarise_client_log as summarise_client_log
    from snapreplay.service.program import ensure_topics as ensure_topics
    from snapreplay.service.program import init as init
    from snapreplay.service.program import run as run
    from snapreplay.service.program import running as running
    from snapreplay.service.service import Service as Service
    from snapreplay.state.map import MapState as MapState
    from snapreplay.state.stores import Stores as Stores
    from snapreplay.state.view import MapView as MapView
    from snapreplay.state.view import Position as Position
    from snapreplay.state.view import StoresView as StoresView
    from snapreplay.state.view import View as View

__version__ = "0.1.0"

_NAMES = {
    "api.server": "HttpServer",
    "app.app": "App",
    "app.call": "Answer AsyncCall Call CallRefused",
    "app.codecs": "Codec i32 i64 json msgpack nullable raw utf8",
    "app.out": "Out",
    "app.record": "Record",
    "app.tables": "Pair Table",
    "app.timer": "Timer",
    "app.topic": "Topic",
    "app.windowed": "Closed Sessions Windows",
    "errors": "NotBegun NotCaughtUp NotLive PartitionNotLive RecordError RegistryUnavailable RetryableError"
    " ServiceClosed SnapreplayError StopError UnknownPartition UsageError",
    "registry.registry": "SchemaRegistry avro",
    "service.config.groups": "BatchSettings ChangelogSettings ErrorSettings GroupSettings HttpSettings RestoreSettings"
    " RetentionSettings SnapshotSettings StandbySettings StreamTimeSettings TimeoutSettings",
    "service.config.settings": "Settings load_settings",
    "service.kafka.client_log": "summarise_client_log",
    "service.program": "ensure_topics init run running",
    "service.service": "Service",
    "state.map": "MapState",
    "state.stores": "Stores",
    "state.view": "MapView Position StoresView View",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}

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
