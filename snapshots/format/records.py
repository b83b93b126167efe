"""The records of our two topics as values. `docs/FORMAT.md` defines every byte and field; `envelope` is the codec.

Fields are only ever added, with defaults; a reader ignores what it does not know, and refuses an
unknown format version by name. Offsets are half-open and mean "next". Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from snapreplay.app.batch import Portion
from snapreplay.app.ranges import Anchor, InputRange, PositionAnchor, SkippedRange
from snapreplay.app.record import InputRecord
from snapreplay.state.contract import ShardSlice
from snapreplay.state.digest import Digest
from snapreplay.state.fields import Layout

NO_OFFSET = -1
"""Stands for an offset that does not exist (the genesis has no previous increment)."""

OWN_KIND = "increments-replaced"
UPGRADED_KIND, PATCHED_KIND, INPUTS_KIND = "state-upgraded", "state-patched", "inputs-changed"
"""Kinds of decisions that do not judge what is known of a state; `OWN_KIND` and `UPGRADED_KIND` are an owner's own."""


class Origin(msgspec.Struct, frozen=True):
    """The writer of a record: compared at recovery, named in every report of a mismatch."""

    app_id: str
    app_version: str
    schema_version: int  # of the state, as the app declares it
    fingerprint: str  # python, machine, codec versions: what determinism depends on besides the app


class Claim(msgspec.Struct, frozen=True):
    """First record of an ownership. Its offset, as acknowledged, is the owner epoch."""

    claim_id: str  # random; compared when the claim is read back
    app_id: str
    cluster_id: str
    process_id: str  # random per process start
    instance_id: str  # group.instance.id of a static member, else a generated name
    host: str
    pid: int
    started_at_ms: int


class Pointer(msgspec.Struct, frozen=True):
    """A full snapshot that a committed increment points to, so it exists.

    `first_chunk_offset` is the lowest offset it needs in the snapshots topic (the manifest's own if it
    has no chunks), `increment_offset` the one in the increments topic: the two retention floors.
    """

    snapshot_id: str
    manifest_offset: int
    first_chunk_offset: int
    batch: int
    increment_offset: int
    digest: Digest


class ChangesRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """The changes records directly before an increment, in the same transaction.

    `record_count` may be 0. `crc32` is of their values, joined in order; 0 when there are none.
    """

    record_count: int
    entry_count: int
    crc32: int


class Genesis(msgspec.Struct, frozen=True):
    """The facts that were true at `init`; repeated in every increment. The inputs are those of the increment."""

    cluster_id: str
    partition_count: int
    start_offsets: dict[str, int]  # input topic -> first offset this partition is to process

    def may_precede(self, other: Genesis) -> bool:
        """Say whether the other one may be of the same chain: the inputs that both have begin at the same offset."""
        common = self.start_offsets.keys() & other.start_offsets.keys()
        same = (self.cluster_id, self.partition_count) == (other.cluster_id, other.partition_count)
        return same and all(self.start_offsets[n] == other.start_offsets[n] for n in common)


class RetiredInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """An input that was retired while its topic existed: where it ended, and by which a later one is known to be it."""

    batch: int  # after which it was retired
    position: int
    start_offset: int  # of the genesis
    topic_id: str = ""
    anchor: Anchor | None = None
    position_anchor: PositionAnchor | None = None


NO_REASON = "no reason was given"


class Paused(msgspec.Struct, frozen=True):
    """The pause of a partition: nothing is processed until an increment without it."""

    since_ms: int
    reason: str  # as the operator gave it


