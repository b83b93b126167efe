"""The text of the server-sent events by which a process tells what it does: written, and read piece by piece. Pure.

A `status` event has the members of a `StatusDocument` that changed since the event before; the first one has all. A
comment twice a second says how old that is. `bye` says that the service ends in good order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from snapreplay.api.json_values import encoded
from snapreplay.service.control.protocol import StatusDocument

MEDIA_TYPE = "text/event-stream"
BYE = b"event: bye\ndata: {}\n\n"
MEMBERS = tuple(name for name in StatusDocument.__struct_fields__ if name != "made_at")
"""Without the time, which is of the clock of one machine."""
_END = b"\n\n"
_AGES = ": silent_ms=%d status_ms=%d\n\n"


class Ages(NamedTuple):
    """Says how long the service behind has been silent, and how long ago the told status was true."""

    silent_seconds: float
    status_seconds: float


class ServerEvent(NamedTuple):
    """An event: its name, and its data."""

    event: str
    data: bytes


class TooLarge(Exception):
    """An event has no end."""


def members(document: StatusDocument) -> dict[str, bytes]:
    """Encode each member of the document."""
    return {name: encoded(getattr(document, name)) for name in MEMBERS}


def status(event_id: str, encoded: Mapping[str, bytes]) -> bytes:
    """Write a status event of encoded members."""
    data = b",".join(b'"%s":%s' % (name.encode(), value) for name, value in encoded.items())
    return b"event: status\nid: %s\ndata: {%s}\n\n" % (event_id.encode(), data)


def ages(said: Ages) -> bytes:
    """Write the comment that tells the ages. Browsers leave it out."""
    return (_AGES % (said.silent_seconds * 1000, said.status_seconds * 1000)).encode()


class Parser:
    """Reads what the functions above have written. What it does not know is left out: a newer version says it."""

    def __init__(self, bytes_max: int) -> None:
        """Take `bytes_max`: of one event."""
        self._bytes_max = bytes_max
        self._unread = bytearray()

    def feed(self, piece: bytes) -> Iterator[Ages | ServerEvent]:
        """Read on.

        Raises:
            TooLarge: an event has more than `bytes_max`.
        """
        searched = max(0, len(self._unread) - len(_END) + 1)
        self._unread += piece
        began = 0
        while (end := self._unread.find(_END, searched)) >= 0:
            block = bytes(self._unread[began:end])
            began = searched = end + len(_END)
            if (read := _read(block)) is not None:
                yield read
        del self._unread[:began]
        if len(self._unread) > self._bytes_max:
            raise TooLarge(f"an event has more than {self._bytes_max:,} bytes")


def _read(block: bytes) -> Ages | ServerEvent | None:
    fields: dict[bytes, bytes] = {}
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        fields[name] = value.removeprefix(b" ")
    if b"" in fields:
        return _read_ages(fields[b""])
    return ServerEvent(fields.get(b"event", b"message").decode("utf-8", "replace"), fields.get(b"data", b""))


def _read_ages(comment: bytes) -> Ages | None:
    values = dict(each.partition(b"=")[::2] for each in comment.split())
    try:
        return Ages(int(values[b"silent_ms"]) / 1000, int(values[b"status_ms"]) / 1000)
    except (KeyError, ValueError):
        return None


class Whose(msgspec.Struct):
    """The least that must be known of a status before anything else of it counts."""

    app_id: str
    process_id: str


class _First(msgspec.Struct):
    facts: Whose


_first = msgspec.json.Decoder(_First)
_Change: Any = msgspec.defstruct(
    "_Change",
    [
        (field.name, field.type | msgspec.UnsetType, msgspec.UNSET)
        for field in msgspec.structs.fields(StatusDocument)
        if field.name in MEMBERS
    ],
)
_changes = msgspec.json.Decoder(_Change)


def whose(data: bytes) -> Whose | None:
    """Say whose status this is; None: that cannot be read."""
    try:
        return _first.decode(data).facts
    except msgspec.MsgspecError:
        return None


def changed(before: StatusDocument | None, data: bytes) -> StatusDocument:
    """Return the document with the members of an event.

    Raises:
        msgspec.MsgspecError: it cannot be read.
    """
    change = _changes.decode(data)
    given = {name: value for name in MEMBERS if (value := getattr(change, name)) is not msgspec.UNSET}
    if before is None:
        return StatusDocument(**given)
    return msgspec.structs.replace(before, **given)
