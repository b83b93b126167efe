"""The inputs of a partition: how far each is read, and which open transaction holds one back."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec.structs import force_setattr

from snapreplay.service.control.vocabulary import Count, Seconds, Time, said


class InputStatus(msgspec.Struct, frozen=True):
    """One input topic of a partition, with both lags, in offsets: an upper bound of the records left, because markers
    and compaction make it larger. What is null is not known before the first fetch."""

    topic: str
    position: Annotated[
        Count, said("All records before it are processed. Markers and aborted records at the end are passed, too.")
    ]
    end_offset: Annotated[Count | None, said("The last stable offset: what can be read ends here.")] = None
    high_watermark: Annotated[
        Count | None, said("The end of the log. It is beyond `end_offset` while a transaction is open.")
    ] = None
    lag: Annotated[Count | None, said("To the last stable offset.")] = None  # derived
    lag_to_high_watermark: Count | None = None  # derived

    def __post_init__(self) -> None:
        force_setattr(self, "lag", self._lag_to(self.end_offset))
        force_setattr(self, "lag_to_high_watermark", self._lag_to(self.high_watermark))

    def _lag_to(self, end: int | None) -> int | None:
        return None if end is None else max(0, end - self.position)


class OpenTransactionStatus(msgspec.Struct, frozen=True):
    """The open transaction that holds back a last stable offset, as the brokers describe it. What is null is not
    known: no coordinator that may be asked has this transaction."""

    producer_id: Count
    producer_epoch: Count
    start_offset: Annotated[Count, said("Of its first record in this partition.")]
    transactional_id: str | None = None
    started_at: Time | None = None
    timeout_seconds: Annotated[Seconds | None, said("So long after its start the coordinator aborts it.")] = None
    last_record_at: Annotated[Time | None, said("The newest timestamp of its producer's records here.")] = None


class BlockedTopic(msgspec.Struct, frozen=True):
    """A topic held back by an open transaction: `offsets` is the distance from the last stable offset to the high
    watermark. `held_by` is null if the brokers could not say."""

    topic: str
    last_stable_offset: Count
    offsets: Count
    held_by: OpenTransactionStatus | None = None
