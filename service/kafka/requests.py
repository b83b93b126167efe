"""Requests that aiokafka 0.14.0 lacks, and the parts that they are made of: flexible versions (KIP-482), topic ids
(KIP-516, Kafka 2.8), open transactions (KIP-664, Kafka 3.0), leader epochs (KIP-320), static members (KIP-345)."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from io import SEEK_CUR, BytesIO
from struct import Struct
from typing import Any, ClassVar, NamedTuple

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest, MetadataRequest_v5, MetadataResponse_v5
from aiokafka.protocol.types import (
    AbstractType,
    Array,
    Boolean,
    CompactArray,
    CompactBytes,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
    UnsignedVarInt32,
)

COORDINATOR_AWAY = frozenset({14, 15, 16})
"""It loads, is being found, or has moved."""
_NOT_ATTEMPTED = 55
"""OPERATION_NOT_ATTEMPTED: another partition of the same request was refused."""

TEXT = CompactString("utf-8")
NO_TAGS: dict[int, bytes] = {}
"""The value of the last field of every structure, in a request."""

_ANSWERS_KEPT = 4
"""Of the questions that are asked again and again; each names all topics of an app."""
_END = ("tags", TaggedFields)
_NO_TOPIC_ID = bytes(16)


class TopicId(AbstractType[str]):
    """Sixteen bytes, as the text that Kafka's tools print; the zero id, which means none, as ""."""

    @classmethod
    def encode(cls, value: str) -> bytes:
        return urlsafe_b64decode(value + "==") if value else _NO_TOPIC_ID

    @classmethod
    def decode(cls, data: BytesIO) -> str:
        raw = data.read(16)
        return urlsafe_b64encode(raw).decode().rstrip("=") if any(raw) else ""


class PartitionLed(NamedTuple):
    """A partition in Metadata."""

    error_code: int
    partition: int
    leader: int
    leader_epoch: int
    replica_count: int


class PartitionsLed(AbstractType[list[PartitionLed]]):
    """The partitions of a topic in Metadata, without the ids of their replicas.

    Decoding by a schema takes 15 ms for 600 partitions.
    """

    @classmethod
    def decode(cls, data: BytesIO) -> list[PartitionLed]:
        return [_partition_led(data) for _ in range(UnsignedVarInt32.decode(data) - 1)]


_LED = Struct(">hiii")


def _partition_led(data: BytesIO) -> PartitionLed:
    led, counts = _LED.unpack(data.read(_LED.size)), []
    for _ in range(3):  # lists: all replicas, those in sync, those that are offline
        counts.append(max(UnsignedVarInt32.decode(data) - 1, 0))
        data.seek(4 * counts[-1], SEEK_CUR)
    TaggedFields.decode(data)
    return PartitionLed._make((*led, counts[0]))


class DecodedOnce:
    """A list in an answer that is decoded once for the same bytes. Among many partitions, decoding metadata would be a
    third of what a process does at rest, and metadata hardly ever change."""

    def __init__(self, of: Array) -> None:
        self.encode, self.repr = of.encode, of.repr
        self._decoded = lru_cache(maxsize=_ANSWERS_KEPT)(partial(_decoded, of))

    def decode(self, data: BytesIO) -> Any:
        """Return what the others get for these bytes: it is not to be changed."""
        begins_at = data.tell()
        found, length = self._decoded(data.read())
        data.seek(begins_at + length)
        return found


def _decoded(of: Array, data: bytes) -> tuple[Any, int]:
    stream = BytesIO(data)
    return of.decode(stream), stream.tell()


def error_codes(answer: Any) -> dict[int, str]:
    """Return the error codes of a coordinator's answer, each with a topic that it is about; "" if it is about none."""
    topics = answer.errors if hasattr(answer, "errors") else getattr(answer, "topics", ())
    found = {code: topic for topic, partitions in topics for *_, code in partitions}
    found[getattr(answer, "error_code", 0)] = ""
    found |= {code: "" for code, *_ in getattr(answer, "transaction_states", ())}
    return {code: topic for code, topic in found.items() if code not in (0, _NOT_ATTEMPTED)}


def flexible(**fields: Any) -> Schema:
    """Return the schema of a flexible structure with these fields, in this order."""
    return Schema(*fields.items(), _END)


def array_of(**fields: Any) -> CompactArray:
    """Return an array of flexible structures with these fields, in this order."""
    return CompactArray(*fields.items(), _END)


