"""Watches the ends of quiet logs with the fetch session of their broker (`idle_watch`): it tells of each log that
changes, so the end of a silent one need not be asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from snapreplay.service.kafka.cursors import Answered, Cursor, Reading
from snapreplay.service.kafka.idle_watch import IdleWatch, Place, Watches, broker_of
from snapreplay.service.kafka.log_ends import NO_LEADER
from snapreplay.service.kafka.shared import Client, Shared
from snapreplay.service.ports import EndSeen, TopicPartition

OLD_S = 2.0
"""An end that was confirmed longer ago is asked for: a fence may have come since."""


class _End(Cursor):
    """A log that is watched from its end on. Only its end counts."""

    def is_news(self, answer: Answered) -> bool:
        has_moved = answer.last_stable_offset != self.fetch_offset
        return bool(has_moved or answer.error_code or answer.diverging is not None or answer.records)


class EndsWatch:
    """The watched ends of one reader of committed records."""

    def __init__(self, shared: Shared, watches: Watches, topic_ids: Mapping[str, str]) -> None:
        """Take topic → id; other topics are not watched."""
        self._client = Client(shared)
        self._watches, self._topic_ids = watches, topic_ids
        self._places: dict[TopicPartition, Place] = {}
        self._joined: set[IdleWatch] = set()

    def end_of(self, log: TopicPartition) -> EndSeen | None:
        """Return the end of a log that has not moved, and when its broker was last asked; None: ask."""
        place = self._places.get(log)
        if place is None or not place.is_watched:
            return None
        (wanted,) = place.wanted.values()
        seen = EndSeen(wanted.offset, place.asked_at)
        return seen if asyncio.get_running_loop().time() - seen.asked_at <= OLD_S else None

    def watch(self, log: TopicPartition, end_offset: int) -> None:
        """Watch a log that was found to end here."""
        topic_id = self._topic_ids.get(log.topic, "")
        key = topic_id, log.partition
        place = self._places.get(log)
        if place is not None and not place.over.done() and place.wanted[key].offset == end_offset:
            return  # the broker is still being asked
        if place is not None:
            place.end()
            del self._places[log]
        cursor = _End(log, end_offset, Reading(), topic_id)
        node = broker_of(self._client, cursor, asyncio.get_running_loop().time())
        if not topic_id or node == NO_LEADER:
            return
        watch = self._watches.of(node, read_committed=True)
        if (place := watch.join(self, {key: cursor})) is not None:
            self._joined.add(watch)
            self._places[log] = place

    def close(self) -> Collection[asyncio.Task[None]]:
        """End the places; return the tasks of the watches that end with them."""
        for place in self._places.values():
            place.end()
        return [task for watch in self._joined for task in watch.part(self)]
