"""Windows, sessions, a table and a join on a real broker, killed again and again, against the same by hand."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from typing import Any, TypeVar

import pytest

from snapreplay import App
from snapreplay.testing import RealHarness
from tests.support import windows_by_hand
from tests.support.deadlines import scaled
from tests.support.stream_apps import (
    GAP_MS,
    GRACE_MS,
    SIZE_MS,
    Order,
    clicks,
    counted,
    customers,
    ended,
    late_clicks,
    named_orders,
    orders,
    shop,
    windowed,
)

pytestmark = pytest.mark.kafka
KILLS = 4
S = TypeVar("S")


def harness_of(app: App[S], broker: Any, unique: Any) -> RealHarness[S]:
    return RealHarness(app, broker, partitions=2, prefix=f"{unique('streams')}-", deadline_s=scaled(60))


async def test_windows_and_sessions_over_kills_are_those_by_hand(broker, unique):
    """Each partition has its own stream time. Nothing is lost, sent twice, or late that was not."""
    chance = random.Random(7)
    start_ms = int(time.time() * 1000) // SIZE_MS * SIZE_MS - 3_600_000
    events: dict[int, list[tuple[str, int]]] = defaultdict(list)
    async with harness_of(windowed, broker, unique) as harness:
        for number in range(160):
            key, at_ms = chance.choice("abcd"), start_ms + number * 2_000 - chance.choice([0, 0, 4_000, 40_000])
            fed = await harness.feed(
                clicks,
                key=key,
                value=len(events["abcd".index(key) % 2]),
                timestamp_ms=at_ms,
                partition="abcd".index(key) % 2,
            )
            events[fed.partition].append((key, at_ms))
            if number % (160 // KILLS) == 25:
                await harness.kill()
            elif number % (160 // KILLS) == 35:
                await harness.restart()
        for partition in events:  # closes everything before it
            await harness.feed(clicks, key="end", value=0, timestamp_ms=start_ms + 3_000_000, partition=partition)
        await harness.caught_up()
        sent = {topic.name: await harness.outputs(topic) for topic in (counted, ended, late_clicks)}
    for partition, given in events.items():
        for topic, (expected, late) in {
            counted: windows_by_hand.windows(given, SIZE_MS, SIZE_MS, GRACE_MS),
            ended: windows_by_hand.sessions(given, GAP_MS, GRACE_MS),
        }.items():
            found = [each for each in sent[topic.name] if each.partition == partition]
            assert sorted((each.key, *each.value[:2], tuple(sorted(each.value[2]))) for each in found) == expected
            assert {each.timestamp_ms - each.value[1] for each in found} == {GRACE_MS}, "the time of the timer"
            if topic is counted:
                assert late
                lates = [each for each in sent[late_clicks.name] if each.partition == partition]
                assert [each.value for each in lates] == late
                assert [each.timestamp_ms for each in lates] == [given[number][1] for number in late]


async def test_orders_meet_their_customers_over_kills(broker, unique):
    """By another key, through an internal topic: each order once, with the name that its customer has."""
    names = {f"c{n}": f"name {n}" for n in range(10)}
    expected = []
    async with harness_of(shop, broker, unique) as harness:
        for key, name in names.items():
            await harness.feed(customers, key=key, value=name)
        await harness.feed(customers, key="c9", value=None)
        del names["c9"]
        await harness.caught_up()
        for number in range(100):
            customer = f"c{number % 12}"
            await harness.feed(orders, key=f"o{number}", value=Order(customer, number))
            expected.append((customer, names.get(customer), number))
            if number % (100 // KILLS) == 10:
                await harness.kill()
            elif number % (100 // KILLS) == 20:
                await harness.restart()
        await harness.caught_up()
        await harness.caught_up()  # what the first wait has brought to the internal topic
        found = await harness.outputs(named_orders)
        states = {**(await harness.view(0)).customers, **(await harness.view(1)).customers}
    assert sorted((each.key, *each.value) for each in found) == sorted(expected, key=lambda each: (each[0], each[2]))
    assert states == names
