"""The chain of increments as its owner extends it. Pure. Batch numbers rise by one; each range starts where the last of
its topic ended; pointers are those of committed increments of this chain, newest first, at most K."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from snapreplay.app.batch import Applied
from snapreplay.app.ranges import Anchor, PositionAnchor
from snapreplay.app.record import counted_topics
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import NO_OFFSET, ChangesRef, Genesis, Increment, Origin, Paused, Pointer
from snapreplay.state.digest import Digest
from snapreplay.state.recorded import Recorded

NO_ANCHORS: Mapping[str, PositionAnchor] = {}


class Chain(msgspec.Struct, frozen=True):
    """What the owner knows of the past to write the next increment.

    Attributes:
        last: the newest committed increment, at `last_offset`.
        new_pointer: a written snapshot, waiting for the increment that makes it exist.
        topic_ids, recorded: for the next increment; None: as in the last one.
        pointers_gone: the snapshots topic was replaced since the last increment.
        position_anchors: what lies below the positions of `last`, as a recovery found it; None: as `last` says.
        asked_pause: for the next increment, None for a resume; UNSET: as in the last one.
        fallback_from: the newest snapshot that a recovery could not use, until it is recorded.
    """

    origin: Origin
    owner_epoch: int
    last: Increment
    last_offset: int
    pointers_max: int
    new_pointer: Pointer | None = None
    fallback_from: str | None = None
    topic_ids: Mapping[str, str] | None = None
    pointers_gone: bool = False
    recorded: Recorded | None = None
    position_anchors: Mapping[str, PositionAnchor] | None = None
    asked_pause: Paused | UnsetType | None = UNSET

    @property
    def paused(self) -> Paused | None:
        """The pause of the next increment: nothing is to be processed as long as there is one."""
        return self.last.paused if self.asked_pause is UNSET else self.asked_pause

    @property
    def has_news(self) -> bool:
        """Whether an increment is to be written even without a batch."""
        return self.new_pointer is not None or self.asked_pause is not UNSET

    @property
    def expected_anchors(self) -> Mapping[str, PositionAnchor]:
        """Input → what lies below its committed position, as far as known."""
        found = self.position_anchors
        return self.last.position_anchors if found is None else found

    @property
    def expected_ids(self) -> Mapping[str, str]:
        """Topic → id, as far as known."""
        return self.last.topic_ids if self.topic_ids is None else self.topic_ids

    @property
    def batch(self) -> int:
        return self.last.batch

    def pointing_to(self, pointer: Pointer) -> Chain:
        """Return the chain whose next increment points to this snapshot."""
        return replace(self, new_pointer=pointer)

    def in_new_topic(self, snapshots: str, topic_id: str) -> Chain:
        """Continue in a snapshots topic that was created again: what was written to the old one is gone."""
        return replace(self, topic_ids={**self.expected_ids, snapshots: topic_id}, pointers_gone=True, new_pointer=None)

    def committed(self, increment: Increment, offset: int) -> Chain:
        """Return the chain after `increment` was committed at `offset`. A pointer that arrived meanwhile waits for the
        next one."""
        waiting = self.new_pointer if [self.new_pointer] != increment.pointers[:1] else None
        recorded = self.expected_ids == increment.topic_ids
        return replace(
            self,
            last=increment,
            last_offset=offset,
            new_pointer=waiting,
            fallback_from=None,
            pointers_gone=self.pointers_gone and not recorded,
            position_anchors=None,
            asked_pause=UNSET if self.asked_pause == increment.paused else self.asked_pause,
        )

    def next_increment(
        self,
        applied: Applied | None,
        changes: ChangesRef | None,
        written_at_ms: int,
        position_anchors: Mapping[str, PositionAnchor] = NO_ANCHORS,
    ) -> Increment:
        """Return the commit record of `applied`; None makes an empty one, for a pointer. `position_anchors`: what lies
        below the new positions, as far as known."""
        common = msgspec.structs.replace(
            self.last,
            origin=self.origin,
            owner_epoch=self.owner_epoch,
            batch=self.last.batch + 1,
            previous_offset=self.last_offset,
            ranges=[],
            record_count=0,
            skipped=[],
            pointers=self._pointers(),
            changes=changes,
            outputs={},
            outputs_xxh64={},
            written_at_ms=written_at_ms,
            topic_ids=dict(self.expected_ids),
            fallback_from=self.fallback_from,
            decision=None,
            digest=self.last.digest,
            last_decision_offset=decided_at(self.last, self.last_offset),
            cleared=[],
            fired_count=0,
            skipped_timers=[],
            begun_periods=0,
            fields=self.last.fields if self.recorded is None else dict(self.recorded.fields),
            layouts=self.last.layouts if self.recorded is None else self.recorded.layouts,
            position_anchors=dict(self.expected_anchors),
            paused=self.paused,
        )
        if applied is None:
            return common
        return msgspec.structs.replace(
            common,
            ranges=applied.ranges,
            positions=self.last.positions | applied.positions,
            record_count=applied.record_count,
            skipped=applied.skipped,
            anchors=self.last.anchors | applied.anchors,
            outputs=_counted(applied),
            outputs_xxh64=applied.outputs_xxh64,
            stream_time_ms=applied.stream_time_ms,
            digest=applied.sealed.digest,
            store_digests=applied.sealed.store_digests,
            cleared=applied.sealed.cleared,
            fired_count=applied.fired_count,
            begun_input=applied.begun_input,
            skipped_timers=list(applied.skipped_timers),
            begun_periods=applied.begun_periods,
            position_anchors=self._anchors_after(applied, position_anchors),
        )

    def _anchors_after(self, applied: Applied, found: Mapping[str, PositionAnchor]) -> dict[str, PositionAnchor]:
        """Keep the anchors of positions that stayed, and take those of new ones: an anchor belongs to one position."""
        before = self.last.positions
        moved = {name for name, at in applied.positions.items() if at != before.get(name)}
        stayed = {name: at for name, at in self.expected_anchors.items() if name not in moved}
        return stayed | {name: at for name, at in found.items() if name in moved}

    def _pointers(self) -> list[Pointer]:
        kept = [] if self.pointers_gone else self.last.pointers
        if self.new_pointer is not None:
            kept = [self.new_pointer, *kept]
        return kept[: self.pointers_max]


def _counted(applied: Applied) -> dict[str, int]:
    """Return how many went to each topic. Nearly always the hashes name one: then nothing is looked through."""
    if len(applied.outputs_xxh64) == 1 and not applied.dead_letters:
        return dict.fromkeys(applied.outputs_xxh64, len(applied.outputs))
    return dict(Counter(counted_topics(applied.outputs)) + Counter(counted_topics(applied.dead_letters)))


def decided_at(increment: Increment, offset: int) -> int:
    """Return the offset of the newest decision up to this increment, which lies at `offset`; NO_OFFSET: none."""
    return offset if increment.decision is not None else increment.last_decision_offset


def genesis_increment(
    origin: Origin,
    owner_epoch: int,
    genesis: Genesis,
    digest: Digest,
    written_at_ms: int,
    topic_ids: Mapping[str, str],
    position_anchors: Mapping[str, PositionAnchor] = NO_ANCHORS,
) -> Increment:
    """Make batch 0, with the digest of the empty state. `position_anchors`: what lies below the start offsets."""
    return Increment(
        origin=origin,
        owner_epoch=owner_epoch,
        batch=0,
        previous_offset=NO_OFFSET,
        ranges=[],
        positions=dict(genesis.start_offsets),
        record_count=0,
        skipped=[],
        anchors={},
        pointers=[],
        changes=None,
        outputs={},
        stream_time_ms=-1,
        digest=digest,
        genesis=genesis,
        written_at_ms=written_at_ms,
        topic_ids=dict(topic_ids),
        position_anchors=dict(position_anchors),
    )


def ground_increment(
    origin: Origin,
    genesis: Genesis,
    states: tuple[Digest, Mapping[str, Digest]],
    topic_ids: Mapping[str, str],
    stream_time_ms: int,
    last: Increment | None,
) -> Increment:
    """Make the increment that stands for a state without a chain, as if it had been committed. `states`: the digest of
    the state and of its stores. `last`: the last increment of this state or a later one: its fields, layouts, retired
    inputs and pause stay."""
    digest, store_digests = states
    retired = last.retired_inputs if last is not None else {}
    return msgspec.structs.replace(
        genesis_increment(origin, NO_OFFSET, genesis, digest, 0, topic_ids),
        stream_time_ms=stream_time_ms,
        store_digests=dict(store_digests),
        fields=last.fields if last is not None else {},
        layouts=last.layouts if last is not None else {},
        paused=last.paused if last is not None else None,
        retired_inputs={n: each for n, each in retired.items() if n not in genesis.start_offsets},
    )


class ReadPosition(NamedTuple):
    """The position in one input; `record`: the last record before it; `below`: what lies below it, if known."""

    position: int
    record: Anchor | None
    below: PositionAnchor | None

    @property
    def is_behind_record(self) -> bool:
        """Whether the last record is what lies directly below the position."""
        return self.record is not None and self.record.offset == self.position - 1


def read_positions(
    increment: Increment, anchors: Mapping[str, PositionAnchor] | None = None
) -> dict[str, ReadPosition]:
    """Return the position in each input after this increment. `anchors`: instead of the increment's own."""
    known = increment.position_anchors if anchors is None else anchors
    return {
        topic: ReadPosition(position, increment.anchors.get(topic), known.get(topic))
        for topic, position in increment.positions.items()
    }


def committed_positions(chain: Chain) -> dict[str, ReadPosition]:
    return read_positions(chain.last, chain.expected_anchors)


def positions_after(chain: Chain, applied: Applied, below: Mapping[str, PositionAnchor]) -> dict[str, ReadPosition]:
    """Return the positions that are committed next, in the inputs that move; `below`: what lies below them."""
    committed = chain.last
    return {
        topic: ReadPosition(position, applied.anchors.get(topic, committed.anchors.get(topic)), below.get(topic))
        for topic, position in applied.positions.items()
        if position != committed.positions.get(topic)
    }


def standing_for(last: FoundIncrement, digest: Digest, store_digests: Mapping[str, Digest]) -> Increment:
    """Make the increment that stands for a state with this digest, in the place of the last one."""
    pointers: list[Pointer] = []
    return msgspec.structs.replace(
        last.increment,
        pointers=pointers,
        digest=digest,
        store_digests=dict(store_digests),
        decision=None,
        last_decision_offset=decided_at(last.increment, last.offset),
    )
