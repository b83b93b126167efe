"""Judges the outputs by the input: plain dicts and confluent-kafka, no code of the service or the app.

The statistics are computed a second time here on purpose. Input and outputs are read back from
Kafka; every output must equal what a dict, folded over the input, says after that record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack
import xxhash

Stats = dict[str, int | str]
State = dict[str, Stats]
Place = tuple[int, int]
"""(input partition, input offset) of the record that an output belongs to."""

SHOWN = 5
MASK = (1 << 64) - 1


class Input(NamedTuple):
    """One record of the input topic; `flight` is its decoded JSON."""

    partition: int
    offset: int
    key: str
    flight: Mapping[str, Any]


class Output(NamedTuple):
    """One record of the output topic; `value` is its decoded JSON."""

    partition: int
    offset: int
    key: str
    value: Mapping[str, Any]


class Expected(NamedTuple):
    """The one right output of a record."""

    key: str
    stats: Stats


@dataclass
class Truth:
    """The truth as the input alone gives it: the output of every record, and the final state per partition."""

    outputs: dict[Place, Expected] = field(default_factory=dict)
    states: dict[int, State] = field(default_factory=dict)


@dataclass
class Findings:
    """The differences: how often in all, and the first few in words."""

    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, what: str) -> None:
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(what)


@dataclass
class Checked:
    """The verdict on all outputs, and the last ones: (input partition, key) → statistics."""

    count: int = 0
    findings: Findings = field(default_factory=Findings)
    last: dict[tuple[int, str], Any] = field(default_factory=dict)


def fold(inputs: Iterable[Input]) -> Truth:
    """Fold all records by brute force; they must come in order of offset within each partition."""
    truth = Truth()
    for record in inputs:
        state = truth.states.setdefault(record.partition, {})
        stats = count(state.get(record.key), record.flight)
        state[record.key] = stats
        truth.outputs[record.partition, record.offset] = Expected(record.key, stats)
    return truth


def count(before: Stats | None, flight: Mapping[str, Any]) -> Stats:
    """Return the statistics of an aircraft after one more flight; a new dict."""
    stats: dict[str, Any] = dict(before or _NONE)
    delay = flight["arr_delay"]
    stats["flights"] += 1
    stats["miles"] += flight["distance"]
    stats["air_minutes"] += flight["air_time"] or 0
    if delay is None:
        stats["not_arrived"] += 1
    else:
        stats["delayed"] += 1 if delay > 0 else 0
        stats["delay_minutes_sum"] += delay
        stats["delay_minutes_max"] = max(stats["delay_minutes_max"], delay)
    stats["last_carrier"] = flight["carrier"]
    stats["last_origin"] = flight["origin"]
    stats["last_dest"] = flight["dest"]
    return stats


_NONE: Stats = {
    "flights": 0,
    "not_arrived": 0,
    "delayed": 0,
    "delay_minutes_sum": 0,
    "delay_minutes_max": 0,
    "air_minutes": 0,
    "miles": 0,
    "last_carrier": "",
    "last_origin": "",
    "last_dest": "",
}


def check_outputs(truth: Truth, outputs: Iterable[Output]) -> Checked:
    """Check that each input record has exactly one right output, in the input's order within each output partition.

    `outputs` must come in order of offset within each partition; none is kept.
    """
    checked = Checked()
    seen: dict[Place, tuple[int, int]] = {}
    newest: dict[tuple[int, int], int] = {}
    for output in outputs:
        checked.count += 1
        place = output.value["input_partition"], output.value["input_offset"]
        if place in seen:
            checked.findings.add(f"{_at(output)} is a duplicate of output {_of(seen[place])}: record {_of(place)}")
            continue
        seen[place] = output.partition, output.offset
        _check_content(truth, place, output, checked.findings)
        _check_order(newest, place, output, checked.findings)
        checked.last[place[0], output.key] = output.value["stats"]
    for place in sorted(truth.outputs.keys() - seen.keys()):
        checked.findings.add(f"record {_of(place)} has no output")
    return checked


def _check_order(newest: dict[tuple[int, int], int], place: Place, output: Output, findings: Findings) -> None:
    """Check the order by `newest`: output partition and input partition → highest input offset seen so far."""
    way = output.partition, place[0]
    before = newest.get(way, -1)
    if before > place[1]:
        findings.add(f"{_at(output)} is out of order: record {_of(place)} after {before}")
    newest[way] = max(before, place[1])


def _check_content(truth: Truth, place: Place, output: Output, findings: Findings) -> None:
    expected = truth.outputs.get(place)
    if expected is None:
        findings.add(f"{_at(output)} belongs to record {_of(place)}, which does not exist")
    elif (output.key, output.value["stats"]) != expected:
        findings.add(
            f"{_at(output)} of record {_of(place)}: {output.key} {output.value['stats']},"
            f" but brute force says {expected.key} {expected.stats}"
        )


def check_final_state(truth: Truth, last: Mapping[tuple[int, str], Any]) -> Findings:
    """Check that the last output of each key is its final state, and that no key is missing."""
    findings = Findings()
    left = dict(last)
    for partition, state in truth.states.items():
        for key, stats in state.items():
            found = left.pop((partition, key), None)
            if found != stats:
                findings.add(f"partition {partition} {key}: {found}, but brute force says {stats}")
    for (partition, key), found in left.items():
        findings.add(f"partition {partition} {key}: {found}, which is not in the input")
    return findings


def check_digests(truth: Truth, reported: Mapping[int, str | None]) -> Findings:
    """Compare the service's digest of each partition with that of the brute-force state."""
    findings = Findings()
    for partition in sorted(truth.states.keys() | reported.keys()):
        computed = digest(truth.states.get(partition, {}))
        if reported.get(partition) != computed:
            findings.add(
                f"partition {partition}: the service says {reported.get(partition)}, but brute force says {computed}"
            )
    return findings


def digest(state: State) -> str:
    """Return the digest, as docs/FORMAT.md defines it, over the msgpack bytes of keys and values: "count:a:b"."""
    a = b = 0
    for key, stats in state.items():
        key_bytes, value_bytes = msgpack.packb(key), msgpack.packb(stats)
        a += _xxh64(value_bytes, _xxh64(key_bytes, 42))
        b += _xxh64(key_bytes, _xxh64(value_bytes, 42))
    return f"{len(state)}:{a & MASK:016x}:{b & MASK:016x}"


def _xxh64(data: bytes, seed: int) -> int:
    return xxhash.xxh64_intdigest(data, seed)


def _at(output: Output) -> str:
    return f"output {output.partition}-{output.offset}"


def _of(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
