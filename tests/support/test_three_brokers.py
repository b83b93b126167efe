"""Three brokers whose links are cut: what the brokers and their clients make of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from aiokafka.conn import create_conn
from aiokafka.protocol.metadata import MetadataRequest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.three_brokers import CLIENTS, SIZE, ThreeBrokers, flows, three_brokers

DEADLINE_S = 60.0
ANSWER_S = 5.0


def test_a_cut_is_a_set_of_ways() -> None:
    """Towards a broker, from it, or both; on the side of its peers or on that of the clients."""
    assert flows(0, "clients", "in", SIZE) == {(CLIENTS, 0)}
    assert flows(0, "clients", "out", SIZE) == {(0, CLIENTS)}
    assert flows(1, "peers", "in", SIZE) == {(0, 1), (2, 1)}
    assert flows(1, "peers", "both", SIZE) == {(0, 1), (2, 1), (1, 0), (1, 2)}


def leader(three: ThreeBrokers, topic: str, asked: int) -> int:
    """Say who leads the topic's only partition, as broker `asked` itself says; -1 for nobody.

    Raises:
        TimeoutError, KafkaError: it does not answer.
    """
    return asyncio.run(_leader(three.server(asked), topic))


async def _leader(server: str, topic: str) -> int:
    """Ask on a connection of our own: a client would go on to another broker."""
    host, _, port = server.rpartition(":")
    async with asyncio.timeout(ANSWER_S):
        connection = await create_conn(host, int(port))
        try:
            answer = (await connection.send(MetadataRequest([topic]))).to_object()
        finally:
            connection.close()
    known = answer["topics"][0]["partitions"]
    return int(known[0]["leader"]) - 1 if known else -1


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)  # between two looks, under the deadline


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_leader_cut_from_its_peers_is_replaced_and_does_not_know(unique: Callable[[str], str]) -> None:
    """The others elect another one; asked by clients, the old one still says "I"; after the healing it has learned.
    A broker that is cut from the clients is silent: they wait, and are not refused."""
    with three_brokers({"broker.session.timeout.ms": "6000"}) as three:
        topic = unique("cut")
        admin = AdminClient({"bootstrap.servers": three.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(topic, 1, SIZE)])[topic].result(DEADLINE_S)
        until(lambda: leader(three, topic, 0) >= 0)
        old = leader(three, topic, 0)
        other = (old + 1) % SIZE
        three.cut(old, "peers")
        until(lambda: leader(three, topic, other) not in (old, -1))
        until(lambda: leader(three, topic, old) == old)
        three.heal()
        until(lambda: leader(three, topic, old) not in (old, -1))

        three.cut(other, "clients")
        with pytest.raises(TimeoutError):
            leader(three, topic, other)
        three.heal()
        until(lambda: leader(three, topic, other) >= 0)
