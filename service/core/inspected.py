"""The findings of an inspection of a cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Broker:
    """A broker, with the `address` that the cluster advertises; `missing` names the requests of ours that it does not
    understand."""

    node_id: int
    address: str
    reachable: bool = True
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replicas:
    """Node ids; `leader` -1: nobody."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class OpenTransaction:
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


@dataclass(frozen=True)
class EndingTransaction:
    """The end of a transaction is decided, and not all its partitions have it. `state` in Kafka's words."""

    state: str
    producer_epoch: int
    started_at_ms: int
