"""What was seen of a cluster, an app's topics and this machine. Pure: the checks make findings of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from snapreplay.app.app import App
from snapreplay.app.ways import MODULE, alter, app_name
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.inspected import Broker, OpenTransaction, Replicas, WriteProbe
from snapreplay.service.ports import TopicFacts, TopicPartition
from snapreplay.service.topics.requirements import own_topics
from snapreplay.state.store import store_of

TRANSACTION_TOPIC = "__transaction_state"


class Diagnosis(msgspec.Struct, frozen=True):
    """`check` names what was looked at, `where` the topic, partition, broker or setting; `problem` has the values."""

    check: str
    where: str
    problem: str
    remedy: str


@dataclass(frozen=True)
class Log:
    """One partition. `pinned_by` was there in two looks, a second apart."""

    partition: TopicPartition
    start_offset: int
    last_stable_offset: int
    high_watermark: int
    pinned_by: OpenTransaction | None = None

    @property
    def held_back(self) -> int:
        """Offsets that a read_committed reader does not get yet."""
        return self.high_watermark - self.last_stable_offset


@dataclass(frozen=True)
class SnapshotSeen:
    """A full snapshot that is pointed to. `raw_bytes`: of its keys and values, estimated from its first chunk."""

    snapshot_id: str
    created_at_ms: int
    entries: int
    size_bytes: int
    raw_bytes: int


@dataclass(frozen=True)
class InputSeen:
    """`timestamp_ms` of the next record to process, or of the last one processed when there is none; None: neither."""

    topic: str
    position: int
    timestamp_ms: int | None


@dataclass(frozen=True)
class StateSeen:
    """The end of one state partition's chain. `batch` None: no increment. `missing`: why a recovery now would fail,
    unless the process that has the state writes a snapshot of it (`snapshot_helps`); `unusable`: why it could not
    use the newest snapshot; `topic_ids`: of the inputs and both own topics, as the last increment records them, or the
    newest manifest where there is no increment."""

    partition: int
    batch: int | None
    missing: str | None = None
    snapshot_helps: bool = True
    unusable: str | None = None
    newest: SnapshotSeen | None = None
    inputs: tuple[InputSeen, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """Something that could not be looked at, or is not allowed: `what` we tried, on `where`."""

    what: str
    where: str
    problem: str
    hint: str = ""


@dataclass(frozen=True)
class Machine:
    """This one. `available_bytes`: what a new process may take, the container's limit included; None: unknown."""

    c_extension: bool = True
    missing_codecs: tuple[str, ...] = ()
    available_bytes: int | None = None


@dataclass(frozen=True)
class Facts:
    """Everything, or as much of it as could be seen; without an app there are no topics but Kafka's own. `refused`: of
    the group and the partitions' transactional ids, what may not be used → the broker's reason. `owned`: partitions
    that the group has given to a process; `members`: processes in the group, also those to which it has given none."""

    settings: Settings
    now_ms: int
    brokers: tuple[Broker, ...]
    app: App[Any] | None = None
    broker_config: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    replicas: Mapping[TopicPartition, Replicas] = field(default_factory=dict)
    logs: tuple[Log, ...] = ()
    states: tuple[StateSeen, ...] = ()
    probe: WriteProbe | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    owned: frozenset[int] = frozenset()
    members: int = 0
    refusals: tuple[Refusal, ...] = ()
    machine: Machine = Machine()

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(topic.name for topic in self.app.inputs) if self.app else ()

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(topic.name for topic in self.app.outputs) if self.app else ()

    @property
    def own(self) -> tuple[str, ...]:
        """Increments, snapshots, and dead letters where the policy writes them."""
        return own_topics(self.app, self.settings) if self.app else ()

    @property
    def by_replay(self) -> bool:
        """Whether only the input can bring a snapshot forward."""
        if self.app is None:
            return False
        return not (self.settings.changelog.enabled and self.is_map)

    @property
    def is_map(self) -> bool:
        """Whether its batches can record their changes."""
        return self.app is not None and store_of(self.app.state()).keeps_changes

    @property
    def app_name(self) -> str:
        """As a command takes it."""
        return app_name(self.app) if self.app is not None else MODULE

    def existing(self, *names: str) -> Iterator[TopicFacts]:
        """Of these topics, those that were found."""
        return (self.topics[name] for name in names if name in self.topics)

    def alter(self, topic: str, setting: str) -> str:
        """The command that sets `name=value` on a topic."""
        return f"`{alter(topic, setting, ','.join(self.settings.bootstrap_servers))}`"

    def replicate(self, topic: str, wanted: int) -> str:
        """The command that gives each partition so many replicas; those that it has stay, in their order."""
        nodes = sorted(broker.node_id for broker in self.brokers)
        partitions = [
            {
                "topic": topic,
                "partition": partition.partition,
                "replicas": _more(seen.replicas, nodes, wanted, partition.partition),
            }
            for partition, seen in sorted(self.replicas.items())
            if partition.topic == topic
        ]
        plan = json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))
        return (
            f"`kafka-reassign-partitions.sh {self.to_cluster} --execute --reassignment-json-file /dev/stdin"
            f" <<< '{plan}'`"
        )

    @property
    def to_cluster(self) -> str:
        """The option with which Kafka's own tools reach this cluster, also while one of its brokers is away."""
        return f"--bootstrap-server {','.join(self.settings.bootstrap_servers)}"


def _more(replicas: tuple[int, ...], nodes: list[int], wanted: int, first: int) -> list[int]:
    """Each partition begins with another one of the others, so that they share the load."""
    at = first % len(nodes)
    return list(dict.fromkeys((*replicas, *nodes[at:], *nodes[:at])))[:wanted]
