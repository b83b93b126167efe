"""The topics that are not those that were expected: a topic that was created again has the same name. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class TopicChange(NamedTuple):
    """A topic that is another one than expected; `found_id` is None when there is no topic of this name."""

    topic: str
    recorded_id: str
    found_id: str | None

    def __str__(self) -> str:
        if self.found_id is None:
            return f"topic {self.topic} no longer exists (its id was {self.recorded_id})"
        return (
            f"topic {self.topic} was deleted and created again: its id was {self.recorded_id},"
            f" now it is {self.found_id}"
        )


def changes(topics: Iterable[str], recorded: Mapping[str, str], found: Mapping[str, str]) -> tuple[TopicChange, ...]:
    """Return the topics that have another id than recorded, or are missing. Without ids nothing is known to have
    changed."""
    return tuple(
        TopicChange(topic, recorded[topic], found.get(topic))
        for topic in topics
        if recorded.get(topic) and found.get(topic) not in (recorded[topic], "")
    )
