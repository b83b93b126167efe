"""Decides whether the owner may point to a snapshot that somebody else has written. Pure.

Nothing in a proposal is trusted: each field must be what the owner itself would have written. The caller reads,
and asks in three steps: `refuse_manifest`, `refuse_increment`, `refuse_entries`. The first is asked again directly
before the pointer is handed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from snapreplay.counted import counted
from snapreplay.service.core.chain import Chain
from snapreplay.snapshots.format.envelope import RECORD_BYTES_MAX
from snapreplay.snapshots.format.records import Increment, Manifest, Pointer
from snapreplay.snapshots.plan import chain_began_at
from snapreplay.state.digest import Digest, digest_of_stores, recorded_digests, wrong_stores

SHARDS_MAX = 65536
"""Of a map: what a restore accepts."""
PROPOSER_CHARS_MAX = 255
CLOCKS_APART_MS_MAX = 24 * 3600 * 1000
"""How far the clocks of owner and job may differ."""
DETAIL_CHARS_MAX = 600
"""The length of a rejection's detail: it is logged and shown, and a proposal may say anything."""
_OF_BATCH = ("batch", "positions", "stream_time_ms", "owner_epoch", "genesis")
"""What any snapshot of a batch has of its increment."""
_SNAPSHOT_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


class Reason(StrEnum):
    """The reason why a proposal is not adopted: a label of the metric, a word in the status."""

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
    INCONSISTENT = "inconsistent"
    OUT_OF_BOUNDS = "out_of_bounds"
    CHUNK_MISSING = "chunk_missing"
    CHUNK_DAMAGED = "chunk_damaged"
    INCREMENT_DIFFERS = "increment_differs"
    ENTRIES_DIFFER = "entries_differ"
    SNAPSHOT_UNDER_WAY = "snapshot_under_way"


NOT_FINAL = frozenset({Reason.NOT_THERE, Reason.SNAPSHOT_UNDER_WAY})
"""Says nothing about the proposal: one at that offset may be adopted later."""


class Rejection(NamedTuple):
    """The reason against a proposal; `detail`, which may be cut off, is a sentence without its full stop."""

    reason: Reason
    detail: str

    @classmethod
    def of(cls, reason: Reason, detail: str) -> Rejection:
        """Make one whose detail is one line of at most `DETAIL_CHARS_MAX`, for any values."""
        shown = detail if detail.isprintable() else ascii(detail)[1:-1]
        cut_off = shown if len(shown) <= DETAIL_CHARS_MAX else f"{shown[:DETAIL_CHARS_MAX]}…"
        return cls(reason, cut_off)


class Standing(Struct, frozen=True):
    """What the owner knows at one moment. `under_way`: it writes a snapshot of its own."""

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
    """Say why the snapshot whose manifest lies at `offset` is not one for this chain now; None: so far it is."""
    rules = (_out_of_bounds, _other_state, _other_place, _inconsistent)
    found = (each for rule in rules for each in rule(manifest, offset, standing))
    return next(found, None)


def refuse_increment(manifest: Manifest, increment: Increment, now_ms: int) -> Rejection | None:
    """Say why the increment at the manifest's `increment_offset` is not that of the snapshot; None: it is."""
    written_ms, created_ms = increment.written_at_ms, manifest.created_at_ms
    if not written_ms - CLOCKS_APART_MS_MAX <= created_ms <= now_ms + CLOCKS_APART_MS_MAX:
        return Rejection.of(
            Reason.OUT_OF_BOUNDS,
            f"its created_at_ms is {created_ms}, but its batch was written at {written_ms}, and now it is {now_ms}",
        )
    for name in (*_OF_BATCH, "topic_ids", "digest", "origin", "store_digests"):
        said, recorded = getattr(manifest, name), getattr(increment, name)
        if said != recorded:
            return Rejection.of(
                Reason.INCREMENT_DIFFERS,
                f"its {name} is {said}, but the increment at offset {manifest.increment_offset} has {recorded}",
            )
    return None


def refuse_entries(manifest: Manifest, found: Mapping[str, Digest]) -> Rejection | None:
    """Say why the entries in the chunks are not the state of the batch; None: they are. `found`: their digests."""
    total, by_store = digest_of_stores(found), recorded_digests(found)
    if total == manifest.digest and by_store == manifest.store_digests:
        return None
    return Rejection.of(
        Reason.ENTRIES_DIFFER,
        f"its entries add up to {total}, but the digest of batch {manifest.batch} is {manifest.digest}"
        f"{wrong_stores(manifest.store_digests, by_store)}",
    )


def pointer_to(manifest: Manifest, offset: int) -> Pointer:
    """Return what the next increment records of a snapshot whose manifest lies at `offset`."""
    return Pointer(
        snapshot_id=manifest.snapshot_id,
        manifest_offset=offset,
        first_chunk_offset=min((ref.offset for ref in manifest.chunks), default=offset),
        batch=manifest.batch,
        increment_offset=manifest.increment_offset,
        digest=manifest.digest,
    )


def records_between(before: Mapping[str, int], now: Mapping[str, int]) -> int:
    """Count the input offsets between two positions: an upper bound of the records, because markers count, too."""
    return sum(max(0, position - before.get(topic, 0)) for topic, position in now.items())


def applied_since(before: Increment, last: Increment) -> int:
    """Count what was applied after `before`: an upper bound of the records, at least one if the digest changed."""
    return records_between(before.positions, last.positions) or int(before.digest != last.digest)