def struct_of(name: str, key: int, version: int, asked: Schema, answered: Schema) -> type[RequestStruct]:
    """Make the struct of one flexible version of a request, with the struct of its answer."""
    numbers = {"API_KEY": key, "API_VERSION": version}
    answer = type(f"{name}Response_v{version}", (Response,), numbers | {"SCHEMA": answered})
    more = {"SCHEMA": asked, "RESPONSE_TYPE": answer, "FLEXIBLE_VERSION": True}
    return type(f"{name}Request_v{version}", (RequestStruct,), numbers | more)


def spoken(
    name: str, structs: Sequence[type[RequestStruct]], versions: Mapping[int, tuple[int, int]]
) -> type[RequestStruct]:
    """Return the first of these versions of a request that the broker speaks. `versions`: API key → its oldest and
    newest version.

    Raises:
        IncompatibleBrokerVersion: it speaks none.
    """
    oldest, newest = versions.get(structs[0].API_KEY, (0, -1))
    for struct in structs:
        if oldest <= struct.API_VERSION <= newest:
            return struct
    if newest < oldest:
        raise IncompatibleBrokerVersion(f"the broker does not know {name}")
    wanted = " or ".join(str(each.API_VERSION) for each in structs)
    raise IncompatibleBrokerVersion(f"{name} {wanted}: the broker has {oldest} to {newest}")


class OwnRequest:
    """A request in the versions that we know, the newest last. All of them are flexible and have the same fields."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[tuple[int, ...]] = (0,)
    ASKED: ClassVar[Schema]
    ANSWERED: ClassVar[Schema]
    STRUCTS: ClassVar[tuple[type[RequestStruct], ...]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.STRUCTS = tuple(
            struct_of(cls.__name__, cls.API_KEY, each, cls.ASKED, cls.ANSWERED) for each in cls.VERSIONS
        )

    def __init__(self, *values: Any) -> None:
        """Take the values of the fields, in their order, without the tags."""
        self._values = values

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> RequestStruct:
        return spoken(type(self).__name__, self.STRUCTS[::-1], versions)(*self._values, NO_TAGS)


class Metadata(OwnRequest):
    """Metadata of topics by name, with their ids and what this user may do. To any broker; creates nothing.

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
        topics=DecodedOnce(
            array_of(
                error_code=Int16,
                name=TEXT,
                topic_id=TopicId,
                is_internal=Boolean,
                partitions=PartitionsLed,
                topic_authorized_operations=Int32,
            )
        ),
    )

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__([("", name, NO_TAGS) for name in names], False, True)


class MetadataResponse(MetadataResponse_v5):
    _BEFORE, _TOPICS = MetadataResponse_v5.SCHEMA.fields[:-1], MetadataResponse_v5.SCHEMA.fields[-1]
    SCHEMA = Schema(*zip(MetadataResponse_v5.SCHEMA.names, (*_BEFORE, DecodedOnce(_TOPICS)), strict=True))


class _LeadersRequest(MetadataRequest_v5):
    RESPONSE_TYPE = MetadataResponse


class Leaders:
    """Brokers, and the leaders of topics, as `ClusterMetadata` takes them. To any broker; creates nothing."""

    API_KEY = 3

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)

    def prepare(self, versions: dict[int, tuple[int, int]]) -> RequestStruct:
        prepared = MetadataRequest(self._names, allow_auto_topic_creation=False).prepare(versions)
        return _LeadersRequest(self._names, False) if isinstance(prepared, MetadataRequest_v5) else prepared


class DescribeProducers(OwnRequest):
    """The recent producers of a partition, and where their open transactions begin. To the partition's leader."""

    API_KEY = 61
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
        super().__init__([(topic, [partition], NO_TAGS)])


class DescribeTransactions(OwnRequest):
    """A question when the open transaction of a transactional id began, and its timeout. To its coordinator."""

    API_KEY = 65
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
        super().__init__([transactional_id])


class ListTransactions(OwnRequest):
    """The transactional ids behind producer ids, of those that this broker coordinates."""

    API_KEY = 66
    ASKED = flexible(state_filters=CompactArray(TEXT), producer_id_filters=CompactArray(Int64))
    ANSWERED = flexible(
        throttle_time_ms=Int32,
        error_code=Int16,
        unknown_state_filters=CompactArray(TEXT),
        transaction_states=array_of(transactional_id=TEXT, producer_id=Int64, transaction_state=TEXT),
    )

    def __init__(self, producer_ids: Sequence[int]) -> None:
        super().__init__([], list(producer_ids))


