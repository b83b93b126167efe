"""Records of an app's topics as a person reads them: decoded by the app's codecs, or as our own formats say. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from snapreplay.api.cli.json_records import builtins_of, document_of, document_of_bytes, headers_of
from snapreplay.app.app import App
from snapreplay.app.dead_letter import PREFIX
from snapreplay.app.names import dead_letters_topic
from snapreplay.app.record import InputRecord
from snapreplay.app.topic import Topic
from snapreplay.errors import SnapreplayError
from snapreplay.snapshots.format.envelope import MAGIC, decode
from snapreplay.snapshots.format.records import ChangesRecord, Chunk
from snapreplay.state.keys import stored_key
from snapreplay.state.stamp import bare
from snapreplay.state.timers import TimerKey
from snapreplay.state.unknown_store import PERIODS_STORE, TIMERS_STORE

Document = dict[str, Any]
_TEXT_MAX = 2000


class Shower:
    """Knows the app's topics."""

    def __init__(self, app: App[Any]) -> None:
        self._dead_letters = dead_letters_topic(app.app_id)
        self._topics = {topic.name: topic for topic in (*app.inputs, *app.outputs)}

    def document(self, record: InputRecord) -> Document:
        """Make a document for JSON: a decoded key and value as `feed` takes them. What does not decode is shown as
        text or base64, beside the reason in `key_error` or `value_error`."""
        found: Document = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp,
        }
        if (record.value or b"").startswith(MAGIC):
            return found | _own(record)
        headers = [pair for pair in record.headers if not pair[0].startswith(PREFIX)]
        topic = self._topics.get(record.topic)
        if record.topic == self._dead_letters:
            why = {
                name.removeprefix(PREFIX): data.decode(errors="replace")
                for name, data in record.headers
                if name.startswith(PREFIX)
            }
            topic = self._topics.get(why.get("topic", ""))
            found["dead_letter"] = why
        return found | _decoded(topic, record) | {"headers": headers_of(headers)}

    def line(self, record: InputRecord) -> str:
        """Write a line for people: place, time, and what is in it."""
        document = self.document(record)
        at = datetime.fromtimestamp(record.timestamp / 1000, UTC).isoformat(timespec="milliseconds")
        place = f"{record.topic}-{record.partition}-{record.offset}  {at.replace('+00:00', 'Z')}"
        return f"{place}  {_text(document)}"[:_TEXT_MAX]


def _decoded(topic: Topic[Any, Any] | None, record: InputRecord) -> Document:
    found: Document = {}
    for side, data in (("key", record.key), ("value", record.value)):
        codec = getattr(topic, side, None)
        try:
            found[side] = document_of(codec, data) if codec is not None else _plain(data)
        except Exception as error:  # noqa: BLE001 - the codec is the user's: it may raise anything
            found[side] = _plain(data)
            found[f"{side}_error"] = f"cannot be read as {getattr(codec, 'name', '')}: {error}"
    return found


def _plain(data: bytes | None) -> Any:
    return None if data is None else document_of_bytes(data)


def _own(record: InputRecord) -> Document:
    """Show a claim, changes, an increment, a chunk or a manifest."""
    try:
        entry = decode(record.value or b"")
    except SnapreplayError as error:  # damaged, or of a newer version: the message says which
        return {"kind": "unreadable", "value_error": str(error)}
    kind = type(entry).__name__.removesuffix("Record").lower()
    match entry:
        case ChangesRecord(batch, part, stores):
            changed = {name: _entries(name, changes) for name, changes in stores.items()}
            return {"kind": kind, "batch": batch, "part": part, "stores": changed}
        case Chunk(snapshot_id, sequence, store, slices):
            entries = {k: v for one in slices for k, v in one.entries.items()}
            found = {"snapshot_id": snapshot_id, "sequence": sequence, "store": store}
            return {"kind": kind, **found, "entries": _entries(store, entries)}
        case _:
            return {"kind": kind, **builtins_of(entry)}


def _entries(
    store: str, entries: dict[bytes, bytes | None] | dict[bytes, bytes]
) -> list[list[Any]]:
    """Show pairs, because keys need not be text. A deleted key has null."""
    key_of = _timer if store in (TIMERS_STORE, PERIODS_STORE) else _key
    return [
        [key_of(key), None if value is None else _value(value)] for key, value in entries.items()
    ]


def _timer(data: bytes) -> Any:
    """Show store, name and key."""
    try:
        timer = TimerKey.decoded(data)
    except msgspec.MsgspecError:
        return document_of_bytes(data)
    return [timer.store, timer.name, _key(timer.key) if timer.key else None]


def _key(data: bytes) -> Any:
    """Show the key of a map, or of another state the app's own bytes."""
    try:
        return builtins_of(stored_key(data))
    except (msgspec.MsgspecError, ValueError):
        return document_of_bytes(data)


def _value(data: bytes) -> Any:
    """Show a value as `_key` does a key, without the time of the last touch."""
    try:
        return builtins_of(msgspec.msgpack.decode(bare(data)))
    except (msgspec.MsgspecError, ValueError):
        return document_of_bytes(data)


def _text(document: Document) -> str:
    if "kind" in document:
        rest = [f"{k} {_compact(document[k])}" for k in _SHOWN if document.get(k) not in _NOTHING]
        return f"{document['kind']}: {', '.join(rest)}"
    parts = [f"{_compact(document['key'])} → {_compact(document['value'])}"]
    if document["headers"]:
        parts.append(f"headers {_compact(document['headers'])}")
    parts += [document[name] for name in ("key_error", "value_error") if name in document]
    if "dead_letter" in document:
        why = document["dead_letter"]
        parts.append(
            f"dead letter: {why['message']}" if "message" in why else "a note, no dead letter"
        )
    return "  ".join(parts)


_NOTHING: tuple[object, ...] = (None, "", [], {}, -1)
_SHOWN = (
    *("instance_id", "host", "pid"),
    *(
        "snapshot_id",
        "batch",
        "part",
        "sequence",
        "record_count",
        "positions",
        "skipped",
        "outputs",
    ),
    *("entry_count", "stores", "entries", "decision", "value_error"),
)
"""Of our own records, in a line; JSON has every field."""


def _compact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
