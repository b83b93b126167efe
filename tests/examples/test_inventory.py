"""inventory.py against a fold by hand, by brute force, without snapreplay; on a real broker, killed again and again."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
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
from snapreplay import Topic
from snapreplay.app.record import RawRecord
from snapreplay.testing import Harness, RealHarness, check, record

NOW_MS = 1_700_000_000_000
assert HOLD_MS == 900_000


@dataclass(frozen=True)
class Sent:
    key: str
    value: dict[str, Any]
    timestamp_ms: int


def generate(seed: int, count: int) -> list[Sent]:
    """Few SKUs and order ids, so that ids come again, before and after they expire; jumps of time."""
    chance = random.Random(seed)
    now_ms, made = 1_700_000_000_000, []
    for number in range(count):
        now_ms += chance.choice([0, 0, 500, 30_000, 60_000])
        if chance.random() < 0.01:
            now_ms += chance.choice([HOLD_MS - 60_000, HOLD_MS, 50 * HOLD_MS])
        late_ms = 120_000 if chance.random() < 0.05 else 0
        order = f"o{chance.randrange(8)}"
        kind = chance.choices(["receive", "reserve", "confirm", "cancel", "query"], [15, 50, 12, 10, 13])[0]
        value: dict[str, Any] = {"type": kind}
        if kind in ("reserve", "confirm", "cancel"):
            value["order"] = order
        if kind in ("receive", "reserve"):
            value["quantity"] = chance.randrange(1, 6)
        if kind == "query":
            value["request"] = f"q{number}"
        made.append(Sent(f"sku-{chance.randrange(4)}", value, now_ms - late_ms))
    return made


@dataclass
class Judge:
    """One partition: a list of all reservations ever made, searched from its beginning each time."""

    now_ms: int = -1
    received: dict[str, int] = field(default_factory=dict)
    made: list[dict[str, Any]] = field(default_factory=list)

    def fold(self, sent: Sent) -> list[tuple[str, dict[str, Any]]]:
        """The outputs of this record, as (key, value)."""
        self.now_ms = max(self.now_ms, sent.timestamp_ms)
        outputs = []
        # What is due at the same time comes in the order of the stored keys: the shorter one first.
        for one in sorted(
            self.made, key=lambda one: (one["until_ms"], len(one["sku"] + one["order"]), one["sku"], one["order"])
        ):
            if one["state"] == "open" and one["until_ms"] <= self.now_ms:
                one["state"] = "expired"
                outputs.append((one["sku"], self._event("expired", one["sku"], one)))
        outputs.append((sent.key, self._answer(sent.key, sent.value)))
        return outputs

    def available(self, sku: str) -> int:
        held = [r for r in self.made if r["sku"] == sku and r["state"] in ("open", "confirmed")]
        return self.received.get(sku, 0) - sum(int(r["quantity"]) for r in held)

    def open_reservations(self, sku: str) -> list[dict[str, Any]]:
        found = [r for r in self.made if r["sku"] == sku and r["state"] == "open"]
        return [
            {"order": r["order"], "quantity": r["quantity"], "expires_at_ms": r["until_ms"]}
            for r in sorted(found, key=lambda r: str(r["order"]))
        ]

    def _event(self, kind: str, sku: str, what: dict[str, Any], why: str = "") -> dict[str, Any]:
        event = {"type": "event", "kind": kind, "available": self.available(sku)}
        event |= {name: what[name] for name in ("order", "quantity") if name in what}
        return event | ({"why": why} if why else {})

    def _answer(self, sku: str, value: dict[str, Any]) -> dict[str, Any]:
        kind = value["type"]
        if kind == "receive":
            self.received[sku] = self.received.get(sku, 0) + value["quantity"]
            return self._event("received", sku, value)
        if kind == "query":
            return {
                "type": "answer",
                "request": value["request"],
                "available": self.available(sku),
                "reservations": self.open_reservations(sku),
            }
        found = [r for r in self.made if (r["sku"], r["order"], r["state"]) == (sku, value["order"], "open")]
        if kind == "reserve":
            if found:
                return self._event("rejected", sku, value, "already reserved")
            if value["quantity"] > self.available(sku):
                return self._event("rejected", sku, value, "out of stock")
            made = {"sku": sku, **value, "state": "open", "until_ms": self.now_ms + HOLD_MS}
            self.made.append(made)
            return self._event("reserved", sku, made)
        if not found:
            return self._event("rejected", sku, value, "no reservation")
        found[0]["state"] = "confirmed" if kind == "confirm" else "cancelled"
        return self._event(found[0]["state"], sku, found[0])


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


def test_reservations_of_one_millisecond_expire_in_the_order_of_their_stored_keys() -> None:
    """As docs/time.md says: the shorter key first."""
    orders = [("c24", "o1"), ("c8", "o1"), ("c8", "o10"), ("c8", "o9")]
    begin: list[tuple[int, str, Command]] = [(0, sku, Receive(5)) for sku in ("c24", "c8")]
    said = play(*begin, *((0, sku, Reserve(order, 1)) for sku, order in orders), (HOLD_MS, "b", Query("q")))
    expired = [(sku, event.order) for sku, event in said if isinstance(event, Event) and event.kind == "expired"]
    assert expired == [("c8", "o1"), ("c8", "o9"), ("c24", "o1"), ("c8", "o10")]


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
    found = {key: state.reservations.scheduled(key, timer="expire") for key, _ in state.reservations.range()}
    assert found == {key: held.expires_at_ms for key, held in state.reservations.range()}
    return found


def expected_reservations(judge: Judge) -> dict[tuple[str, str], int | None]:
    opened = [one for one in judge.made if one["state"] == "open"]
    return {(one["sku"], one["order"]): one["until_ms"] for one in opened}


@pytest.mark.parametrize("seed", range(3))
def test_the_fold_by_hand_says_the_same(seed: int) -> None:
    """Whatever crashes; nothing else is remembered, and nothing is left when all has expired."""
    harness, judge, expected = Harness(app), Judge(), []
    records = list(generate(seed, 500))
    end_ms = max(one.timestamp_ms for one in records) + HOLD_MS
    last = Sent("sku-0", {"type": "query", "request": "end"}, end_ms)
    for number, one in enumerate([*records, last]):
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
    skus = {one.key for one in records}
    assert dict(harness.state.available) == {sku: judge.available(sku) for sku in skus}


def test_it_is_deterministic() -> None:
    """Whatever the batches and crashes."""
    assert check(app, [raw(sent) for sent in generate(7, 100)]).left_out == ()


SETTINGS = {
    "batch": {"records_max": 10},  # so that a kill finds many batches
    "snapshot": {"every_records": 100},
}


async def feed_and_kill(
    harness: RealHarness[Any], records: Iterable[tuple[Topic[Any, Any], str, Any, int]], kills: int, seed: int
) -> list[RawRecord]:
    """Feed records of (topic, key, value, timestamp in ms) while the process is killed at any moment; return them as
    they are in the log."""
    records, chance = list(records), random.Random(seed)
    moments = set(chance.sample(range(len(records) // 4, len(records)), kills))
    written, restarts = [], None
    print(f"seed {seed}: killed after {sorted(moments)} of {len(records)} records")  # noqa: T201 - shown when a test fails
    for number, (topic, key, value, timestamp_ms) in enumerate(records):
        written.append(await harness.feed(topic, key=key, value=value, timestamp_ms=timestamp_ms))
        if number in moments:
            if restarts is not None:
                await restarts
            restarts = asyncio.create_task(harness.restart())
    if restarts is not None:
        await restarts
    await harness.caught_up()
    return written


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
