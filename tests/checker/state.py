"""The state as bytes, by store, folded from the changes; and what is compared with it."""

from __future__ import annotations

from tests.checker import wire
from tests.checker.verdict import Check, Verdict
from tests.checker.wire import Digest, Sums

Stored = dict[str, dict[bytes, bytes]]
"""Store → encoded key → value."""


class DigestCheck:
    """The recorded digests against those of a state that was come by in another way."""

    def __init__(self, way: str, verdict: Verdict) -> None:
        self._way = way
        self._verdict = verdict
        self._differs = False

    def compare(self, found: wire.Increment, state: Image | None, where: str) -> None:
        """A violation where they begin to differ, not at every batch after; none for what is not known."""
        if state is None:
            return
        self._verdict.counts[f"digests checked by {self._way}"] += 1
        by_store = said_by_store(state.store_digests)
        self._verdict.counts["digests of several stores"] += bool(by_store)
        differs = (state.digest, by_store) != (found.digest, found.store_digests)
        if differs and not self._differs:
            what = (
                f"batch {found.batch} has digest {found.digest} {found.store_digests}, by {self._way} it is"
                f" {state.digest} {by_store}"
            )
            self._verdict.add(Check.STATE, where, what)
        self._differs = differs


def said_by_store(digests: dict[str, Digest]) -> dict[str, Digest]:
    """Return what increments and manifests record: nothing, where the only store is that of a single map."""
    return digests if digests.keys() - {wire.DEFAULT} else {}


class Image:
    """Entries as stored. Memory: that of the state."""

    def __init__(self, stored: Stored | None = None) -> None:
        self.stored: Stored = {}
        self._sums: dict[str, Sums] = {}
        for store, entries in (stored or {}).items():
            for key, value in entries.items():
                self.put(store, key, value)

    @property
    def digest(self) -> Digest:
        return wire.in_state(self.store_digests)

    @property
    def store_digests(self) -> dict[str, Digest]:
        return {store: each.digest for store, each in self._sums.items() if each.count}

    def put(self, store: str, key: bytes, value: bytes | None) -> None:
        """None: remove it, if it is there."""
        entries = self.stored.setdefault(store, {})
        sums = self._sums.setdefault(store, Sums())
        before = entries.pop(key, None)
        if before is not None:
            sums.take(key, before)
        if value is not None:
            sums.put(key, value)
            entries[key] = value

    def clear(self, store: str) -> None:
        """Clear a store as a batch does that the app has retired."""
        for key in list(self.stored.get(store, ())):
            self.put(store, key, None)

    def apply(self, changes: wire.Changes) -> None:
        """Fold one record of changes in."""
        for store, entries in changes.stores.items():
            for key, value in entries.items():
                self.put(store, key, value)
