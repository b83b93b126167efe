"""The truth, told by confluent-kafka and plain dicts: what is in the input, and what must therefore be in the
output and in the state. Shares no code with the service."""

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import Producer

from tests.checker.reading import Logs, Record
from tests.support.deadlines import scaled

READ_SECONDS = scaled(30.0)


Read = Record


def send(bootstrap_servers: str, topic: str, partitions: int, records: Iterable[tuple[Any, Any]]) -> None:
    """Write (key, value) pairs, values as JSON unless they are bytes or None, a null; a key's partition depends on the
    key alone.

    A key "2:k" goes to partition 2 with any hash.
    """
    sender(bootstrap_servers, topic, partitions)(records)


def sender(bootstrap_servers: str, topic: str, partitions: int) -> Callable[[Iterable[tuple[Any, Any]]], None]:
    """Return what writes as `send` does, by one client each time."""
    # Known before the first record, and `flush` does not wait for the linger time: what is small enough arrives as one
    # batch, or not at all. While a topic is looked up, some records of a batch can be sent before the others.
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 60_000})
    assert producer.list_topics(topic, READ_SECONDS).topics[topic].error is None

    def write(records: Iterable[tuple[Any, Any]]) -> None:
        failed: list[object] = []
        for key, value in records:
            raw_key = key if isinstance(key, bytes) else str(key).encode()
            raw_value = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(
                topic,
                key=raw_key,
                value=raw_value,
                partition=partition_of(raw_key, partitions),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(READ_SECONDS) == 0, "not all input was written"
        assert not failed, failed

    return write


def partition_of(key: bytes, partitions: int) -> int:
    told, colon, _ = key.partition(b":")
    return int(told) if colon else zlib.crc32(key) % partitions


def committed(bootstrap_servers: str, topic: str, partitions: int) -> list[list[Read]]:
    """All committed records of a topic, per partition in order, as far as the topic goes now.

    A commit is answered some milliseconds before its markers are written: what lies behind an open transaction is
    waited for.
    """
    with closing(Logs(bootstrap_servers)) as logs:
        places = [(topic, number, logs.bounds(topic, number)) for number in range(partitions)]
        return [[*logs.read(topic, n, bounds.start, bounds.high)] for topic, n, bounds in places]


def book(state: dict[str, dict[str, int]], key: str, amount: int) -> dict[str, int]:
    """The account of the ledger after this record."""
    account = state.setdefault(key, {"n": 0, "sum": 0})
    account["n"] += 1
    account["sum"] += amount
    return account


def balances(
    topic: str,
    inputs: list[list[Read]],
    rule: Callable[[Any, dict[str, int]], None],
    skipped: Callable[[Any], bool] = lambda _: False,
) -> tuple[list[list[tuple[str, Any]]], list[dict[str, dict[str, int]]]]:
    """The ledger by hand: per partition the outputs (key, value) in order, and the state."""
    outputs: list[list[tuple[str, Any]]] = []
    states: list[dict[str, dict[str, int]]] = []
    for partition, records in enumerate(inputs):
        state: dict[str, dict[str, int]] = {}
        sent = []
        for record in records:
            key, value = (record.key or b"").decode(), json.loads(record.value or b"null")
            if skipped(value):
                continue
            account = book(state, key, 0)
            rule(value, account)
            sent.append((key, {"id": f"{topic}-{partition}-{record.offset}", **account}))
        outputs.append(sent)
        states.append(state)
    return outputs, states


def booked(added: Iterable[int], subtracted: Iterable[int]) -> dict[str, dict[str, int]]:
    """The ledger by hand when of the payments that `Stage.feed` numbers these were added and those subtracted."""
    state: dict[str, dict[str, int]] = {}
    for sign, numbers in ((1, added), (-1, subtracted)):
        for n in numbers:
            book(state, f"k{n % 20}", sign * n)
    return state


def decoded(records: Iterable[Read]) -> list[tuple[str, Any]]:
    return [((r.key or b"").decode(), json.loads(r.value or b"null")) for r in records]


def ids(records: Iterable[Read]) -> list[str]:
    return [value["id"] for _, value in decoded(records)]


def as_plain(state: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: state[key] for key in state}


def merged(
    inputs: Mapping[str, list[Read]], outputs: list[Read], partition: int
) -> tuple[list[tuple[str, Any]], dict[str, int]]:
    """The pair by hand: the outputs that must follow from the order the outputs themselves tell, and the state.

    Fails when that order is not an interleaving of the inputs, each whole and in its own order.
    """
    told = ids(outputs)
    for topic, records in inputs.items():
        mine = [each for each in told if each.startswith(f"{topic}-")]
        assert mine == [f"{topic}-{partition}-{record.offset}" for record in records]
    values = {
        f"{topic}-{partition}-{record.offset}": ((record.key or b"").decode(), factor, record.value)
        for (topic, records), factor in zip(inputs.items(), (3, 5), strict=True)
        for record in records
    }
    state: dict[str, int] = {}
    expected = []
    for each in told:
        key, factor, value = values[each]
        state[key] = (state.get(key, 0) * factor + json.loads(value or b"")["amount"]) % 1_000_003
        expected.append((key, {"id": each, "value": state[key]}))
    return expected, state
