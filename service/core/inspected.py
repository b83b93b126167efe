"""The findings of an inspection of a cluster: brokers, transactions, topics that are not the expected ones (one that
was created again has the same name), and settings that the brokers refuse. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from snapreplay.app.names import place_of_input


class Broker(Struct, frozen=True):
    """A broker, with the `address` that the cluster advertises; `missing` names those of our requests that it does not
    understand."""

    node_id: int
    address: str
    reachable: bool = True
    missing: tuple[str, ...] = ()


class Replicas(Struct, frozen=True):
    """Node ids; `leader` -1: none."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class OpenTransaction(Struct, frozen=True):
    """The transaction that holds back the last stable offset of a partition, from `start_offset` on.

    `transactional_id` is None, and so are start and timeout, when no coordinator knows the transaction: it hangs.
    `last_record_at_ms` is the timestamp of the producer's last record there.
    """

    producer_id: int
    producer_epoch: int
    start_offset: int
    transactional_id: str | None = None
    started_at_ms: int | None = None
    timeout_ms: int | None = None
    last_record_at_ms: int | None = None


class EndingTransaction(Struct, frozen=True):
    """The end of a transaction is decided, and not all its partitions have it. `state` in Kafka's words."""

    state: str
    producer_epoch: int
    started_at_ms: int


class TopicChange(NamedTuple):
    """A topic that is another one than expected; `found_id` is None when there is no topic of this name."""

    topic: str
    recorded_id: str
    found_id: str | None

    def __str__(self) -> str:
        topic, _ = place_of_input(self.topic, 0)
        if self.found_id is None:
            return f"topic {topic} no longer exists (its id was {self.recorded_id})"
        return f"topic {topic} was deleted and created again: its id was {self.recorded_id}, now it is {self.found_id}"


def changes(topics: Iterable[str], recorded: Mapping[str, str], found: Mapping[str, str]) -> tuple[TopicChange, ...]:
    """Return the topics that have another id than recorded, or are missing. Without ids nothing is known to have
    changed."""
    return tuple(
        TopicChange(topic, recorded[topic], found.get(topic))
        for topic in topics
        if recorded.get(topic) and found.get(topic) not in (recorded[topic], "")
    )


DEFAULT_TRANSACTION_TIMEOUT_MAX_MS = 900_000  # Kafka's default of transaction.max.timeout.ms
SESSION_MIN, SESSION_MAX = "group.min.session.timeout.ms", "group.max.session.timeout.ms"


class BeyondLimit(NamedTuple):
    """A setting of this process that the brokers refuse."""

    setting: str
    problem: str
    remedy: str


def transaction_timeout_max_ms(broker_config: Mapping[str, str]) -> int:
    return int(broker_config.get("transaction.max.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MAX_MS))


def transaction_timeout(wanted_ms: int, broker_config: Mapping[str, str]) -> BeyondLimit | None:
    """Compare `timeouts.transaction_ms` with what the coordinators accept."""
    limit_ms = transaction_timeout_max_ms(broker_config)
    if wanted_ms <= limit_ms:
        return None
    return BeyondLimit(
        "timeouts.transaction_ms",
        f"timeouts.transaction_ms={wanted_ms} is above the brokers' transaction.max.timeout.ms={limit_ms}: no producer"
        " can start",
        f"`--set timeouts.transaction_ms={limit_ms} --set timeouts.commit_ms={limit_ms // 2}`; or raise"
        " transaction.max.timeout.ms on every broker",
    )


def session_timeout(wanted_ms: int, broker_config: Mapping[str, str]) -> BeyondLimit | None:
    """Compare `group.session_timeout_ms` with what the coordinators accept."""
    for name, verb, beyond, sign in ((SESSION_MIN, "lower", "below", 1), (SESSION_MAX, "raise", "above", -1)):
        limit_ms = int(broker_config.get(name, wanted_ms))
        if sign * wanted_ms < sign * limit_ms:
            return BeyondLimit(
                "group.session_timeout_ms",
                f"group.session_timeout_ms={wanted_ms} is {beyond} the brokers' {name}={limit_ms}: no process can join"
                " the app's group",
                f"`--set group.session_timeout_ms={limit_ms}`; or {verb} {name} on every broker",
            )
    return None
