"""AlterPartitionReassignments, which confluent-kafka's admin client does not have, and the wait for what comes of it.

The same replicas in another order of preference: nothing is copied, and the next preferred election moves the leader.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from confluent_kafka.admin import AdminClient

from tests.support.deadlines import scaled
from tests.support.tampering import partition_count

ANSWER_S = 10.0
PLACED_S = scaled(90.0)


class Refused(Exception):
    """The cluster did not accept it; the error codes."""


def reassign(bootstrap_servers: str, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
    """Give partitions these replicas, the preferred leader first.

    Raises:
        OSError: no broker answers.
        Refused: the cluster said no.
    """
    errors: list[Exception] = []
    for server in bootstrap_servers.split(","):
        try:
            with ThreadPoolExecutor(1) as pool:  # the caller may have a loop of its own
                answer = pool.submit(asyncio.run, _ask(server, topic, replicas)).result()
        except (OSError, KafkaError) as error:
            errors.append(error)
            continue
        codes = [answer.error_code, *(p[1] for _, ps, _ in answer.responses for p in ps)]
        if any(codes):
            raise Refused(f"reassigning {topic}: error {max(codes)}")
        return
    raise OSError(f"no broker took the reassignment: {errors}")


def move(bootstrap_servers: str, topic: str, nodes: Sequence[int], leader: int | None = None) -> None:
    """Give all partitions these replicas, and wait until they are in sync, and `leader` leads. Who leads alone still
    leads when another one follows."""
    partitions = range(partition_count(bootstrap_servers, topic))
    reassign(bootstrap_servers, topic, dict.fromkeys(partitions, nodes))
    until_placed(
        bootstrap_servers,
        topic,
        lambda at: set(at.replicas) == set(at.isrs) == set(nodes) and leader in {None, at.leader},
    )


def until_placed(bootstrap_servers: str, topic: str | None, holds: Callable[[Any], bool]) -> None:
    """Wait until this holds of every partition of the topic, or of all topics, as a broker knows them."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    deadline = time.monotonic() + PLACED_S
    while True:
        topics = admin.list_topics(topic, PLACED_S).topics.values()
        behind = [at for each in topics for at in each.partitions.values() if not holds(at)]
        if not behind:
            return
        told = [(each.id, each.leader, each.replicas, each.isrs) for each in behind]
        assert time.monotonic() < deadline, f"{topic}: {told}"
        time.sleep(0.1)  # between two looks, under the deadline


async def _ask(server: str, topic: str, replicas: Mapping[int, Sequence[int]]) -> Any:
    host, _, port = server.rpartition(":")
    partitions: list[Any] = [(number, list(nodes), {}) for number, nodes in replicas.items()]
    request: Any = AlterPartitionReassignmentsRequest
    async with asyncio.timeout(ANSWER_S):
        connection = await create_conn(host, int(port))
        try:
            return await connection.send(request(int(ANSWER_S * 1000), [(topic, partitions, {})], {}))
        finally:
            connection.close()
