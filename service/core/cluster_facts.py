"""The facts of a cluster and of its topics, as its brokers describe them."""

from __future__ import annotations

import msgspec

from snapreplay.errors import SnapreplayError


class TopicFacts(msgspec.Struct, frozen=True):
    """The facts of a topic, as described by the cluster.

    `config` holds cleanup.policy, retention.ms, retention.bytes, max.message.bytes, min.insync.replicas,
    unclean.leader.election.enable, message.timestamp.type as strings. `topic_id` (KIP-516) as Kafka's tools write it;
    a topic that is created again gets another one; "" when the cluster has none. `denied` says what this user may not
    do with an optional topic, which then has no config.
    """

    name: str
    partition_count: int
    replication_factor: int
    config: dict[str, str]
    topic_id: str = ""
    denied: SnapreplayError | None = None


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create; replication_factor -1 = the cluster's default."""

    name: str
    partition_count: int
    replication_factor: int = -1
    config: dict[str, str] = {}


class ClusterFacts(msgspec.Struct, frozen=True):
    """The facts of a cluster; `broker_config` of any one broker, as strings: transaction.max.timeout.ms, ..."""

    cluster_id: str
    broker_config: dict[str, str]
