"""The Kafka client's warnings, each cause once a minute.

A topic that was deleted under a reader is worth one line; the client logs a thousand a second (measured). New messages
always pass: a cause is the whole text of one logger and level, with its exception, not its template.
"""

from __future__ import annotations

import copy
import logging
import re
import threading
import time
from collections.abc import Callable

from snapreplay.service.core.repeats import QUIET_SECONDS, Repeated, Repeats

CLIENT_LOGGER = "aiokafka"
_ADDRESS = re.compile(r"0x[0-9a-f]+")

_Key = tuple[str, int, str]


def summarise_client_log() -> None:
    """Send the client's warnings and errors to the root logger's handlers in sums, from now on: a new text at once,
    then once a minute how often it was repeated. For the whole process. Idempotent.

    `snapreplay run` and `snapreplay.run` do this by themselves; a program that embeds a service decides about its log.
    """
    logger = logging.getLogger(CLIENT_LOGGER)
    if not any(isinstance(handler, Summary) for handler in logger.handlers):
        logger.addHandler(Summary(logging.getLogger()))
        logger.propagate = False


class Summary(logging.Handler):
    """Passes records on to `target`'s handlers; those of level WARNING and above once a minute and text."""

    def __init__(self, target: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._target = target
        self._now = now
        self._repeats = Repeats()
        self._last: dict[_Key, logging.LogRecord] = {}
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.WARNING:
            self._target.callHandlers(record)
            return
        now = self._now()
        key = (record.name, record.levelno, _ADDRESS.sub("0x", _cause(record)))
        said = self._repeats.met(key, now)
        if said is None:
            self._last[key] = record
            self._tell_later(now)
        elif said.times == 1:
            self._target.callHandlers(record)
        else:
            self._last[key] = record
            self._tell(key, said, now)

    def tell(self, *, all_of_them: bool = False) -> None:
        """Log what was left out for more than a minute, or all of it."""
        self.acquire()
        try:
            now = self._now()
            for key in list(self._last):
                if all_of_them or now - self._repeats.causes[key].said_at >= QUIET_SECONDS:
                    self._tell(key, self._repeats.told(key, now), now)
            self._timer = None
            self._tell_later(now)
        finally:
            self.release()

    def close(self) -> None:
        """Log, at the end of the process, everything that was left out."""
        self.tell(all_of_them=True)
        super().close()

    def _tell(self, key: _Key, said: Repeated, now: float) -> None:
        record = copy.copy(self._last.pop(key))
        record.msg = record.getMessage() + said.more(now)
        record.args, record.exc_info, record.exc_text = None, None, None
        self._target.callHandlers(record)

    def _tell_later(self, now: float) -> None:
        """Tell it by a timer, because nothing more may be logged."""
        due_at = self._repeats.due_at()
        if self._timer is None and due_at is not None:
            self._timer = threading.Timer(max(0.0, due_at - now), self.tell)
            self._timer.daemon = True
            self._timer.start()


def _cause(record: logging.LogRecord) -> str:
    """Return the text with its exception: some texts are always the same, and only that says what happened."""
    error = record.exc_info[1] if record.exc_info else None
    return record.getMessage() if error is None else f"{record.getMessage()}: {error!r}"
