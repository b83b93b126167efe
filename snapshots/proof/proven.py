"""The level of an audit, the proofs of earlier ones as they are recorded, and where the next one begins because of
them. Pure.

The record is the metadata of a committed offset: the offset says how far the log is proven, the metadata how.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from snapreplay.errors import DamagedError, UnknownFormatError
from snapreplay.snapshots.format.records import Pointer
from snapreplay.snapshots.format.seal import SealRefused
from snapreplay.snapshots.log.loading import NullSink
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.records import Logs, Moment
from snapreplay.snapshots.proof.state import At, is_there, last_batch, load, manifest_of
from snapreplay.state.digest import Digest

VERSION = 1
"""Of the record. A build reads no newer one."""

YEAR_10000_MS = 253_402_300_800_000
"""Since the epoch: no date of Python's or JSON's is that late."""


class Proof(msgspec.Struct, frozen=True, omit_defaults=True):
    """That everything up to and with a batch was audited without a finding.

    Attributes:
        offset: of the batch's increment.
        digest: recorded by that increment, as text; None where it has none.
        snapshot_id: of the newest snapshot that it points to; None without one.
        app_version: of the code that was run again at level REPLAY, else of the code that wrote the batch.
        at_ms: when, in milliseconds since the epoch.
    """

    level: Level
    batch: Annotated[int, Meta(ge=0)]
    offset: Annotated[int, Meta(ge=0)]
    digest: str | None = None
    snapshot_id: str | None = None
    app_version: str = ""
    at_ms: Annotated[int, Meta(ge=0, lt=YEAR_10000_MS)] = 0

    @property
    def next_offset(self) -> int:
        """The next offset of the increments topic: everything below it is proven."""
        return self.offset + 1

    def covers(self, other: Proof) -> bool:
        """Say whether it says all that `other` says."""
        return self.level.includes(other.level) and self.offset >= other.offset

    @classmethod
    def of(cls, level: Level, found: Found) -> Proof:
        """Make a proof; `at_ms` is left open: time is not known here."""
        pointers, digest = found.increment.pointers, found.increment.digest
        return cls(
            level,
            found.increment.batch,
            found.offset,
            None if digest is None else str(digest),
            pointers[0].snapshot_id if pointers else None,
            found.increment.origin.app_version,
        )


class RecordedProof(msgspec.Struct, frozen=True):
    """The record of one partition. `problem`: why it cannot be read; it has no proofs then."""

    proofs: tuple[Proof, ...] = ()
    problem: str = ""

    @property
    def furthest(self) -> Proof | None:
        return max(self.proofs, key=lambda each: each.offset, default=None)

    def counting_at(self, level: Level) -> Proof | None:
        """Return the furthest one that is a proof at this level."""
        counting = [each for each in self.proofs if each.level.includes(level)]
        return max(counting, key=lambda each: each.offset, default=None)

    def with_one_more(self, proof: Proof) -> RecordedProof:
        """Add a proof and leave out those that another one covers: at most one is left of each level."""
        proofs = [*(each for each in self.proofs if not proof.covers(each))]
        if not any(each.covers(proof) for each in proofs):
            proofs.append(proof)
        return RecordedProof(tuple(proofs))


NOTHING = RecordedProof()


class _Record(msgspec.Struct):
    v: int
    proofs: tuple[Proof, ...] = ()


def to_metadata(recorded: RecordedProof) -> str:
    """Write at most one proof of each level: far below the 4,096 bytes that brokers accept by default."""
    return msgspec.json.encode(_Record(VERSION, recorded.proofs)).decode()


def from_metadata(metadata: str) -> RecordedProof:
    """Read a text; whatever it is, there is an answer."""
    try:
        version = msgspec.json.decode(metadata, type=dict[str, msgspec.Raw]).get("v")
        if version is not None and msgspec.json.decode(version, type=int) > VERSION:
            return RecordedProof(problem=f"a newer build recorded it (version {bytes(version).decode()})")
        return RecordedProof(msgspec.json.decode(metadata, type=_Record).proofs)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return RecordedProof(problem=f"{_cut(metadata)!r} is no record of an audit")


class Beginning(NamedTuple):
    """The place where the audit of a partition begins. `why`: the reason for beginning at the start of the log;
    else empty."""

    moment: Moment
    base: Pointer | None = None
    why: str = ""


def beginning(moment: Moment, logs: Logs, level: Level, recorded: RecordedProof) -> Beginning:
    """Begin at the newest whole snapshot that is not newer than the proof that counts, else at the start of the
    log."""
    if recorded.problem:
        return Beginning(moment, why=f"the recorded proof cannot be read: {recorded.problem}")
    proof = recorded.counting_at(level)
    if proof is None:
        return Beginning(moment, why=_uncounted(recorded))
    if proof.offset < moment.log_start:
        return Beginning(moment, why=f"the increment of the proven batch {proof.batch} was trimmed")
    try:
        last = last_batch(moment, logs, At())
    except (DamagedError, SealRefused, UnknownFormatError):
        last = None
    pointers = last.increment.pointers if last is not None else []
    for pointer in pointers:
        proven = pointer.increment_offset <= proof.offset
        if proven and is_there(pointer, moment) and _is_whole(logs, pointer):
            return Beginning(_from(moment, pointer, pointers), pointer)
    return Beginning(moment, why=f"no whole snapshot is left from before the proven batch {proof.batch}")


def broken_promises(
    recorded: RecordedProof, batches: Mapping[int, tuple[int, Digest | None]], log_start: int
) -> Iterable[tuple[int, str]]:
    """Yield (offset, what is wrong) of each proof whose batch is not in the log any more. `batches`: by offset."""
    for proof in recorded.proofs:
        found = batches.get(proof.offset)
        digest = None if found is None or found[1] is None else str(found[1])
        if proof.offset < log_start or (found is not None and (found[0], digest) == (proof.batch, proof.digest)):
            continue
        there = "no increment of the chain is there now"
        if found is not None:
            there = f"now batch {found[0]} with digest {digest or 'none'} is there"
        yield (
            proof.offset,
            f"batch {proof.batch} with digest {proof.digest or 'none'} was proven here (level {proof.level}), but"
            f" {there}: the log was rewritten",
        )


def _uncounted(recorded: RecordedProof) -> str:
    furthest = recorded.furthest
    if furthest is None:
        return "nothing is proven yet"
    return f"proven so far only at level {furthest.level} (batch {furthest.batch})"


def _is_whole(logs: Logs, pointer: Pointer) -> bool:
    """Say whether the snapshot is whole: every entry hashed, and together as its batch recorded."""
    try:
        manifest = manifest_of(logs, pointer)
        load(logs, manifest, NullSink())
    except (DamagedError, UnknownFormatError):
        return False
    return manifest.digest is None or manifest.digest == manifest.entries_digest


def _from(moment: Moment, base: Pointer, pointers: Sequence[Pointer]) -> Moment:
    """Return the moment from which the increment of the base is read again, and all snapshots from there on."""
    kept = [each for each in pointers if each.increment_offset >= base.increment_offset]
    first = min(each.first_chunk_offset for each in kept)
    return msgspec.structs.replace(
        moment, log_start=base.increment_offset, snapshots_start=max(moment.snapshots_start, first)
    )


def _cut(text: str, longest: int = 60) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"


class Level(StrEnum):
    """Each level includes the one before it."""

    INTEGRITY = "integrity"  # what was written is there, whole, in one chain
    CHANGES = "changes"  # every batch's digest and every snapshot's, from the recorded changes
    REPLAY = "replay"  # what the app's handlers make of the input is what was recorded

    def includes(self, other: Level) -> bool:
        """Say whether a proof at this level is one at `other`, too."""
        levels = list(Level)
        return levels.index(self) >= levels.index(other)
