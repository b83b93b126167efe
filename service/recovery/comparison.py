"""Compares each batch that was advanced over with its increment: outputs and state."""

from __future__ import annotations

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.restore_mode import RestoreMode
from snapreplay.service.recovery import mismatch
from snapreplay.service.recovery.mismatch import AdvancedBatch
from snapreplay.snapshots.log.batches import Step
from snapreplay.state.contract import Store
from snapreplay.state.digest import Digest
from snapreplay.state.steps import Steps


class Comparison:
    """The comparison for one advance by one mode: call `batch` for each step, in order, then `end`.

    Outputs show what handlers sent, a digest proves the state. With unchanged code both must be as recorded. Changed
    code may send something else, if the next digest is the recorded one. It may also send the same and keep another
    state, so it is not trusted after the last digest.

    Attributes:
        digests: compared, and equal.
        computed: the digest of the state as it is; None: not known, as something was applied since.
    """

    def __init__(self, store: Store, mode: RestoreMode, version: str, partition: int) -> None:
        """Take `version` of the app that is running."""
        self._version = version
        self._partition = partition
        self._store = store
        self._mode = mode
        self._differs: SnapreplayError | None = None
        self._unproven: SnapreplayError | None = None
        self.digests = 0
        self.computed: Digest | None = None

    def batch(self, step: Step, outputs_xxh64: dict[str, int] | None) -> Steps[None]:
        """Compare a batch; `outputs_xxh64`: as replayed; None by changes, which say nothing about outputs.

        Raises:
            OutputsDiffer, DigestMismatch, CodeChanged: STOP.
            DamagedError: increments before it cannot be read, and its digest does not show that nothing is missing.
        """
        increment, recorded = step.increment, step.increment.digest
        place = self._place_of(step)
        if not increment.is_empty or increment.changes is not None or step.unread:
            self.computed = None
        if outputs_xxh64 is not None:
            self._compare_outputs(place, outputs_xxh64)
        if recorded is not None and self.computed is None:
            self.computed = yield from self._store.digesting()
        if recorded is not None and self.computed == recorded:
            self.digests += 1
            self._differs = self._unproven = None
            return
        for each in step.unread:  # nothing else proves that nothing of them is missing
            raise each.error
        if recorded is not None:
            raise self._differs or mismatch.state_differs(
                place, self.computed, self._store.store_digests
            )
        if place.code_changed and (increment.record_count or increment.fired_count):
            self._unproven = self._unproven or mismatch.not_proven(place)

    def refused(self, step: Step, error: SnapreplayError) -> SnapreplayError:
        """Say what it means that a processed record cannot be replayed."""
        place = self._place_of(step)
        if not place.code_changed:
            return error
        return self._differs or mismatch.replay_refused(place, error)

    def end(self) -> None:
        """Raise CodeChanged if changed code replayed batches behind the last digest."""
        error = self._differs or self._unproven
        if error is not None:
            raise error

    def _compare_outputs(self, place: AdvancedBatch, computed: dict[str, int]) -> None:
        if computed == place.increment.outputs_xxh64:
            return
        error = mismatch.outputs_differ(place, computed)
        if not place.code_changed:
            raise error
        self._differs = self._differs or error

    def _place_of(self, step: Step) -> AdvancedBatch:
        return AdvancedBatch(
            step.increment, step.offset, self._partition, self._mode, self._version
        )
