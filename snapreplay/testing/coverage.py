"""The handlers, timers and expiries that happened in a run of an app, and what to feed for the others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from snapreplay.app.app import App
from snapreplay.app.batch import Applied, ErrorPolicy
from snapreplay.app.harness import Harness
from snapreplay.app.record import RawRecord
from snapreplay.app.timer import name_in
from snapreplay.state.map import MapState
from snapreplay.state.scheduled import ExpiringStore
from snapreplay.state.slices import slices_of
from snapreplay.state.timers import TimerKey, TimerStore


class CoverageHarness(Harness[Any]):
    """Each timer and each expired entry has a batch of its own. Fed one record at a time, a batch shows what ran."""

    def __init__(self, app: App[Any], *, policy: ErrorPolicy) -> None:
        super().__init__(app, policy=policy, events_max=1)
        self._done: Counter[str] = Counter()
        self._dead: Counter[str] = Counter()

    def left_out(self) -> Iterator[str]:
        """Yield one line for each handler, timer and expiry that did not happen."""
        for topic in self._app.inputs:
            what = _handler(topic.name)
            if not self._done[what]:
                yield self._dead_line(what) or f"{what}: it never ran; add a record of {topic.name}"
        first_ms = self._first_due_ms()
        for name, spec in self._app.timers.items():
            what, fired_count = _timer(name), self._done[_timer(name)] + self._dead[_timer(name)]
            if spec.every_ms is not None and fired_count == 1:  # on a state without entries
                why = "it fired only before the first record"
                yield f"{what}: {self._not_due(why, first_ms.get(what), 'set it')}"
            elif not self._done[what]:
                why = self._not_due("it never fired", first_ms.get(what), "set it")
                yield self._dead_line(what) or f"{what}: {why}"
        for what in self._expiries():
            if not self._done[what]:
                yield f"{what}: {self._not_due('no entry expired', first_ms.get(what), 'store one')}"

    def _dead_line(self, what: str) -> str:
        """Say that there were only dead letters; empty if nothing was dead-lettered."""
        if not self._dead[what]:
            return ""
        return f"{what}: it gave only dead letters; add records for which it succeeds"

    def _not_due(self, why: str, first_ms: int | None, needed: str) -> str:
        if first_ms is None:
            return f"{why}, and none is pending; add records that {needed}"
        at_ms = max(first_ms, self.stream_time_ms)
        return f"{why}; add a record with a timestamp ≥ {at_ms}, or pass until_ms={at_ms}"

    def _commit_batch(self, numbered: list[RawRecord], to_ms: int | None) -> Applied:
        applied = super()._commit_batch(numbered, to_ms)
        outcome = self._dead if applied.skipped else self._done
        outcome.update(_handler(each.topic) for each in applied.ranges)
        if applied.last_timer_id is not None:
            outcome = self._dead if applied.skipped_timers else self._done
            outcome[_timer(name_in(applied.last_timer_id))] += 1
        if applied.expired_count:
            self._done.update(self._expiry(n) for n, each in applied.sealed.changes.items() if each)
        return applied

    def _first_due_ms(self) -> dict[str, int]:
        """Map each timer or expiry to when the first one that is pending is due."""
        timetable = self._store.timetable
        stores = {} if timetable is None else {each.name: each for each in timetable.stores}
        found: dict[str, int] = {}
        for name, part in slices_of(self._store):
            if (store := stores.get(name)) is None:
                continue
            is_timer = isinstance(store, TimerStore)
            for key, value in part.entries.items():
                what = _timer(TimerKey.decoded(key).name) if is_timer else self._expiry(name)
                at_ms = store.due_ms(value)
                if at_ms is not None:
                    found[what] = min(at_ms, found.get(what, at_ms))
        return found

    def _expiries(self) -> list[str]:
        timetable = self._store.timetable
        stores = () if timetable is None else timetable.stores
        return [self._expiry(each.name) for each in stores if isinstance(each, ExpiringStore)]

    def _expiry(self, store: str) -> str:
        return "expiry of " + ("state" if isinstance(self.state, MapState) else f"state.{store}")


def _handler(topic: str) -> str:
    return f"handler of {topic}"


def _timer(name: str) -> str:
    return f"timer {name}"
