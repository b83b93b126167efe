"""Records as JSON documents, one per line: what `feed` reads and `tail` prints, decoded by the app's codecs. `tail`
also has a line for people. Pure.

{"key": "ada", "value": {"amount": 5}, "timestamp_ms": 1700000000000, "headers": {"id": "7"}, "partition": 0}

Only `value` must be there. Bytes that are no text are {"base64": "…"}.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from snapreplay.api.cli.logs import escaped
from snapreplay.api.json_values import builtins_of, document_of_bytes
from snapreplay.app.app import App
from snapreplay.app.codecs import Codec, unencoded
from snapreplay.app.failure import PREFIX
from snapreplay.app.foreign import seen_in
from snapreplay.app.made_record import is_timestamp
from snapreplay.app.names import dead_letters_topic
from snapreplay.app.out import headers_upper_bound, size_upper_bound
from snapreplay.app.record import InputRecord, Output
from snapreplay.app.topic import Topic
from snapreplay.counted import counted, lines_of
from snapreplay.errors import UsageError
from snapreplay.times import NO_TIMESTAMP, time_text

Document = dict[str, Any]
_TEXT_MAX = 2000


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: Any
    key: Any = None
    timestamp_ms: int | None = None
    headers: dict[str, Any] | list[tuple[str, Any]] = {}
    partition: int | None = None


_decode = msgspec.json.Decoder(_Line).decode


class _Refused(Exception):
    """The reason why a line cannot be fed."""


def records_of(lines: Iterable[bytes], topic: Topic[Any, Any], partition_count: int, limit_bytes: int) -> list[Output]:
    """Read every line as a record of the topic; empty lines are skipped. Raise UsageError for lines that cannot be
    fed, each with its number and the reason."""
    found: list[Output] = []
    refused: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(_record_of(line, topic, partition_count, limit_bytes))
        except _Refused as why:
            refused.append(f"line {number}: {why}")
    if refused:
        raise UsageError(
            f"{counted(len(refused), 'line')} cannot be fed to {topic.name}: nothing was written:{lines_of(refused)}",
            hint='each line is a JSON object such as {"key": "ada", "value": {"amount": 5}}',
        )
    return found


def _record_of(line: bytes, topic: Topic[Any, Any], partition_count: int, limit_bytes: int) -> Output:
    try:
        given = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _Refused(str(error)) from error
    if given.partition is not None and not 0 <= given.partition < partition_count:
        raise _Refused(
            f"partition {given.partition} does not exist: there are {partition_count} (0 to {partition_count - 1})"
        )
    if given.timestamp_ms is not None and not is_timestamp(given.timestamp_ms):
        raise _Refused(
            f"timestamp_ms {given.timestamp_ms} is not a time: before 1970, or beyond 64 bits; {NO_TIMESTAMP} stands"
            " for a record without one"
        )
    key = _bytes_of("key", topic.key, given.key)
    value = _bytes_of("value", topic.value, given.value)
    headers = given.headers.items() if isinstance(given.headers, dict) else given.headers
    pairs = tuple((name, None if text is None else _plain_bytes(f"header {name!r}", text)) for name, text in headers)
    size_bytes = size_upper_bound(key, value) + headers_upper_bound(pairs)
    if size_bytes > limit_bytes:
        raise _Refused(f"its record has {size_bytes} bytes, more than the topic's max.message.bytes={limit_bytes}")
    return Output(topic.name, key, value, given.partition, False, given.timestamp_ms, pairs)


def _bytes_of(side: str, codec: Codec[Any], given: object) -> bytes | None:
    if given is None:
        if not codec.nullable:
            raise _Refused(f"{side} is null or missing, but {codec.name} takes no null")
        return None
    if _is_raw(codec):
        return _plain_bytes(side, given)
    try:
        data = codec.encode(given)
    except Exception as error:  # the codec is the user's: it may raise anything
        raise _Refused(unencoded(side, codec, given, error).why) from error
    try:
        codec.decode(data)
    except Exception as error:  # the codec is the user's: it may refuse what it has encoded
        raise _Refused(f"{side} cannot be read as {codec.name}: {error}") from error
    return data


def _plain_bytes(side: str, given: object) -> bytes:
    match given:
        case str():
            return given.encode()
        case {"base64": str(text), **rest} if not rest:
            try:
                return base64.b64decode(text, validate=True)
            except ValueError as error:
                raise _Refused(f"{side} is not base64: {error}") from error
        case _:
            raise _Refused(f'{side} {_cut(repr(given))} is neither text nor {{"base64": "…"}}')


def document_of(codec: Codec[Any], data: bytes | None) -> Any:
    """Show a key or value as JSON has it, or raise what the codec raises for bytes that are not of its type."""
    if data is None:
        return None
    return document_of_bytes(data) if _is_raw(codec) else builtins_of(codec.decode(data))


def headers_of(headers: Sequence[tuple[str, bytes | None]]) -> Any:
    """Return an object, or pairs if a name occurs twice."""
    pairs = [(name, _plain(data)) for name, data in headers]
    found = dict(pairs)
    return found if len(found) == len(pairs) else pairs


def _is_raw(codec: Codec[Any]) -> bool:
    return codec.name in {"raw", "nullable(raw)"}


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"


class Shower:
    """Knows the app's topics."""

    def __init__(self, app: App[Any]) -> None:
        self._dead_letters = dead_letters_topic(app.app_id)
        self._input_named, self._outputs = app.input_named, {topic.name: topic for topic in app.outputs}

    def document(self, record: InputRecord) -> Document:
        """Make a document for JSON: a decoded key and value as `feed` takes them. What does not decode is shown as
        text or base64, beside the reason in `key_error` or `value_error`."""
        found: Document = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp,
        }
        headers = [pair for pair in record.headers if not pair[0].startswith(PREFIX)]
        topic = self._topic(record.topic)
        if record.topic == self._dead_letters:
            why = {
                name.removeprefix(PREFIX): (data or b"").decode(errors="replace")
                for name, data in record.headers
                if name.startswith(PREFIX)
            }
            topic = self._topic(why.get("topic", ""))
            found["dead_letter"] = why
        return found | _decoded(topic, record) | {"headers": headers_of(headers)}

    def _topic(self, name: str) -> Topic[Any, Any] | None:
        return self._outputs.get(name) or self._input_named(name)

    def line(self, record: InputRecord) -> str:
        """Write a line for people: place, time, and what is in it."""
        document = self.document(record)
        at = time_text(record.timestamp, "milliseconds")
        place = f"{record.topic}-{record.partition}-{record.offset}  {at}"
        return escaped(f"{place}  {_text(document)}"[:_TEXT_MAX])


def _decoded(topic: Topic[Any, Any] | None, record: InputRecord) -> Document:
    found: Document = {}
    for side, data in (("key", record.key), ("value", record.value)):
        codec = getattr(topic, side, None)
        try:
            found[side] = document_of(codec, data) if codec is not None else _plain(data)
        except Exception as error:  # noqa: BLE001 - the codec is the user's: it may raise anything
            found[side] = _plain(data)
            name = getattr(codec, "name", "")
            seen = seen_in(side, name, data or b"")
            seems = f"; it looks like {seen.what}" if seen is not None else ""
            found[f"{side}_error"] = f"cannot be read as {name}: {error}{seems}"
    return found


def _plain(data: bytes | None) -> Any:
    return None if data is None else document_of_bytes(data)


def _text(document: Document) -> str:
    parts = [f"{_compact(document['key'])} → {_compact(document['value'])}"]
    if document["headers"]:
        parts.append(f"headers {_compact(document['headers'])}")
    parts += [document[name] for name in ("key_error", "value_error") if name in document]
    if "dead_letter" in document:
        why = document["dead_letter"]
        parts.append(f"dead letter: {why['message']}" if "message" in why else "a note, not a dead letter")
    return "  ".join(parts)


def _compact(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
