"""Logs committed dead letters: the first of a kind whole, then how many there were, once a minute."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from snapreplay.errors import RecordError
from snapreplay.service.core.repeats import Repeats

log = logging.getLogger("snapreplay.partition")


class DeadLetterLog:
    """Of one ownership. A kind is an input topic and the class of the exception."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._said = Repeats()

    def committed(self, errors: Sequence[RecordError]) -> None:
        """`errors`: why each of the batch's dead letters was not applied, in order."""
        now = asyncio.get_running_loop().time()
        for error in errors:
            said = self._said.met(_kind(error), now)
            if said is not None:
                log.warning(
                    "partition %d: dead letter: %s%s",
                    self._partition,
                    error.message,
                    said.more(now),
                )


def _kind(error: RecordError) -> tuple[str, str]:
    topic = error.record_id.topic if error.record_id is not None else ""
    return topic, str(error.facts.get("exception") or type(error).__name__)
