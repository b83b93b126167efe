"""Tests that inputs whose producers hash keys differently are named, with a key as proof."""

import asyncio
import zlib
from typing import Any

import pytest
from confluent_kafka import Producer

from snapreplay.app.app import App
from snapreplay.app.topic import Topic
from snapreplay.service.core.partitioners import HASHES, murmur_positive
from snapreplay.service.doctor.checks import KEYS_MIN, keyed_alike
from snapreplay.service.doctor.collect import examine
from snapreplay.service.ports import NewTopic
from tests.support import apps
from tests.support.healthy import facts, topic
from tests.support.stage import Stage

COUNT = 6
NAMES = [f"c{number}".encode() for number in range(60)]


def java(key: bytes) -> int:
    return murmur_positive(key) % COUNT


def librdkafka(key: bytes) -> int:
    return zlib.crc32(key) % COUNT


def nowhere(key: bytes) -> int:
    return len(key) * 7 % COUNT


def placed(hash_of: Any, keys: list[bytes] = NAMES) -> dict[bytes, int]:
    return {key: hash_of(key) for key in keys}


OTHERS = [f"o{number}".encode() for number in range(60)]
APART = [key for key in NAMES if java(key) != librdkafka(key)]
GROWN = placed(java) | dict.fromkeys(NAMES[:3], 5)


@pytest.mark.parametrize(
    ("left", "right", "named"),
    [
        (placed(java), placed(librdkafka), ["b"]),
        (placed(java), placed(librdkafka, OTHERS), ["b"]),
        (placed(java), placed(nowhere, OTHERS), ["b"]),
        (placed(java), placed(java, OTHERS), []),
        (placed(librdkafka), placed(librdkafka), []),
        (placed(librdkafka), {key: HASHES["fnv1a"].partition(key, COUNT) for key in OTHERS}, ["a", "b"]),
        (placed(nowhere), placed(nowhere), []),
        (placed(nowhere), {key: (nowhere(key) + 1) % COUNT for key in NAMES}, ["a", "b"]),
        (GROWN, placed(java, OTHERS), []),
        (placed(java), placed(librdkafka, OTHERS[: KEYS_MIN - 1]), []),
        (placed(java), placed(librdkafka, APART[:5]), ["b"]),
        (placed(java), {}, []),
        (placed(nowhere), {}, []),
    ],
)
def test_inputs_that_are_hashed_differently_are_named(left, right, named):
    """With common keys or without; not if all are hashed alike, with any hash, nor if too little is known."""
    app: App[Any] = App("x", inputs=[Topic("a"), Topic("b")], state=apps.accounts)
    topics = {name: topic(name, partition_count=COUNT) for name in ("a", "b")}
    found = list(keyed_alike(facts(app=app, topics=topics, keys={"a": left, "b": right})))
    assert [each.where for each in found] == named


@pytest.mark.parametrize(
    ("orders", "customers", "named"),
    [
        (placed(librdkafka, OTHERS), placed(java), []),
        (placed(librdkafka, OTHERS), placed(librdkafka), ["b"]),
        (placed(nowhere, OTHERS), {}, []),
    ],
)
def test_with_an_internal_topic_only_inputs_of_its_keys_are_named(orders, customers, named):
    """Orders that get another key in it may lie anywhere; customers that are joined with it may not."""
    app: App[Any] = App("x", inputs=[Topic("a"), Topic("b")], state=apps.accounts)
    by_customer = app.topic("by-customer").name
    keys = {"a": orders, "b": customers, by_customer: placed(java)}
    topics = {name: topic(name, partition_count=COUNT) for name in keys}
    found = list(keyed_alike(facts(app=app, topics=topics, keys=keys)))
    assert [each.where for each in found] == named


def test_a_producer_that_does_not_partition_as_declared_is_named():
    """Also of a single input, by one key; it is named once."""
    app: App[Any] = App(
        "x", inputs=[Topic("a", partitioner="murmur2"), Topic("b", partitioner="crc32")], state=apps.accounts
    )
    topics = {name: topic(name, partition_count=COUNT) for name in ("a", "b")}
    wrong = {APART[0]: librdkafka(APART[0])}
    keys = {"a": placed(java, OTHERS) | wrong, "b": placed(librdkafka)}
    (found,) = [each for each in keyed_alike(facts(app=app, topics=topics, keys=keys)) if each.where == "a"]
    assert f"key {APART[0].decode()!r} is in partition {librdkafka(APART[0])}, as crc32 does" in found.problem
    assert "1 of 61 keys" in found.problem


def test_a_finding_has_a_key_as_proof():
    """One that both inputs have, with both partitions; else where murmur2 would put it. Bytes are shown as such."""
    app: App[Any] = App("x", inputs=[Topic("a"), Topic("b")], state=apps.accounts)
    topics = {name: topic(name, partition_count=COUNT) for name in ("a", "b")}

    def problem(right: dict[bytes, int]) -> str:
        (found,) = keyed_alike(facts(app=app, topics=topics, keys={"a": placed(java), "b": right}))
        return found.problem

    apart = min(key for key in NAMES if java(key) != librdkafka(key))
    both = f"key {apart.decode()!r} is in partition {librdkafka(apart)}, but in partition {java(apart)} of a"
    assert both in problem(placed(librdkafka))
    assert "librdkafka unless configured otherwise does (crc32)" in problem(placed(librdkafka))
    odd = [bytes((255, number)) for number in range(60)]
    first = min(key for key in odd if java(key) != librdkafka(key))
    told = f"key {first!r} is in partition {librdkafka(first)}, but murmur2 gives partition {java(first)}; "
    assert told in problem(placed(librdkafka, odd))


async def test_what_librdkafka_sends_differs_from_what_java_sends(broker, unique):
    """Real records; null and empty keys are no proof. The remedy: with another partitioner, into another topic."""
    name = unique("keys")
    topics = {each: Topic(f"{name}-{each}") for each in ("customers", "orders", "again")}

    def send(each: str, keys: list[bytes | None], **config: Any) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **config})
        for key in keys:
            producer.produce(topics[each].name, key=key, value=b"{}")
        assert producer.flush(30) == 0

    def app_of(*inputs: str) -> Stage:
        app: App[Any] = App(name, inputs=[topics[each] for each in inputs], state=apps.accounts)
        for each in inputs:
            app.handler(topics[each])(lambda *_: None)
        return Stage(broker.bootstrap_servers, app, COUNT)

    async def found(*inputs: str) -> dict[str, str]:
        stage = app_of(*inputs)
        report = await examine(stage.app, stage.settings())
        return {each.where: each.problem for each in report.findings if each.check == "keys"}

    stage = app_of("customers", "orders")
    await stage.cluster.create_topics([NewTopic(each.name, COUNT) for each in topics.values()])
    as_java = {"partitioner": "murmur2_random"}
    await asyncio.to_thread(send, "customers", [*NAMES, *[b""] * 20, *[None] * 20], **as_java)
    await asyncio.to_thread(send, "orders", [b""] * 50 + [None] * 50)
    assert await found("customers", "orders") == {}
    await asyncio.to_thread(send, "orders", list(NAMES))
    assert list(await found("customers", "orders")) == [topics["orders"].name]
    assert await found("orders") == {}
    await asyncio.to_thread(send, "again", list(NAMES), **as_java)
    assert await found("customers", "again") == {}
