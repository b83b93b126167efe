"""Each batch's digest recomputed: the state before it, its changes, the state after it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from snapreplay.errors import DamagedError, SnapreplayError
from snapreplay.snapshots.format.records import Manifest
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.entries import Entries
from snapreplay.snapshots.proof.findings import Findings, Place
from snapreplay.snapshots.proof.records import Judged
from snapreplay.state.digest import wrong_stores

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
        self, place: Place, findings: Findings, manifests: Mapping[int, Manifest], load: Load
    ) -> None:
        """`manifests`: by offset, of the snapshots that are whole."""
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

    def batch(self, found: Found, changes: list[Judged]) -> None:
        """With the changes records directly before it."""
        increment = found.increment
        if increment.begins_anew:
            self._state = None
            for pointer in increment.pointers[:1]:
                self._state = self._loaded(pointer.manifest_offset)
        elif self._state is not None:
            self._fold(self._state, found, changes)
        elif increment.batch == 0:
            self._state = Entries()
        else:
            self._state = self._snapshot_of(found)
        self._compare(found)

    @property
    def state(self) -> Entries | None:
        """After the last batch; None where it is not known."""
        return self._state

    def unread(self, changes: list[Judged]) -> None:
        """A batch whose increment cannot be read. The next digest shows whether these were its changes."""
        if self._state is not None:
            try:
                self._state.apply_unread([each.value for each in changes])
            except SnapreplayError:
                self._state = None

    def _fold(self, state: Entries, found: Found, changes: list[Judged]) -> None:
        increment = found.increment
        state.clear(increment.cleared)
        if increment.changes is None:
            if not increment.is_empty:
                self._state = self._snapshot_of(found)
            return
        try:
            values, decoded = [each.value for each in changes], [each.entry for each in changes]
            self.changes_folded += state.apply(increment.changes, values, decoded)
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
        """An offset alone is no identity: in a topic that was created again another increment has it."""
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
