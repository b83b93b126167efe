"""The continuous audit on a real broker: what it records there, and what it builds on."""

import pytest
from confluent_kafka import Consumer, TopicPartition

from snapreplay.service.blocking import BlockingProofs
from snapreplay.service.config.settings import load_settings
from snapreplay.snapshots.proof.proven import Level
from snapreplay.spark import audit
from tests.snapshots.proof.faults import other_changes
from tests.support.audited_log import Fault, Story, batch_of
from tests.support.audited_topics import DEADLINE_S, BrokerTopics
from tests.support.kafka_tools import run

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def told(broker, unique):
    """Three partitions; the changes of one are not its digest."""
    story = Story(BrokerTopics(broker.bootstrap_servers, unique("teller")), unique("since"), 3)
    story.tell({1: Fault("batch3", values=other_changes)})
    return story


@pytest.fixture
def asked(broker, told):
    """Audits since the last proof; and what is committed, by another client."""
    settings = load_settings({"kafka.bootstrap.servers": broker.bootstrap_servers})

    class Asked:
        def audit(self, level=Level.CHANGES, *, since_last=True):
            return audit(settings, told.app_id, level, since_last=since_last)

        def committed(self):
            """Ask as a consumer that never joins: an admin client of this library crashes if the coordinator is new."""
            consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"{told.app_id}-audit"})
            places = [TopicPartition(told.log, number) for number in range(3)]
            found = {each.partition: each for each in consumer.committed(places, DEADLINE_S) if each.offset >= 0}
            consumer.close()
            return found

        def proofs(self, partition):
            """Read with our own client: the other one reads beyond the end of the text."""
            return BlockingProofs(settings, told.app_id, 0).read(3)[partition].proofs

    return Asked()


def test_a_proof_is_recorded_and_built_on(spark, told, asked) -> None:
    """Per partition without a finding: the offset after its last increment, with the proof beside it. The next audit
    begins at the snapshot before it. An audit without the option writes nothing."""
    assert asked.audit(since_last=False).since_last is False
    assert asked.committed() == {}
    first = asked.audit()
    assert {each.partition for each in first.findings} == {1}
    assert [each.recorded for each in first.chains] == [True, False, True]
    committed = asked.committed()
    assert set(committed) == {0, 2}
    place = committed[0]
    assert place.topic == told.log
    assert place.offset == told.partitions[0].written["batch5"][-1] + 1
    (recorded,) = asked.proofs(0)
    assert (recorded.level, recorded.batch, recorded.at_ms) == ("changes", 5, first.audited_at_ms)
    told.partitions[0].batch += 1
    (*_, last) = told.append("batch", {0: batch_of(told.partitions[0])})[0]
    again = asked.audit()
    assert [each.first_batch for each in again.chains] == [4, 0, 4]
    assert [each.audited_all_because for each in again.chains] == ["", "nothing is proven yet", ""]
    assert asked.committed()[0].offset == last + 1
    lower = asked.audit(Level.INTEGRITY)
    assert [each.first_batch for each in lower.chains] == [4, 0, 4]
    assert [each.level for each in asked.proofs(0)] == ["changes"]


def test_a_group_that_somebody_consumes_with_takes_no_proof(spark, told, asked, broker) -> None:
    """The verdict stands, and the report says why nothing was recorded."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"{told.app_id}-audit"})
    try:
        consumer.subscribe([told.log])
        while not consumer.assignment():
            consumer.poll(0.1)
        report = asked.audit()
    finally:
        consumer.close()
    assert {each.partition for each in report.findings} == {1}
    assert f"group {told.app_id}-audit has members" in report.not_recorded
    assert not any(each.recorded for each in report.chains)
    assert [each.recorded for each in asked.audit().chains] == [True, False, True]


def test_an_offset_that_somebody_else_committed_is_no_proof(spark, told, asked, broker) -> None:
    """It costs an audit of everything, which says why, and is replaced."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"{told.app_id}-audit"})
    consumer.commit(offsets=[TopicPartition(told.log, 0, 3)], asynchronous=False)
    consumer.close()
    report = asked.audit()
    assert "is no record of an audit" in report.chains[0].audited_all_because
    assert [each.batch for each in asked.proofs(0)] == [5]


@pytest.mark.whole
def test_kafkas_own_tool_shows_and_forgets_the_proofs(spark, told, asked, broker) -> None:
    """The commands of docs/spark.md: what is not proven is lag, and without the group nothing is proven."""
    asked.audit()
    tool = ["kafka-consumer-groups.sh", "--bootstrap-server", broker.bootstrap_servers]
    group = ["--group", f"{told.app_id}-audit"]
    told.append("batch", {0: [b"a stranger's"] * 7})
    rows = [line.split() for line in run([*tool, "--describe", *group]).splitlines()]
    lags = {int(row[2]): int(row[5]) for row in rows if len(row) > 5 and row[1] == told.log}
    assert lags == {0: 1 + 7 + 1, 2: 1}  # with the markers of both transactions
    run([*tool, "--delete", *group])
    report = asked.audit()
    assert {each.audited_all_because for each in report.chains} == {"nothing is proven yet"}
