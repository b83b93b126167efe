"""Topics and a watch for them, cluster facts, trimming and group members. Every error code is checked here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka.admin.config_resource import ConfigResourceType
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
)
from aiokafka.protocol.metadata import MetadataRequest
from msgspec import Struct

from snapreplay.app.names import alter, increments_topic
from snapreplay.errors import SnapreplayError, StopError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import GroupInUse, OffsetBeyondEnd
from snapreplay.service.core.peers import Peer
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.kafka.assignor import StandbyAssignor, peer_in
from snapreplay.service.kafka.errors import CLIENT_ERRORS, Asked, client_error, translated
from snapreplay.service.kafka.log_ends import NO_LEADER
from snapreplay.service.kafka.requests import (
    ConsumerGroupDescribe,
    DeleteGroups,
    DescribeGroups,
    Metadata,
    PartitionLed,
)
from snapreplay.service.kafka.shared import Client, Shared
from snapreplay.service.ports import ClusterFacts, NewTopic, TopicFacts, TopicPartition

log = logging.getLogger("snapreplay.topics")

TOPIC_CONFIG = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "message.timestamp.type",
)
_OUR_PROTOCOLS = {"", StandbyAssignor.name}
NEWER_PROTOCOL = "consumer"
"""The one of KIP-848. A group with such a member also takes processes of the app, and its coordinator assigns."""
_UNKNOWN_GROUP = "Dead"
_DELETION_DISABLED = {42, 73}  # before version 3 of the request, and since
_NON_EMPTY_GROUP, _NO_SUCH_GROUP = 68, 69
_NO_NEWER_MEMBERS = {0, 35, _NO_SUCH_GROUP}  # 35: the newer protocol is switched off
_NEEDED_OF_INPUTS = {"DescribeConfigs": 10, "Read": 3}
"""With the code of the operation (org.apache.kafka.common.acl.AclOperation)."""
_ASKING_IDS = "asking for topic ids"
_FORBIDDEN = TopicAuthorizationFailedError.errno


class GroupMember(Struct, frozen=True):
    """A member of a consumer group as its coordinator knows it.

    Attributes:
        instance_id: empty for a dynamic member; a static one that died stays a member until its session times out.
        protocol: of its assignor; empty while the group rebalances.
        partitions, peer: what a process of an app owns, and as what it has advertised itself, if it has.
    """

    member_id: str
    instance_id: str
    client_id: str
    host: str
    protocol: str
    partitions: frozenset[TopicPartition] = frozenset()
    peer: Peer | None = None

    def __str__(self) -> str:
        return f"client id {self.client_id!r} on {self.host}{f', protocol {self.protocol!r}' if self.protocol else ''}"


class KafkaAdmin:
    """One call, one client. Each raises Unreachable when Kafka does not answer within the request timeouts."""

    def __init__(self, settings: Settings, shared: Shared | None = None) -> None:
        """Take `shared`, of this loop; None: a call shares nothing."""
        self._settings = settings
        self._shared = shared or Shared(settings)
        self._deadline_s = 3 * settings.request_timeout_ms / 1000

    async def topics(self, names: Iterable[str], optional: Collection[str] = ()) -> dict[str, TopicFacts]:
        wanted = {*names, *optional}
        async with self.client("describing topics", "DescribeConfigs") as client:
            found = await self._existing(client, wanted)
            denied = {
                name: error for name in found.keys() & set(optional) if (error := self._denied(name, found[name]))
            }
            config = await _topic_config(client, sorted(found.keys() - denied.keys()))
        return {
            name: TopicFacts(
                name=name,
                partition_count=len(seen.partitions),
                replication_factor=min((each.replica_count for each in seen.partitions), default=0),
                config=config.get(name, {}),
                topic_id=seen.topic_id,
                denied=denied.get(name),
            )
            for name, seen in found.items()
        }

    async def partition_count(self, name: str) -> int:
        """Return the number of partitions, 0 when no broker knows the topic. Needs Describe only."""
        async with self.client("describing topics", name=name) as client:
            found = await self._existing(client, {name})
            return len(found[name].partitions) if name in found else 0

    async def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        async with self.client(_ASKING_IDS) as client:
            answer = await ask_for_topics(client, sorted(names), {})
        for hidden in answer.hidden.values():
            raise client_error(hidden, _ASKING_IDS, Asked(self._settings, "Describe"))
        return answer.ids

    async def topic_names(self) -> list[str]:
        async with self.client("listing topics") as client:
            _, answer = await client.ask_any(MetadataRequest(None))
            return sorted(entry["topic"] for entry in answer.to_object()["topics"] if not entry["error_code"])

    async def create_topics(self, topics: Sequence[NewTopic]) -> None:
        if not topics:
            return
        async with self.client("creating topics", "Create") as client:
            made: list[Any] = [
                (t.name, t.partition_count, t.replication_factor, [], list(t.config.items())) for t in topics
            ]
            answer = await client.ask_controller(
                CreateTopicsRequest(made, self._settings.request_timeout_ms, validate_only=False)
            )
            for name, code, reason in answer.topic_errors:
                if code == _FORBIDDEN:
                    raise TopicAuthorizationFailedError(name)
                if code:
                    known = for_code(code).__name__
                    raise StopError(f"topic {name} was not created: {reason or known}", topic=name, error=known)
            await self._on_all_brokers(
                client,
                [each.name for each in topics],
                lambda found: all(all_led(found.get(each.name), each.partition_count) for each in topics),
            )

    async def delete_topics(self, names: Sequence[str]) -> None:
        if not names:
            return
        async with self.client("deleting topics", "Delete") as client:
            answer = await client.ask_controller(DeleteTopicsRequest(list(names), self._settings.request_timeout_ms))
            for name, code in answer.topic_error_codes:
                if code == _FORBIDDEN:
                    raise TopicAuthorizationFailedError(name)
                if code in _DELETION_DISABLED:
                    raise StopError(
                        f"topic {name} was not deleted: the brokers have delete.topic.enable=false",
                        hint="set delete.topic.enable=true on every broker",
                        topic=name,
                    )
                if code and code != UnknownTopicOrPartitionError.errno:
                    known = for_code(code).__name__
                    raise StopError(f"topic {name} was not deleted: {known}", topic=name, error=known)
            await self._on_all_brokers(client, names, lambda found: not found)

    async def delete_group(self, group_id: str) -> None:
        async with self.client(f"deleting group {group_id}", "Delete", group_id) as client:
            node = await client.coordinator(group_id)
            answer = await client.send(node, DeleteGroups(group_id))
            ((_, code, *_),) = answer.results
            if code == _NON_EMPTY_GROUP:
                raise GroupInUse(f"group {group_id} has members")
            if code not in {0, _NO_SUCH_GROUP}:
                raise for_code(code)(group_id)

    async def facts(self) -> ClusterFacts:
        async with self.client("asking for cluster facts", "DescribeConfigs") as client:
            node, answer = await client.ask_any(MetadataRequest([]))
            config = await _config(client, ConfigResourceType.BROKER, [str(node)], node)
        return ClusterFacts(cluster_id=answer.cluster_id or "", broker_config=config[str(node)])

    async def delete_records(self, partition: TopicPartition, before_offset: int) -> int:
        """Trim as `ports.Cluster.delete_records` says.

        Raises:
            StopError: the topic's cleanup.policy does not allow it.
            OffsetBeyondEnd: the offset is above the high watermark.
            ValueError: the offset is negative. -1 would cut through an open transaction.
        """
        if before_offset < 0:
            raise ValueError(f"delete_records needs an explicit offset, not {before_offset}")
        topic, number = partition
        async with self.client(f"trimming {partition}", "Delete", topic) as client:
            await client.shared.refresh([topic])
            if (leader := client.leader(partition)) == NO_LEADER:
                raise LeaderNotAvailableError(partition)
            request = DeleteRecordsRequest([(topic, [(number, before_offset)])], self._settings.request_timeout_ms)
            answer = await client.send(leader, request)
            ((_, ((_, start_offset, code, *_),), *_),) = answer.topics
            try:
                if code:
                    raise for_code(code)(topic)
            except PolicyViolationError as error:
                raise StopError(
                    f"{partition} cannot be trimmed: its cleanup.policy is not delete",
                    hint=f"`{alter(partition.topic, 'cleanup.policy=delete')}`",
                    topic=partition.topic,
                ) from error
            except OffsetOutOfRangeError as error:
                raise OffsetBeyondEnd(
                    f"{partition} cannot be trimmed below {before_offset}: its end is lower",
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=before_offset,
                ) from error
        return int(start_offset)

    async def group_members(self, group_id: str) -> list[GroupMember]:
        """Return the members that are processes of an app, with their partitions, from the group's coordinator; empty
        if there is no such group."""
        return [each for each in await self._members(group_id) if each.protocol in _OUR_PROTOCOLS]

    async def foreign_members(self, group_id: str, *, is_foreign: bool = False) -> list[GroupMember]:
        """Return the members that are no processes of an app. The protocol of a group is not known while it rebalances;
        `is_foreign`: it is known not to be ours."""
        ours = {StandbyAssignor.name} if is_foreign else _OUR_PROTOCOLS
        return [each for each in await self._members(group_id) if each.protocol not in ours]

    async def _members(self, group_id: str) -> list[GroupMember]:
        async with self.client(f"describing group {group_id}") as client:
            node = await client.coordinator(group_id)
            answer = await client.send(node, DescribeGroups(group_id))
            ((code, _, state, kind, protocol, members, *_),) = answer.groups
            if code:
                raise for_code(code)(group_id)
            if state == _UNKNOWN_GROUP:
                with contextlib.suppress(IncompatibleBrokerVersion):  # there is none before Kafka 3.7
                    return await _with_newer_members(client, node, group_id)
        protocol = protocol if kind in ("", ConsumerProtocol.PROTOCOL_TYPE) else kind
        is_readable = protocol == StandbyAssignor.name  # the bytes of other protocols have other formats
        return [
            GroupMember(
                member_id,
                instance_id or "",
                client_id,
                host.lstrip("/"),
                protocol,
                _assigned(assignment) if is_readable else frozenset(),
                peer_in(metadata) if is_readable else None,
            )
            for member_id, instance_id, client_id, host, metadata, assignment, _ in members
        ]

    @asynccontextmanager
    async def client(self, doing: str, operation: str = "Describe", name: str = "") -> AsyncIterator[Client]:
        """Start a client and translate its errors; `operation` on `name` is what needs a permission."""
        client = Client(self._shared)
        try:
            asked = Asked(self._settings, operation, name)
            async with translated(doing, asked), client.writing(self._deadline_s):
                await client.start()
                yield client
        finally:
            await client.close()

    async def _existing(self, client: Client, wanted: Collection[str]) -> dict[str, TopicSeen]:
        """Return the topics that exist.

        Raises:
            NotAuthorized: a topic may not be seen, and Kafka does not say whether it exists.
        """
        answer = await ask_for_topics(client, sorted(wanted), {})
        for error in answer.hidden.values():
            if isinstance(error, TopicAuthorizationFailedError):
                doing = "looking for it (without this permission Kafka does not say whether it exists)"
                raise client_error(error, doing, Asked(self._settings, "Describe"))
        return answer.topics

    def _denied(self, name: str, seen: TopicSeen) -> SnapreplayError | None:
        """Return the error that says what of a topic this user may not do: read or describe it."""
        for operation, bit in _NEEDED_OF_INPUTS.items():
            if seen.operations >= 0 and not seen.operations & 1 << bit:  # negative: the broker does not tell
                asked = Asked(self._settings, operation)
                return client_error(TopicAuthorizationFailedError(name), "asking for it", asked)
        return None

    async def _on_all_brokers(
        self, client: Client, names: Sequence[str], holds: Callable[[Mapping[str, TopicSeen]], bool]
    ) -> None:
        """Wait until this holds of these topics on all brokers that answer, within the client's deadline: they learn
        one after another, and the next request may go to the last of them."""
        for broker in client.cluster.brokers():
            with contextlib.suppress(*CLIENT_ERRORS):  # it is away: no client will ask it either
                while True:
                    if holds(_topics_in(await client.send(broker.nodeId, Metadata(names))).topics):
                        break
                    await asyncio.sleep(0.02)


def all_led(seen: TopicSeen | None, partition_count: int) -> bool:
    partitions = seen.partitions if seen is not None else []
    return len(partitions) == partition_count and all(each.leader >= 0 for each in partitions)


async def _topic_config(client: Client, names: Sequence[str]) -> Mapping[str, dict[str, str]]:
    if not names:
        return {}
    full = await _config(client, ConfigResourceType.TOPIC, names)
    return {name: {key: config[key] for key in TOPIC_CONFIG if key in config} for name, config in full.items()}


async def _config(
    client: Client, kind: ConfigResourceType, names: Sequence[str], node: int | None = None
) -> dict[str, dict[str, str]]:
    """Name → config, from this node or any other. Topics that have vanished are absent."""
    request = DescribeConfigsRequest([(kind, name, None) for name in names])
    answer = (await client.ask_any(request))[1] if node is None else await client.send(node, request)
    found = {}
    for code, message, _, name, entries in answer.resources:
        if code == UnknownTopicOrPartitionError.errno:
            continue
        if code:
            raise for_code(code)(name if code == _FORBIDDEN else f"{name}: {message}")
        found[name] = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
    return found


def _assigned(assignment: bytes) -> frozenset[TopicPartition]:
    if not assignment:
        return frozenset()
    decoded = ConsumerProtocol.ASSIGNMENT.decode(assignment)
    return frozenset(TopicPartition(*source) for source in decoded.partitions())


async def _with_newer_members(client: Client, node: int, group_id: str) -> list[GroupMember]:
    """Return the members of a group that has one of the newer protocol. Those that read the increments topic, and only
    that, are processes of the app."""
    answer = await client.send(node, ConsumerGroupDescribe(group_id))
    ((code, _, _, _, _, _, _, members, *_),) = answer.groups
    if code not in _NO_NEWER_MEMBERS:
        raise for_code(code)(group_id)
    found = []
    for member_id, instance_id, _, _, client_id, host, topics, _, (assigned, _), *_ in members:
        given = frozenset(TopicPartition(name, number) for _, name, numbers, _ in assigned for number in numbers)
        protocol = StandbyAssignor.name if topics == [increments_topic(group_id)] else NEWER_PROTOCOL
        found.append(GroupMember(member_id, instance_id or "", client_id, host.lstrip("/"), protocol, given))
    return found


class TopicSeen(NamedTuple):
    """A topic as brokers know it. `operations`: a bit for each that this user may do; negative: not known."""

    topic_id: str
    partitions: Sequence[PartitionLed]
    operations: int


class TopicAnswer(NamedTuple):
    """The answer to a question for topics; why nothing is known about the `hidden` ones, which may exist or not."""

    topics: dict[str, TopicSeen]
    hidden: dict[str, KafkaError]

    @property
    def ids(self) -> dict[str, str]:
        return {name: seen.topic_id for name, seen in self.topics.items()}


class KafkaTopicWatch:
    """A watch, `ports.TopicWatch`. Connects with the first question, and again after one without an answer."""

    def __init__(self, settings: Settings, shared: Shared | None = None) -> None:
        self._client = Client(shared or Shared(settings))
        self._deadline_s = 3 * settings.request_timeout_ms / 1000
        self._asked = Asked(settings, "Describe")
        self._before: dict[str, str] = {}  # what was answered last
        self._repeats = Repeats()

    async def ids(self, names: Collection[str]) -> dict[str, str]:
        async with translated(_ASKING_IDS, self._asked, within_s=self._deadline_s, give_up=self.close):
            await self._client.start()
            answer = await ask_for_topics(self._client, sorted(names), self._before)
        for hidden in answer.hidden.values():
            self._say(client_error(hidden, _ASKING_IDS, self._asked))
        as_before = {name: self._before.get(name, "") for name in answer.hidden}
        self._before = answer.ids | as_before
        return dict(self._before)

    async def close(self) -> None:
        await self._client.close()

    def _say(self, error: SnapreplayError) -> None:
        line = self._repeats.line(f"a topic cannot be watched: {error}", asyncio.get_running_loop().time())
        if line is not None:
            log.warning("%s", line)


async def ask_for_topics(client: Client, names: Sequence[str], before: Mapping[str, str]) -> TopicAnswer:
    """Ask a broker; one that lags behind the controllers does not know the newest topics, or still names an old id.
    If the first one does not name a topic, or names another id than `before`, the others are asked."""
    if not names:
        return TopicAnswer({}, {})
    first, answer = await client.ask_any(Metadata(names))
    found, hidden = _topics_in(answer)
    named_ids = {
        name: [seen.topic_id] for name, seen in found.items() if before.get(name, seen.topic_id) != seen.topic_id
    }
    for broker in client.cluster.brokers():
        asked = [name for name in names if name not in found | hidden or name in named_ids]
        if not asked:
            break
        if broker.nodeId == first:
            continue
        with contextlib.suppress(*CLIENT_ERRORS):  # it is away
            others = _topics_in(await client.send(broker.nodeId, Metadata(asked)))
            hidden |= others.hidden
            for name, seen in others.topics.items():
                named_ids.get(name, []).append(seen.topic_id)
                found.setdefault(name, seen)
    for name, ids in named_ids.items():
        found[name] = found[name]._replace(topic_id=_believed(before[name], ids))
    return TopicAnswer(found, {name: error for name, error in hidden.items() if name not in found})


def _believed(before: str, named: list[str]) -> str:
    """Believe another id than before if most of the brokers that answered named it: few lag, and not for long."""
    newest, count = Counter(named).most_common(1)[0]
    return newest if 2 * count > len(named) else before


def _topics_in(answer: Any) -> TopicAnswer:
    """Return known and hidden topics: one that this user may not describe is not missing."""
    topics, hidden = {}, {}
    for code, name, topic_id, _, partitions, operations, _ in answer.topics:
        if topic_id or not code:
            topics[name] = TopicSeen(topic_id, partitions, operations)
        elif code != UnknownTopicOrPartitionError.errno:
            hidden[name] = for_code(code)(name)
    return TopicAnswer(topics, hidden)
