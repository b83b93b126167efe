"""AlterPartitionReassignments, which confluent-kafka's admin client does not have.

The same replicas in another order of preference: nothing is copied, and the next preferred election moves the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest

ANSWER_S = 10.0


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


async def _ask(server: str, topic: str, replicas: Mapping[int, Sequence[int]]) -> Any:
    host, _, port = server.rpartition(":")
    partitions: list[Any] = [(number, list(nodes), {}) for number, nodes in replicas.items()]
    request: Any = AlterPartitionReassignmentsRequest
    async with asyncio.timeout(ANSWER_S):
        connection = await create_conn(host, int(port))
        try:
            return await connection.send(
                request(int(ANSWER_S * 1000), [(topic, partitions, {})], {})
            )
        finally:
            connection.close()
