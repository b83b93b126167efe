"""Records as JSON documents, one per line: what `feed` reads and `tail` prints. Pure.

{"key": "ada", "value": {"amount": 5}, "timestamp_ms": 1700000000000, "headers": {"id": "7"}, "partition": 0}

Only `value` must be there. Bytes that are no text are {"base64": "…"}.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from snapreplay.app.codecs import Codec, unencoded
from snapreplay.app.made_record import is_timestamp
from snapreplay.app.out import headers_upper_bound, size_upper_bound
from snapreplay.app.record import Output
from snapreplay.app.topic import Topic
from snapreplay.counted import counted
from snapreplay.errors import UsageError

SHOWN_LINES = 10
_BASE64 = "base64"


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: Any
    key: Any = None
    timestamp_ms: int | None = None
    headers: dict[str, Any] | list[tuple[str, Any]] = {}
    partition: int | None = None


_decode = msgspec.json.Decoder(_Line).decode


class _Refused(Exception):
    """The reason why a line cannot be fed."""


def records_of(
    lines: Iterable[bytes], topic: Topic[Any, Any], partition_count: int, limit_bytes: int
) -> list[Output]:
    """Read every line as a record of the topic; empty lines are passed over.

    Raises:
        UsageError: lines that cannot be fed, each with its number and the reason.
    """
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
        more = len(refused) - SHOWN_LINES
        shown = [*refused[:SHOWN_LINES], *([f"and {more} more"] if more > 0 else [])]
        raise UsageError(
            f"{counted(len(refused), 'line')} cannot be fed to {topic.name}, so nothing was:\n  "
            + "\n  ".join(shown),
            hint='each line is a JSON object such as {"key": "ada", "value": {"amount": 5}}',
        )
    return found


def _record_of(
    line: bytes, topic: Topic[Any, Any], partition_count: int, limit_bytes: int
) -> Output:
    try:
        given = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _Refused(str(error)) from error
    if given.partition is not None and not 0 <= given.partition < partition_count:
        raise _Refused(
            f"partition {given.partition} does not exist: there are {partition_count} (0 to {partition_count - 1})"
        )
    if given.timestamp_ms is not None and not is_timestamp(given.timestamp_ms):
        raise _Refused(
            f"timestamp_ms {given.timestamp_ms} is no time: before 1970, or beyond 64 bits"
        )
    key = _bytes_of("key", topic.key, given.key)
    value = _bytes_of("value", topic.value, given.value)
    headers = given.headers.items() if isinstance(given.headers, dict) else given.headers
    pairs = tuple((name, _plain_bytes(f"header {name!r}", text)) for name, text in headers)
    size_bytes = size_upper_bound(key, value) + headers_upper_bound(pairs)
    if size_bytes > limit_bytes:
        raise _Refused(
            f"its record has {size_bytes} bytes, more than the topic's max.message.bytes={limit_bytes}"
        )
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
    except Exception as error:  # the same codec, which may refuse what it has encoded
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
                raise _Refused(f"{side} is no base64: {error}") from error
        case _:
            raise _Refused(f'{side} {_cut(repr(given))} is neither text nor {{"base64": "…"}}')


def document_of(codec: Codec[Any], data: bytes | None) -> Any:
    """Show a key or value as JSON has it.

    Raises:
        Exception: whatever the codec raises for bytes that are not of its type.
    """
    if data is None:
        return None
    return document_of_bytes(data) if _is_raw(codec) else builtins_of(codec.decode(data))


def document_of_bytes(data: bytes) -> Any:
    """Show text where it is UTF-8, else {"base64": "…"}."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(data).decode()}


def builtins_of(value: object) -> Any:
    """Show any value that msgspec knows as JSON has it; the keys of dicts become text."""
    plain = msgspec.to_builtins(value, builtin_types=(bytes,))
    return _json(plain)


def headers_of(headers: Sequence[tuple[str, bytes]]) -> Any:
    """Return an object, or pairs if a name occurs twice."""
    pairs = [(name, document_of_bytes(data)) for name, data in headers]
    found = dict(pairs)
    return found if len(found) == len(pairs) else pairs


def _json(plain: object) -> Any:
    if isinstance(plain, bytes):
        return document_of_bytes(plain)
    if isinstance(plain, Mapping):
        return {_name(key): _json(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple | set | frozenset):
        return [_json(each) for each in plain]
    return plain


def _name(key: object) -> str:
    shown = _json(key)
    return shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()


def _is_raw(codec: Codec[Any]) -> bool:
    return codec.name in {"raw", "nullable(raw)"}


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"