class Increment(msgspec.Struct, frozen=True, omit_defaults=True):
    """The commit record of a batch: the last record of its transaction. Fields at their defaults are not written."""

    origin: Origin
    owner_epoch: int  # offset of the owner's claim
    batch: int  # 0 = genesis, then +1
    previous_offset: int  # of the previous increment; NO_OFFSET for the genesis
    ranges: list[InputRange]  # in the order applied; empty for a batch that only points
    positions: dict[str, int]  # input topic -> next offset after this batch, for every input
    record_count: int  # applied records, the skipped ones not counted
    skipped: list[SkippedRange]
    anchors: dict[str, Anchor]  # of every input with an applied record so far
    pointers: list[Pointer]  # newest first, at most K; empty before the first snapshot
    changes: ChangesRef | None  # None: lean mode
    outputs: dict[str, int]  # output topic -> records in this transaction
    stream_time_ms: int  # highest record timestamp so far; -1 before the first record
    digest: Digest  # of the state after the batch
    genesis: Genesis
    written_at_ms: int
    topic_ids: dict[str, str] = {}  # of every input and both own topics; empty: the cluster has none
    # Output topic -> XXH64 of what the handlers sent to it in this batch, in order; dead letters are not covered.
    outputs_xxh64: dict[str, int] = {}
    fallback_from: str | None = None  # newer snapshot that the last restore could not use: its id
    decision: dict[str, str] | None = None  # of an operator, or of the owner itself
    last_decision_offset: int = NO_OFFSET  # of the newest increment before this one with a decision
    # Of the newest one before this one that began a new chain; None: the last decision did, if there was one.
    last_anew_offset: int | None = None
    # Of the stores with entries, where there are others than "default".
    store_digests: dict[str, Digest] = {}
    cleared: list[str] = []  # stores whose entries were all deleted, before the batch's changes
    fired_count: int = 0  # timers fired and entries expired after the last record of `ranges`
    skipped_timers: list[int] = []  # dead-lettered ones among the timers of the batch, counted from 0
    # The next record of this input is the next one of all: what was due before it has begun to happen.
    begun_input: str | None = None
    # Store -> paths of the fields that its values may have; with "-" in front: that they may lack.
    fields: dict[str, list[str]] = {}
    # Input topic -> what its log holds directly below `positions`; no entry where that is not known.
    position_anchors: dict[str, PositionAnchor] = {}
    # By name. A topic that matches a pattern again resumes there, so that nothing of it counts twice.
    retired_inputs: dict[str, RetiredInput] = {}
    paused: Paused | None = None
    # Store -> what decides the meaning of its values. A store whose values need none of it is not in it.
    layouts: dict[str, Layout] = {}
    begun_periods: int = 0  # periodic timers that did not fire: their first period began with this batch

    @property
    def is_empty(self) -> bool:
        """Nothing was read and nothing happened: it is there for a pointer or a digest."""
        return not (self.ranges or self.fired_count)

    @property
    def handled_count(self) -> int:
        """Count what a snapshot after this batch spares a recovery: records, applied or skipped, and what was due after
        the last one."""
        return sum(part.record_count for part in self.ranges) + self.fired_count

    def portion(self, records: Sequence[InputRecord]) -> Portion:
        """Return what a replay is to apply again; `records`: all of `ranges`."""
        return Portion(
            records,
            self.stream_time_ms,
            self.fired_count,
            skipped=self.skipped,
            skipped_timers=self.skipped_timers,
            is_recorded=True,
        )

    @property
    def begins_chain(self) -> bool:
        """Whether the chain begins here, with a state that no increment before it has."""
        return self.decision is not None and self.previous_offset == self.owner_epoch

    @property
    def begun_by_owner(self) -> bool:
        """Whether the owner itself began the chain here: what it had written before was deleted or cut."""
        finding = (self.decision or {}).get("finding", "")
        return self.begins_chain and finding.startswith(f"{OWN_KIND}-")

    @property
    def is_accepted(self) -> bool:
        """Whether an operator accepted this state in place of what else is known. Other decisions weigh nothing: they
        continue from the batch before them, at the same positions."""
        finding = (self.decision or {}).get("finding", "")
        kinds = (OWN_KIND, UPGRADED_KIND, PATCHED_KIND, INPUTS_KIND)
        return self.decision is not None and not finding.startswith(kinds)

    @property
    def changes_inputs(self) -> bool:
        """Whether inputs were added or retired here, in the chain as it is."""
        return self.decision is not None and not self.begins_chain


class ChangesRecord(msgspec.Struct, frozen=True):
    """The changed keys of one batch, or one part of them. The digest is made of these bytes of key and value."""

    batch: int
    part: int  # 0, 1, ... in the order to apply
    # Store name -> key -> value, nil = deleted.
    stores: dict[str, dict[bytes, bytes | None]]


class Chunk(msgspec.Struct, frozen=True):
    """A part of a full snapshot: whole shards, or parts of large ones, each with its digest sums."""

    snapshot_id: str
    sequence: int  # 0, 1, ...
    store: str
    slices: list[ShardSlice]


class ChunkRef(msgspec.Struct, frozen=True, array_like=True):
    """The place of a chunk, and what it must be: offset in the snapshots topic, length and crc32 of the record's
    value."""

    offset: int
    sequence: int
    size_bytes: int
    crc32: int


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last record of a full snapshot: what it holds and where its chunks are. Fields at their defaults are not
    written."""

    origin: Origin
    snapshot_id: str  # random
    owner_epoch: int
    batch: int  # the state after this batch
    increment_offset: int  # of that batch's increment
    positions: dict[str, int]
    chunks: list[ChunkRef]  # by sequence; empty for an empty state
    entry_count: int
    digest: Digest
    entries_digest: Digest  # of the entries in the chunks; equals `digest`
    stream_time_ms: int
    shard_count: int
    created_at_ms: int
    genesis: Genesis
    topic_ids: dict[str, str] = {}  # as in that increment
    proposed_by: str | None = None  # job that proposes the snapshot; None: the owner wrote it
    store_digests: dict[str, Digest] = {}  # of the entries in the chunks, as in that increment


LogEntry = Claim | ChangesRecord | Increment | Chunk | Manifest
