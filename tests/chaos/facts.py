"""The cluster's word on itself, by confluent-kafka: who leads what, who coordinates, where logs end."""

from collections.abc import Sequence

from confluent_kafka.admin import AdminClient

from snapreplay.app import names

ANSWER_S = 10.0
TRANSACTIONS = "__transaction_state"


class Facts:
    """Asks afresh each time. Raises KafkaException when no broker answers in 10 s."""

    def __init__(self, bootstrap_servers: str, app_id: str) -> None:
        self._app_id = app_id
        self._servers = bootstrap_servers
        self.admin = self._client()

    def leader(self, topic: str, partition: int) -> int:
        return self.replicas(topic)[partition][0]

    def replicas(self, topic: str) -> list[tuple[int, list[int]]]:
        """Return per partition (leader, replicas in order of preference), node ids."""
        found = self.admin.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions
        return [(found[number].leader, list(found[number].replicas)) for number in sorted(found)]

    def preferred(self, topic: str) -> dict[int, list[int]]:
        """Partition → its replicas, the preferred leader first."""
        return {number: nodes for number, (_, nodes) in enumerate(self.replicas(topic))}

    def in_sync(self, topics: Sequence[str]) -> bool:
        found = self.admin.list_topics(timeout=ANSWER_S).topics
        partitions = [each for topic in topics for each in found[topic].partitions.values()]
        return all(len(each.isrs) == len(each.replicas) for each in partitions)

    def coordinator(self, partition: int) -> int:
        """Node id of the broker that coordinates this partition's transactions; -1 when there is none."""
        leaders = self.replicas(TRANSACTIONS)
        number = java_hash(names.transactional_id(self._app_id, partition)) % len(leaders)
        return leaders[number][0]

    def _client(self) -> AdminClient:
        timeout_ms = int(ANSWER_S * 1000)
        return AdminClient({"bootstrap.servers": self._servers, "log_level": 0, "socket.timeout.ms": timeout_ms})


def java_hash(text: str) -> int:
    """String.hashCode without its sign bit, by which Kafka finds the coordinator of an id."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


ANSWER_S = 10.0
