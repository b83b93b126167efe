"""A sample of the keys that arrive: does each lie where the declared partitioner of its topic puts it?"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from snapreplay.app.record import InputRecord
from snapreplay.service.core.partitioners import misplaced
from snapreplay.service.runtime.context import Context

log = logging.getLogger("snapreplay.partition")


class KeySample:
    """Looks at the first and the last record of each batch: a producer that hashes differently misplaces most keys."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._is_needed = any(each.partitioner for each in context.app.inputs)
        self._named: set[str] = set()

    def look(self, records: Sequence[InputRecord]) -> None:
        """Log an error for each topic with a key in another partition, once."""
        if not self._is_needed:
            return
        for record in (records[0], records[-1]):
            declared = self._context.app.declaration(record.topic)
            if declared is None or declared.partitioner is None or record.topic in self._named:
                continue
            count = self._context.view.partition_count
            if proof := misplaced(record.key, record.partition, count, declared.partitioner):
                self._named.add(record.topic)
                log.error(
                    "partition %d: the producer of %s does not partition by %s, as the app declares: %s. Handlers of"
                    " other inputs have this key in another partition, with another state; `snapreplay doctor` samples"
                    " all inputs",
                    self._context.partition,
                    record.topic,
                    declared.partitioner,
                    proof,
                )
