"""Tells all who listen what this process does, as server-sent events of its status."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator

from snapreplay.api import event_stream
from snapreplay.service.clock import boot_seconds
from snapreplay.service.control.protocol import StatusDocument

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
        self._life = secrets.token_hex(4)
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
        """Tell now what is new, or only its age if there was news within the last second and it is not to be told
        `at_once`."""
        if self.readers:
            self._look(at_once=at_once)
            self._next_turn()

    async def stream(self, document: StatusDocument, last_event_id: str = "") -> AsyncGenerator[bytes]:
        """Yield the events for one reader: first the whole status, `document` unless one was told a moment ago, or what
        has changed since the event that the reader had last on an earlier stream."""
        self.readers += 1
        try:
            if self._document is None or self._is_late_enough():
                self._say(document)
            told = self._number_of(last_event_id)
            while True:
                pieces, told = self._since(told), self._number
                for piece in pieces:
                    yield piece
                if not self._runs:
                    break
                await self._turn.wait()
            if self._says_bye:
                yield event_stream.BYE
        finally:
            self.readers -= 1

    def _number_of(self, event_id: str) -> int:
        """Return the number of an event of this process; -1: it is of an earlier process, or no id."""
        life, _, number = event_id.partition("-")
        return int(number) if life == self._life and number.isdecimal() else -1

    def _since(self, told: int) -> Iterator[bytes]:
        if self._number == told:
            event = b""
        elif self._number == told + 1:
            event = self._change
        else:  # it is new, or it reads slowly and has missed a change
            event = event_stream.status(self._id(), self._said)
        return _pieces(event, self._ages())

    def _id(self) -> str:
        return f"{self._life}-{self._number}"

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
        said = event_stream.members(document)
        change = {name: value for name, value in said.items() if self._said.get(name) != value}
        self._document, self._said = document, said
        cost_bytes = sum(map(len, said.values()))
        if change:
            self._number += 1
            self._change = event_stream.status(self._id(), change)
            cost_bytes += len(self._change) * self.readers
        pause_seconds = max(STATUS_SECONDS, cost_bytes / BYTES_PER_SECOND)
        self._not_before = asyncio.get_running_loop().time() + pause_seconds

    def _ages(self) -> bytes:
        status_seconds = boot_seconds() - self._document.made_at if self._document else 0.0
        return event_stream.ages(event_stream.Ages(0.0, max(0.0, status_seconds)))


def _pieces(event: bytes, ages: bytes) -> Iterator[bytes]:
    """Cut what is to be sent into pieces: each is sent when the reader has taken the one before."""
    for begin in range(0, len(event), PIECE_BYTES):
        yield event[begin : begin + PIECE_BYTES]
    yield ages
