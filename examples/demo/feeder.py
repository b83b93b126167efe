"""Brings the last flights in slowly, beside everything else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from examples.demo.data import Row

PIECES = 100
CLOSE_S = 5.0
PIECE_S = 0.3  # shortened as soon as Spark has finished


class Feeder:
    """A thread that hands `rows` piece by piece to `load`. Close it before the topics are removed."""

    def __init__(self, load: Callable[[Iterator[Row], Callable[[int], None]], int], rows: list[Row]) -> None:
        self._load, self._rows = load, rows
        self._hurry, self._closed = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self.thread = threading.Thread(target=self._feed, name="feeder", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def finish(self) -> None:
        """Bring in all that is left at once, and wait for the last one.

        Raises:
            DemoFailed: a record was refused.
        """
        self._hurry.set()
        self.thread.join()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Bring in nothing more."""
        self._closed.set()
        self._hurry.set()
        if self.thread.is_alive():
            self.thread.join(CLOSE_S)

    def _feed(self) -> None:
        try:
            self._load(self._paced(), lambda _count: None)
        except Exception as error:  # noqa: BLE001 - of a thread: `finish` raises it where somebody listens
            self._error = error

    def _paced(self) -> Iterator[Row]:
        step = max(1, len(self._rows) // PIECES)
        for start in range(0, len(self._rows), step):
            if self._closed.is_set():
                return
            yield from self._rows[start : start + step]
            self._hurry.wait(PIECE_S)
