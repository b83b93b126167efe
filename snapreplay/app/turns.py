"""The events that are due before a record: timers fire and entries expire, in the order of their times. Pure.

A record's turn: stream time moves to its timestamp, event by event; then its handler runs. An event is done or not,
as a record is: what becomes of the record does not change what fired before it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import MsgspecError

from snapreplay.app.app import App
from snapreplay.app.batch import Portion
from snapreplay.app.call import sourced
from snapreplay.app.failure import passes, returned_value, timer_error
from snapreplay.app.out import Out
from snapreplay.app.record import InputRecord
from snapreplay.app.timer import Timer, TimerSpec
from snapreplay.app.windowed import store_in
from snapreplay.errors import RecordError
from snapreplay.state.composite import Store
from snapreplay.state.gate import Gate
from snapreplay.state.keys import stored_key
from snapreplay.state.steps import Steps, all_of
from snapreplay.state.timers import Event, Kind, TimerKey, Timetable
from snapreplay.times import FAR_AHEAD_MS

NO_PORTION = Portion()


def _next_ms(now_ms: int, every_ms: int) -> int:
    return (now_ms // every_ms + 1) * every_ms


_BEGINS_MS = -1
"""Time of the event that begins the first period of a periodic timer; no timer is due then."""

OnFailure = Callable[["Timer[Any]", RecordError], bool]
"""Called for a timer that cannot be handled. Returns whether to continue without it."""


class Turns:
    """The events of one partition.

    Attributes:
        fired_count: timers fired and entries expired since the last record of the batch.
        timers_count, expired_count, begun_periods: in the whole batch.
        skipped_timers: which of the batch's timers were dead-lettered, counted from 0.
        is_full: the batch has as many events as it may have, and more are due.
    """

    def __init__(self, app: App[Any], store: Store, timetable: Timetable, partition: int, out: Out, gate: Gate) -> None:
        self._gate = gate
        self._app_id, self._partition = app.app_id, partition
        self._specs = {n: spec._replace(function=sourced(app, spec.function)) for n, spec in app.timers.items()}
        self._far_ms = min(FAR_AHEAD_MS, *(each.ahead_max_ms or FAR_AHEAD_MS for each in app.inputs))
        self._store, self._clock, self._timetable, self._out = store, store.clock, timetable, out
        self._periodic = [
            (TimerKey("", name, b"").encoded(), name)
            for name, spec in sorted(app.timers.items())
            if spec.every_ms is not None
        ]
        self._new: list[bytes] = []
        self.begin()

    def begin(self, portion: Portion = NO_PORTION) -> None:
        self.fired_count = self.timers_count = self.expired_count = self.begun_periods = 0
        self.skipped_timers: list[int] = []
        self.is_full = False
        self._records: Sequence[InputRecord] = portion.records
        self._events_left = portion.events_max
        self._skipped: Collection[int] = portion.skipped_timers
        self._refused = portion.refused
        self._last: Timer[Any] | None = None
        periods = self._timetable.periods
        self._new = [key for key, _ in self._periodic if periods is not None and periods.look(key) is None]

    def counted(self, positions: Mapping[str, int]) -> dict[str, Any]:
        """Return what `Applied` says of the batch, which ends at these positions."""
        records, self._records = self._records, ()  # not held until the next batch
        left = (each.topic for each in records if each.offset >= positions[each.topic])
        return {
            "fired_count": self.fired_count,
            "begun_input": next(left, None) if self.fired_count else None,
            "skipped_timers": tuple(self.skipped_timers),
            "timers_count": self.timers_count,
            "expired_count": self.expired_count,
            "begun_periods": self.begun_periods,
            "last_timer_id": None if self._last is None else self._last.id,
            "is_full": self.is_full,
        }

    def is_quiet(self, to_ms: int) -> bool:
        """Say whether certainly nothing is due, so that `passing` need not be called; and tell the clock up to which
        time a record needs no further look."""
        if self._new:
            return False
        clock = self._clock
        not_before_ms = self._timetable.not_before_ms
        far_ms = clock.stream_time_ms + self._far_ms  # a record from there on may lie too far ahead
        clock.quiet_before_ms = far_ms if not_before_ms is None else min(not_before_ms, far_ms)
        return not_before_ms is None or not_before_ms > max(to_ms, clock.stream_time_ms)

    def passing(self, to_ms: int, most: int = sys.maxsize, alone: OnFailure | None = None) -> Steps[RecordError | None]:
        """Fire the timers and expire the entries that are due by `to_ms`, at most `most` of them.

        Args:
            alone: apply each event on its own, so that only a failing one is undone; says whether to continue without
                it.

        Returns the error of the next timer, if `alone` says to stop there. Raises RecordError: a timer failed, and
        `alone` is None.
        """
        up_to_ms = max(to_ms, self._store.stream_time_ms)
        while most:
            event = (yield from self._timetable.finding(up_to_ms)) or self._new_period(up_to_ms)
            if event is None:
                return None
            if not self._events_left:
                self.is_full = True
                return None
            if alone is None:
                self._fire(event, up_to_ms)
            else:
                failure = self._fire_alone(event, up_to_ms, alone)
                if failure is not None:
                    return failure
            self._count(event)
            most -= 1
            yield
        return None

    def ends_batch(self) -> bool:
        """Say whether the batch has no room for the next record, or for what is due before it."""
        self.is_full = self.is_full or not self._events_left
        return self.is_full

    def _new_period(self, up_to_ms: int) -> Event | None:
        """Return a periodic timer whose first period is to begin."""
        return Event(_BEGINS_MS, Kind.PERIOD, "", self._new[0]) if self._new and up_to_ms >= 0 else None

    def _count(self, event: Event) -> None:
        self._events_left -= 1
        self.fired_count += 1
        if event.kind is Kind.EXPIRY:
            self.expired_count += 1
        else:
            self.timers_count += 1
        if event.at_ms == _BEGINS_MS:
            del self._new[0]
            self.begun_periods += 1

    def _fire_alone(self, event: Event, up_to_ms: int, on_failure: OnFailure) -> RecordError | None:
        store = self._store
        outputs_before, time_before_ms = self._out.mark(), store.stream_time_ms
        store.begin()
        try:
            self._fire(event, up_to_ms)
            self._stage_alone(event, up_to_ms)
        except RecordError as error:
            store.rollback()
            store.stream_time_ms = time_before_ms
            self._out.cut(outputs_before)
            timer, spec = self._timer(event, up_to_ms)
            if not on_failure(timer, error):
                return error
            self._move_time(event, up_to_ms)
            self._take(event, up_to_ms, spec)
            self._gate.open()
            try:
                self._drop_entry(timer, spec)
            finally:
                self._gate.close()
            all_of(store.staging())
            self.skipped_timers.append(self.timers_count)
        return None

    def _stage_alone(self, event: Event, up_to_ms: int) -> None:
        try:
            all_of(self._store.staging())
        except RecordError as error:
            timer, spec = self._timer(event, up_to_ms)
            raise timer_error(timer, spec and spec.function, error) from error.__cause__

    def _fire(self, event: Event, up_to_ms: int) -> None:
        self._gate.open()
        try:
            self._apply_event(event, up_to_ms)
        finally:
            self._gate.close()

    def _apply_event(self, event: Event, up_to_ms: int) -> None:
        self._move_time(event, up_to_ms)
        if event.kind is Kind.EXPIRY:
            self._timetable.expire(event)
            return
        timer, spec = self._timer(event, up_to_ms)
        self._take(event, up_to_ms, spec)
        self._last = timer
        if self.timers_count in self._skipped:
            self._drop_entry(timer, spec)
            return
        if event.at_ms == _BEGINS_MS or (spec is None and event.kind is Kind.PERIOD):
            return
        self._out.input_key, self._out.at_ms = timer.output_key, timer.at_ms
        scheduler = self._store.scheduler
        if scheduler is not None:
            scheduler.firing_ms = up_to_ms if event.kind is Kind.PERIOD else event.at_ms
        try:
            refused = self._refused
            if refused is not None and _is_of(refused, timer):
                self._refused = None  # the next time of a periodic one is another event
                raise refused
            if spec is None:
                raise _no_handler(timer)
            answer: object = spec.function(timer, self._store.view, self._out)
            if answer is not None:
                raise returned_value(answer)
        except BaseException as error:
            if passes(error):
                raise
            found = timer_error(timer, spec and spec.function, error)
            raise found from found.__cause__
        finally:
            if scheduler is not None:
                scheduler.firing_ms = None

    def _move_time(self, event: Event, up_to_ms: int) -> None:
        at_ms = up_to_ms if event.kind is Kind.PERIOD else event.at_ms
        self._store.stream_time_ms = max(self._store.stream_time_ms, at_ms)

    def _take(self, event: Event, up_to_ms: int, spec: TimerSpec | None) -> None:
        """Take the timer from those pending; set a periodic one again, without the periods that were missed."""
        timetable = self._timetable
        if event.kind is Kind.TIMER and timetable.timers is not None:
            timetable.timers.set(event.key, None)
        elif timetable.periods is not None:
            every_ms = spec.every_ms if spec is not None else None
            following = None if every_ms is None else _next_ms(up_to_ms, every_ms)
            timetable.periods.set(event.key, following)

    def _drop_entry(self, timer: Timer[Any], spec: TimerSpec | None) -> None:
        """Delete the entry that a skipped timer was to close: no other timer ever would."""
        if spec is not None and spec.closes_in == timer.store != "":
            with suppress(RecordError):  # a key of another type than the store has now: the dead letter says so
                store_in(self._store.view, timer.store).pop(timer.key, None)

    def _timer(self, event: Event, up_to_ms: int) -> tuple[Timer[Any], TimerSpec | None]:
        """Return the timer and its declaration; None: the app has no such timer any more."""
        store, name, encoded = TimerKey.decoded(event.key)
        spec, key, at_ms = self._specs.get(name), None, event.at_ms
        is_periodic = event.kind is Kind.PERIOD
        if spec is not None and (spec.every_ms is not None) != is_periodic:
            spec = None
        if is_periodic:
            at_ms = up_to_ms if spec is None else up_to_ms - up_to_ms % (spec.every_ms or 1)
        else:
            key = self._key(store, encoded)
        return Timer(self._app_id, self._partition, name, store, key, at_ms), spec

    def _key(self, store: str, encoded: bytes) -> Any:
        """Decode the key; if the store is gone, or has another key type now, return the key as it was."""
        decode = self._timetable.keys.get(store, stored_key)
        try:
            return decode(encoded)
        except MsgspecError:
            return stored_key(encoded)


def _is_of(refused: RecordError, timer: Timer[Any]) -> bool:
    """Say whether it is this timer that the broker did not take. A periodic one that fires by the clock has another
    time at each attempt."""
    if refused.timer_id is None or timer.store:
        return refused.timer_id == timer.id
    return refused.timer_id.rpartition(" at ")[0] == timer.name


def _no_handler(timer: Timer[Any]) -> RecordError:
    return RecordError(
        f"timer {timer.name!r} was set, but the app no longer has a handler for it",
        hint=f'give the app a handler again: `@app.timer("{timer.name}")`; one that does nothing discards them',
    )
