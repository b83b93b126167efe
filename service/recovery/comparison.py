"""Compares each batch that was advanced over with its increment, outputs and state; the errors of a recovery that does
not arrive at what was committed."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from snapreplay.app.ways import go_on
from snapreplay.errors import SnapreplayError, StopError
from snapreplay.service.core.phase import RestoreMode
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.log.batches import Step
from snapreplay.state.composite import Store
from snapreplay.state.digest import Digest, wrong_stores

UNCOVERED = (
    "the app is not deterministic (`snapreplay.testing.check` names the first record), or something changed that its"
    " version does not cover (an installed package, a file, the environment)"
)
OLD_VERSION_FIRST = (
    "start the version that processed it and stop it: the snapshot that it writes at its end (snapshot.before_stop)"
    " needs no replay. Then start the new version"
)


class DigestMismatch(StopError):
    """The state after a batch is not the committed one, although every record is intact.

    Safe: Nothing is committed on top of that state. You may try a replay: it sends no outputs, and changes nothing in
    the log.
    """


class ReplayFailed(StopError):
    """A replay failed, because a handler raised for a record that was processed before."""


class OutputsDiffer(StopError):
    """In a replay by the same version of the app, a batch sends other outputs than were committed."""


class CodeChanged(StopError):
    """A replay by another version of the app gives another state or other outputs, or nothing proves that it gives
    the same."""


class AdvancedBatch(Struct, frozen=True):
    """A batch of a state partition that was advanced over; `offset` is that of its increment."""

    increment: Increment
    offset: int
    partition: int
    mode: RestoreMode
    version: str

    @property
    def code_changed(self) -> bool:
        return self.mode is RestoreMode.REPLAY and self.increment.origin.app_version != self.version

    def __str__(self) -> str:
        return f"batch {self.increment.batch} (increment at offset {self.offset})"


def outputs_differ(place: AdvancedBatch, computed: dict[str, int]) -> SnapreplayError:
    """Make the error for other outputs; `computed`: output topic → hash, as replayed."""
    recorded = place.increment.outputs_xxh64
    topic = next(name for name in (*recorded, *computed) if recorded.get(name) != computed.get(name))
    facts: dict[str, object] = {
        "batch": place.increment.batch,
        "offset": place.offset,
        "topic": topic,
        "recorded": _shown(recorded.get(topic)),
        "computed": _shown(computed.get(topic)),
    }
    what = (
        f"{place}: its outputs to {topic} have fingerprint {facts['recorded']}, but {facts['computed']} when replayed"
    )
    if place.code_changed:
        return _code_changed(f"{what}: replaying with changed code gives other outputs", place, facts)
    return OutputsDiffer(
        f"{what}; app version {place.version} then and now, written by {place.increment.origin.fingerprint}:"
        f" {UNCOVERED}",
        hint=OLD_VERSION_FIRST,
        **facts,
    )


def state_differs(place: AdvancedBatch, computed: Digest, stores: Mapping[str, Digest]) -> SnapreplayError:
    """Make the error for another digest than `computed`; `stores`: the digests of the stores as computed."""
    increment = place.increment
    facts: dict[str, object] = {
        "batch": increment.batch,
        "offset": place.offset,
        "recorded": str(increment.digest),
        "computed": str(computed),
        "mode": place.mode.value,
    }
    what = f"{place}: digest {computed} by {place.mode.value}, but {increment.digest} was recorded"
    what += wrong_stores(increment.store_digests, stores)
    if place.code_changed:
        return _code_changed(f"{what}: replaying with changed code gives another state", place, facts)
    what += f"; written by {increment.origin.fingerprint}"
    if place.mode is RestoreMode.REPLAY:
        return DigestMismatch(f"{what}: {UNCOVERED}", hint=OLD_VERSION_FIRST, **facts)
    return DigestMismatch(what, hint=f"`--set restore.mode=replay`, then {go_on(place.partition)}", **facts)


def replay_refused(place: AdvancedBatch, error: SnapreplayError) -> SnapreplayError:
    """Make the error for changed code that cannot process a record that was processed."""
    return _code_changed(error.message, place, {"batch": place.increment.batch})


def not_proven(place: AdvancedBatch) -> SnapreplayError:
    """Make the error for changed code that replayed a batch without a digest."""
    return _code_changed(
        f"{place}: it recorded no digest of the state, so nothing proves that replaying with changed code gives the"
        " same",
        place,
        {"batch": place.increment.batch, "offset": place.offset},
    )


def _code_changed(what: str, place: AdvancedBatch, facts: dict[str, object]) -> CodeChanged:
    recorded = place.increment.origin.app_version
    return CodeChanged(
        f"{what}; it was processed by app version {recorded}, this is {place.version}",
        hint=OLD_VERSION_FIRST,
        recorded_version=recorded,
        version=place.version,
        **facts,
    )


def _shown(hashed: int | None) -> str:
    return "none" if hashed is None else f"{hashed:016x}"


class Comparison:
    """The comparison for one advance by one mode: call `batch` for each step, in order.

    Outputs show what handlers sent, a digest proves the state. With unchanged code both must be as recorded. Changed
    code may send something else if the digest is the recorded one.
    """

    def __init__(self, store: Store, mode: RestoreMode, version: str, partition: int) -> None:
        """Take `version` of the app that is running."""
        self._version = version
        self._partition = partition
        self._store = store
        self._mode = mode
        self.digests = 0

    def batch(self, step: Step, outputs_xxh64: dict[str, int] | None) -> None:
        """Compare a batch; `outputs_xxh64`: as replayed; None by changes, which say nothing about outputs.

        Raises:
            OutputsDiffer, DigestMismatch, CodeChanged: STOP.
            DamagedError: increments before it cannot be read, and its digest does not show that nothing is missing.
        """
        increment, recorded, computed = step.increment, step.increment.digest, self._store.digest
        place, differs = self._place_of(step), None
        if outputs_xxh64 is not None and outputs_xxh64 != increment.outputs_xxh64:
            differs = outputs_differ(place, outputs_xxh64)
            if not place.code_changed:
                raise differs
        if computed == recorded:
            self.digests += 1
            return
        for each in step.unread:  # nothing else proves that nothing of them is missing
            raise each.error
        if recorded is not None:
            raise differs or state_differs(place, computed, self._store.store_digests)
        if place.code_changed and (increment.record_count or increment.fired_count):
            raise differs or not_proven(place)

    def refused(self, step: Step, error: SnapreplayError) -> SnapreplayError:
        """Say what it means that a processed record cannot be replayed."""
        place = self._place_of(step)
        return replay_refused(place, error) if place.code_changed else error

    def _place_of(self, step: Step) -> AdvancedBatch:
        return AdvancedBatch(step.increment, step.offset, self._partition, self._mode, self._version)
