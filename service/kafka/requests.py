"""Requests that aiokafka 0.14.0 lacks: topic ids (KIP-516, Kafka 2.8), open transactions (KIP-664, Kafka 3.0), leader
epochs (KIP-320), static members (KIP-345)."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka.protocol.types import (
    Array,
    Boolean,
    Bytes,
    CompactArray,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
)

from snapreplay.service.kafka.protocol_fields import (
    NO_TAGS,
    TEXT,
    OwnRequest,
    TopicId,
    array_of,
    flexible,
)

_OLD_TEXT = String("utf-8")  # of a version that is not flexible


class TopicIds(OwnRequest):
    """Metadata of topics by name, with their ids and leader epochs. To any broker; creates nothing.

    Version 12 (Kafka 3.1) can ask by id as well; by name the two are the same.
    """

    API_KEY = 3
    VERSIONS = (11, 12)
    ASKED = flexible(
        topics=array_of(topic_id=TopicId, name=TEXT),
        allow_auto_topic_creation=Boolean,
        include_topic_authorized_operations=Boolean,
    )
    ANSWERED = flexible(
        throttle_time_ms=Int32,
        brokers=array_of(node_id=Int32, host=TEXT, port=Int32, rack=TEXT),
        cluster_id=TEXT,
        controller_id=Int32,
        topics=array_of(
            error_code=Int16,
            name=TEXT,
            topic_id=TopicId,
            is_internal=Boolean,
            partitions=array_of(
                error_code=Int16,
                partition_index=Int32,
                leader_id=Int32,
                leader_epoch=Int32,
                replica_nodes=CompactArray(Int32),
                isr_nodes=CompactArray(Int32),
                offline_replicas=CompactArray(Int32),
            ),
            topic_authorized_operations=Int32,
        ),
    )

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__([("", name, NO_TAGS) for name in names], False, False, NO_TAGS)


class DescribeProducers(OwnRequest):
    """The recent producers of a partition, and where their open transactions begin. To the partition's leader."""

    API_KEY = 61
    VERSIONS = (0,)
    ASKED = flexible(topics=array_of(name=TEXT, partition_indexes=CompactArray(Int32)))
    ANSWERED = flexible(
        throttle_time_ms=Int32,
        topics=array_of(
            name=TEXT,
            partitions=array_of(
                partition_index=Int32,
                error_code=Int16,
                error_message=TEXT,
                active_producers=array_of(
                    producer_id=Int64,
                    producer_epoch=Int32,
                    last_sequence=Int32,
                    last_timestamp=Int64,
                    coordinator_epoch=Int32,
                    current_txn_start_offset=Int64,
                ),
            ),
        ),
    )

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__([(topic, [partition], NO_TAGS)], NO_TAGS)


class DescribeTransactions(OwnRequest):
    """A question when the open transaction of a transactional id began, and its timeout. To its coordinator."""

    API_KEY = 65
    VERSIONS = (0,)
    ASKED = flexible(transactional_ids=CompactArray(TEXT))
    ANSWERED = flexible(
        throttle_time_ms=Int32,
        transaction_states=array_of(
            error_code=Int16,
            transactional_id=TEXT,
            transaction_state=TEXT,
            transaction_timeout_ms=Int32,
            transaction_start_time_ms=Int64,
            producer_id=Int64,
            producer_epoch=Int16,
            topics=array_of(topic=TEXT, partitions=CompactArray(Int32)),
        ),
    )

    def __init__(self, transactional_id: str) -> None:
        super().__init__([transactional_id], NO_TAGS)


class ListTransactions(OwnRequest):
    """The transactional ids behind producer ids, of those that this broker coordinates."""

    API_KEY = 66
    VERSIONS = (0,)
    ASKED = flexible(state_filters=CompactArray(TEXT), producer_id_filters=CompactArray(Int64))
    ANSWERED = flexible(
        throttle_time_ms=Int32,
        error_code=Int16,
        unknown_state_filters=CompactArray(TEXT),
        transaction_states=array_of(
            transactional_id=TEXT, producer_id=Int64, transaction_state=TEXT
        ),
    )

    def __init__(self, producer_ids: Sequence[int]) -> None:
        super().__init__([], list(producer_ids), NO_TAGS)


class LeaderEpochEnds(OwnRequest):
    """A question where a partition's log has the last offset of a leader epoch (OffsetForLeaderEpoch). To the
    partition's leader."""

    API_KEY = 23
    VERSIONS = (4,)
    ASKED = flexible(
        replica_id=Int32,
        topics=array_of(
            topic=TEXT,
            partitions=array_of(partition=Int32, current_leader_epoch=Int32, leader_epoch=Int32),
        ),
    )
    ANSWERED = flexible(
        throttle_time_ms=Int32,
        topics=array_of(
            topic=TEXT,
            partitions=array_of(
                error_code=Int16, partition=Int32, leader_epoch=Int32, end_offset=Int64
            ),
        ),
    )

    def __init__(self, topic: str, partition: int, leader_epoch: int) -> None:
        super().__init__(-1, [(topic, [(partition, -1, leader_epoch, NO_TAGS)], NO_TAGS)], NO_TAGS)


class DescribeGroup(OwnRequest):
    """One group with the instance ids of its static members, None for a dynamic one: version 4 (Kafka 2.4), while
    aiokafka ends at 3. To its coordinator."""

    API_KEY = 15
    VERSIONS = (4,)
    FLEXIBLE = False
    ASKED = Schema(("groups", Array(_OLD_TEXT)), ("include_authorized_operations", Boolean))
    ANSWERED = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            Array(
                ("error_code", Int16),
                ("group", _OLD_TEXT),
                ("state", _OLD_TEXT),
                ("protocol_type", _OLD_TEXT),
                ("protocol", _OLD_TEXT),
                (
                    "members",
                    Array(
                        ("member_id", _OLD_TEXT),
                        ("group_instance_id", _OLD_TEXT),
                        ("client_id", _OLD_TEXT),
                        ("client_host", _OLD_TEXT),
                        ("member_metadata", Bytes),
                        ("member_assignment", Bytes),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
    )

    def __init__(self, group_id: str) -> None:
        super().__init__([group_id], False)


class LeaveGroup(OwnRequest):
    """A request to leave with the member id, so that a newer process of the same instance id is not thrown out. A
    static member gives its instance id, too, a dynamic one None.

    aiokafka does not send it for a static member, so after a planned stop the others would wait a whole session timeout
    for the partitions. The answer has codes of the request and of each member; 0 = left.
    """

    API_KEY = 13
    VERSIONS = (3,)
    FLEXIBLE = False
    ASKED = Schema(
        ("group_id", _OLD_TEXT),
        ("members", Array(("member_id", _OLD_TEXT), ("group_instance_id", _OLD_TEXT))),
    )
    ANSWERED = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "members",
            Array(
                ("member_id", _OLD_TEXT), ("group_instance_id", _OLD_TEXT), ("error_code", Int16)
            ),
        ),
    )

    def __init__(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        super().__init__(group_id, [(member_id, instance_id)])
