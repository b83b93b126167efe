"""Whether committed increments were lost, as shown outside of the increments topic. Pure.

An owner writes a manifest only after its batch was committed, so one of a later batch than the last increment proves
that the topic was cut; a proposal proves nothing. An owner also commits an offset of the group `<app_id>-witness` every
few seconds and at its end.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from snapreplay.counted import counted
from snapreplay.errors import StopError
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import Increment, Manifest


def shows_cut(manifest: Manifest, last: FoundIncrement) -> bool:
    """Say whether only an owner whose increments were lost can have written it: in one chain a later batch lies at a
    higher offset."""
    ahead = lies_ahead(manifest.batch, manifest.increment_offset, last)
    return ahead and _is_of_owner(manifest, last.increment)


def lies_ahead(batch: int, increment_offset: int, last: FoundIncrement) -> bool:
    """Say whether a batch is later than the last one, in the same chain: its increment lies behind the last one."""
    return batch > last.increment.batch and increment_offset > last.offset


def is_recent(manifest: Manifest, last: FoundIncrement) -> bool:
    """Say whether nothing older need be looked at: it is of a batch that the log has, by the last increment's owner or
    a later one."""
    increment = last.increment
    return (
        _is_of_owner(manifest, increment)
        and manifest.owner_epoch >= increment.owner_epoch
        and manifest.batch <= increment.batch
    )


def _is_of_owner(manifest: Manifest, last: Increment) -> bool:
    same_app = manifest.origin.app_id == last.origin.app_id
    return manifest.proposed_by is None and same_app and manifest.genesis.may_precede(last.genesis)


class IncrementsBehind(StopError):
    """The increments topic ends before a batch that was committed.

    Safe: Nothing more is committed. Do not stop any process of the app: one may have the newer state in memory.

    Attributes:
        found: the last increment that is left.
        increment_offset: in the increments topic, of that batch.
    """

    def __init__(
        self, message: str, *, hint: str, found: FoundIncrement, increment_offset: int, **facts: object
    ) -> None:
        super().__init__(message, hint=hint, **facts)
        self.found = found
        self.increment_offset = increment_offset


class Witness(msgspec.Struct, frozen=True):
    """A batch whose commit was answered OK; `topic_id` of the increments topic, "" if the cluster has none."""

    batch: Annotated[int, Meta(ge=0)]
    increment_offset: Annotated[int, Meta(ge=0)]
    owner_epoch: int
    topic_id: str = ""

    @classmethod
    def of(cls, increments: str, last: Increment, offset: int) -> Witness:
        return cls(last.batch, offset, last.owner_epoch, last.topic_ids.get(increments, ""))

    @staticmethod
    def from_metadata(text: str) -> Witness | None:
        """Read a witness; None for metadata that is not ours."""
        try:
            return _witness_in(text)
        except msgspec.DecodeError:
            return None

    @property
    def metadata(self) -> str:
        """The text that is committed beside the offset."""
        return msgspec.json.encode(self).decode()

    def is_ahead(self, increments: str, last: FoundIncrement) -> bool:
        """Say whether the log has lost this batch. A batch of another topic of this name says nothing."""
        recorded = last.increment.topic_ids.get(increments, "")
        same_topic = not self.topic_id or not recorded or self.topic_id == recorded
        return same_topic and lies_ahead(self.batch, self.increment_offset, last)


_witness_in = msgspec.json.Decoder(Witness).decode  # at import: see `kafka/assignor.py`


def behind(source: str, log: str, witness: Witness, last: FoundIncrement) -> IncrementsBehind:
    """Make the error for a log that ends with `last`, while the witness of `source` knows of a later batch."""
    return IncrementsBehind(
        f"{log} ends with batch {last.increment.batch} at offset {last.offset}, but batch {witness.batch} was committed"
        f" at offset {witness.increment_offset}, as {source} says: the topic has lost its newest records, at"
        f" least {counted(witness.batch - last.increment.batch, 'batch')} (unclean election, an older disk)",
        hint="if a process of this app is suspended, resume it: it still has the newer state and will write it; or"
        " restore the topic from a replica, backup or mirror",
        found=last,
        increment_offset=witness.increment_offset,
        witness_batch=witness.batch,
        last_batch=last.increment.batch,
    )
