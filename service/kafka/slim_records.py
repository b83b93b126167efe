"""Records as they leave the client's fetcher, without the fields that nobody here reads, and with all its errors.

The client makes eleven fields of each record, some of them by decoding: 0.2 µs of the 7 that a record costs in all
(measured). It has no setting for that. An error that the client does not expect ends its fetcher, and one that it does
not know is only logged: every poll would be empty from then on.
"""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import Fetcher, FetchResult
from aiokafka.errors import CorruptRecordException
from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.app.record import RawRecord
from snapreplay.service.kafka.fetch_by_id import Source


def slim_records(consumer: AIOKafkaConsumer) -> None:
    """Make this consumer return `RawRecord`s. Call it after `fetch_by_id`, before anything is assigned to the
    consumer."""
    # The client makes its fetcher itself, and another one in its place would have to be closed with it.
    consumer._fetcher.__class__ = _SlimFetcher


class _SlimFetcher(Fetcher):
    async def _proc_fetch_request(self, assignment: Any, node_id: int, request: Any) -> bool:
        errors: dict[Source, Exception] = {}
        try:
            has_new_data: bool = await super()._proc_fetch_request(assignment, node_id, request)
        except Exception as error:  # noqa: BLE001 - whoever polls is told
            asked = [
                (topic, each[0]) for topic, partitions in request.topics for each in partitions
            ]
            errors, has_new_data = dict.fromkeys(asked, error), True
        unreadable = self._client.watch.unreadable
        while unreadable:
            errors[unreadable.pop()] = CorruptRecordException("the broker cannot read it")
            has_new_data = True
        for source, met in errors.items():
            if assignment.active and ClientPartition(*source) not in self._records:
                self._set_error(ClientPartition(*source), met)
        for result in self._records.values():
            if type(result) is FetchResult and result.has_more():
                result._partition_records._consumer_record = _slim
        return has_new_data


def _slim(source: ClientPartition, record: Any) -> RawRecord:
    topic, partition = source
    headers = record.headers
    return RawRecord(
        topic,
        partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        tuple(headers) if headers else (),
    )
