"""Runs an app without a broker and without an event loop: records in, state and outputs out, crashes on demand.

`snapreplay.testing` exports it.
"""

from __future__ import annotations

import copy
import inspect
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import msgspec

from snapreplay.app.app import SHARDS_OF_A_TEST, App, check_app
from snapreplay.app.batch import Applied, ErrorPolicy, Portion, check_policy
from snapreplay.app.call import AsyncCall, Call, Reply
from snapreplay.app.codecs import msgpack
from snapreplay.app.fold import Fold
from snapreplay.app.made_record import (
    UNSET,
    UNSET_MS,
    Sent,
    check_output,
    checked_records,
    encoded,
    record,
    record_raw,
    rehearse,
    sent_to,
)
from snapreplay.app.record import InputRecord, Output, RawRecord, id_of, span_of
from snapreplay.app.topic import Topic
from snapreplay.app.upgrade import upgrading
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.calls import Numbered
from snapreplay.state.composite import Store
from snapreplay.state.cursor import Slices, load_slices, slices_of
from snapreplay.state.digest import Digest
from snapreplay.state.keys import K as MapKey
from snapreplay.state.map import MapState
from snapreplay.state.recorded import Recorded
from snapreplay.state.steps import all_of
from snapreplay.state.stores import Stores, maps_of
from snapreplay.state.view import MapView, StoresView, View, view_of
from snapreplay.times import NO_TIMESTAMP

K = TypeVar("K")
V = TypeVar("V")
Q = TypeVar("Q")
R = TypeVar("R")
S = TypeVar("S")
ST = TypeVar("ST", bound=Stores)
T = TypeVar("T")


Answers = Mapping[AsyncCall[Any, Any, Any], Callable[[Call[Any, Any]], Any] | Mapping[Any, Any]]
"""Call → what answers it: a function of the call, or a table by key. An exception, raised or in the table, is the last
error."""


class Diverged(AssertionError):
    """The same records led to another state or other outputs. The message names the first such record."""


@dataclass(frozen=True)
class _Batch:
    """A batch as a recovery would find it: the input it covers, and its increment."""

    records: list[RawRecord]
    applied: Applied
    digest: Digest


@dataclass(frozen=True)
class _Image:
    """A full snapshot."""

    slices: Slices
    stream_time_ms: int
    positions: dict[str, int]


ROUNDS_MAX = 1000
"""In which records of internal topics lead to other ones."""


_encode_reply = msgpack(Reply).encode


