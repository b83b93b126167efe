"""What a partition of T-ZengLiang has been through, told by confluent-kafka from the first record to the last."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from snapreplay.snapshots.format.records import Claim, Increment
from tests.support import reference
from tests.support.deadlines import scaled
from tests.support.entries import read_entry

QUIET_S = scaled(30.0)


@dataclass
class History:
    """Committed increments and claims by offset, in order; and what is there that nobody sees.

    Attributes:
        aborted: offsets of records that only read_uncommitted shows.
        bare_markers: offsets without a record that follow another such offset: transactions that wrote nothing.
    """

    trimmed: bool = False
    increments: dict[int, Increment] = field(default_factory=dict)
    claims: dict[int, Claim] = field(default_factory=dict)
    foreign: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    bare_markers: list[int] = field(default_factory=list)

    def last_before(self, offset: int) -> int | None:
        """Of the last increment before `offset`, its own offset."""
        return max((each for each in self.increments if each < offset), default=None)

    def assert_one_chain(self) -> None:
        """Every increment follows the one before it, and is of the owner that claimed last: each restore had found
        the last increment, and nobody who was replaced has committed anything since. What was trimmed is not judged.
        """
        before: tuple[int, int] | None = None if self.trimmed else (-1, -1)
        for offset, increment in self.increments.items():
            told = (increment.batch - 1, increment.previous_offset)
            assert before in (None, told), f"offset {offset} follows {told}, not {before}"
            claims = [each for each in self.claims if each < offset]
            assert increment.owner_epoch in claims[-1:] or (self.trimmed and not claims), (
                f"offset {offset}: {increment.owner_epoch}, not the last of {claims}"
            )
            before = (increment.batch, offset)


def history(bootstrap_servers: str, topic: str, partition: int) -> History:
    """Read it twice, with and without what was aborted, up to the end as of now; waits for open transactions."""
    where = TopicPartition(topic, partition)
    with reference.consumer_of(bootstrap_servers, "read_uncommitted") as consumer:
        start, end = consumer.get_watermark_offsets(where, QUIET_S)
        every = _records(consumer, topic, partition, start, end)
    with reference.consumer_of(bootstrap_servers, "read_committed") as consumer:
        visible = _records(consumer, topic, partition, start, end)
    told = History(trimmed=start > 0, aborted=sorted(every.keys() - visible.keys()))
    told.bare_markers = _bare_markers([*sorted(every), end])
    for offset, value in visible.items():
        match kind_of(value):
            case RecordKind.INCREMENT:
                told.increments[offset] = read_entry(value)
            case RecordKind.CLAIM:
                told.claims[offset] = read_entry(value)
            case None:
                told.foreign.append(offset)
            case _:
                pass
    return told


def _bare_markers(offsets: list[int]) -> list[int]:
    """Each transaction ends with one offset that holds no record: every further one in a row was bare."""
    return [bare for one, other in pairwise(offsets) for bare in range(one + 2, other)]


def _records(consumer: Any, topic: str, partition: int, start: int, end: int) -> dict[int, bytes]:
    """Offset → value."""
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + QUIET_S
    consumer.assign([TopicPartition(topic, partition, start)])
    position = start
    while position < end:
        assert time.monotonic() < deadline, f"{topic}-{partition}: at {position} of {end}"
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is None:
            found[message.offset()] = message.value() or b""
            position = message.offset() + 1
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            position = max(position, message.offset() or 0)  # the end, as the broker says
    return found
