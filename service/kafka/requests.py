"""Requests that aiokafka 0.14.0 does not have: who has which transaction open, and where (KIP-664, Kafka 3.0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

_TEXT = CompactString("utf-8")
_END = ("tags", TaggedFields)
_NO_TAGS: dict[int, bytes] = {}


class _DescribeProducersResponse(Response):
    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", _TEXT),
                (
                    "partitions",
                    CompactArray(
                        ("partition_index", Int32),
                        ("error_code", Int16),
                        ("error_message", _TEXT),
                        (
                            "active_producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("current_txn_start_offset", Int64),
                                _END,
                            ),
                        ),
                        _END,
                    ),
                ),
                _END,
            ),
        ),
        _END,
    )


class _DescribeProducersRequest(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 61
    API_VERSION = 0
    RESPONSE_TYPE = _DescribeProducersResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("name", _TEXT), ("partition_indexes", CompactArray(Int32)), _END)),
        _END,
    )


class DescribeProducers(Request[_DescribeProducersRequest]):
    """Who has written to a partition lately, and where their open transactions begin. To the partition's leader."""

    API_KEY = 61

    def __init__(self, topic: str, partition: int) -> None:
        self._topics = [(topic, [partition], _NO_TAGS)]

    def build(self, request_struct_class: type[_DescribeProducersRequest]) -> Any:
        return request_struct_class(self._topics, _NO_TAGS)


class _DescribeTransactionsResponse(Response):
    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transaction_states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", _TEXT),
                ("transaction_state", _TEXT),
                ("transaction_timeout_ms", Int32),
                ("transaction_start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                (
                    "topics",
                    CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), _END),
                ),
                _END,
            ),
        ),
        _END,
    )


class _DescribeTransactionsRequest(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 65
    API_VERSION = 0
    RESPONSE_TYPE = _DescribeTransactionsResponse
    SCHEMA = Schema(("transactional_ids", CompactArray(_TEXT)), _END)


class DescribeTransactions(Request[_DescribeTransactionsRequest]):
    """Since when a transactional id has its transaction open, and for how long it may. To its coordinator."""

    API_KEY = 65

    def __init__(self, transactional_id: str) -> None:
        self._ids = [transactional_id]

    def build(self, request_struct_class: type[_DescribeTransactionsRequest]) -> Any:
        return request_struct_class(self._ids, _NO_TAGS)


class _ListTransactionsResponse(Response):
    API_KEY = 66
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("unknown_state_filters", CompactArray(_TEXT)),
        (
            "transaction_states",
            CompactArray(
                ("transactional_id", _TEXT),
                ("producer_id", Int64),
                ("transaction_state", _TEXT),
                _END,
            ),
        ),
        _END,
    )


class _ListTransactionsRequest(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 66
    API_VERSION = 0
    RESPONSE_TYPE = _ListTransactionsResponse
    SCHEMA = Schema(
        ("state_filters", CompactArray(_TEXT)),
        ("producer_id_filters", CompactArray(Int64)),
        _END,
    )


class ListTransactions(Request[_ListTransactionsRequest]):
    """The transactional ids behind producer ids, of those that this broker coordinates."""

    API_KEY = 66

    def __init__(self, producer_ids: Sequence[int]) -> None:
        self._producer_ids = list(producer_ids)

    def build(self, request_struct_class: type[_ListTransactionsRequest]) -> Any:
        return request_struct_class([], self._producer_ids, _NO_TAGS)
