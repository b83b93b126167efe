"""Names in Kafka, derived from the app id and never configurable: two owners must use the same name; and Kafka's own
command, as hints print it. Pure."""

from __future__ import annotations

OWN_SUFFIXES = ("increments", "snapshots", "status", "control", "dead-letters")
"""No input or output of an app may be named `<app_id>-` plus one of these. Status and control are
reserved; nothing writes them yet."""

SAVEPOINT = "-savepoint-"
"""Stands between the app id and the name of a savepoint. No app id, input or output may look like one."""


INTERNAL = "-internal-"
"""Stands between the app id and the name of an internal topic. No input or output of an app may look like one."""


BROADCAST = "/"
"""Stands between topic and partition in the name of an input of a broadcast table, "rates/2". No topic has it."""


def broadcast_input(topic: str, partition: int) -> str:
    """Name the input that a partition of a broadcast table's topic is, for every partition of the app."""
    return f"{topic}{BROADCAST}{partition}"


def place_of_input(name: str, partition: int) -> tuple[str, int]:
    """Return the topic, and its partition, that this input is in a partition of the app."""
    topic, slash, number = name.partition(BROADCAST)
    return (topic, int(number)) if slash else (name, partition)


def increments_topic(app_id: str) -> str:
    """Name T-ZengLiang."""
    return f"{app_id}-increments"


def snapshots_topic(app_id: str) -> str:
    """Name T-QuanLiang."""
    return f"{app_id}-snapshots"


def own_pair(app_id: str) -> tuple[str, str]:
    """Name both topics that hold the state: the increments topic, then the snapshots topic."""
    return increments_topic(app_id), snapshots_topic(app_id)


def dead_letters_topic(app_id: str) -> str:
    return f"{app_id}-dead-letters"


def internal_topic(app_id: str, name: str) -> str:
    """Name an internal topic, an output of the app that is its input."""
    return f"{app_id}{INTERNAL}{name}"


def is_internal_topic(app_id: str, topic: str) -> bool:
    """Say whether a topic has the name of an internal topic of this app. An own topic of an app with a longer id, such
    as `<app_id>-internal-x-increments`, has none."""
    name = topic.removeprefix(f"{app_id}{INTERNAL}")
    return (
        name != topic and INTERNAL not in f"-{name}-" and not name.endswith(tuple(f"-{each}" for each in OWN_SUFFIXES))
    )


def savepoint_id(app_id: str, name: str) -> str:
    """Name the app id that a savepoint has: its topics are those of this id. No app can be declared with one."""
    return f"{app_id}{SAVEPOINT}{name}"


def witness_group(app_id: str) -> str:
    """Name the consumer group whose committed offsets say how far the increments topic was committed. It has no
    members."""
    return f"{app_id}-witness"


def transactional_id(app_id: str, partition: int) -> str:
    """Make the id of app id and partition only, so that each owner of the partition fences all earlier ones."""
    return f"{app_id}-{partition}"


def alter(topic: str, config: str, servers: str = "HOST:PORT") -> str:
    return f"kafka-configs.sh --bootstrap-server {servers} --alter --topic {topic} --add-config {config}"
