"""The verdict must be able to say no: each kind of fault, made by hand, is found."""

from collections.abc import Callable
from typing import Any

import pytest

from examples.demo import verify
from examples.demo.verify import Input, Output, State, Truth
from snapreplay.state import digest as service_digest


def flight(delay: int | None, carrier: str = "UA", **columns: Any) -> dict[str, Any]:
    """A flight of 1000 miles and two hours, or one that was cancelled when there is no delay."""
    air_time = None if delay is None else 120
    ways = {"origin": "EWR", "dest": "IAH", "distance": 1000, "air_time": air_time}
    return {"arr_delay": delay, "carrier": carrier, **ways, **columns}


INPUTS = [
    Input(0, 0, "N1", flight(10)),
    Input(0, 1, "N2", flight(None, "AA")),
    Input(1, 0, "N3", flight(-5)),
    Input(0, 2, "N1", flight(30, "B6", dest="MIA")),
]


@pytest.fixture
def truth() -> Truth:
    """Return what the four flights come to."""
    return verify.fold(INPUTS)


@pytest.fixture
def outputs(truth: Truth) -> list[Output]:
    """The right ones, in order."""
    return [right(truth, record, offset) for offset, record in enumerate(INPUTS)]


def right(truth: Truth, record: Input, offset: int) -> Output:
    """The output that this record must have."""
    key, stats = truth.outputs[record.partition, record.offset]
    place = {"input_partition": record.partition, "input_offset": record.offset}
    return Output(record.partition, offset, key, {**place, "stats": dict(stats)})


def test_fold_by_hand(truth: Truth) -> None:
    """The brute force itself gives what one finds with a pencil."""
    assert truth.states[0]["N1"] == {
        "flights": 2,
        "not_arrived": 0,
        "delayed": 2,
        "delay_minutes_sum": 40,
        "delay_minutes_max": 30,
        "air_minutes": 240,
        "miles": 2000,
        "last_carrier": "B6",
        "last_origin": "EWR",
        "last_dest": "MIA",
    }
    assert truth.states[0]["N2"]["not_arrived"] == 1
    assert truth.states[1]["N3"]["delay_minutes_max"] == 0
    assert truth.outputs[0, 0].stats["flights"] == 1, "an earlier output is not changed later"


def test_right_outputs_are_right(truth: Truth, outputs: list[Output]) -> None:
    """Nothing differs when nothing is wrong."""
    checked = verify.check_outputs(truth, outputs)
    assert (checked.findings.count, checked.count) == (0, 4)
    assert verify.check_final_state(truth, checked.last).count == 0


def duplicate(outputs: list[Output]) -> None:
    outputs += [outputs[1]._replace(offset=9)] * 8


def gap(outputs: list[Output]) -> None:
    del outputs[2]


def exchange(outputs: list[Output]) -> None:
    outputs[0], outputs[1] = outputs[1]._replace(offset=0), outputs[0]._replace(offset=1)


def invent(outputs: list[Output]) -> None:
    outputs.append(Output(0, 4, "N1", {**outputs[0].value, "input_offset": 77}))


def sort_otherwise(outputs: list[Output]) -> None:
    outputs.sort(key=lambda output: -output.partition)


@pytest.mark.parametrize(
    ("change", "count", "says"),
    [
        (duplicate, 8, ["output 0-9 is a duplicate of output 0-1: record 0-1"] * verify.SHOWN),
        (gap, 1, ["record 1-0 has no output"]),
        (exchange, 1, ["output 0-1 is out of order: record 0-0 after 1"]),
        (invent, 1, ["output 0-4 belongs to record 0-77, which does not exist"]),
        (sort_otherwise, 0, []),
    ],
)
def test_what_is_not_once_and_in_order_is_named(
    truth: Truth, outputs: list[Output], change: Callable[[list[Output]], None], count: int, says: list[str]
) -> None:
    """All faults are counted, five are shown. Partitions have no order among each other."""
    change(outputs)
    findings = verify.check_outputs(truth, outputs).findings
    assert (findings.count, findings.first) == (count, says)


def test_wrong_content(truth: Truth, outputs: list[Output]) -> None:
    """An output that counts a flight twice is named, with what it should be."""
    stats = outputs[3].value["stats"]
    stats["flights"] = 3
    checked = verify.check_outputs(truth, outputs)
    assert checked.findings.count == 1
    assert "output 0-3 of record 0-2" in checked.findings.first[0]
    assert verify.check_final_state(truth, checked.last).first[0].startswith("partition 0 N1: {")


def test_digest_is_the_documented_one(truth: Truth) -> None:
    """By the msgpack library and the formula, brute force arrives at what the service computes."""
    import msgspec

    from examples.flights import Stats

    for state in ({}, *truth.states.values()):
        entries = [
            (msgspec.msgpack.encode(key), msgspec.msgpack.encode(msgspec.convert(stats, Stats)))
            for key, stats in state.items()
        ]
        assert verify.digest(state) == str(service_digest.digest_of(entries))


def test_wrong_digest(truth: Truth) -> None:
    """A digest of another state, or of no state, is named with both values."""
    right_ones: dict[int, str | None] = {number: verify.digest(state) for number, state in truth.states.items()}
    assert verify.check_digests(truth, right_ones).count == 0
    wrong: State = {"N1": truth.outputs[0, 0].stats, "N2": truth.states[0]["N2"]}
    found = verify.check_digests(truth, {**right_ones, 0: verify.digest(wrong)})
    assert found.count == 1
    assert "partition 0: the service says 2:" in found.first[0]
    assert verify.check_digests(truth, {0: right_ones[0]}).count == 1, "one was not reported"
    assert verify.check_digests(truth, {**right_ones, 1: None}).count == 1
