"""inventory.py against the fold by hand; on a real broker, killed again and again."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
import pytest

from examples.inventory import (
    HOLD_MS,
    Cancel,
    Command,
    Confirm,
    Event,
    Inventory,
    Query,
    Receive,
    Reserve,
    app,
    commands,
    events,
)
from snapreplay.testing import Harness, check, record
from tests.examples.inventory_judge import Judge, Sent, generate
from tests.examples.killing import SETTINGS, feed_and_kill

NOW_MS = 1_700_000_000_000


def raw(sent: Sent) -> Any:
    value: Command = msgspec.convert(sent.value, Command)
    return record(commands, key=sent.key, value=value, timestamp_ms=sent.timestamp_ms)


def play(*steps: tuple[int, str, Command]) -> list[tuple[str, Any]]:
    harness = Harness(app)
    for at_ms, sku, command in steps:
        harness.feed(commands, key=sku, value=command, timestamp_ms=NOW_MS + at_ms)
    return [(sent.key, sent.value) for sent in harness.outputs(events)]


def test_a_reservation_expires_exactly_when_its_time_is_over() -> None:
    """Another SKU's record brings the time; the stock comes back before that record is handled."""
    begin: list[tuple[int, str, Command]] = [(0, "a", Receive(5)), (0, "a", Reserve("o", 3))]
    assert ("a", Event("expired", 5, "o", 3)) not in play(*begin, (HOLD_MS - 1, "b", Query("q")))
    said = play(*begin, (HOLD_MS, "b", Query("q")))
    assert said[2] == ("a", Event("expired", 5, "o", 3))
    assert said[3][0] == "b"


def test_confirmed_and_cancelled_reservations_do_not_expire() -> None:
    """Also if the order id was reserved again: only the new reservation expires, at its own time."""
    said = play(
        (0, "a", Receive(5)),
        (0, "a", Reserve("sold", 2)),
        (0, "a", Reserve("o", 3)),
        (1, "a", Confirm("sold")),
        (2, "a", Cancel("o")),
        (3, "a", Reserve("o", 1)),
        (HOLD_MS + 2, "a", Query("before")),
        (HOLD_MS + 3, "a", Query("after")),
    )
    assert [one.kind for _, one in said if isinstance(one, Event)].count("expired") == 1
    assert said[-2] == ("a", Event("expired", 3, "o", 1))


def remembered(state: Inventory) -> dict[tuple[str, str], int | None]:
    """Each reservation, and when its timer fires."""
    found = {key: state.reservations.scheduled(key) for key, _ in state.reservations.range()}
    assert found == {key: held.expires_at_ms for key, held in state.reservations.range()}
    return found


def expected_reservations(judge: Judge) -> dict[tuple[str, str], int | None]:
    opened = [one for one in judge.made if one["state"] == "open"]
    return {(one["sku"], one["order"]): one["until_ms"] for one in opened}


@pytest.mark.parametrize("seed", range(3))
def test_the_fold_by_hand_says_the_same(seed: int) -> None:
    """Whatever crashes; nothing else is remembered, and nothing is left when all has expired."""
    harness, judge, expected = Harness(app), Judge(), []
    last = Sent("sku-0", {"type": "query", "request": "end"}, 1 << 41)
    for number, one in enumerate([*generate(seed, 500), last]):
        harness.feed_batch([raw(one)])
        expected += judge.fold(one)
        if number % 97 == 0:
            assert remembered(harness.state) == expected_reservations(judge)
            harness.crash(seed=number)
    found = [(out.key, msgspec.to_builtins(out.value)) for out in harness.outputs(events)]
    assert found == expected
    kinds = [value.get("kind") for _, value in expected]
    assert min(kinds.count(kind) for kind in ("expired", "confirmed", "cancelled")) > 5
    assert remembered(harness.state) == {}
    skus = {one.key for one in generate(seed, 500)}
    assert dict(harness.state.available) == {sku: judge.available(sku) for sku in skus}


def test_it_is_deterministic() -> None:
    """Whatever the batches and crashes."""
    assert check(app, [raw(sent) for sent in generate(7, 100)]).left_out == ()


@pytest.mark.whole
@pytest.mark.kafka
async def test_on_a_real_broker(real_harness: Any) -> None:
    """Each partition's events are those of the fold of its commands, in order, once; also those of timers."""
    sent = generate(12, 300)
    async with real_harness(app, partitions=2, settings=SETTINGS) as harness:
        written = await feed_and_kill(
            harness,
            [(commands, o.key, msgspec.convert(o.value, Command), o.timestamp_ms) for o in sent],
            kills=2,
            seed=12,
        )
        judges: dict[int, Judge] = defaultdict(Judge)
        expected: dict[int, list[Any]] = defaultdict(list)
        for one, place in zip(sent, written, strict=True):
            expected[place.partition] += judges[place.partition].fold(one)
        found: dict[int, list[Any]] = defaultdict(list)
        for output in await harness.outputs(events):
            found[output.partition].append((output.key, msgspec.to_builtins(output.value)))
        assert found == expected
        assert len(found) == 2
        for partition, judge in judges.items():
            assert remembered(await harness.state(partition)) == expected_reservations(judge)
