"""A cluster of topics in memory, as far as the checks at a start ask it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snapreplay.service.ports import ClusterFacts, NewTopic, TopicFacts
from tests.support import healthy


class Topics:
    """`known`: the topics by name; `members`: how many processes of the app there are."""

    def __init__(self, known: Iterable[TopicFacts] = ()) -> None:
        self.known = {facts.name: facts for facts in known}
        self.members = 0

    async def topics(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        return {name: self.known[name] for name in names if name in self.known}

    async def topic_names(self) -> list[str]:
        return sorted(self.known)

    async def create_topics(self, topics: Iterable[NewTopic]) -> None:
        for new in topics:
            assert new.name not in self.known
            self.known[new.name] = healthy.topic(
                new.name, partition_count=new.partition_count, **new.config
            )

    async def facts(self) -> ClusterFacts:
        return ClusterFacts("cluster-1", {"transaction.max.timeout.ms": "900000"})

    async def member_count(self, group_id: str) -> int:
        return self.members


def healthy_topics(*without: str, **changed: dict[str, Any]) -> Any:
    """Those of the app `x` (see `healthy.facts`), but for some; Any: a `Cluster` for who asks no more of it. `changed`:
    by part of the name, as `inputs={"cleanup.policy": "compact"}`."""
    names = {
        "inputs": "payments-x",
        "outputs": "balances-x",
        "increments": "x-increments",
        "snapshots": "x-snapshots",
    }
    cluster = Topics(healthy.facts().topics.values())
    for part, config in changed.items():
        cluster.known[names[part]] = healthy.with_topic(names[part], **config).topics[names[part]]
    for part in without:
        del cluster.known[names[part]]
    return cluster
