"""The time for which the retention of a topic leaves a record where it is. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from snapreplay.app.record import InputRecord

RECORD_BYTES = 80
"""What a record takes in a log beside its key, value and headers, if it has a batch of its own; as much as a marker."""
_LOOKS_MAX = 10


class Retention(NamedTuple):
    """The milliseconds and bytes that a topic keeps per partition; None: nothing is deleted for this reason."""

    ms: int | None = None
    size_bytes: int | None = None


def retention_of(config: Mapping[str, str]) -> Retention:
    """Read it in the topic's config."""
    if "delete" not in config.get("cleanup.policy", "delete"):
        return Retention()
    ms, size_bytes = (int(config.get(name, -1)) for name in ("retention.ms", "retention.bytes"))
    return Retention(None if ms < 0 else ms, None if size_bytes < 0 else size_bytes)


class Growth:
    """The growth of one log: offsets by the last samples of its end, bytes by its newest records."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque(maxlen=_LOOKS_MAX)
        self.offset_bytes: float | None = None
        """An upper bound of what an offset takes: compression counts for nothing. None: no record was seen."""

    def look(self, at_seconds: float, end_offset: int) -> None:
        if self._looks and end_offset < self._looks[-1][1]:
            self._looks.clear()  # it was cut, or is another log
        self._looks.append((at_seconds, end_offset))

    def sample(self, records: Sequence[InputRecord]) -> None:
        """Take records that follow each other in the log."""
        if records:
            span = records[-1].offset - records[0].offset + 1
            self.offset_bytes = RECORD_BYTES + sum(map(_content_bytes, records)) / span

    @property
    def offsets_per_second(self) -> float | None:
        """Offsets per second; None before the second sample."""
        if not self._looks:
            return None
        (first_at, first), (last_at, last) = self._looks[0], self._looks[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else None

    def seconds_left(self, retention_bytes: int, behind_offsets: int) -> float | str | None:
        """Return the seconds until `retention_bytes` lie behind a record that has `behind_offsets` behind it now; why
        they are not known; or None: the log does not grow."""
        if self.offset_bytes is None:
            return "it has no record yet"
        left_offsets = max(0.0, retention_bytes / self.offset_bytes - behind_offsets)
        speed = self.offsets_per_second
        if not left_offsets:
            return 0.0
        if speed is None:
            return "its growth is not measured yet"
        return left_offsets / speed if speed else None


def _content_bytes(record: InputRecord) -> int:
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
