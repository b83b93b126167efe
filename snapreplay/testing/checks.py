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

from snapreplay.app.app import App
from snapreplay.app.batch import ErrorPolicy
from snapreplay.app.harness import Diverged, Harness
from snapreplay.app.load import load_app, name_of
from snapreplay.app.names import dead_letters_topic
from snapreplay.app.record import Output, RawRecord, id_of
from snapreplay.errors import RecordId, UsageError

BATCH_SIZES = (7, sys.maxsize)
CRASH_SEEDS = (1, 2, 3)
HASH_SEEDS = ("1", "4242")
CHILD_SECONDS = 60.0


@dataclass(frozen=True)
class Report:
    """What `check` ran; `left_out` says what it could not run, and why."""

    record_count: int
    runs: tuple[str, ...]
    left_out: tuple[str, ...]


class TraceStep(msgspec.Struct, frozen=True):
    """What one record did: everything it sent, dead letters included, and the state after it."""

    record_id: RecordId
    outputs: list[Output]
    digest: str


def check(
    app: App[Any],
    records: Iterable[RawRecord],
    *,
    policy: ErrorPolicy = ErrorPolicy.FAIL,
) -> Report:
    """Run the same records in every way that must not change the result; a few hundred records are enough.

    The runs: twice in batches of 1; in batches of 7; in one batch; with snapshots and crashes in between, after
    which entries are restored in shuffled order; if the state has timers or a ttl, in batches that end after each
    timer and each expired entry; and, if the app can be imported by name, in other processes with
    other values of PYTHONHASHSEED.

    Raises:
        Diverged: names the first record after which state or outputs differ.
        LostChange: a default handed out by `state.get` was changed and not stored.
        RecordError: policy FAIL, and a record cannot be applied.
        UsageError: no records.
    """
    given = list(records)
    if not given:
        raise UsageError(
            f"{app.app_id}: check needs at least one record",
            hint="make records with `testing.record(topic, key=…, value=…)`",
        )
    reference = trace(app, given, policy)
    runs = ["batches of 1"]
    _compare(reference, trace(app, given, policy), "in a second run")
    runs.append("batches of 1 again")
    for size in BATCH_SIZES:
        _check_batches(app, given, policy, reference, size)
        runs.append(f"batches of {size}" if size < sys.maxsize else "one batch")
    for seed in CRASH_SEEDS:
        _compare(reference, _crashing(app, given, policy, seed), f"with crashes (seed {seed})")
        runs.append(f"crashes, seed {seed}")
    if app.new_store().timetable is not None:
        cut = trace(app, given, policy, events_max=1)
        _compare(reference, cut, "in batches that end between two timers")
        runs.append("batches of 1 timer")
    left_out = []
    name = name_of(app)
    if name is None:
        left_out.append("another PYTHONHASHSEED: the app is not importable as module:app")
    else:
        for hash_seed in HASH_SEEDS:
            other = _in_child(name, given, policy, hash_seed)
            _compare(reference, other, f"with PYTHONHASHSEED={hash_seed}")
            runs.append(f"PYTHONHASHSEED={hash_seed}")
    return Report(len(given), tuple(runs), tuple(left_out))


def trace(
    app: App[Any], records: list[RawRecord], policy: ErrorPolicy, events_max: int = sys.maxsize
) -> list[TraceStep]:
    """Runs the records in batches of one, so that each effect belongs to one record."""
    harness = Harness(app, policy=policy, events_max=events_max)
    return [_step(harness, one) for one in records]


def _step(harness: Harness[Any], one: RawRecord) -> TraceStep:
    sent, dead = len(harness.all_outputs), len(harness.dead_letters)
    record_id = id_of(harness.feed_batch([one])[0])
    outputs = [*harness.all_outputs[sent:], *harness.dead_letters[dead:]]
    return TraceStep(record_id, outputs, str(harness.digest))


def _crashing(
    app: App[Any], records: list[RawRecord], policy: ErrorPolicy, seed: int
) -> Iterator[TraceStep]:
    harness = Harness(app, policy=policy)
    chance = random.Random(seed)
    for one in records:
        yield _step(harness, one)
        if chance.random() < 0.2:
            harness.snapshot()
        if chance.random() < 0.5:
            harness.crash(seed=chance.randrange(1 << 32))


def _compare(reference: list[TraceStep], other: Iterable[TraceStep], how: str) -> None:
    for expected, found in zip(reference, other, strict=True):
        if found.outputs != expected.outputs:
            raise Diverged(
                f"{expected.record_id}: {how} the app sends other outputs:"
                f" {_shown(found.outputs)} instead of {_shown(expected.outputs)}"
            )
        if found.digest != expected.digest:
            raise Diverged(f"{expected.record_id}: {how} the app has another state")


def _shown(outputs: list[Output]) -> str:
    texts = [f"{one.topic}: {one.key!r} → {one.value!r}" for one in outputs]
    return "[" + ", ".join(texts)[:300] + "]"


# ---------------------------------------------------------------------------------- batches


def _check_batches(
    app: App[Any],
    records: list[RawRecord],
    policy: ErrorPolicy,
    reference: list[TraceStep],
    size: int,
) -> None:
    harness = Harness(app, policy=policy)
    for start in range(0, len(records), size):
        end = min(start + size, len(records))
        sent = len(harness.all_outputs)
        harness.feed_batch(records[start:end])
        _compare_outputs(reference[start:end], harness.all_outputs[sent:], app, size)
        if str(harness.digest) != reference[end - 1].digest:
            first = _first_differing(app, records, policy, reference, start, end)
            raise Diverged(
                f"{reference[first].record_id}: a batch that began at {reference[start].record_id} leads to"
                " another state than batches of one; does the handler keep an object outside the state?"
            )


def _compare_outputs(
    steps: list[TraceStep], outputs: list[Output], app: App[Any], size: int
) -> None:
    dead_letters = dead_letters_topic(app.app_id)
    position = 0
    for step in steps:
        expected = [one for one in step.outputs if one.topic != dead_letters]
        found = outputs[position : position + len(expected)]
        position += len(expected)
        if found != expected:
            raise Diverged(
                f"{step.record_id}: batches of {min(size, len(steps))} send other outputs than batches"
                f" of one: {_shown(found)} instead of {_shown(expected)}"
            )
    if position != len(outputs):
        raise Diverged(
            f"{steps[-1].record_id}: its batch sends {len(outputs) - position} outputs too many"
        )


def _first_differing(
    app: App[Any],
    records: list[RawRecord],
    policy: ErrorPolicy,
    reference: list[TraceStep],
    start: int,
    end: int,
) -> int:
    """Bisects for the last record of the shortest batch from `start` that ends in another state."""
    low, high = start, end - 1
    while low < high:
        middle = (low + high) // 2
        harness = Harness(app, policy=policy)
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
    policy: str
    records: list[RawRecord]


def _in_child(
    name: str, records: list[RawRecord], policy: ErrorPolicy, hash_seed: str
) -> list[TraceStep]:
    done = subprocess.run(
        [sys.executable, "-c", "from snapreplay.testing.checks import child; child()"],
        input=msgspec.msgpack.encode(_Order(name, policy.value, records)),
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
    """Runs in the other process: reads an order from standard input, writes the trace to standard output."""
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Order)
    steps = trace(load_app(order.app), order.records, ErrorPolicy(order.policy))
    answers.write(msgspec.msgpack.encode(steps))
    answers.flush()
