"""Whether the owner may point to a snapshot that somebody else has written. Pure.

A proposal is believed in nothing: what it says is compared with the chain, with the increment of its batch, and with
the digest of every entry that its chunks hold. The caller reads; the rules are here, in three steps: `refuse_manifest`,
`refuse_increment`, `refuse_entries`. The first one is asked again directly before the pointer is handed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from snapreplay.counted import counted
from snapreplay.service.core.chain import Chain, decided_at
from snapreplay.snapshots.format.records import Increment, Manifest, Pointer
from snapreplay.state.digest import Digest

SHARDS_MAX = 65536
"""Of a map: what a restore accepts."""


class Reason(StrEnum):
    """Why a proposal is not adopted: a label of the metric, a word in the status."""

    NOT_THERE = "not_there"
    NOT_A_MANIFEST = "not_a_manifest"
    UNREADABLE = "unreadable"
    UNKNOWN_FORMAT = "unknown_format"
    NOT_A_PROPOSAL = "not_a_proposal"
    OTHER_APP = "other_app"
    OTHER_GENESIS = "other_genesis"
    OTHER_SCHEMA = "other_schema"
    OTHER_TOPIC = "other_topic"
    AHEAD_OF_LOG = "ahead_of_log"
    BEFORE_DECISION = "before_decision"
    SUPERSEDED = "superseded"
    NO_DIGEST = "no_digest"
    INCONSISTENT = "inconsistent"
    CHUNK_MISSING = "chunk_missing"
    CHUNK_DAMAGED = "chunk_damaged"
    INCREMENT_DIFFERS = "increment_differs"
    ENTRIES_DIFFER = "entries_differ"
    SNAPSHOT_UNDER_WAY = "snapshot_under_way"


NOT_FINAL = frozenset({Reason.NOT_THERE, Reason.SNAPSHOT_UNDER_WAY})
"""Says nothing about the proposal: one at that offset may be adopted later."""


class Rejection(NamedTuple):
    """`detail` is a sentence without its full stop that names the values."""

    reason: Reason
    detail: str


@dataclass(frozen=True)
class Standing:
    """What the owner knows at one moment.

    Attributes:
        increments: name of the increments topic.
        snapshots: name of the snapshots topic, which begins at `snapshots_start_offset`.
        schema_version: of the app's state.
        under_way: a snapshot of the owner's own is being written.
    """

    chain: Chain
    increments: str
    snapshots: str
    snapshots_start_offset: int
    schema_version: int
    under_way: bool

    @property
    def newest(self) -> Pointer | None:
        """The newest snapshot that is pointed to, or waits for it."""
        chain = self.chain
        if chain.new_pointer is not None:
            return chain.new_pointer
        return None if chain.pointers_gone else next(iter(chain.last.pointers), None)


def refuse_manifest(manifest: Manifest, offset: int, standing: Standing) -> Rejection | None:
    """Why the snapshot whose manifest lies at `offset` is not one for this chain now; None: so far it is."""
    rules = (_other_state, _other_place, _inconsistent)
    found = (each for rule in rules for each in rule(manifest, offset, standing))
    return next(found, None)


def refuse_increment(manifest: Manifest, increment: Increment) -> Rejection | None:
    """Why the increment at the manifest's `increment_offset` is not that of the snapshot; None: it is."""
    for name in (
        "batch",
        "digest",
        "positions",
        "stream_time_ms",
        "owner_epoch",
        "genesis",
        "topic_ids",
        "origin",
    ):
        said, recorded = getattr(manifest, name), getattr(increment, name)
        if said != recorded:
            return Rejection(
                Reason.INCREMENT_DIFFERS,
                f"its {name} is {said}, but the increment at offset {manifest.increment_offset} has {recorded}",
            )
    return None


def refuse_entries(manifest: Manifest, found: Digest) -> Rejection | None:
    """Why the entries in the chunks, whose digest is `found`, are not the state of the batch; None: they are."""
    if found == manifest.digest:
        return None
    return Rejection(
        Reason.ENTRIES_DIFFER,
        f"its entries add up to {found}, but the digest of batch {manifest.batch} is {manifest.digest}",
    )


def pointer_to(manifest: Manifest, offset: int) -> Pointer:
    """What the next increment records of a snapshot whose manifest lies at `offset`."""
    return Pointer(
        snapshot_id=manifest.snapshot_id,
        manifest_offset=offset,
        first_chunk_offset=min((ref.offset for ref in manifest.chunks), default=offset),
        batch=manifest.batch,
        increment_offset=manifest.increment_offset,
        digest=manifest.digest,
    )


