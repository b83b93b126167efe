"""Requests that aiokafka 0.14.0 lacks: topic ids (KIP-516, Kafka 2.8), open transactions (KIP-664, Kafka 3.0), leader
epochs (KIP-320)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, Int16, Int32, Int64, Schema

from snapreplay.service.kafka.protocol_fields import END, NO_TAGS, TEXT, TopicId


class _TopicIdsResponse(Response):
    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(("node_id", Int32), ("host", TEXT), ("port", Int32), ("rack", TEXT), END),
        ),
        ("cluster_id", TEXT),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", TEXT),
                ("topic_id", TopicId),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition_index", Int32),
                        ("leader_id", Int32),
                        ("leader_epoch", Int32),
                        ("replica_nodes", CompactArray(Int32)),
                        ("isr_nodes", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        END,
                    ),
                ),
                ("topic_authorized_operations", Int32),
                END,
            ),
        ),
        END,
    )


class _TopicIdsResponseV11(Response):
    API_KEY = 3
    API_VERSION = 11
    SCHEMA = _TopicIdsResponse.SCHEMA


class _TopicIdsRequest(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 12
    RESPONSE_TYPE = _TopicIdsResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", TopicId), ("name", TEXT), END)),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        END,
    )


class _TopicIdsRequestV11(RequestStruct):
    """Version 12 (Kafka 3.1) can ask by id as well; by name the two are the same."""

    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 11
    RESPONSE_TYPE = _TopicIdsResponseV11
    SCHEMA = _TopicIdsRequest.SCHEMA


class TopicIds(Request[_TopicIdsRequestV11 | _TopicIdsRequest]):
    """Metadata of topics by name, with their ids and leader epochs. To any broker; creates nothing."""

    API_KEY = 3

    def __init__(self, names: Sequence[str]) -> None:
        self._topics = [("", name, NO_TAGS) for name in names]

    def build(self, request_struct_class: type[_TopicIdsRequestV11 | _TopicIdsRequest]) -> Any:
        return request_struct_class(self._topics, False, False, NO_TAGS)


class _DescribeProducersResponse(Response):
    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", TEXT),
                (
                    "partitions",
                    CompactArray(
                        ("partition_index", Int32),
                        ("error_code", Int16),
                        ("error_message", TEXT),
                        (
                            "active_producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("current_txn_start_offset", Int64),
                                END,
                            ),
                        ),
                        END,
                    ),
                ),
                END,
            ),
        ),
        END,
    )


class _DescribeProducersRequest(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 61
    API_VERSION = 0
    RESPONSE_TYPE = _DescribeProducersResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("name", TEXT), ("partition_indexes", CompactArray(Int32)), END)),
        END,
    )


class DescribeProducers(Request[_DescribeProducersRequest]):
    """The recent producers of a partition, and where their open transactions begin. To the partition's leader."""

    API_KEY = 61

    def __init__(self, topic: str, partition: int) -> None:
        self._topics = [(topic, [partition], NO_TAGS)]

    def build(self, request_struct_class: type[_DescribeProducersRequest]) -> Any:
        return request_struct_class(self._topics, NO_TAGS)


class _DescribeTransactionsResponse(Response):
    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transaction_states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", TEXT),
                ("transaction_state", TEXT),
                ("transaction_timeout_ms", Int32),
                ("transaction_start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                (
                    "topics",
                    CompactArray(("topic", TEXT), ("partitions", CompactArray(Int32)), END),
                ),
                END,
            ),
        ),
        END,
    )


class _DescribeTransactionsRequest(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 65
    API_VERSION = 0
    RESPONSE_TYPE = _DescribeTransactionsResponse
    SCHEMA = Schema(("transactional_ids", CompactArray(TEXT)), END)


class DescribeTransactions(Request[_DescribeTransactionsRequest]):
    """A question when the open transaction of a transactional id began, and its timeout. To its coordinator."""

    API_KEY = 65

    def __init__(self, transactional_id: str) -> None:
        self._ids = [transactional_id]

    def build(self, request_struct_class: type[_DescribeTransactionsRequest]) -> Any:
        return request_struct_class(self._ids, NO_TAGS)


class _ListTransactionsResponse(Response):
    API_KEY = 66
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_state_filters", CompactArray(TEXT)),
        (
            "transaction_states",
            CompactArray(
                ("transactional_id", TEXT),
                ("producer_id", Int64),
                ("transaction_state", TEXT),
                END,
            ),
        ),
        END,
    )


class _ListTransactionsRequest(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 66
    API_VERSION = 0
    RESPONSE_TYPE = _ListTransactionsResponse
    SCHEMA = Schema(
        ("state_filters", CompactArray(TEXT)),
        ("producer_id_filters", CompactArray(Int64)),
        END,
    )


class ListTransactions(Request[_ListTransactionsRequest]):
    """The transactional ids behind producer ids, of those that this broker coordinates."""

    API_KEY = 66

    def __init__(self, producer_ids: Sequence[int]) -> None:
        self._producer_ids = list(producer_ids)

    def build(self, request_struct_class: type[_ListTransactionsRequest]) -> Any:
        return request_struct_class([], self._producer_ids, NO_TAGS)


class _LeaderEpochEndsResponse(Response):
    API_KEY = 23
    API_VERSION = 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("topic", TEXT),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader_epoch", Int32),
                        ("end_offset", Int64),
                        END,
                    ),
                ),
                END,
            ),
        ),
        END,
    )


class _LeaderEpochEndsRequest(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 23
    API_VERSION = 4
    RESPONSE_TYPE = _LeaderEpochEndsResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            CompactArray(
                ("topic", TEXT),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("leader_epoch", Int32),
                        END,
                    ),
                ),
                END,
            ),
        ),
        END,
    )


class LeaderEpochEnds(Request[_LeaderEpochEndsRequest]):
    """A question where a partition's log has the last offset of a leader epoch (OffsetForLeaderEpoch). To the
    partition's leader."""

    API_KEY = 23

    def __init__(self, topic: str, partition: int, leader_epoch: int) -> None:
        self._topics = [(topic, [(partition, -1, leader_epoch, NO_TAGS)], NO_TAGS)]

    def build(self, request_struct_class: type[_LeaderEpochEndsRequest]) -> Any:
        return request_struct_class(-1, self._topics, NO_TAGS)
