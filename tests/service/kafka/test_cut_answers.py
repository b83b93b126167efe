"""Answers to fetches that end inside of their first record batch: a proxy may send them, or a broker that is not
Kafka's own."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from snapreplay.service.core.kafka_errors import ReadStalled
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.fetches import Fetch
from snapreplay.service.kafka.shared import Client
from snapreplay.service.ports import LogRecord, TopicPartition
from tests.support.deadlines import within
from tests.support.kafka import hasty
from tests.support.tampering import topic_id

COUNT = 6
SIZE_BYTES = 30
"""Of an answer that is cut off; a batch is longer."""


@pytest.fixture
async def source(cluster, new_topic):
    """Provide a partition with some batches of one record."""
    topic = await new_topic()
    appender = await cluster.appender()
    for number in range(COUNT):
        await appender.append(LogRecord(topic, b"%d" % number), 0)
    await appender.close()
    return TopicPartition(topic, 0)


def cutting(monkeypatch, is_cut: Callable[[], bool]) -> list[int]:
    """Cut the records of each answer that `is_cut`. Returns the sizes of what was left, in bytes."""
    send, cuts = Client.send, []

    def shorter(answered: tuple[Any, ...]) -> tuple[Any, ...]:
        at = next((number for number, each in enumerate(answered) if isinstance(each, bytes) and each), None)
        if at is None or not is_cut():
            return answered
        cuts.append(SIZE_BYTES)
        return (*answered[:at], answered[at][:SIZE_BYTES], *answered[at + 1 :])

    async def cut(self, node_id, request, **more):
        answer = await send(self, node_id, request, **more)
        if isinstance(request, Fetch):
            answer.topics = [(t[0], [shorter(each) for each in t[1]], *t[2:]) for t in answer.topics]
        return answer

    monkeypatch.setattr(Client, "send", cut)
    return cuts


@pytest.mark.parametrize("cuts", [1, 5])
@pytest.mark.parametrize("by_id", [True, False], ids=["by-id", "by-name"])
async def test_no_record_is_stepped_over(broker, cluster, source, monkeypatch, cuts, by_id):
    """Every record comes, in a window of the log and to an owner."""
    ids = {source.topic: topic_id(broker.bootstrap_servers, source.topic)} if by_id else {}
    for followed in (False, True):
        done = cutting(monkeypatch, partial(next, iter([True] * cuts), False))
        reader = await cluster.reader(topic_ids=ids)
        found: list[bytes | None] = []
        async with within(30):
            if followed:
                await reader.follow({source: 0})
                while len(found) < COUNT:
                    assert reader.position(source) == len(found)
                    found += [each.value for each in (await reader.poll(100, 200)).get(source, ())]
            else:
                async for records in reader.read(source, 0, COUNT):
                    found += [each.value for each in records]
        assert found == [b"%d" % number for number in range(COUNT)]
        assert len(done) == cuts
        assert reader.disturbances > 0
        await reader.close()
        monkeypatch.undo()


async def test_answers_that_stay_cut_are_named(broker, source, monkeypatch):
    """After the time without progress, and the position is where it was."""
    cuts = cutting(monkeypatch, lambda: True)
    reader = await KafkaCluster(hasty(broker.bootstrap_servers, 2000, progress_ms=1000)).reader()
    async with within(60):
        with pytest.raises(ReadStalled, match="inside of its first record batch") as stalled:  # noqa: PT012 - a loop
            async for _ in reader.read(source, 0, COUNT):
                raise AssertionError("nothing whole was sent")
        assert stalled.value.facts["position"] == reader.position(source) == 0
        await reader.follow({source: 2})
        with pytest.raises(ReadStalled, match="inside of its first record batch"):  # noqa: PT012 - whichever poll it is
            while True:
                assert not await reader.poll(10, 100)
    assert reader.position(source) == 2
    assert "proxy" in stalled.value.hint
    assert len(cuts) > 3
    await reader.close()
