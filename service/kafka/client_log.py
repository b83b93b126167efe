"""The Kafka client's warnings, each cause once a minute.

A topic that was deleted under a reader is worth one line; the client logs a thousand a second (measured). New messages
always pass: a cause is the whole text of one logger and level, with its exception, not its template.
"""

from __future__ import annotations

import copy
import logging
import re
import time
from collections.abc import Callable

from snapreplay.service.core.repeats import Repeats

CLIENT_LOGGER = "aiokafka"
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def summarise_client_log() -> None:
    """Summarise the Kafka client's warnings and errors in the whole process from now on. The root logger's handlers
    get a new message at once, and its repeats at most once a minute, with their number. Idempotent.

    `snapreplay run` and `snapreplay.run` call this themselves.
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

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            now = self._now()
            said = self._repeats.met((record.name, record.levelno, _ADDRESS.sub("0x", _cause(record))), now)
            if said is None:
                return
            if said.left_out:
                record = copy.copy(record)
                record.msg = record.getMessage() + said.more(now)
                record.args, record.exc_info, record.exc_text = None, None, None
        self._target.callHandlers(record)


def _cause(record: logging.LogRecord) -> str:
    """Return the text with its exception: some texts are always the same, and only that says what happened."""
    error = record.exc_info[1] if record.exc_info else None
    return record.getMessage() if error is None else f"{record.getMessage()}: {error!r}"
