"""Facts of a cluster and an app where nothing is the matter: tests change one of them."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from snapreplay.service.config.settings import Settings
from snapreplay.service.core.inspected import Broker, Replicas
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC, Diagnosis, DoctorFacts, Log, StateSeen
from snapreplay.service.ports import ClusterFacts, NewTopic, TopicFacts, TopicPartition
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from tests.support import apps

NOW_MS = 1_800_000_000_000
WEEK_MS = 7 * 24 * 3_600_000
IO_CONFIG = {"cleanup.policy": "delete", "retention.ms": str(WEEK_MS)}
COMMON = {
    "min.insync.replicas": "2",
    "max.message.bytes": "1048588",
    "unclean.leader.election.enable": "false",
    "message.timestamp.type": "CreateTime",
}
STATE = StateSeen(0, 41, timestamps_ms={"payments-x": NOW_MS - 1000})


def facts(**changed: Any) -> DoctorFacts:
    """Three brokers; the app `x` reads payments-x and writes balances-x, two partitions each."""
    settings = changed.pop("settings", {})
    app = apps.ledger("x")
    given = Settings(kafka={"bootstrap.servers": "k1:9092,k2:9092"}, **settings)
    empty = DoctorFacts(given, NOW_MS, (), app)
    topics = {name: topic(name) for name in (*empty.inputs, *empty.outputs)}
    topics |= {name: topic(name, **KEPT_FOR_EVER) for name in empty.own}
    topics[TRANSACTION_TOPIC] = topic(TRANSACTION_TOPIC, partition_count=50)
    partitions = [TopicPartition(name, number) for name in topics for number in (0, 1)]
    healthy: dict[str, Any] = {
        "brokers": tuple(Broker(n, f"k{n}:9092") for n in (1, 2, 3)),
        "broker_config": {"transaction.max.timeout.ms": "900000"},
        "topics": topics,
        "replicas": dict.fromkeys(partitions, Replicas(1, (1, 2, 3), (1, 2, 3))),
        "logs": tuple(Log(partition, 0, 100, 100) for partition in partitions),
        "states": (STATE, replace(STATE, partition=1)),
    }
    return replace(empty, **{**healthy, **changed})


def topic(name: str, **changed: Any) -> TopicFacts:
    """Describe a topic partitioned twice, replicated three times; dotted names in `changed` are configuration."""
    config = {**COMMON, **IO_CONFIG, **{k: v for k, v in changed.items() if "." in k}}
    fields = {k: v for k, v in changed.items() if "." not in k}
    return msgspec.structs.replace(TopicFacts(name, 2, 3, config), **fields)


def with_topic(name: str, **changed: Any) -> DoctorFacts:
    before = facts()
    was = before.topics[name]
    fields = {k: v for k, v in changed.items() if "." not in k}
    config = was.config | {k: v for k, v in changed.items() if "." in k}
    return facts(topics={**before.topics, name: msgspec.structs.replace(was, config=config, **fields)})


def without_topic(*names: str) -> DoctorFacts:
    return facts(topics={n: t for n, t in facts().topics.items() if n not in names})


def only(check: Callable[[DoctorFacts], Iterator[Diagnosis]], seen: DoctorFacts) -> Diagnosis:
    """The one finding of a check, which has none where nothing is the matter."""
    assert not list(check(facts())), "the healthy cluster has a finding"
    (finding,) = check(seen)
    assert finding.remedy
    return finding


class Topics:
    """A cluster in memory, as far as the checks at a start ask it. `known`: the topics by name; `members`: how many
    processes of the app there are."""

    def __init__(self, known: Iterable[TopicFacts] = ()) -> None:
        self.known = {each.name: each for each in known}
        self.members = 0

    async def topics(self, names: Iterable[str], optional: Collection[str] = ()) -> dict[str, TopicFacts]:
        return {name: self.known[name] for name in (*names, *optional) if name in self.known}

    async def topic_names(self) -> list[str]:
        return sorted(self.known)

    async def create_topics(self, topics: Iterable[NewTopic]) -> None:
        for new in topics:
            assert new.name not in self.known
            self.known[new.name] = topic(new.name, partition_count=new.partition_count, **new.config)

    async def facts(self) -> ClusterFacts:
        return ClusterFacts("cluster-1", {"transaction.max.timeout.ms": "900000"})

    async def member_count(self, group_id: str) -> int:
        return self.members


def healthy_topics(*without: str, **changed: dict[str, Any]) -> Any:
    """Those of the app `x` (see `facts`), but for some; Any: a `Cluster` for who asks no more of it. `changed`:
    by part of the name, as `inputs={"cleanup.policy": "compact"}`."""
    names = {"inputs": "payments-x", "outputs": "balances-x", "increments": "x-increments", "snapshots": "x-snapshots"}
    cluster = Topics(facts().topics.values())
    for part, config in changed.items():
        cluster.known[names[part]] = with_topic(names[part], **config).topics[names[part]]
    for part in without:
        del cluster.known[names[part]]
    return cluster
