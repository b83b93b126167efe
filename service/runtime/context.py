"""The facts that all code of one partition needs; made once per ownership, never changed."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from snapreplay.app import names
from snapreplay.app.app import App, fingerprint
from snapreplay.app.ways import app_name
from snapreplay.service.clock import SteadyClock, wall_ms
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.counters import PartitionMetrics
from snapreplay.service.core.refusals import Expected, recorded_in
from snapreplay.service.ports import Cluster, ConsumerGroup, TopicPartition
from snapreplay.service.runtime.broadcasting import as_seen_by, broadcasting
from snapreplay.service.runtime.circuits import Circuits
from snapreplay.service.runtime.pulse import Pulse
from snapreplay.service.runtime.rates import MeasuredRates
from snapreplay.service.runtime.tasks import StartTurns
from snapreplay.service.runtime.witnesses import Witnesses
from snapreplay.snapshots.format.records import Increment, Origin
from snapreplay.state.recorded import Recorded

if TYPE_CHECKING:
    from snapreplay.service.runtime.spans import Spans


class Identity(Struct, frozen=True):
    """This process, as its claims name it. `process_id` is random per start, and so is an instance id that is
    not set, so that two processes on one host differ."""

    process_id: str
    instance_id: str
    host: str
    pid: int
    started_at_ms: int

    @classmethod
    def of_this_process(cls, instance_id: str) -> Identity:
        """Take the setting `instance_id`; if it is empty, host name and process id make one."""
        process_id, host = uuid.uuid4().hex, socket.gethostname()
        named = instance_id or f"{host}-{process_id[:8]}"
        return cls(process_id, named, host, os.getpid(), wall_ms())


class ClusterView(Struct, frozen=True):
    """The findings of preflight: `output_limits` maps output topics to the largest record they take, in bytes;
    `transaction_timeout_max_ms` is the longest any transaction of this cluster may stay open; `input_retention_ms`
    is the shortest of the inputs, None if no record is deleted by time; `topic_ids` are those of the inputs and of
    both own topics, without those that the cluster has no id for; `matched` are
    the topics that match a pattern of the app's inputs, sorted, and can be inputs; `misfits` says of each other one why
    it is not read; `left_out` maps own topics of other apps, which match a pattern, to such a sentence."""

    cluster_id: str
    partition_count: int
    output_limits: Mapping[str, int]
    transaction_timeout_max_ms: int
    input_retention_ms: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    matched: tuple[str, ...] = ()
    misfits: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def not_read(self) -> tuple[str, ...]:
        """A sentence for each topic that matches a pattern and is not read."""
        return (*self.misfits, *self.left_out.values())


class Context(Struct, frozen=True, dict=True):
    """One owned partition. `restores` limits how many partitions load state at once in this process. Without a `group`
    there is no coordinator to ask, and only the log says who owns the partition. `pulse` reports standstills.
    `witnesses` hears of each commit. `turns` limits how many begin to recover at once.
    `neighbours` counts the partitions of this process. `circuits` limit its calls to the outside.
    `rates` are those of its restores. `spare_state` lets one task at a time hold a second copy of a state in this
    process."""

    app: App[Any]
    settings: Settings
    cluster: Cluster
    view: ClusterView
    identity: Identity
    partition: int
    restores: asyncio.Semaphore
    group: ConsumerGroup | None = None
    pulse: Pulse = field(default_factory=Pulse)
    witnesses: Witnesses = field(default_factory=Witnesses)
    turns: StartTurns = field(default_factory=StartTurns)
    neighbours: Callable[[], int] = lambda: 1
    circuits: Circuits = field(default_factory=Circuits)
    rates: MeasuredRates = field(default_factory=MeasuredRates)
    spare_state: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    clock: SteadyClock = field(default_factory=SteadyClock)

    def __post_init__(self) -> None:
        force_setattr(self, "cluster", as_seen_by(self.app, self.cluster))

    @cached_property
    def metrics(self) -> PartitionMetrics:
        return PartitionMetrics(self.app.app_id, self.partition)

    @cached_property
    def spans(self) -> Spans | None:
        """The maker of its spans; None: they are off."""
        if self.settings.tracing != "spans":
            return None
        from snapreplay.service.runtime.spans import Spans  # noqa: PLC0415 - an extra

        return Spans(self.app.app_id, self.partition)

    @cached_property
    def increments(self) -> TopicPartition:
        return TopicPartition(names.increments_topic(self.app.app_id), self.partition)

    @cached_property
    def snapshots(self) -> TopicPartition:
        return TopicPartition(names.snapshots_topic(self.app.app_id), self.partition)

    @property
    def transactional_id(self) -> str:
        return names.transactional_id(self.app.app_id, self.partition)

    @property
    def origin(self) -> Origin:
        return Origin(self.app.app_id, self.app.version, self.app.schema_version, fingerprint())

    def recorded_after(self, last: Increment) -> Recorded:
        """Return what the increment behind this one records of the values."""
        return recorded_in(last).after(self.app.stored_fields)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs of a partition that begins now; one that runs may not have all of them yet."""
        return (*self.app.input_names, *self.view.matched)

    @property
    def expected(self) -> Expected:
        return Expected(
            app_id=self.app.app_id,
            schema_version=self.app.schema_version,
            cluster_id=self.view.cluster_id,
            partition=self.partition,
            partition_count=self.view.partition_count,
            inputs=frozenset(self.app.input_names).difference(self.app.internal_names),
            increments_topic=self.increments.topic,
            instance_id=self.identity.instance_id,
            process_id=self.identity.process_id,
            started_at_ms=self.identity.started_at_ms,
            app=partial(app_name, self.app),
            fields=self.app.stored_fields,
            upgrades=self.app.upgraded_fields,
            patterns=self.app.patterns,
            internal=frozenset(self.app.internal_names),
        )


def contexts_of(
    app: App[Any], settings: Settings, cluster: Cluster, view: ClusterView, command: str = ""
) -> list[Context]:
    """Make the context of every partition, in order; never empty. `command`: the instance id of one, in its claims."""
    identity = Identity.of_this_process(command or settings.instance_id)
    seen = broadcasting(cluster)  # also of tables that the app does not declare any more
    return [
        Context(app, settings, seen, view, identity, number, asyncio.Semaphore(1))
        for number in range(view.partition_count)
    ]
