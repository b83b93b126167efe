"""What everything about one partition needs to know; made once per ownership, never changed."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from snapreplay.service.clock import wall_ms
from snapreplay.service.core.stops import Expected
from snapreplay.service.metrics import PartitionMetrics
from snapreplay.service.ports import Cluster, Group, TopicPartition
from snapreplay.service.settings import Settings
from snapreplay.snapshots.format.records import Origin
from snapreplay.snapshots.program import names
from snapreplay.snapshots.program.app import App, fingerprint


@dataclass(frozen=True)
class Identity:
    """This process, as its claims name it. `process_id` is random per start."""

    process_id: str
    instance_id: str
    host: str
    pid: int
    started_at_ms: int

    @classmethod
    def of_this_process(cls, instance_id: str) -> Identity:
        return cls(uuid.uuid4().hex, instance_id, socket.gethostname(), os.getpid(), wall_ms())


@dataclass(frozen=True)
class ClusterView:
    """What preflight found: `output_limits` maps output topics to the largest record they take, in bytes;
    `transaction_timeout_max_ms` is the longest any transaction of this cluster may stay open; `input_retention_ms` is
    the shortest of the inputs, None when none is deleted by time."""

    cluster_id: str
    partition_count: int
    output_limits: Mapping[str, int]
    transaction_timeout_max_ms: int
    input_retention_ms: int | None = None


@dataclass(frozen=True)
class Context:
    """One owned partition. `restores` limits how many partitions load state at once in this process; without a `group`
    there is no coordinator to ask and the log alone says who owns the partition."""

    app: App[Any]
    settings: Settings
    cluster: Cluster
    view: ClusterView
    identity: Identity
    partition: int
    restores: asyncio.Semaphore
    group: Group | None = None

    @cached_property
    def metrics(self) -> PartitionMetrics:
        return PartitionMetrics(self.app.app_id, self.partition)

    @property
    def increments(self) -> TopicPartition:
        return TopicPartition(names.increments_topic(self.app.app_id), self.partition)

    @property
    def snapshots(self) -> TopicPartition:
        return TopicPartition(names.snapshots_topic(self.app.app_id), self.partition)

    @property
    def transactional_id(self) -> str:
        return names.transactional_id(self.app.app_id, self.partition)

    @property
    def origin(self) -> Origin:
        return Origin(self.app.app_id, self.app.version, fingerprint())

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(topic.name for topic in self.app.inputs)

    @property
    def expected(self) -> Expected:
        return Expected(
            app_id=self.app.app_id,
            cluster_id=self.view.cluster_id,
            partition=self.partition,
            partition_count=self.view.partition_count,
            inputs=frozenset(self.input_names),
            increments_topic=self.increments.topic,
            instance_id=self.identity.instance_id,
            process_id=self.identity.process_id,
            started_at_ms=self.identity.started_at_ms,
        )
