"""Each batch's digest recomputed: the state before it, its changes, the state after it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from snapreplay.errors import DamagedError, SnapreplayError
from snapreplay.snapshots.proof.chain import Found
from snapreplay.snapshots.proof.findings import Findings, Place
from snapreplay.snapshots.proof.records import Judged
from snapreplay.snapshots.proof.state import Entries

Load = Callable[[int], Entries]
"""The state of the snapshot whose manifest has this offset.

Raises:
    DamagedError: it is not whole.
"""


class Folding:
    """Called with each batch in order. Knows the state from the genesis or from the first whole snapshot on.

    After a wrong digest it knows nothing until the next snapshot: all later digests would be wrong as well.
    """

    def __init__(
        self, place: Place, findings: Findings, bases: Mapping[int, int], load: Load
    ) -> None:
        """`bases`: manifest offset → increment offset of the snapshots that are whole."""
        self.batches_proven = 0
        self.batches_without_changes = 0
        self.changes_folded = 0
        self._place = place
        self._findings = findings
        self._bases = bases
        self._by_increment = {increment: manifest for manifest, increment in bases.items()}
        self._load = load
        self._state: Entries | None = None

    def __call__(self, found: Found, changes: list[Judged]) -> None:
        increment = found.increment
        if increment.begins_anew:
            self._state = None
            for pointer in increment.pointers[:1]:
                self._state = self._loaded(pointer.manifest_offset)
        elif self._state is not None:
            self._fold(self._state, found, changes)
        elif increment.batch == 0:
            self._state = Entries()
        elif found.offset in self._by_increment:
            self._state = self._loaded(self._by_increment[found.offset])
        self._compare(found)

    def _fold(self, state: Entries, found: Found, changes: list[Judged]) -> None:
        increment = found.increment
        if increment.changes is None:
            if increment.ranges:
                self._state = None
                self.batches_without_changes += 1
            return
        try:
            self.changes_folded += state.apply(increment.changes, [each.value for each in changes])
        except SnapreplayError:
            self._state = None  # which record it is stands among the findings already

    def _compare(self, found: Found) -> None:
        increment = found.increment
        if self._state is None or increment.digest is None:
            return
        if self._state.digest == increment.digest:
            self.batches_proven += 1
            return
        self._findings.add(
            "batch_digest",
            self._place.increments,
            found.offset,
            f"after batch {increment.batch} the state has digest {self._state.digest}, recorded is {increment.digest}",
        )
        self._state = None

    def _loaded(self, manifest_offset: int) -> Entries | None:
        if manifest_offset not in self._bases:
            return None  # as above
        try:
            return self._load(manifest_offset)
        except DamagedError as error:
            self._findings.add("load", self._place.snapshots, manifest_offset, error.message)
            return None
