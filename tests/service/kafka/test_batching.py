"""Record batches per partition: complete, in order, within every topic's limits."""

import re

import pytest
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.app.record import Carried, Output
from snapreplay.service.core.kafka_errors import RefusedRecord
from snapreplay.service.core.partitioners import murmur_positive
from snapreplay.service.kafka.batching import Batches, TopicShape
from snapreplay.service.ports import LogRecord, TopicPartition
from snapreplay.service.topics.requirements import RECORD_BYTES_NEEDED
from tests.support.engines import each_engine, needs_engine, pure

__all__ = ["each_engine"]
pytestmark = pytest.mark.usefixtures("each_engine")

BATCH_BYTES = 2000
SHAPES = {
    "log": TopicShape(4, BATCH_BYTES, 50_000),
    "out": TopicShape(3, BATCH_BYTES, 3000),
    "same": TopicShape(4, BATCH_BYTES, 3000),
}

outputs = st.builds(
    Output,
    topic=st.sampled_from(["out", "same"]),
    key=st.none() | st.binary(max_size=20),
    value=st.binary(min_size=1, max_size=400),
    partition=st.none() | st.integers(0, 2),
    same_key=st.booleans(),
    timestamp_ms=st.none() | st.integers(0, 2**40),
    headers=st.sampled_from([(), (("a", b"b"),), (("ä", None), ("", b"x" * 200))]),
)
carried = st.builds(Carried.of, outputs, st.just((("traceparent", b"00-1"),)))


def decoded(batches):
    """(key, value, headers) of every record, by partition, batch by batch."""
    found: dict[TopicPartition, list[list[tuple[object, ...]]]] = {}
    for target, run in batches.runs.items():
        found[target] = []
        for builder in run:
            memory = MemoryRecords(bytes(builder.built(1, 2, 3)))
            while (batch := memory.next_batch()) is not None:
                found[target].append([(r.key, r.value, tuple(r.headers)) for r in batch])
    return found


def expected_partition(output, state_partition):
    count = SHAPES[output.topic].partition_count
    if output.partition is not None:
        return output.partition
    if output.key is None or (output.same_key and output.topic == "same"):
        return state_partition % count
    return DefaultPartitioner()(output.key, list(range(count)), list(range(count)))


@given(st.lists(outputs, max_size=60), st.integers(0, 3))
def test_every_output_is_in_its_partition_once_and_in_order(given_outputs, state_partition):
    """With any mixture of topics, keys and sizes; and no batch is larger than it may be."""
    batches = Batches(SHAPES, 0)
    batches.add_outputs(given_outputs, "log", state_partition)
    expected: dict[TopicPartition, list[tuple[object, ...]]] = {}
    for output in given_outputs:
        target = TopicPartition(output.topic, expected_partition(output, state_partition))
        expected.setdefault(target, []).append((output.key, output.value, output.headers))
    found = decoded(batches)
    assert {t: [r for batch in run for r in batch] for t, run in found.items()} == expected
    assert all(len(b.built(1, 2, 3)) <= BATCH_BYTES for run in batches.runs.values() for b in run)


@needs_engine
@given(st.lists(outputs | carried, max_size=60), st.integers(0, 3), st.sampled_from([0, 2, 3, 4]))
def test_the_engine_packs_what_the_client_packs(given_outputs, state_partition, codec):
    """The same batches, byte by byte, compressed or not. gzip alone is left out: it has the time in it."""
    for output in given_outputs:
        output.timestamp_ms = output.timestamp_ms or 7  # else the time of writing

    def built():
        batches = Batches(SHAPES, codec)
        batches.add_outputs(given_outputs, "log", state_partition)
        return {t: [(b.record_count, bytes(b.built(1, 2, 3))) for b in run] for t, run in batches.runs.items()}

    with pure():
        expected = built()
    assert built() == expected


