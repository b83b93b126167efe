"""The object that the service holds."""

from snapreplay.service.kafka import cluster as module
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import Cluster


def the_ports_are_implemented(cluster: KafkaCluster) -> Cluster:
    """Let mypy check, without running, that the ports are implemented: every method has the signature of its port."""
    return cluster


async def test_limits_are_asked_for_once_and_again_when_they_are_old(cluster, new_topic, monkeypatch):
    """A restart of many partitions must not ask the cluster for each of them."""
    first, second = await new_topic(1, max_message_bytes="5000"), await new_topic()
    asked = []
    topics = cluster.topics

    async def counted(names):
        asked.append(set(names))
        return await topics(names)

    monkeypatch.setattr(cluster, "topics", counted)
    assert (await cluster.limits_of([first, second]))[first] == 5000
    await cluster.limits_of([second])
    assert asked == [{first, second}]
    monkeypatch.setattr(module, "LIMITS_AGE_S", -1.0)
    await cluster.limits_of([second])
    assert asked[1:] == [{second}]
