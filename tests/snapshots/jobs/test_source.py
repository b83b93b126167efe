"""`format("snapreplay")` on a real broker."""

import json
import re
from pathlib import Path

import msgspec
import pytest

import snapreplay.spark
from snapreplay.snapshots.jobs.source import UnknownOption, _query_of
from tests.support.audited_log import Story, batch_of
from tests.support.audited_topics import BrokerTopics

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def read(spark, broker, unique):
    """Reads a view of a log of three partitions, and the story that it tells."""
    story = Story(BrokerTopics(broker.bootstrap_servers, unique("teller")), unique("source"), 3)
    story.tell({})
    snapreplay.spark.register(spark)

    def frame(view, **options):
        reader = spark.read.format("snapreplay").option("app.id", story.app_id)
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers)
        for name, value in options.items():
            reader = reader.option(name.replace("_", "."), value)
        return reader.option("view", view).load()

    return frame, story


def test_the_state_is_what_the_owner_has(read) -> None:
    """Keys and values as stored, of the partitions that were asked for; two actions see one moment."""
    frame, story = read
    state = frame("state", stored="raw", partitions="0,2")
    expected = {(n, k): v for n in (0, 2) for k, v in story.partitions[n].state.items()}
    before = {(row.partition, bytes(row.key)): bytes(row.value) for row in state.collect()}
    assert before == expected
    story.append("batch", {0: batch_of(story.partitions[0])})
    assert state.count() == len(expected)
    assert frame("state", partitions="0").count() == len(story.partitions[0].state)


def test_each_view_has_its_rows(read) -> None:
    """As many as were written; batches up to a bound; what is stored as JSON text."""
    frame, _ = read
    increments = frame("increments", at_batch=3, partitions=1).orderBy("batch").collect()
    assert [row.batch for row in increments] == [0, 1, 2, 3]
    assert increments[3].positions == {"payments": 18, "refunds": 10}
    late = frame("changes", partitions=1).where("batch = 4").collect()
    assert {row.store for row in late} == {"default", "more", "old"}
    changes = frame("changes", at_batch=1, partitions=1).collect()
    assert len(changes) == 8
    assert {row.change_type for row in changes} == {"update"}
    assert all(isinstance(json.loads(row.key), str) for row in changes)


def test_the_documented_read_works(read, spark, broker, capsys) -> None:
    """The block of docs/spark.md, with the cluster and the app of this test."""
    _, story = read
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/spark.md").read_text(), re.DOTALL)
    block = block.replace("localhost:9092", broker.bootstrap_servers)
    block = block.replace('"ledger"', f'"{story.app_id}"').replace("2026-11-17T18", "2100-01-01T00")
    exec(block, {"spark": spark})  # noqa: S102 - it is ours
    assert "balance" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "'app.id' is missing"),
        ({"app.id": "a"}, "'kafka.bootstrap.servers' is missing"),
        ({"app.id": "a", "kafka.bootstrap.servers": "k", "view": "rows"}, "view='rows' is none of state"),
        ({"app.id": "a", "kafka.bootstrap.servers": "k", "at.batch": "x"}, "at.batch='x' is not a number"),
        ({"app.id": "a", "kafka.bootstrap.servers": "k", "at.timestamp": "noon"}, "is not a time with an offset"),
        ({"app.id": "a", "kafka.bootstrap.servers": "k", "at.Batsch": "1"}, "'at.batsch' is none of"),
    ],
)
def test_a_wrong_option_is_named(options, says) -> None:
    """Before any broker is asked."""
    with pytest.raises(UnknownOption, match=says) as refused:
        _query_of(options)
    if "at.timestamp" in options:
        example = str(refused.value.hint).removeprefix("write it as ")
        assert _query_of(options | {"at.timestamp": example}).at.written_at_ms == 1795341600000


def test_stored_values_that_are_no_messagepack_are_base64() -> None:
    """A user's own state chooses its bytes."""
    from snapreplay.snapshots.jobs.source import as_json

    assert as_json(msgspec.msgpack.encode({"sum": 3})) == '{"sum":3}'
    assert as_json(b"\xc1") == '"wQ=="'
    assert as_json(None) is None
