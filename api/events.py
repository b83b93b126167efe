"""The server-sent events by which a process tells what it does: written, sent to all who listen, and read piece by
piece.

A `status` event has the members of a `StatusDocument` that changed since the event before; the first one has all. A
comment twice a second says how old that is. `bye` says that the service ends in good order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec

from snapreplay.api.json_values import encoded
from snapreplay.service.clock import boot_seconds
from snapreplay.service.control.protocol import StatusDocument

MEDIA_TYPE = "text/event-stream"
BYE = b"event: bye\ndata: {}\n\n"
MEMBERS = tuple(name for name in StatusDocument.__struct_fields__ if name != "made_at")
"""Without the time, which is of the clock of one machine."""
_END = b"\n\n"
_AGES = ": silent_ms=%d status_ms=%d\n\n"


class Ages(NamedTuple):
    """Says how long the service behind has been silent, and how long ago the last status sent was true."""

    silent_seconds: float
    status_seconds: float


class ServerEvent(NamedTuple):
    """An event: its name, and its data."""

    event: str
    data: bytes


class TooLarge(Exception):
    """An event has no end."""


def members(document: StatusDocument) -> dict[str, bytes]:
    return {name: encoded(getattr(document, name)) for name in MEMBERS}


def status(encoded: Mapping[str, bytes]) -> bytes:
    data = b",".join(b'"%s":%s' % (name.encode(), value) for name, value in encoded.items())
    return b"event: status\ndata: {%s}\n\n" % data


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
        """Read on. Raises TooLarge: an event has more than `bytes_max`."""
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


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    """Make the reader of an event's members, any of which may be left out. That takes a third of the time in which HTTP
    is imported (18 of 52 ms, measured), so it is made for the first peer."""
    fields = [
        (field.name, field.type | msgspec.UnsetType, msgspec.UNSET)
        for field in msgspec.structs.fields(StatusDocument)
        if field.name in MEMBERS
    ]
    return msgspec.json.Decoder(msgspec.defstruct("_Change", fields))


def whose(data: bytes) -> Whose | None:
    """Say whose status this is; None: that cannot be read."""
    try:
        return msgspec.json.decode(data, type=_First).facts
    except msgspec.MsgspecError:
        return None


def changed(before: StatusDocument | None, data: bytes) -> StatusDocument:
    """Return the document with the members of an event. Raises msgspec.MsgspecError: it cannot be read."""
    change = _decoder().decode(data)
    given = {name: value for name in MEMBERS if (value := getattr(change, name)) is not msgspec.UNSET}
    if before is None:
        return StatusDocument(**given)
    return msgspec.structs.replace(before, **given)


TURN_SECONDS = 0.5
STATUS_SECONDS = 1.0
BYTES_PER_SECOND = 4 * 1024 * 1024
"""A status costs its size once, and its change once for each reader. So a hundred processes do not drown each other."""
PIECE_BYTES = 64 * 1024
PATH = "/api/v1/events"


class StatusEvents:
    """The events of one process, the same for all its readers. While it does not `run`, a reader gets the status
    once."""

    def __init__(self, newest: Callable[[], StatusDocument | None] = lambda: None) -> None:
        """Take `newest`, which returns what is known without asking for more."""
        self._newest = newest
        self._document: StatusDocument | None = None
        self._said: dict[str, bytes] = {}
        self._change = b""
        self._number = 0
        self._not_before = 0.0
        self._turn = asyncio.Event()
        self._runs = False
        self._says_bye = False
        self.readers = 0

    async def run(self) -> None:
        """Tell what is new, twice a second, until `end`."""
        self._runs = True
        while self._runs:
            self.tell()
            await asyncio.sleep(TURN_SECONDS)

    def end(self) -> None:
        """End all streams with a `bye`: the service ends in good order."""
        self._runs, self._says_bye = False, True
        self._next_turn()

    def tell(self, *, at_once: bool = False) -> None:
        """Tell now what is new, or only its age if there was news within the last second and it need not be sent
        `at_once`."""
        if self.readers:
            self._look(at_once=at_once)
            self._next_turn()

    async def stream(self, document: StatusDocument) -> AsyncGenerator[bytes]:
        """Yield the events for one reader: first the whole status, `document` unless one was sent a moment ago."""
        self.readers += 1
        try:
            if self._document is None or self._is_late_enough():
                self._say(document)
            sent_number = -1
            while True:
                pieces, sent_number = self._since(sent_number), self._number
                for piece in pieces:
                    yield piece
                if not self._runs:
                    break
                await self._turn.wait()
            if self._says_bye:
                yield BYE
        finally:
            self.readers -= 1

    def _since(self, sent_number: int) -> Iterator[bytes]:
        if self._number == sent_number:
            event = b""
        elif self._number == sent_number + 1:
            event = self._change
        else:  # it is new, or it reads slowly and has missed a change
            event = status(self._said)
        return _pieces(event, self._ages())

    def _next_turn(self) -> None:
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()

    def _look(self, *, at_once: bool) -> None:
        document = self._newest()
        if document is not None and document is not self._document and (at_once or self._is_late_enough()):
            self._say(document)

    def _is_late_enough(self) -> bool:
        return asyncio.get_running_loop().time() >= self._not_before

    def _say(self, document: StatusDocument) -> None:
        said = members(document)
        change = {name: value for name, value in said.items() if self._said.get(name) != value}
        self._document, self._said = document, said
        cost_bytes = sum(map(len, said.values()))
        if change:
            self._number += 1
            self._change = status(change)
            cost_bytes += len(self._change) * self.readers
        pause_seconds = max(STATUS_SECONDS, cost_bytes / BYTES_PER_SECOND)
        self._not_before = asyncio.get_running_loop().time() + pause_seconds

    def _ages(self) -> bytes:
        status_seconds = boot_seconds() - self._document.made_at if self._document else 0.0
        return ages(Ages(0.0, max(0.0, status_seconds)))


def _pieces(event: bytes, ages: bytes) -> Iterator[bytes]:
    """Cut what is to be sent into pieces: each is sent when the reader has taken the one before."""
    for begin in range(0, len(event), PIECE_BYTES):
        yield event[begin : begin + PIECE_BYTES]
    yield ages
