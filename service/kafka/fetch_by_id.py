"""Fetches by topic id, and notices whatever may mean that a log is not the one that was read before.

A fetch by name and offset is answered from whatever topic has the name now. A fetch by id is not: a broker that has
another topic of this name always answers UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.client import ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import CloseReason
from aiokafka.errors import for_code
from aiokafka.protocol.fetch import FetchRequest

from snapreplay.service.kafka.clients import BareClient
from snapreplay.service.kafka.fetch_requests import FetchById

_NO_ERROR = 0
_UNKNOWN_TOPIC = 3
# The client asks again at once.
_PAUSE_S = 0.1

# Of a record batch: base offset, length, leader epoch, format.
_BATCH_HEAD = struct.Struct(">qiib")
_WITH_LEADER_EPOCH = 2


class FetchWatch:
    """What was noticed on one client.

    Attributes:
        disturbances: how often a connection was lost, a fetch was refused, or a leader epoch fell.
        missing_since: by the loop's clock, when a broker first said that there is no such topic; None after an answer
            that has the topic.
    """

    def __init__(self, ids: Mapping[str, str]) -> None:
        self.ids = ids
        self.disturbances = 0
        self.missing_since: float | None = None
        self._epochs: dict[tuple[str, int], int] = {}

    def asked(self, fetch: FetchRequest) -> FetchRequest:
        """By id, when all ids are known."""
        known = all(self.ids.get(topic) for topic, _ in fetch.topics)
        return FetchById(fetch, self.ids) if known else fetch

    def answered(self, answer: Any) -> bool:
        """Looks at an answer. Returns whether one of its topics is missing.

        Raises:
            KafkaError: it has no topics, only an error. The client's fetcher would take that for nothing new and ask
                again at once; after an error it pauses.
        """
        code = getattr(answer, "error_code", _NO_ERROR)  # since version 7
        if code != _NO_ERROR:
            self.disturbances += 1
            raise for_code(code)("the whole fetch was refused")
        missing = False
        for topic, partitions in answer.topics:
            for partition, error_code, *rest in partitions:
                if error_code != _NO_ERROR:
                    self.disturbances += 1
                    missing = missing or error_code == _UNKNOWN_TOPIC
                else:
                    self._look_at_epoch((topic, partition), rest[-1])
        if missing:
            self._miss()
        else:
            self.missing_since = None
        return missing

    def listed(self, followed: Collection[str], cluster: ClusterMetadata) -> None:
        """Looks at fresh metadata: a topic without leaders is not fetched, so no answer says that it is missing."""
        if set(followed) - cluster.topics() - cluster.unauthorized_topics:
            self._miss()

    def _miss(self) -> None:
        if self.missing_since is None:
            self.missing_since = asyncio.get_running_loop().time()

    def _look_at_epoch(self, source: tuple[str, int], records: bytes | None) -> None:
        if not records or len(records) < _BATCH_HEAD.size:
            return
        _, _, epoch, record_format = _BATCH_HEAD.unpack_from(records)
        if record_format != _WITH_LEADER_EPOCH:
            return
        if epoch < self._epochs.get(source, -1):
            self.disturbances += 1
        self._epochs[source] = epoch


class _WatchedClient(BareClient):
    watch: FetchWatch

    async def send(
        self, node_id: Any, request: Any, *, group: int = ConnectionGroup.DEFAULT
    ) -> Any:
        if not isinstance(request, FetchRequest):
            return await super().send(node_id, request, group=group)
        asked = self.watch.asked(request)
        answer = await super().send(node_id, asked, group=group)
        if isinstance(asked, FetchById):
            answer = asked.named(answer)
        if self.watch.answered(answer):
            await asyncio.sleep(_PAUSE_S)
        return answer

    def _on_connection_closed(self, conn: Any, reason: Any) -> None:
        if reason is not CloseReason.SHUTDOWN:
            self.watch.disturbances += 1
        super()._on_connection_closed(conn, reason)


def fetch_by_id(
    consumer: AIOKafkaConsumer, ids: Mapping[str, str], missing_since: float | None = None
) -> FetchWatch:
    """Make this consumer fetch the topics of `ids` by their ids. Call it before anything is assigned to the consumer.

    Args:
        missing_since: of the consumer before it, at the same positions.
    """
    watch = FetchWatch(ids)
    watch.missing_since = missing_since
    client = consumer._client
    client.cluster.add_listener(
        lambda cluster: watch.listed({source.topic for source in consumer.assignment()}, cluster)
    )
    # The consumer makes its client itself.
    client.__class__ = _WatchedClient
    client.watch = watch
    return watch