def records_between(before: Mapping[str, int], now: Mapping[str, int]) -> int:
    """Input offsets between two positions: an upper bound of the records, because markers count, too."""
    return sum(max(0, position - before.get(topic, 0)) for topic, position in now.items())


def _other_state(manifest: Manifest, _: int, standing: Standing) -> Iterator[Rejection]:
    """Whose state is it?"""
    last, expected_ids = standing.chain.last, standing.chain.expected_ids
    if manifest.proposed_by is None:
        yield Rejection(
            Reason.NOT_A_PROPOSAL,
            "it names nobody who proposes it: only the owner that wrote it could point to it",
        )
    if manifest.origin.app_id != last.origin.app_id:
        yield Rejection(
            Reason.OTHER_APP,
            f"it is of app {manifest.origin.app_id!r}, not {last.origin.app_id!r}",
        )
    if manifest.genesis != last.genesis:
        yield Rejection(
            Reason.OTHER_GENESIS,
            f"its genesis is {manifest.genesis}, but the chain's is {last.genesis}",
        )
    if manifest.origin.schema_version != standing.schema_version:
        yield Rejection(
            Reason.OTHER_SCHEMA,
            f"its schema_version is {manifest.origin.schema_version}, but the app has {standing.schema_version}",
        )
    for topic in (standing.increments, standing.snapshots):
        said, known = manifest.topic_ids.get(topic, ""), expected_ids.get(topic, "")
        if said != known:
            yield Rejection(
                Reason.OTHER_TOPIC, f"it names {said!r} as the id of {topic}, which is {known!r}"
            )


def _other_place(manifest: Manifest, _: int, standing: Standing) -> Iterator[Rejection]:
    """Would it be the newest snapshot of a batch that this chain has?"""
    chain, newest = standing.chain, standing.newest
    decided_offset = decided_at(chain.last, chain.last_offset)
    if manifest.batch > chain.last.batch or manifest.increment_offset > chain.last_offset:
        yield Rejection(
            Reason.AHEAD_OF_LOG,
            f"it is of batch {manifest.batch} at offset {manifest.increment_offset}, but the last increment is batch"
            f" {chain.last.batch} at offset {chain.last_offset}",
        )
    if manifest.increment_offset <= decided_offset:
        yield Rejection(
            Reason.BEFORE_DECISION,
            f"its increment at offset {manifest.increment_offset} is not behind the decision at offset"
            f" {decided_offset}, which has begun a new chain",
        )
    if newest is not None and manifest.batch <= newest.batch:
        yield Rejection(
            Reason.SUPERSEDED,
            f"it is of batch {manifest.batch}, and snapshot {newest.snapshot_id} is of batch {newest.batch}",
        )
    if standing.under_way or chain.new_pointer is not None:
        yield Rejection(
            Reason.SNAPSHOT_UNDER_WAY,
            "another snapshot is being written, or waits for the increment that points to it",
        )


def _inconsistent(manifest: Manifest, offset: int, standing: Standing) -> Iterator[Rejection]:
    """Does it agree with itself, and are its chunks where a restore will look for them?"""
    if manifest.digest is None:
        yield Rejection(
            Reason.NO_DIGEST,
            f"batch {manifest.batch} has no digest, so nothing proves the entries",
        )
    count, sums = manifest.entry_count, manifest.entries_digest
    if sums != manifest.digest or count != sums.count:
        yield Rejection(
            Reason.INCONSISTENT,
            f"it has {counted(count, 'entry')} with digest {sums}, but the batch's digest is {manifest.digest}",
        )
    shards = manifest.shard_count
    if not 1 <= shards <= SHARDS_MAX or shards & (shards - 1):
        yield Rejection(
            Reason.INCONSISTENT,
            f"it has {shards} shards, not a power of two of at most {SHARDS_MAX}",
        )
    offsets = [ref.offset for ref in manifest.chunks]
    ordered = all(first < second for first, second in pairwise(offsets))
    numbered = [ref.sequence for ref in manifest.chunks] == list(range(len(offsets)))
    if not ordered or not numbered or (offsets and offsets[-1] >= offset):
        yield Rejection(
            Reason.INCONSISTENT,
            f"of its {counted(len(offsets), 'chunk')} the numbers do not count from 0, or the offsets do not rise up"
            f" to {offset}",
        )
    if offsets and offsets[0] < standing.snapshots_start_offset:
        yield Rejection(
            Reason.CHUNK_MISSING,
            f"it needs {standing.snapshots} from offset {offsets[0]}, which now starts at"
            f" {standing.snapshots_start_offset}",
        )