def _out_of_bounds(manifest: Manifest, *_: object) -> Iterator[Rejection]:
    """Refuse what no owner would write. What it points to is repeated in every increment, log and status."""
    snapshot_id, proposer = manifest.snapshot_id, manifest.proposed_by or ""
    if not _SNAPSHOT_ID.fullmatch(snapshot_id):
        yield Rejection.of(
            Reason.OUT_OF_BOUNDS,
            f"its snapshot_id has {counted(len(snapshot_id), 'character')}; it must be 1 to 64 letters, digits, '_' and"
            f" '-', not {snapshot_id!r}",
        )
    if len(proposer) > PROPOSER_CHARS_MAX or not proposer.isprintable():
        yield Rejection.of(
            Reason.OUT_OF_BOUNDS,
            f"its proposed_by has {counted(len(proposer), 'character')}; it must be one line of at most"
            f" {PROPOSER_CHARS_MAX}, not {proposer!r}",
        )
    for ref in manifest.chunks:
        if not 0 < ref.size_bytes <= RECORD_BYTES_MAX:
            yield Rejection.of(
                Reason.OUT_OF_BOUNDS,
                f"its chunk {ref.sequence} has {ref.size_bytes} bytes, but a writer makes at most {RECORD_BYTES_MAX}",
            )


def _other_state(manifest: Manifest, _: int, standing: Standing) -> Iterator[Rejection]:
    last, expected_ids = standing.chain.last, standing.chain.expected_ids
    if manifest.proposed_by is None:
        yield Rejection.of(
            Reason.NOT_A_PROPOSAL, "it names no proposer: only the owner that wrote it could point to it"
        )
    if manifest.origin.app_id != last.origin.app_id:
        yield Rejection.of(Reason.OTHER_APP, f"it is of app {manifest.origin.app_id!r}, not {last.origin.app_id!r}")
    if not manifest.genesis.may_precede(last.genesis):
        yield Rejection.of(
            Reason.OTHER_GENESIS, f"its genesis is {manifest.genesis}, but the chain's is {last.genesis}"
        )
    if manifest.origin.schema_version != standing.schema_version:
        yield Rejection.of(
            Reason.OTHER_SCHEMA,
            f"its schema_version is {manifest.origin.schema_version}, but the app has {standing.schema_version}",
        )
    for topic in (standing.increments, standing.snapshots):
        said, known = manifest.topic_ids.get(topic, ""), expected_ids.get(topic, "")
        if said != known:
            yield Rejection.of(Reason.OTHER_TOPIC, f"it names {said!r} as the id of {topic}, which is {known!r}")


def _other_place(manifest: Manifest, _: int, standing: Standing) -> Iterator[Rejection]:
    chain, newest = standing.chain, standing.newest
    decided_offset = chain_began_at(chain.last, chain.last_offset)
    if manifest.batch > chain.last.batch or manifest.increment_offset > chain.last_offset:
        yield Rejection.of(
            Reason.AHEAD_OF_LOG,
            f"it is of batch {manifest.batch} at offset {manifest.increment_offset}, but the last increment is batch"
            f" {chain.last.batch} at offset {chain.last_offset}",
        )
    if manifest.increment_offset <= decided_offset:
        yield Rejection.of(
            Reason.BEFORE_DECISION,
            f"its increment at offset {manifest.increment_offset} is not behind the decision at offset"
            f" {decided_offset}, which has begun a new chain",
        )
    if newest is not None and manifest.batch <= newest.batch:
        yield Rejection.of(
            Reason.SUPERSEDED,
            f"it is of batch {manifest.batch}, and snapshot {newest.snapshot_id} is of batch {newest.batch}",
        )
    for pointer in chain.last.pointers:
        if pointer.snapshot_id == manifest.snapshot_id:
            yield Rejection.of(
                Reason.OUT_OF_BOUNDS,
                f"its snapshot_id {pointer.snapshot_id} is that of the snapshot of batch {pointer.batch}",
            )
    if standing.under_way or chain.new_pointer is not None:
        yield Rejection.of(
            Reason.SNAPSHOT_UNDER_WAY, "another snapshot is being written, or waits for the increment that points to it"
        )


def _inconsistent(manifest: Manifest, offset: int, standing: Standing) -> Iterator[Rejection]:
    count, sums = manifest.entry_count, manifest.entries_digest
    if sums != manifest.digest or count != sums.count:
        yield Rejection.of(
            Reason.INCONSISTENT,
            f"it has {counted(count, 'entry')} with digest {sums}, but the batch's digest is {manifest.digest}",
        )
    shards = manifest.shard_count
    if not 1 <= shards <= SHARDS_MAX or shards & (shards - 1):
        yield Rejection.of(Reason.INCONSISTENT, f"it has {shards} shards, not a power of two of at most {SHARDS_MAX}")
    offsets = [ref.offset for ref in manifest.chunks]
    ordered = all(first < second for first, second in pairwise(offsets))
    numbered = [ref.sequence for ref in manifest.chunks] == list(range(len(offsets)))
    if not ordered or not numbered or (offsets and offsets[-1] >= offset):
        yield Rejection.of(
            Reason.INCONSISTENT,
            f"of its {counted(len(offsets), 'chunk')} the numbers do not count from 0, or the offsets do not rise up"
            f" to {offset}",
        )
    if offsets and offsets[0] < standing.snapshots_start_offset:
        yield Rejection.of(
            Reason.CHUNK_MISSING,
            f"it needs {standing.snapshots} from offset {offsets[0]}, which now starts at"
            f" {standing.snapshots_start_offset}",
        )
