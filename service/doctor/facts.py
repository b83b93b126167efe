"""The facts that were found about a cluster and an app's topics. Pure: the checks turn it into
findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from snapreplay.app.app import App
from snapreplay.app.names import alter
from snapreplay.app.ways import MODULE, app_name, begin_with_savepoint
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.inspected import Broker, EndingTransaction, OpenTransaction, Replicas
from snapreplay.service.ports import TopicFacts, TopicPartition
from snapreplay.service.topics.requirements import is_broadcast, matched_inputs, matching, own_topics
from snapreplay.snapshots.format.records import Paused

TRANSACTION_TOPIC = "__transaction_state"


class Diagnosis(msgspec.Struct, frozen=True):
    """A finding; `check` names the check, `where` the topic, partition, broker or setting; `problem` has the
    values.

    Safe: `doctor` only reads, and disturbs no owner: run it at any time. A finding by itself stops nothing.
    """

    check: str
    where: str
    problem: str
    remedy: str


class Log(msgspec.Struct, frozen=True):
    """The log of one partition. `pinned_by` was seen twice, a second apart."""

    partition: TopicPartition
    start_offset: int
    last_stable_offset: int
    high_watermark: int
    pinned_by: OpenTransaction | None = None

    @property
    def held_back(self) -> int:
        """Offsets that a read_committed reader does not get yet."""
        return self.high_watermark - self.last_stable_offset


class StateSeen(msgspec.Struct, frozen=True):
    """The end of one state partition's chain.

    Attributes:
        batch: of the last increment; None: there is none.
        missing: why a recovery would fail now. With `snapshot_helps`, a snapshot by the owner mends that.
        unusable: why a recovery could not use the newest snapshot.
        timestamps_ms: per input of the next record to process, else of the last processed one, if there is one.
        topic_ids: of the inputs and both own topics, as the last increment records them, else the newest manifest.
        cluster_id: of the cluster that the chain began in; "" if that is not known.
        paused: as the last increment says.
    """

    partition: int
    batch: int | None
    missing: str | None = None
    snapshot_helps: bool = True
    unusable: str | None = None
    timestamps_ms: Mapping[str, int] = msgspec.field(default_factory=dict)
    topic_ids: Mapping[str, str] = msgspec.field(default_factory=dict)
    cluster_id: str = ""
    paused: Paused | None = None


class DoctorFacts(msgspec.Struct, frozen=True):
    """All facts that could be found out. Without an app there are no topics but Kafka's own.

    Attributes:
        refused: what this user may not do → the broker's reason: the app's group, transactional ids, topics to write
            to, and "idempotent writes".
        owned: partitions that the group has assigned to a process.
        stuck: partitions whose last transaction has been ending for more than a moment.
        members: number of processes in the group, including those without a partition.
        savepoints: the names of those of the app.
        keys: by input, the keys of some of its newest records, each with its partition; without null and empty ones,
            which any producer may put anywhere.
        refusals: what could not be examined, or is not allowed. The rest of the facts is silent about it.
    """

    settings: Settings
    now_ms: int
    brokers: tuple[Broker, ...]
    app: App[Any] | None = None
    broker_config: Mapping[str, str] = msgspec.field(default_factory=dict)
    cluster_id: str = ""
    topics: Mapping[str, TopicFacts] = msgspec.field(default_factory=dict)
    replicas: Mapping[TopicPartition, Replicas] = msgspec.field(default_factory=dict)
    logs: tuple[Log, ...] = ()
    states: tuple[StateSeen, ...] = ()
    refused: Mapping[str, str] = msgspec.field(default_factory=dict)
    owned: frozenset[int] = frozenset()
    stuck: Mapping[int, EndingTransaction] = msgspec.field(default_factory=dict)
    members: int = 0
    savepoints: tuple[str, ...] = ()
    keys: Mapping[str, Mapping[bytes, int]] = msgspec.field(default_factory=dict)
    refusals: tuple[Diagnosis, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Those that are declared, and those that match a pattern and can be inputs."""
        if self.app is None:
            return ()
        known = self.app, self.settings, self.topics, self.partition_count, self.recorded_inputs
        return (*self.app.input_names, *matched_inputs(*known))

    @property
    def input_topics(self) -> tuple[str, ...]:
        """The topics of the inputs; a broadcast table counts once."""
        broadcast = self.app.broadcast_names if self.app else ()
        return (*(name for name in self.inputs if not is_broadcast(name)), *broadcast)

    @property
    def partition_count(self) -> int:
        """The number of partitions of the app: of its increments topic, else of an input; -1: not known."""
        own = self.own[:1]
        declared = self.app.input_names if self.app else ()
        return next((each.partition_count for each in self.existing(*own, *declared)), -1)

    @property
    def recorded_inputs(self) -> tuple[str, ...]:
        """Those of topics that match a pattern and that the chain has taken in already."""
        recorded = {name for state in self.states for name in state.topic_ids}
        matched = matching(self.app, self.topics, recorded) if self.app else ()
        return tuple(name for name in matched if name in recorded)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(topic.name for topic in self.app.outputs) if self.app else ()

    @property
    def own(self) -> tuple[str, ...]:
        """The increments topic, the snapshots topic, internal topics, and the dead-letter topic if the policy writes to
        it."""
        return own_topics(self.app, self.settings) if self.app else ()

    @property
    def internal(self) -> tuple[str, ...]:
        return self.app.internal_names if self.app else ()

    @property
    def by_replay(self) -> bool:
        """Whether a snapshot can be brought forward only by replaying the input."""
        return self.app is not None and not self.settings.changelog.enabled

    @property
    def app_name(self) -> str:
        return app_name(self.app) if self.app is not None else MODULE

    def or_savepoint(self, *, own_are_gone: bool = False) -> str:
        """Say how the app begins again with a savepoint, behind another way; empty: it has none."""
        if self.app is None or not self.savepoints:
            return ""
        way = begin_with_savepoint(self.app_name, self.app.app_id, self.savepoints, own_are_gone=own_are_gone)
        return f"; or {way}"

    def existing(self, *names: str) -> Iterator[TopicFacts]:
        return (self.topics[name] for name in dict.fromkeys(names) if name in self.topics)

    def alter(self, topic: str, setting: str) -> str:
        return f"`{alter(topic, setting, ','.join(self.settings.bootstrap_servers))}`"

    @property
    def to_cluster(self) -> str:
        """The option with which Kafka's own tools reach this cluster, even while a broker is down."""
        return f"--bootstrap-server {','.join(self.settings.bootstrap_servers)}"


def partitions(numbers: list[int]) -> str:
    """Name them as a finding does."""
    return f"partition{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
