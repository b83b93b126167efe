"""The place where the walk over the increments begins. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from snapreplay.snapshots.format.records import NO_OFFSET, Genesis, Manifest


@dataclass(frozen=True)
class Base:
    """The committed batch a state belongs to: where the walk begins.

    `increment_offset` is that of its increment, NO_OFFSET before the genesis; `read_from_offset` is where the
    records after it begin. `is_sealed`: its increment has a seal.
    """

    batch: int
    increment_offset: int
    read_from_offset: int
    positions: Mapping[str, int]
    is_sealed: bool = False

    @classmethod
    def of_snapshot(cls, manifest: Manifest, *, is_sealed: bool = False) -> Base:
        offset = manifest.increment_offset
        return cls(manifest.batch, offset, offset + 1, manifest.positions, is_sealed=is_sealed)

    @classmethod
    def before_genesis(cls, genesis: Genesis, log_start_offset: int) -> Base:
        """Return the base of the empty state: the first increment of the log must be batch 0."""
        return cls(-1, NO_OFFSET, log_start_offset, genesis.start_offsets)
