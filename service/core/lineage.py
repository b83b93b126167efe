"""Whether anybody has fenced a partition since we did: the transaction coordinator remembers the last fence, also when
the increments topic is gone. Pure.

Seen on Kafka 4.3.1: each fence raises the producer epoch by one, by two when it ends an open transaction; a transaction
that times out raises it by one and leaves CompleteAbort. We never abort a transaction of our own.

It also tells whether an app waits for its genesis: only if nothing shows that it ever ran.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

_TIMED_OUT = frozenset({"PrepareEpochFence", "PrepareAbort", "CompleteAbort"})
ENDING = frozenset({"PrepareEpochFence", "PrepareAbort", "PrepareCommit"})
"""The end of a transaction is decided, and not all its partitions have it."""
_NEVER_USED = "Empty"
_OPEN = "Ongoing"


class Lineage(NamedTuple):
    """The lineage that a fence gives its owner, in Kafka's words."""

    producer_id: int
    producer_epoch: int


class LastFence(NamedTuple):
    """The last fence of a transactional id, as the coordinator knows it; `state`: of its transaction, Kafka's word."""

    lineage: Lineage
    state: str


def is_left_open(ours: Lineage, last: LastFence | None) -> bool:
    """Say whether the transaction of our last fence is still open."""
    return last == (ours, _OPEN)


def is_ending(last: LastFence) -> bool:
    """Say whether the end of its transaction is decided, and not all partitions have it."""
    return last.state in ENDING


def unbroken(ours: Lineage, last: LastFence | None, *, left_open: bool = False) -> bool:
    """Say whether no other process can have committed since our fence gave us `ours`.

    `last` is None when the coordinator has forgotten the id after a week. An epoch one higher is harmless if our
    transaction timed out, or if that epoch has committed nothing. `left_open`: one of our transactions, which we never
    ask to commit, was open: the fence that ends it raises the epoch by two.
    """
    if last is None or last.lineage == ours:
        return True
    producer_id, epoch = ours
    if left_open and last == (Lineage(producer_id, epoch + 2), _NEVER_USED):
        return True
    is_next = last.lineage == Lineage(producer_id, epoch + 1)
    return is_next and (last.state in _TIMED_OUT or last.state == _NEVER_USED)


class Fencer(StrEnum):
    """What fenced a partition whose log holds none of our records."""

    NONE = "no owner and no `init`"
    INIT = "an `init` that ended before its claim was in the log"
    OWNER = "an owner: its log was lost"


def is_first(ours: Lineage) -> bool:
    """Say whether ours is the first fence that the coordinator knows. Only `init` continues with it: an owner fences
    again."""
    return ours.producer_epoch == 0


def fencer(last: LastFence | None) -> Fencer:
    """Say who made the last fence. A first fence, or the next epoch if it only ended that transaction by timeout, is
    that of an `init`. Everything else counts as an owner's."""
    if last is None:
        return Fencer.NONE
    epoch, state = last.lineage.producer_epoch, last.state
    is_first_one = epoch == 0 and state in (_NEVER_USED, _OPEN)
    was_ended = epoch == 1 and state in _TIMED_OUT
    return Fencer.INIT if is_first_one or was_ended else Fencer.OWNER


class PartitionTraces(Struct, frozen=True):
    """What one partition's logs show.

    Attributes:
        is_at_beginning: its last increment is that of `init`.
        is_untouched: nothing was written behind that increment.
        is_empty: no batch was ever committed. A claim shows none: an interrupted `init` leaves one.
        fenced_by: who fenced the partition, if its log has no increment.
    """

    has_increment: bool = False
    is_at_beginning: bool = False
    is_untouched: bool = False
    is_empty: bool = False
    fenced_by: Fencer = Fencer.NONE


def awaits_genesis(partitions: Iterable[PartitionTraces]) -> bool:
    """Say whether the app is new and its genesis is awaited; else its partitions recover, or fail with what they lost.

    `init` begins one partition after the other. While some are at their beginning and the others empty, it is under way
    or was interrupted. A fence without a claim is its own if no owner came to what it has begun.
    """
    found = tuple(partitions)
    init_fenced = any(each.is_untouched for each in found)
    is_new = all(
        each.is_at_beginning or (each.is_empty and (init_fenced or each.fenced_by is not Fencer.OWNER))
        for each in found
    )
    return is_new and not all(each.has_increment for each in found)
