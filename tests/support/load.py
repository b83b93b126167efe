"""Input that keeps coming while a test does other things."""

from __future__ import annotations

import threading

from tests.support import reference
from tests.support.stage import Stage


class Load:
    """A thread that writes a few records, pauses, and writes the next, until the block ends."""

    def __init__(
        self, here: Stage, topic: str | None = None, pause_s: float = 0.02, count: int = 10
    ) -> None:
        self._here = here
        self._topic = topic or here.app.inputs[0].name
        self._pause_s, self._count = pause_s, count
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self) -> None:
        first = 0
        while not self._ended.wait(self._pause_s):
            records = [(f"k{n % 20}", {"amount": n}) for n in range(first, first + self._count)]
            reference.send(
                self._here.bootstrap_servers, self._topic, self._here.partitions, records
            )
            first += self._count

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
