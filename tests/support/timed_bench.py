"""An app with everything that stream time moves, and the same by hand: dicts that are searched as a whole, no line of
the product's."""

from dataclasses import dataclass, field
from typing import Any

import msgpack

from snapreplay.app.app import App
from snapreplay.app.batch import ErrorPolicy, Portion
from snapreplay.app.codecs import json
from snapreplay.app.fold import Fold
from snapreplay.app.record import RawRecord
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.stores import Stores

TTL, EVERY = 20, 15
steps_in, told = Topic("steps", value=json()), Topic("told")


def _get(state, key, number, at):
    state.items.get(key)
    state.kept.get(key)


def _fail(state, key, number, at):
    state.items[key] = number
    state.items.schedule(key, 0, timer="ring")
    raise ValueError("no")


DO = {
    "put": lambda state, key, number, at: state.items.__setitem__(key, number),
    "touch": lambda state, key, number, at: state.items.setdefault(key, 0),
    "get": _get,
    "keep": lambda state, key, number, at: state.kept.__setitem__(key, number),
    "delete": lambda state, key, number, at: state.items.pop(key, None),
    "set": lambda state, key, number, at: state.items.schedule(key, max(0, at + number - 5), timer="ring"),
    "other": lambda state, key, number, at: state.kept.schedule(key, at + number, timer="bell"),
    "cancel": lambda state, key, number, at: state.items.cancel(key, timer="ring"),
    "fail": _fail,
}


def timed_app():
    app = App(
        "timed",
        inputs=[steps_in],
        outputs=[told],
        state=lambda: Stores(items=MapState(str, int, ttl_ms=TTL), kept=MapState(str, int, ttl_ms=TTL, refresh="read")),
        version="1",
    )

    @app.handler(steps_in)
    def on_step(record, state, out):
        do, number = record.value
        out.send(told, key=record.key, value=["record", record.offset, sorted(state.items)])
        DO[do](state, record.key, number, record.timestamp_ms)

    @app.timer("ring")
    def on_ring(timer, state, out):
        out.send(told, key=timer.key, value=["ring", timer.at_ms, state.stream_time_ms])
        state.items[timer.key] = timer.at_ms
        if timer.at_ms % 5 == 0:
            state.items.schedule(timer.key, timer.at_ms + timer.at_ms % 3 * 4, timer="ring")
        if timer.at_ms % 7 == 0:
            raise ValueError("no")

    @app.timer("bell")
    def on_bell(timer, state, out):
        out.send(told, key=timer.key, value=["bell", timer.at_ms, sorted(state.kept)])

    @app.timer("tick", every_ms=EVERY)
    def tick(timer, state, out):
        out.send(told, key="", value=["tick", timer.at_ms, state.stream_time_ms])

    return app