@needs_engine
def test_what_the_engine_does_not_take_comes_behind_what_it_has_packed():
    """A key that is no bytes: from there on the pure builder takes all, so the order stays."""
    odd = Output("out", bytearray(b"k"), b"1", 0, False, 1)  # type: ignore[arg-type]  # as a codec may make it
    batches = Batches(SHAPES, 0)
    for each in (Output("out", b"k", b"0", 0, False, 1), odd, Output("out", b"k", b"2", 0, False, 1)):
        batches.add_outputs([each], "log", 0)
    assert [value for run in decoded(batches)[TopicPartition("out", 0)] for _, value, _ in run] == [b"0", b"1", b"2"]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=20), st.integers(0, 3))
def test_places_say_where_each_log_record_is(sizes, partition):
    """The acknowledged offset is computed from them: a wrong one would be a wrong owner epoch."""
    batches = Batches(SHAPES, 0)
    records = [LogRecord("log", bytes([i]) * size) for i, size in enumerate(sizes)]
    places = batches.add_records(records, partition)
    found = decoded(batches)
    for record, (target, batch, index) in zip(records, places, strict=True):
        assert target == TopicPartition("log", partition)
        assert found[target][batch][index][1] == record.value


def test_known_hashes():
    """From the Java client's own test (UtilsTest.testMurmur2), made positive."""
    java = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    assert {key: murmur_positive(key) for key in java} == {key: value & 0x7FFFFFFF for key, value in java.items()}


@pytest.mark.parametrize("size", [2800, 2900, 3000, 40_000])
def test_a_record_beyond_the_topics_limit_is_refused_wherever_it_stands(size):
    """Also as the hundredth of its batch; just below the limit it passes as the only one of its batch."""
    batches = Batches(SHAPES, 0)
    small = Output("out", b"k", b"x", 0, False, None)
    large = Output("out", b"k", b"x" * size, 0, False, None)
    if size == 2800:
        batches.add_outputs([small, small, large, small], "log", 0)
        assert [len(b) for b in decoded(batches)[TopicPartition("out", 0)]] == [2, 1, 1]
        return
    with pytest.raises(RefusedRecord) as refused:
        batches.add_outputs([small, small, large], "log", 0)
    assert refused.value.facts["limit_bytes"] == 3000


def test_the_limit_that_a_refusal_names_lets_the_record_through():
    """Also one that is large by its headers."""
    large = Output("out", b"k", b"x", 0, False, None, headers=(("trace", b"h" * 20_000),))
    with pytest.raises(RefusedRecord) as refused:
        Batches(SHAPES, 0).add_outputs([large], "log", 0)
    (limit,) = re.findall(r"max\.message\.bytes=(\d+)", refused.value.hint)
    raised = SHAPES | {"out": TopicShape(3, BATCH_BYTES, int(limit))}
    Batches(raised, 0).add_outputs([large], "log", 0)


def test_the_limit_that_is_named_for_a_topic_of_ours_is_taken_by_the_next_start():
    """A start refuses own topics that take less than a whole record of ours."""
    with pytest.raises(RefusedRecord) as refused:
        Batches(SHAPES, 0).add_records([LogRecord("log", b"x" * 60_000)], 0)
    (limit,) = re.findall(r"max\.message\.bytes=(\d+)", refused.value.hint)
    assert int(limit) >= RECORD_BYTES_NEEDED


def test_a_record_for_a_partition_that_is_not_there_is_refused():
    """Of ours when somebody re-creates a topic; of outputs an app's mistake, which is no doubt about a commit."""
    with pytest.raises(RefusedRecord, match="has no partition 4: it has 4"):
        Batches(SHAPES, 0).add_records([LogRecord("log", b"x")], 4)
    for partition in (-1, 3):
        output = Output("out", b"k", b"x", partition, False, None)
        with pytest.raises(RefusedRecord, match=f"has no partition {partition}: it has 3"):
            Batches(SHAPES, 0).add_outputs([output], "log", 0)
