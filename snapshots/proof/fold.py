"""Each batch's digest recomputed: the state before it, its changes, the state after it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from snapreplay.errors import DamagedError, SnapreplayError
from snapreplay.snapshots.format.records import LogEntry, Manifest
from snapreplay.snapshots.log.batches import Step
from snapreplay.snapshots.log.by_changes import ChangesLost, apply_changes
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.entries import Entries
from snapreplay.snapshots.proof.findings import AuditedPartition, Findings
from snapreplay.state.digest import wrong_stores
from snapreplay.state.steps import all_of

Load = Callable[[int], Entries]
"""The entries of the snapshot whose manifest has this offset.

Raises:
    DamagedError: it is not whole.
"""


class Folding:
    """Given each batch in order. Knows the state from the genesis or from the first whole snapshot on.

    After a wrong digest it knows nothing until the next snapshot: all later digests would be wrong as well.
    """

    def __init__(
        self,
        place: AuditedPartition,
        findings: Findings,
        manifests: Mapping[int, Manifest],
        load: Load,
    ) -> None:
        """Take `manifests`: by offset, of the snapshots that are whole."""
        self.batches_proven = 0
        self.changes_folded = 0
        self.proven: Found | None = None
        """The last batch whose digest was recomputed."""
        self._place = place
        self._findings = findings
        self._manifests = manifests
        self._offsets = {m.increment_offset: offset for offset, m in sorted(manifests.items())}
        self._load = load
        self._state: Entries | None = None

    def batch(self, step: Step, decoded: Sequence[LogEntry | None]) -> None:
        """Take the next batch. `decoded`: its changes records."""
        increment, found = step.increment, Found(step.offset, step.increment)
        if increment.begins_anew:
            self._state = None
            for pointer in increment.pointers[:1]:
                self._state = self._loaded(pointer.manifest_offset)
        elif self._state is not None:
            self._fold(self._state, step, decoded)
        elif increment.batch == 0:
            self._state = Entries()
        else:
            self._state = self._snapshot_of(found)
        self._compare(found)

    @property
    def state(self) -> Entries | None:
        """The state after the last batch; None where it is not known."""
        return self._state

    def _fold(self, state: Entries, step: Step, decoded: Sequence[LogEntry | None]) -> None:
        increment = step.increment
        try:
            all_of(apply_changes(step, state, decoded))
            self.changes_folded += increment.changes.entry_count if increment.changes else 0
        except ChangesLost:
            self._state = self._snapshot_of(Found(step.offset, increment))
        except SnapreplayError:
            self._state = None  # which record it is stands among the findings already

    def _compare(self, found: Found) -> None:
        increment = found.increment
        if self._state is None or increment.digest is None:
            return
        found_digests = self._state.digest, self._state.store_digests
        if found_digests == (increment.digest, increment.store_digests):
            self.batches_proven += 1
            self.proven = found
            return
        self._findings.add(
            "batch_digest",
            self._place.increments,
            found.offset,
            f"after batch {increment.batch} the state has digest {self._state.digest}, but {increment.digest} was"
            f" recorded{wrong_stores(increment.store_digests, self._state.store_digests)}",
        )
        self._state = None

    def _snapshot_of(self, found: Found) -> Entries | None:
        """Find the snapshot of an increment; an offset alone is no identity: in a topic that was created again
        another increment has it."""
        offset = self._offsets.get(found.offset, -1)
        manifest = self._manifests.get(offset)
        increment = found.increment
        if manifest is None or (manifest.batch, manifest.digest) != (
            increment.batch,
            increment.digest,
        ):
            return None
        return self._loaded(offset)

    def _loaded(self, manifest_offset: int) -> Entries | None:
        if manifest_offset not in self._manifests:
            return None  # why not stands among the findings already
        try:
            return self._load(manifest_offset)
        except DamagedError as error:
            self._findings.add("load", self._place.snapshots, manifest_offset, error.message)
            return None
