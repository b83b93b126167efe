"""Runs an app in every way that must not change its result, and names the first record that differs."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from snapreplay.app.app import App, check_app
from snapreplay.app.batch import Applied, ErrorPolicy
from snapreplay.app.harness import Answers, Diverged, Harness
from snapreplay.app.load import load_app, name_of
from snapreplay.app.made_record import checked_records, is_timestamp
from snapreplay.app.names import dead_letters_topic
from snapreplay.app.record import Output, RawRecord, id_of
from snapreplay.app.timer import name_in
from snapreplay.counted import counted
from snapreplay.errors import UsageError
from snapreplay.state.scheduled import ExpiringStore

BATCH_SIZES = (7, sys.maxsize)
CRASH_SEEDS = (1, 2, 3)
CRASHES = 40
"""Approximate number of crashes per seed. Each restores the whole state twice, which is slow with many records."""
HASH_SEEDS = ("1", "4242")
CHILD_SECONDS = 60.0


@dataclass(frozen=True)
class Report:
    """The report of a `check`.

    Attributes:
        runs: one line each.
        left_out: one line for each handler that never ran, timer that never fired and map with a ttl in which no
            entry expired, with the records to add; and one for each run that was not possible.
    """

    record_count: int
    runs: tuple[str, ...]
    left_out: tuple[str, ...]


class Course(msgspec.Struct, frozen=True):
    """The work of every run: records, then time up to `until_ms`, then what was sent to internal topics meanwhile."""

    records: list[RawRecord]
    policy: ErrorPolicy
    until_ms: int | None = None
    last_records: list[RawRecord] = []


class TraceStep(msgspec.Struct, frozen=True):
    """The effects of one record, or of the time that passed after the last one: everything that was sent, dead letters
    included, and the state after it. `where` names the record or the time in messages."""

    where: str
    outputs: list[Output]
    digest: str


def check(
    app: App[Any],
    records: Iterable[RawRecord],
    *,
    policy: ErrorPolicy = ErrorPolicy.FAIL,
    until_ms: int | None = None,
    calls: Answers | None = None,
) -> Report:
    """Run the same records in several ways that must give the same result. A few hundred records are enough.

    The report's `left_out` names each handler, timer and expiry that never happened, and which records to add.

    The runs: twice in batches of 1; in batches of 7; in one batch; with snapshots and crashes; in batches that end
    after each timer and each expired entry; and in other processes with other values of PYTHONHASHSEED, if the app
    can be imported by name.

    Args:
        until_ms: after the last record, each run advances stream time to this timestamp; None: it does not.
        calls: the answers of the app's calls, as in `Harness`, determined once for all runs. Other calls stay
            pending.

    Raises:
        Diverged: names the first record after which state or outputs differ.
        LostChange: a default returned by `state.get` was changed and not stored.
        RecordError: policy FAIL, and a record cannot be applied.
        UsageError: no records, or `until_ms` is not a timestamp, or is before stream time.
    """
    check_app(app)
    given = checked_records(records)
    if not given:
        raise UsageError(
            f"{app.app_id}: check needs at least one record",
            hint="make records with `testing.record(topic, key=…, value=…)`",
        )
    course = unrolled(app, Course(given, policy, until_ms), calls)
    reference = trace(app, course)
    runs = ["batches of 1"]
    covered = CoverageHarness(app, policy=policy)
    is_timed = app.new_store().timetable is not None
    again = Harness(app, policy=policy, feeds_internal=False) if is_timed else covered
    _compare(reference, _steps(again, course), "in a second run")
    runs.append("batches of 1 again")
    for size in BATCH_SIZES:
        _check_batches(app, course, reference, size)
        runs.append(f"batches of {size}" if size < sys.maxsize else "one batch")
    for seed in CRASH_SEEDS:
        _compare(reference, _crashing(app, course, seed), f"with crashes (seed {seed})")
        runs.append(f"crashes, seed {seed}")
    if is_timed:
        _compare(reference, _steps(covered, course), "in batches that end between two timers")
        runs.append("batches of 1 timer")
    left_out = list(covered.left_out())
    name = name_of(app)
    if name is None:
        left_out.append("another PYTHONHASHSEED: the app is not importable as module:app")
    else:
        for hash_seed in HASH_SEEDS:
            _compare(reference, _in_child(name, course, hash_seed), f"with PYTHONHASHSEED={hash_seed}")
            runs.append(f"PYTHONHASHSEED={hash_seed}")
    return Report(len(given), tuple(runs), tuple(left_out))


def unrolled(app: App[Any], course: Course, calls: Answers | None = None) -> Course:
    """Return the course with what its records lead to in internal topics, each behind its cause. The cluster decides
    when such a record is handled; here every run must do it at the same place. Records of other apps' inputs stay.

    Raises:
        RecordError, UsageError: as `Harness.feed_batch`.
    """
    if not app.internal_names:
        return course
    harness, records = Harness(app, policy=course.policy, calls=calls), list[RawRecord]()
    for one in course.records:
        if app.input_named(one.topic) is None:
            records.append(one)
            continue
        before = len(harness.records)
        harness.feed_batch([one])
        records += harness.records[before:]
    before = len(harness.records)
    if course.until_ms is not None and is_timestamp(course.until_ms):
        harness.advance_time(course.until_ms)
    return msgspec.structs.replace(course, records=records, last_records=harness.records[before:])


def trace(app: App[Any], course: Course) -> list[TraceStep]:
    """Run the records in batches of one, so that each effect belongs to one record."""
    return list(_steps(Harness(app, policy=course.policy, feeds_internal=False), course))


def _steps(harness: Harness[Any], course: Course) -> Iterator[TraceStep]:
    yield from _feeding(harness, course.records)
    yield from _passing(harness, course)


def _feeding(harness: Harness[Any], records: list[RawRecord]) -> Iterator[TraceStep]:
    for one in records:
        before = _sent(harness)
        record_id = id_of(harness.feed_batch([one])[0])
        yield _step(harness, before, str(record_id))


def _passing(harness: Harness[Any], course: Course) -> Iterator[TraceStep]:
    """Let time pass after the records, or raise UsageError: `until_ms` is not a timestamp, or is before stream time."""
    until_ms = course.until_ms
    if until_ms is None:
        return
    now_ms = harness.stream_time_ms
    if not is_timestamp(until_ms) or until_ms < now_ms:
        raise UsageError(
            f"until_ms={until_ms!r} is not a time after the records, which end at stream time {now_ms}",
            hint=f"pass a timestamp, not a duration: a minute later is `until_ms={now_ms + 60_000}`",
        )
    before = _sent(harness)
    harness.advance_time(until_ms)
    yield _step(harness, before, f"until_ms={until_ms}")
    yield from _feeding(harness, course.last_records)


def _sent(harness: Harness[Any]) -> tuple[int, int]:
    return len(harness.all_outputs), len(harness.dead_letters)


def _step(harness: Harness[Any], before: tuple[int, int], where: str) -> TraceStep:
    outputs = [*harness.all_outputs[before[0] :], *harness.dead_letters[before[1] :]]
    return TraceStep(where, outputs, str(harness.digest))


def _crashing(app: App[Any], course: Course, seed: int) -> Iterator[TraceStep]:
    harness = Harness(app, policy=course.policy, feeds_internal=False)
    chance = random.Random(seed)
    often = min(0.5, CRASHES / len(course.records))
    for step in _steps(harness, course):
        yield step
        if chance.random() < often:
            if chance.random() < 0.4:
                harness.snapshot()
            harness.crash(seed=chance.randrange(1 << 32))


def _compare(reference: list[TraceStep], other: Iterable[TraceStep], how: str) -> None:
    for expected, found in zip(reference, other, strict=True):
        if found.outputs != expected.outputs:
            raise Diverged(
                f"{expected.where}: {how} the app sends other outputs:"
                f" {_shown(found.outputs)} instead of {_shown(expected.outputs)}"
            )
        if found.digest != expected.digest:
            raise Diverged(f"{expected.where}: {how} the app has another state")


def _shown(outputs: list[Output]) -> str:
    texts = [f"{one.topic}: {one.key!r} → {one.value!r}" for one in outputs]
    return "[" + ", ".join(texts)[:300] + "]"


# ---------------------------------------------------------------------------------- batches


def _check_batches(app: App[Any], course: Course, reference: list[TraceStep], size: int) -> None:
    harness, records = Harness(app, policy=course.policy, feeds_internal=False), course.records
    for start in range(0, len(records), size):
        end = min(start + size, len(records))
        sent = len(harness.all_outputs)
        harness.feed_batch(records[start:end])
        _compare_outputs(reference[start:end], harness.all_outputs[sent:], app, size)
        if str(harness.digest) != reference[end - 1].digest:
            first = _first_differing(app, course, reference, start, end)
            raise Diverged(
                f"{reference[first].where}: a batch that began at {reference[start].where} leads to"
                " another state than batches of one; does the handler keep an object outside the state?"
            )
    how = f"after batches of {min(size, len(records))}"
    _compare(reference[len(records) :], _passing(harness, course), how)


def _compare_outputs(steps: list[TraceStep], outputs: list[Output], app: App[Any], size: int) -> None:
    dead_letters = dead_letters_topic(app.app_id)
    position = 0
    for step in steps:
        expected = [one for one in step.outputs if one.topic != dead_letters]
        found = outputs[position : position + len(expected)]
        position += len(expected)
        if found != expected:
            raise Diverged(
                f"{step.where}: batches of {min(size, len(steps))} send other outputs than batches"
                f" of one: {_shown(found)} instead of {_shown(expected)}"
            )
    if position != len(outputs):
        raise Diverged(f"{steps[-1].where}: its batch sends {counted(len(outputs) - position, 'output')} too many")


def _first_differing(app: App[Any], course: Course, reference: list[TraceStep], start: int, end: int) -> int:
    """Bisect for the last record of the shortest batch from `start` that ends in another state."""
    records = course.records
    low, high = start, end - 1
    while low < high:
        middle = (low + high) // 2
        harness = Harness(app, policy=course.policy, feeds_internal=False)
        for one in records[:start]:
            harness.feed_batch([one])
        harness.feed_batch(records[start : middle + 1])
        if str(harness.digest) == reference[middle].digest:
            low = middle + 1
        else:
            high = middle
    return low


# ------------------------------------------------------------------- another process


class _Order(msgspec.Struct, frozen=True):
    app: str
    course: Course


def _in_child(name: str, course: Course, hash_seed: str) -> list[TraceStep]:
    done = subprocess.run(
        [sys.executable, "-c", "from snapreplay.testing.checks import child; child()"],
        input=msgspec.msgpack.encode(_Order(name, course)),
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=CHILD_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        errors = done.stderr.decode(errors="replace").strip()[-2000:]
        raise Diverged(f"{name} fails in a process with PYTHONHASHSEED={hash_seed}:\n{errors}")
    return msgspec.msgpack.decode(done.stdout, type=list[TraceStep])


def child() -> None:
    """Trace in the other process: read an order from standard input, write the trace to standard output."""
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Order)
    steps = trace(load_app(order.app), order.course)
    answers.write(msgspec.msgpack.encode(steps))
    answers.flush()


class CoverageHarness(Harness[Any]):
    """Each timer and each expired entry has a batch of its own. Fed one record at a time, a batch shows what ran."""

    def __init__(self, app: App[Any], *, policy: ErrorPolicy) -> None:
        super().__init__(app, policy=policy, events_max=1, feeds_internal=False)
        self._ran: set[str] = set()

    def left_out(self) -> Iterator[str]:
        """Yield one line for each handler, timer and expiry that did not happen, or only failed."""
        calls = {call.topic.name: call.name for call in self._app.calls.values()}
        for topic in self._app.inputs:
            if (what := f"handler of {topic.name}") not in self._ran:
                name = calls.get(topic.name)
                todo = f"pass `calls={{{name}: …}}`" if name else f"add a record of {topic.name}"
                yield f"{what}: it never ran; {todo}"
        for name in self._app.timers:
            if (what := f"timer {name}") not in self._ran:
                yield f"{what}: it never fired; {_LATER}"
        timetable = self._store.timetable
        for store in () if timetable is None else timetable.stores:
            if isinstance(store, ExpiringStore) and (what := f"expiry of {store.name}") not in self._ran:
                yield f"{what}: no entry expired; {_LATER}"

    def _commit_batch(self, numbered: list[RawRecord], to_ms: int | None) -> Applied:
        applied = super()._commit_batch(numbered, to_ms)
        if not applied.skipped:
            declared = (self._app.declaration(each.topic) for each in applied.ranges)
            self._ran.update(f"handler of {each.name}" for each in declared if each)
        if applied.last_timer_id is not None and not applied.skipped_timers and not applied.begun_periods:
            self._ran.add(f"timer {name_in(applied.last_timer_id)}")
        if applied.expired_count:
            self._ran.update(f"expiry of {name}" for name, each in applied.sealed.changes.items() if each)
        return applied


_LATER = "add a record with a later timestamp, or pass until_ms="