class Harness(Generic[S]):
    """One partition of an app, in memory. It handles records of its internal topics and answers of its calls after
    the batch that sent them. Records fed to a broadcast table are in the table's partition 0.

    Attributes:
        records: the records applied so far, including those of internal topics, in order.
        dead_letters: records for the dead-letter topic, in order (policy DEAD_LETTER).
        errors: the reasons, in the same order.
        late: window or join → number of its late records.
    """

    def __init__(
        self,
        app: App[S],
        partition: int = 0,
        *,
        policy: ErrorPolicy = ErrorPolicy.FAIL,
        output_limits: Mapping[str, int] | None = None,
        events_max: int = sys.maxsize,
        feeds_internal: bool = True,
        calls: Answers | None = None,
    ) -> None:
        """Begin with an empty state.

        Args:
            events_max: how many timers and expired entries one batch may have.
            feeds_internal: False: what is sent to an internal topic is only an output.
            calls: what answers the app's calls, instead of their functions; the others stay pending, see `answer`.

        Raises:
            UsageError: the app is not complete, see `App.validate`; or `policy` is not an ErrorPolicy.
        """
        check_app(app)
        check_policy(policy)
        rehearse((*app.inputs, *app.outputs))
        self._app = app
        self._partition = partition
        self._policy = policy
        self._limits = output_limits
        self._events_max = events_max
        self._feeds_internal = feeds_internal
        self._internal: list[Output | RawRecord] = []  # sent, and not handled yet
        self._answers = {} if calls is None else dict(calls)
        for call in self._answers:
            self._check_call(call)
        self._positions = dict.fromkeys(app.input_names, 0)
        self._clock_ms = 0
        self._outputs: list[Output] = []
        self.records: list[RawRecord] = []
        self.dead_letters: list[Output] = []
        self.errors: list[RecordError] = []
        self.late: Counter[str] = Counter()
        self._batches: list[_Batch] = []
        self._recorded = Recorded({}, {}).after(app.stored_fields)
        self._store = self._app.new_store(shards=SHARDS_OF_A_TEST)
        self._take_up(self._store)
        self.snapshot()

    @property
    def state(self) -> S:
        """The state as a handler would see it now, read-only."""
        view: S = self._store.view
        return view

    @overload
    def view(self: Harness[MapState[MapKey, V]]) -> MapView[MapKey, V]: ...
    @overload
    def view(self: Harness[ST]) -> StoresView[ST]: ...
    @overload
    def view(self) -> View[S]: ...
    def view(self) -> View[Any]:
        """Return the committed state, as `Service.view` does."""
        return view_of(self._partition, self._committed)

    @property
    def digest(self) -> Digest:
        """The digest of the state; equal states have equal digests."""
        self._forget_reads()
        return self._store.digest

    @property
    def stream_time_ms(self) -> int:
        """The highest timestamp so far; -1 before the first record."""
        return self._store.stream_time_ms

    @property
    def all_outputs(self) -> list[Output]:
        """The encoded outputs to all topics, in the order sent."""
        return list(self._outputs)

    def outputs(self, topic: Topic[K, V]) -> list[Sent[K, V]]:
        """Return what was sent to this topic so far, in order. Raises UsageError: not an output of the app."""
        check_output(topic, self._app)
        return sent_to(topic, self._outputs)

    def pending(self, call: AsyncCall[K, Q, R]) -> list[Call[K, Q]]:
        """Return the requested calls without an answer, in the order requested. Raises UsageError: the app has no
        such call."""
        self._check_call(call)
        return [call.call_of(call_id, each) for call_id, each in self._pending_calls() if each.name == call.name]

    def answer(
        self, call: AsyncCall[K, Q, R], made: Call[K, Q], result: R | None = None, *, error: BaseException | None = None
    ) -> None:
        """Handle the answer of a `pending` call as a record; with `error`, the call has failed. A second answer has
        no effect, as in a service.

        Raises:
            UsageError: the app has no such call.
            As `feed_batch`.
        """
        self._check_call(call)
        key, _ = encoded(call.topic, made.key, None)
        at_ms = next((each.at_ms for call_id, each in self._pending_calls() if call_id == made.id), NO_TIMESTAMP)
        self._internal.append(self._answered(call, made.id, key, result if error is None else error, at_ms))
        self._feed_internal()

    def feed(
        self,
        topic: Topic[K, V],
        *,
        key: K | None = None,
        value: V | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Apply one record as a batch of its own. Without `timestamp_ms` it is 1 ms later than the record before it.

        Raises:
            UsageError: the topic's codec does not encode this key or value.
            As `feed_batch`.
        """
        self.feed_batch([record(topic, key=key, value=value, timestamp_ms=timestamp_ms, headers=headers)])

    def feed_raw(
        self,
        topic: Topic[Any, Any],
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Feed one record as `feed` does, with key and value as bytes, which need not decode."""
        self.feed_batch([record_raw(topic, key, value, timestamp_ms=timestamp_ms, headers=headers)])

    def feed_batch(self, records: Iterable[RawRecord]) -> list[RawRecord]:
        """Apply these records as one committed batch. Returns them with their offsets.

        Raises:
            UsageError: not a list of records, or one is not of an input.
            RecordError: with policy FAIL; the records before the failing one are applied, as in the
                service.
            LostChange: a default returned by `get` was changed, and the change is lost.
        """
        numbered = [self._numbered(one) for one in checked_records(records)]
        self._commit(numbered, None)
        self._feed_internal()
        return numbered

    def advance_time(self, to_ms: int) -> None:
        """Move stream time up to `to_ms` without a record, as the service may on quiet input.

        Raises:
            RecordError: with policy FAIL; a timer cannot be handled. What was due before it has happened.
            LostChange: as `feed_batch`.
        """
        self._clock_ms = max(self._clock_ms, to_ms)
        self._commit([], to_ms)
        self._feed_internal()

    def _committed(self) -> Any:
        """Return the view of the present store; after a crash that is another one."""
        return self._store.committed_view()

    def _commit(self, numbered: list[RawRecord], to_ms: int | None) -> None:
        """Commit in one batch, or in as many as have room for what is due."""
        left, is_full = numbered, True
        while is_full:
            applied = self._commit_batch(left, to_ms)
            left, is_full = _behind(left, applied.positions), applied.is_full

    def _commit_batch(self, numbered: list[RawRecord], to_ms: int | None) -> Applied:
        self._forget_reads()
        applied = self._apply(Portion(numbered, to_ms, events_max=self._events_max))
        self._store.merge()
        self._positions = dict(applied.positions)
        self._outputs += applied.outputs
        self._internal += [each for each in applied.outputs if self._comes_back(each)]
        self.dead_letters += applied.dead_letters
        self.errors += applied.errors
        self.late.update(applied.late)
        covered = numbered[: len(numbered) - len(_behind(numbered, applied.positions))]
        self.records += covered
        self._batches.append(_Batch(covered, applied, self._store.digest))
        if applied.failure is not None:
            raise applied.failure
        return applied

    def _comes_back(self, output: Output) -> bool:
        is_here = output.partition in (None, self._partition)
        return self._feeds_internal and is_here and output.topic in self._app.internal_names

    def _check_call(self, call: object) -> None:
        if not isinstance(call, AsyncCall) or self._app.calls.get(call.name) is not call:
            raise UsageError(f"{self._app.app_id}: {call!r} is not a call of the app")

    def _pending_calls(self) -> list[Numbered]:
        return [] if self._store.calls is None else self._store.calls.pending()

    def _made_calls(self) -> list[RawRecord]:
        """Return the answers of all pending calls that something answers."""
        found = []
        for call_id, pending in self._pending_calls() if self._answers else ():
            call = self._app.calls[pending.name]
            if call not in self._answers:
                continue
            made, answers = call.call_of(call_id, pending), self._answers[call]
            try:
                result = answers[made.key] if isinstance(answers, Mapping) else answers(made)
            except Exception as error:  # noqa: BLE001 - the call has failed
                result = error
            if inspect.iscoroutine(result):
                result.close()
                raise UsageError(
                    f"{self._app.app_id}: the function that answers call {call.name} is async",
                    hint="a harness has no loop: pass a plain function",
                )
            found.append(self._answered(call, call_id, pending.key, result, pending.at_ms))
        return found

    def _answered(
        self, call: AsyncCall[Any, Any, Any], call_id: str, key: bytes | None, result: object, at_ms: int
    ) -> RawRecord:
        if isinstance(result, BaseException):
            reply = call.failed(call_id, result, 1)
        else:
            reply = call.succeeded(call_id, result, 1)
        at_ms = at_ms if at_ms > NO_TIMESTAMP else UNSET_MS
        return RawRecord(call.topic.name, self._partition, UNSET, at_ms, key, _encode_reply(reply))

    def _record_of(self, sent: Output | RawRecord) -> RawRecord:
        if isinstance(sent, RawRecord):
            return sent
        at_ms = UNSET_MS if sent.timestamp_ms is None else sent.timestamp_ms
        return RawRecord(sent.topic, self._partition, UNSET, at_ms, sent.key, sent.value, sent.headers)

    def _feed_internal(self) -> None:
        """Handle what was sent to internal topics and the answers of calls, and what this leads to."""
        sent: list[Output | RawRecord] = []
        for _ in range(ROUNDS_MAX):
            sent, self._internal = [*self._internal, *self._made_calls()], []
            if not sent:
                return
            records = [self._record_of(each) for each in sent]
            self._commit([self._numbered(each) for each in records], None)
        raise UsageError(
            f"{self._app.app_id}: after {ROUNDS_MAX:,} rounds, records of internal topics still lead to new ones, now"
            f" in {sent[0].topic}: the app would feed itself endlessly",
            hint="end the loop in the handler: a record that is done sends no other one; or"
            " `Harness(app, feeds_internal=False)`, and feed the records of one round yourself",
        )

    def snapshot(self) -> None:
        """Take a full snapshot, from which the next `crash` restores."""
        self._forget_reads()
        slices, stream_time_ms = slices_of(self._store), self._store.stream_time_ms
        self._image = _Image(slices, stream_time_ms, dict(self._positions))
        self._batches = []

    def crash(self, *, seed: int = 0) -> None:
        """Discard the state, and restore it from the last snapshot by changes and by replay. The `seed` shuffles the
        entries.

        Raises:
            Diverged: a mode led to another state, or the replay to other outputs, than before.
        """
        before = self.digest
        shuffle = random.Random(seed)
        store = self._restored(shuffle)
        self._replay(store)
        store = self._by_changes(shuffle)
        if store.digest != before:
            raise Diverged(
                f"{self._app.app_id}: restored from snapshot and changes, the state has digest"
                f" {store.digest}; before the crash it was {before}"
            )
        self._take_up(store)

    def handed_over(self, app: App[Any], *, seed: int = 0) -> Harness[Any]:
        """Return a harness in which `app` continues with the same topics. Its state comes from the last snapshot and
        the changes since then, and no handler runs.

        Raises:
            Diverged: the state differs from this one.
            UpgradeFailed, UsageError, StoredValueUnreadable, UnknownFields, UnknownTimer: the app cannot continue.
            MeaningChanged: the app would misread stored values.
        """
        older, newer = self._app.schema_version, app.schema_version
        if older != newer and not app.upgrades_from(older):
            raise UsageError(f"{app.app_id}: there is no way from schema_version {older} to {newer}")
        recorded = self._recorded.of_entries({each.name: each.entries for each in self._store.sizes})
        if unknown := recorded.refuse(app.fields_read(older), self._app.version):
            raise unknown
        heir: Harness[Any] = Harness(
            app, self._partition, policy=self._policy, output_limits=self._limits, feeds_internal=self._feeds_internal
        )
        heir._image, heir._batches = self._image, self._batches
        heir._recorded = recorded.without(app.upgrades_from(older)).after(app.stored_fields)
        store = heir._by_changes(random.Random(seed))
        if store.digest != self.digest:
            raise Diverged(f"{app.app_id}: handed over, the state has another digest")
        if older != newer:
            all_of(upgrading(app.upgrades.values(), older, store))
        all_of(store.refusing_pending())
        sum(store.checking())
        heir._take_up(store)
        heir._positions |= {name: at for name, at in self._positions.items() if app.declaration(name)}
        heir._clock_ms = self._clock_ms
        heir.snapshot()
        return heir

    def _by_changes(self, shuffle: random.Random) -> Store:
        store = self._restored(shuffle)
        for batch in self._batches:
            sealed = batch.applied.sealed
            changes = {n: _shuffled(c, shuffle) for n, c in sealed.changes.items()}
            store.apply_changes(changes, sealed.cleared)
            store.stream_time_ms = batch.applied.stream_time_ms
        return store

    def _take_up(self, store: Store) -> None:
        self._store = store
        self._fold = self._new_fold(store, self._policy)
        self._watch = DefaultWatch(store.view)
        store.retire()

    def _new_fold(self, store: Store, policy: ErrorPolicy) -> Fold:
        return Fold(self._app, store, self._partition, output_limits=self._limits, policy=policy)

    def _forget_reads(self) -> None:
        """Undo reads outside a batch, which leave decoded values in a map."""
        self._store.rollback()

    def _numbered(self, given: RawRecord) -> RawRecord:
        name = self._app.input_of(given.topic, max(given.partition, 0))
        if self._app.declaration(name) is None:
            hint = f"use one of the inputs: {', '.join(each.name for each in self._app.inputs)}"
            raise UsageError(f"{self._app.app_id}: {given.topic} is not an input", hint=hint)
        offset = self._positions.setdefault(name, 0)
        self._positions[name] = offset + 1
        at_ms = self._clock_ms + 1 if given.timestamp == UNSET_MS else given.timestamp
        if at_ms > NO_TIMESTAMP:  # an answer has the time of its request, and what is fed next is later than all
            is_internal = given.topic in self._app.internal_names
            self._clock_ms = max(self._clock_ms, at_ms) if is_internal else at_ms
        return msgspec.structs.replace(given, topic=name, partition=self._partition, offset=offset, timestamp=at_ms)

    def _apply(self, portion: Portion) -> Applied:
        fold = self._fold
        positions = dict(self._positions)
        for one in reversed(portion.records):
            positions[one.topic] = one.offset
        fold.begin(positions, portion)
        try:
            all_of(fold.applying(portion))
            self._watch.check(portion.records)
            return fold.finish()
        except RecordError:
            fold.abandon()
            applied = all_of(fold.isolating(positions, portion))
            self._watch.forget()
            return applied

    def _restored(self, shuffle: random.Random) -> Store:
        store = self._app.new_store(shards=SHARDS_OF_A_TEST)
        slices = list(self._image.slices)
        shuffle.shuffle(slices)
        shuffled = [
            (name, msgspec.structs.replace(one, entries=_shuffled(one.entries, shuffle))) for name, one in slices
        ]
        load_slices(store, shuffled, self._image.stream_time_ms)
        return store

    def _replay(self, store: Store) -> None:
        fold, initial = self._new_fold(store, ErrorPolicy.FAIL), dict.fromkeys(self._positions, 0)
        positions = initial | self._image.positions  # a pattern has had more topics since
        for batch in self._batches:
            if batch.applied.sealed.cleared:
                store.apply_changes({}, batch.applied.sealed.cleared)
            applied = _replayed(fold, store, positions, batch)
            where = span_of(batch.records)
            if applied.failure is not None:
                raise Diverged(f"replay of {where}: {applied.failure}") from applied.failure
            if applied.outputs != batch.applied.outputs:
                raise Diverged(f"replay of {where} sends other outputs than the first time")
            if store.digest != batch.digest:
                raise Diverged(f"replay of {where} leads to another state than the first time")
            positions = initial | batch.applied.positions


def _replayed(fold: Fold, store: Store, positions: Mapping[str, int], batch: _Batch) -> Applied:
    applied = batch.applied
    portion = Portion(
        batch.records,
        applied.stream_time_ms,
        applied.fired_count,
        skipped=applied.skipped,
        skipped_timers=applied.skipped_timers,
        is_recorded=True,
    )
    try:
        again = all_of(fold.replaying(positions, portion))
    except RecordError as error:
        raise Diverged(f"replay of {span_of(batch.records)}: {error}") from error
    store.merge()
    return again


def _behind(records: Sequence[RawRecord], positions: Mapping[str, int]) -> list[RawRecord]:
    return [one for one in records if one.offset >= positions[one.topic]]


def _shuffled(entries: Mapping[bytes, T], shuffle: random.Random) -> dict[bytes, T]:
    pairs = list(entries.items())
    shuffle.shuffle(pairs)
    return dict(pairs)


class LostChange(AssertionError):
    """A handler changed the default that `state.get` returned, and did not store it."""


class DefaultWatch:
    """Watches the maps of a state for lost changes."""

    def __init__(self, view: object) -> None:
        self._maps = [
            (f"state.{name}" if name else "state", each, _watched(each)) for name, each in maps_of(view).items()
        ]

    def check(self, records: Sequence[InputRecord]) -> None:
        """Check after these records were applied. Raises LostChange: a default was changed and its key is missing."""
        for place, view, defaults in self._maps:
            for key, default, before in defaults:
                if default != before and key not in view:
                    where = f"up to {id_of(records[-1])}" if records else "a timer"
                    raise LostChange(
                        f"{where}: {place}.get({key!r}, …) returned its default {before!r}, which was changed to"
                        f" {default!r}, and the change is lost: use {place}[key] with MapState(default=…) or"
                        f" {place}.setdefault, or store the value"
                    )
        self.forget()

    def forget(self) -> None:
        for _, _, defaults in self._maps:
            defaults.clear()


def _watched(view: MapState[Any, Any]) -> list[tuple[Any, Any, Any]]:
    """Return a list of each missing key, its default, and a copy of that, which `get` of this map keeps up from now on.
    Only the object's class changes: handlers may test for MapState, so a proxy would not do."""
    defaults: list[tuple[Any, Any, Any]] = []
    plain: Any = type(view)

    def get(self: Any, key: Any, default: Any = None) -> Any:
        value = plain.get(self, key, default)
        if default is not None and value is default:
            defaults.append((key, default, copy.deepcopy(default)))
        return value

    view.__class__ = type(plain.__name__, (plain,), {"get": get, "__module__": plain.__module__})
    return defaults