class OffsetForLeaderEpoch(OwnRequest):
    """A question to a partition's leader where its log has the last offset of a leader epoch."""

    API_KEY = 23
    VERSIONS = (4,)
    ASKED = flexible(
        replica_id=Int32,
        topics=array_of(
            topic=TEXT, partitions=array_of(partition=Int32, current_leader_epoch=Int32, leader_epoch=Int32)
        ),
    )
    ANSWERED = flexible(
        throttle_time_ms=Int32,
        topics=array_of(
            topic=TEXT, partitions=array_of(error_code=Int16, partition=Int32, leader_epoch=Int32, end_offset=Int64)
        ),
    )

    def __init__(self, topic: str, partition: int, leader_epoch: int) -> None:
        super().__init__(-1, [(topic, [(partition, -1, leader_epoch, NO_TAGS)], NO_TAGS)])


class DescribeGroups(OwnRequest):
    """One group with the instance ids of its static members, None for a dynamic one: version 5 (Kafka 2.4), while
    aiokafka ends at 3. To its coordinator."""

    API_KEY = 15
    VERSIONS = (5,)
    ASKED = flexible(groups=CompactArray(TEXT), include_authorized_operations=Boolean)
    ANSWERED = flexible(
        throttle_time_ms=Int32,
        groups=array_of(
            error_code=Int16,
            group=TEXT,
            state=TEXT,
            protocol_type=TEXT,
            protocol=TEXT,
            members=array_of(
                member_id=TEXT,
                group_instance_id=TEXT,
                client_id=TEXT,
                client_host=TEXT,
                member_metadata=CompactBytes,
                member_assignment=CompactBytes,
            ),
            authorized_operations=Int32,
        ),
    )

    def __init__(self, group_id: str) -> None:
        super().__init__([group_id], False)


class ConsumerGroupDescribe(OwnRequest):
    """One group with a member of the newer protocol, "consumer" (KIP-848), which `DescribeGroups` does not know. To its
    coordinator. Kafka 3.7."""

    API_KEY = 69
    ASKED = flexible(group_ids=CompactArray(TEXT), include_authorized_operations=Boolean)
    _ASSIGNMENT = flexible(topic_partitions=array_of(topic_id=TopicId, topic_name=TEXT, partitions=CompactArray(Int32)))
    ANSWERED = flexible(
        throttle_time_ms=Int32,
        groups=array_of(
            error_code=Int16,
            error_message=TEXT,
            group_id=TEXT,
            group_state=TEXT,
            group_epoch=Int32,
            assignment_epoch=Int32,
            assignor_name=TEXT,
            members=array_of(
                member_id=TEXT,
                instance_id=TEXT,
                rack_id=TEXT,
                member_epoch=Int32,
                client_id=TEXT,
                client_host=TEXT,
                subscribed_topic_names=CompactArray(TEXT),
                subscribed_topic_regex=TEXT,
                assignment=_ASSIGNMENT,
                target_assignment=_ASSIGNMENT,
            ),
            authorized_operations=Int32,
        ),
    )

    def __init__(self, group_id: str) -> None:
        super().__init__([group_id], False)


class DeleteGroups(OwnRequest):
    """A request to delete a group without members, with its committed offsets. To its coordinator. Kafka 2.4."""

    API_KEY = 42
    VERSIONS = (2,)
    ASKED = flexible(groups_names=CompactArray(TEXT))
    ANSWERED = flexible(throttle_time_ms=Int32, results=array_of(group_id=TEXT, error_code=Int16))

    def __init__(self, group_id: str) -> None:
        super().__init__([group_id])


class LeaveGroup(OwnRequest):
    """A request to leave with the member id, so that a newer process of the same instance id is not thrown out. A
    static member gives its instance id, too, a dynamic one None. Version 4 (Kafka 2.4).

    aiokafka does not send it for a static member, so after a planned stop the others would wait a whole session timeout
    for the partitions. The answer has codes of the request and of each member; 0 = left.
    """

    API_KEY = 13
    VERSIONS = (4,)
    ASKED = flexible(group_id=TEXT, members=array_of(member_id=TEXT, group_instance_id=TEXT))
    ANSWERED = flexible(
        throttle_time_ms=Int32,
        error_code=Int16,
        members=array_of(member_id=TEXT, group_instance_id=TEXT, error_code=Int16),
    )

    def __init__(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        super().__init__(group_id, [(member_id, instance_id, NO_TAGS)])