@dataclass
class ByHand:
    """The result that must come of the records, one by one."""

    items: dict[str, Any] = field(default_factory=dict)  # key → [value, touched]
    kept: dict[str, Any] = field(default_factory=dict)
    timers: dict[Any, int] = field(default_factory=dict)  # (store, name, key) → at
    next_tick: int | None = None
    now: int = -1
    told: list[Any] = field(default_factory=list)
    letters: list[Any] = field(default_factory=list)

    def turn(self, to):
        """Everything that is due, then the ticks."""
        to = max(to, self.now)
        while True:
            due = [(at, 0, _stored(of), of) for of, at in self.timers.items() if at <= to]
            for store in ("items", "kept"):
                for key, (_, touched) in getattr(self, store).items():
                    if touched + TTL <= to:
                        due.append((touched + TTL, 1, b"", (store, "", key)))
            if not due:
                break
            at, kind, _, of = min(due)
            self.now = max(self.now, at)
            if kind == 1:
                del getattr(self, of[0])[of[2]]
            else:
                del self.timers[of]
                self.fire(of, at)
        if to >= (self.next_tick or 0):
            self.now = to
            if self.next_tick is not None:
                self.told.append(["tick", to - to % EVERY, to])
            self.next_tick = (to // EVERY + 1) * EVERY

    def fire(self, of, at):
        store, name, key = of
        if name == "bell":
            self.told.append(["bell", at, sorted(self.kept)])
        elif at % 7 == 0:
            self.letters.append((name, at))
        else:
            self.told.append(["ring", at, self.now])
            self.items[key] = [at, self.now]
            if at % 5 == 0:
                self.timers[store, name, key] = max(at + 1, at + at % 3 * 4)

    def record(self, offset, key, do, number, at):
        self.turn(at)
        self.now = max(self.now, at)
        if do == "fail":
            self.letters.append(("record", offset))
            return
        self.told.append(["record", offset, sorted(self.items)])
        if do == "put":
            self.items[key] = [number, self.now]
        elif do == "touch":
            self.items[key] = [self.items.get(key, [0])[0], self.now]
        elif do == "get" and key in self.kept:
            self.kept[key][1] = self.now
        elif do == "keep":
            self.kept[key] = [number, self.now]
        elif do == "delete":
            self.items.pop(key, None)
        elif do == "set":
            self.timers["items", "ring", key] = max(0, at + number - 5)
        elif do == "other":
            self.timers["kept", "bell", key] = max(0, at + number)
        elif do == "cancel":
            self.timers.pop(("items", "ring", key), None)


def _stored(of):
    store, name, key = of
    return msgpack.packb([store, name, msgpack.packb(key)])


class TimedBench:
    """A partition, driven as the service drives it."""

    def __init__(self, policy=ErrorPolicy.DEAD_LETTER):
        self.app = timed_app()
        self.policy = policy
        self.positions = {"steps": 0}
        self.done = []  # (portion as recorded, positions before, what came of it)
        self.take_up(self.app.new_store())

    def take_up(self, store):
        self.store = store
        self.fold = Fold(self.app, store, 0, policy=self.policy)

    def batch(self, records, events_max, to_ms=None):
        """One batch. Returns the records that it had no room for."""
        portion = Portion(records, to_ms, events_max=events_max)
        self.fold.begin(self.positions, portion)
        try:
            all_of(self.fold.applying(portion))
            applied = self.fold.finish()
        except RecordError:
            self.fold.abandon()
            applied = all_of(self.fold.isolating(self.positions, portion))
        self.store.merge()
        self.done.append((records, self.positions, applied))
        self.positions = applied.positions
        return [one for one in records if one.offset >= applied.positions["steps"]]

    def feed(self, records, events_max):
        """Feed as many batches as it takes."""
        while records:
            records = self.batch(records, events_max)
            assert self.done[-1][2].failure is None
            assert not (records and not self.done[-1][2].is_full)

    def replayed(self, count):
        """A store after the first `count` batches, by a replay of what was recorded."""
        again = TimedBench(ErrorPolicy.FAIL)
        for records, positions, applied in self.done[:count]:
            portion = Portion(
                [one for one in records if one.offset < applied.positions["steps"]],
                applied.stream_time_ms,
                applied.fired_count,
                skipped=applied.skipped,
                skipped_timers=applied.skipped_timers,
                is_recorded=True,
            )
            found = all_of(again.fold.replaying(positions, portion))
            again.store.merge()
            assert found.failure is None
            assert found.outputs_xxh64 == applied.outputs_xxh64
            assert again.store.stream_time_ms == applied.stream_time_ms
        return again.store

    def changed(self, count):
        """The same by changes."""
        store = self.app.new_store()
        for _, _, applied in self.done[:count]:
            store.apply_changes(applied.sealed.changes)
            store.stream_time_ms = applied.stream_time_ms
        return store

    def told(self):
        return [json().decode(one.value) for *_, a in self.done for one in a.outputs]

    def letters(self):
        return [letter_of(dict(one.headers)) for *_, a in self.done for one in a.dead_letters]


def letter_of(headers):
    """(timer, its time) or ("record", its offset)."""
    head = {name.rpartition(".")[2]: value.decode() for name, value in headers.items()}
    if "timer" in head:
        return head["timer"], int(head["at_ms"])
    return "record", int(head["offset"])


def step(offset, key, do, number, at):
    return RawRecord("steps", 0, offset, at, key.encode(), json().encode([do, number]))
