"""Questions about the entries of a state, and their answers, as HTTP knows them.

A key is text in a question (`snapreplay.state.keys`), and a value is as it is stored: HTTP makes JSON
of it in its thread, so that the loop of the runners has less to do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec

from snapreplay.errors import RetryableError, UsageError
from snapreplay.service.control.vocabulary import Count, Seconds, one_of, said
from snapreplay.snapshots.format.records import Increment
from snapreplay.state.composite import Store

READ_SECONDS = 2.0
"""A question that is not answered by then is given up."""
BATCH_SECONDS = 1.5  # for the end of a batch; less, so that the refusal arrives in time
ENTRIES_MAX = 1000
BYTES_MAX = 1024 * 1024
"""Of the keys and values of one answer. Only a single larger entry exceeds it."""


class AnsweredBy(StrEnum):
    """The process that has answered."""

    OWNER = "owner"
    STANDBY = "standby"


class ReadKey(msgspec.Struct, frozen=True, tag="key"):
    """Asks for the value of a key, in one partition or in all that are here. A warm copy may answer if
    `is_stale_allowed`."""

    store: str
    key: str
    partition: int | None = None
    is_stale_allowed: bool = False


class ReadRange(msgspec.Struct, frozen=True, tag="range"):
    """Asks for entries of one partition, those behind the key `after`. Bounds are as of `MapState.range`, and for an
    ordered map only. See `ReadKey`."""

    store: str
    partition: int
    prefix: str | None = None
    start: str | None = None
    end: str | None = None
    after: str | None = None
    limit: int = 100
    is_stale_allowed: bool = False


StateRead = ReadKey | ReadRange


class ReadAt(msgspec.Struct, frozen=True):
    """The state that was read: that of a partition after one committed batch, whole."""

    partition: Count
    batch: Annotated[Count, said("The last batch in the state.")]
    positions: Annotated[
        dict[str, Count], said("Input → all records before this offset are in it.", examples=[{"payments": 880412}])
    ]
    owner_epoch: Annotated[Count, said("Of the owner that committed the batch.")]
    answered_by: Annotated[str, one_of(*AnsweredBy), said("`standby`: a warm copy, with `stale=true` only.")]
    age_seconds: Annotated[
        Seconds, said("Time since the copy was known to be up to date with the log, or the owner to be the owner.")
    ]
    ownership_doubt: Annotated[str, said("Why another process may own the partition by now; empty: no doubt.")]
    process_id: str
    host: str


class PartRead(msgspec.Struct, frozen=True):
    """The entries found in one partition: decoded keys, and values as they are stored."""

    at: ReadAt
    items: tuple[tuple[Any, bytes], ...]
    next_after: str | None = None


class NotRead(msgspec.Struct, frozen=True):
    """A partition that was not read."""

    partition: Count
    phase: Annotated[str | None, said("Its phase in the process that has it; null: it is not known who has it.")]
    reason: str


class StateAnswer(msgspec.Struct, frozen=True, tag="state"):
    """Each partition that was asked is in one of both; `partition_count`: of the app."""

    parts: tuple[PartRead, ...]
    not_read: tuple[NotRead, ...]
    partition_count: int


class UnknownMap(UsageError):
    """The state has no store of this name."""

    # `stores` has the existing names

    def __init__(self, stores: tuple[str, ...]) -> None:
        super().__init__(f"the state has no store of this name; it has {', '.join(stores)}")
        self.stores = stores


class WrongRead(UsageError):
    """A parameter of the read is wrong; the message names it."""

    # `where` names it, such as "query.prefix"; `why` says what is wrong

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where
        self.why = why


class NotReadable(RetryableError):
    """The partition cannot be read in this process now."""

    # `phase` is None if the process neither owns the partition nor has a copy

    def __init__(self, partition: int, phase: str | None, reason: str) -> None:
        super().__init__(f"partition {partition} cannot be read: {reason}")
        self.partition = partition
        self.phase = phase
        self.reason = reason


class BatchUnderWay(NotReadable):
    """The warm copy is in the middle of a batch and cannot be read at this moment."""

    def __init__(self, partition: int) -> None:
        super().__init__(partition, "warm", "its warm copy here is applying a batch")


class ReadLate(RetryableError):
    """There was no answer in time: a handler blocks the event loop of the partitions, or the process is suspended."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the state was not read within {seconds:.0f} s")


class Readable(NamedTuple):
    """A state as of its last committed batch, whole, until the next `await`.

    Attributes:
        last: the increment of that batch.
        owner_epoch: of the owner, or of the owner that a warm copy follows.
        age_seconds: since a copy was known to be as new as the log, or an owner to be the owner.
        doubt: why another process may own the partition by now; empty: no doubt.
    """

    store: Store
    last: Increment
    role: AnsweredBy
    owner_epoch: int
    age_seconds: float
    doubt: str = ""
