"""What the compiled engine takes off a record, function by function: `python -m benchmarks.engine [--rounds 30]`.

Python and the engine take turns in one process, on the same input, so that a slow moment of the machine meets both.
Times are CPU time of the thread; the records, outputs and entries are those of `benchmarks.pipeline`.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from statistics import median, quantiles

from benchmarks import harness
from benchmarks.ledger_app import Balance
from snapreplay import engine
from snapreplay.app.codecs import json, utf8
from snapreplay.app.out import Out
from snapreplay.app.topic import Topic
from snapreplay.service.kafka.batching import Batches, OpenBatch, TopicShape
from snapreplay.service.kafka.records import Records
from snapreplay.service.ports import TopicPartition
from snapreplay.state.digest import digest_of
from snapreplay.state.shards import Shards
from snapreplay.state.steps import all_of

RECORDS, KEYS = 5000, 100_000
STAMP_MS = 1_700_000_000_000
MIB = 1 << 20


def reading() -> Callable[[], object]:
    """Return what makes the records of a fetch of one batch."""
    batch = OpenBatch(MIB, 0, transactional=False)
    for number in range(RECORDS):
        value = b'{"amount": %d, "ts": %d, "pad": "%s"}' % (number % 1000, STAMP_MS + number, b"x" * 48)
        batch.builder.append(number, STAMP_MS + number, b"acct%07d" % number, value, [])
    data = bytes(batch.built(1, 2, 3))

    return lambda: Records(TopicPartition("in", 0), data, [], 0).take(RECORDS)


def sending() -> Callable[[], object]:
    """Return what a handler sends, from its values to record batches, ready for the wire."""
    topic, shape = Topic("out", key=utf8, value=json(Balance)), TopicShape(1, MIB, MIB)
    values = [(f"acct{n:07d}", Balance(n, n, STAMP_MS)) for n in range(RECORDS)]

    def send() -> object:
        out = Out([topic], {})
        out.at_ms = STAMP_MS
        for key, value in values:
            out.send(topic, key=key, value=value)
        all_of(out.hashing())
        batches = Batches({"out": shape, "log": shape}, 0)
        batches.add_outputs(out.take(), "log", 0)
        return [each.built(1, 2, 3) for run in batches.runs.values() for each in run]

    return send


def writing() -> Callable[[], object]:
    """Return what writes the changes of a batch to a state of many keys, with the digest."""
    shards, chance = Shards(), random.Random(1)
    keys = [b"acct%07d" % number for number in range(KEYS)]
    shards.apply(dict.fromkeys(keys, b"\x83\xa5count\x00\xa3sum\x00"))
    number, batches = 0, [chance.sample(keys, RECORDS) for _ in range(19)]

    def write() -> object:
        nonlocal number
        number += 1
        shards.apply(dict.fromkeys(batches[number % len(batches)], b"\x83\xa5count\x01\xa3sum\xcd%05d" % number))
        return shards.digest

    return write


def hashing() -> Callable[[], object]:
    """Return what computes the digest of loaded entries."""
    entries = {b"acct%07d" % number: b"\x83\xa5count\x01\xa3sum\xcd%05d" % number for number in range(RECORDS)}
    return lambda: digest_of(entries.items())


def seconds(do: Callable[[], object]) -> float:
    began = time.thread_time()
    do()
    return time.thread_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    compiled, why = engine.chosen("auto")
    assert compiled is not None, why
    print(f"{rounds} rounds of {RECORDS:,}; {harness.machine()}")
    print(f"{'µs per record, median (half of the rounds)':44} {'Python':>20} {'engine':>20} {'ratio':>6}")
    for make in (reading, sending, writing, hashing):
        do = make()
        found: dict[engine.Compiled | None, list[float]] = {None: [], compiled: []}
        for _ in range(rounds):
            for each, times in found.items():
                engine.compiled = each
                times.append(seconds(do) / RECORDS * 1e6)
        by_python, by_engine = map(spread, found.values())
        ratio = median(found[compiled]) / median(found[None])
        print(f"{make.__name__:44} {by_python:>20} {by_engine:>20} {ratio:6.2f}")


def spread(times: list[float]) -> str:
    low, middle, high = quantiles(times, n=4)
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


if __name__ == "__main__":
    main()
