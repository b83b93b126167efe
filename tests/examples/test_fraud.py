"""fraud.py against the fold by hand; on a real broker, killed again and again."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import msgspec
import pytest

from examples.fraud import (
    AccountEvent,
    Blocked,
    Cards,
    LimitChanged,
    Payment,
    account_events,
    app,
    card_payments,
    fraud_alerts,
    fraud_log,
)
from snapreplay import Topic
from snapreplay.testing import Harness, check, record
from tests.examples.fraud_judge import WINDOW_MS, Judge, Sent, generate
from tests.examples.killing import SETTINGS, feed_and_kill

NOW_MS = 1_700_000_000_000


def decoded(sent: Sent) -> tuple[Topic[Any, Any], Any]:
    if sent.topic == "card-payments":
        return card_payments, msgspec.convert(sent.value, Payment)
    event: AccountEvent = msgspec.convert(sent.value, AccountEvent)
    return account_events, event


def raw(sent: Sent) -> Any:
    topic, value = decoded(sent)
    return record(topic, key=sent.key, value=value, timestamp_ms=sent.timestamp_ms)


def pay(harness: Harness[Cards], at_ms: int, cents: int = 100, country: str = "NL") -> None:
    payment = Payment(f"at-{at_ms}", cents, country)
    harness.feed(card_payments, key="c", value=payment, timestamp_ms=NOW_MS + at_ms)


def reasons(harness: Harness[Cards]) -> list[list[str]]:
    return [sent.value.reasons for sent in harness.outputs(fraud_alerts)]


def test_a_payment_leaves_the_window_exactly_when_it_is_over() -> None:
    """At the window's length, not a millisecond before."""
    for gap_ms, expected in [(WINDOW_MS - 1, [["travel"]]), (WINDOW_MS, [])]:
        harness = Harness(app)
        pay(harness, 0)
        pay(harness, gap_ms, country="US")
        assert reasons(harness) == expected


def test_a_limit_counts_from_its_event_on() -> None:
    """As a block does."""
    harness = Harness(app)
    pay(harness, 0, 50_000)
    harness.feed(account_events, key="c", value=LimitChanged(40_000))
    pay(harness, 2, 1)
    harness.feed(account_events, key="c", value=Blocked())
    pay(harness, 4, 1)
    assert reasons(harness) == [["limit"], ["blocked", "limit"]]


def assert_nothing_else_is_remembered(state: Cards, judge: Judge) -> None:
    """Exactly the payments in the window, and the accounts that differ from a new one."""
    assert Counter(card for (card, _, _), _ in state.window.range()) == judge.window_counts()
    limits = {card for card, limit in judge.limits.items() if limit != 100_000}
    assert set(state.accounts) == limits | judge.blocked


@pytest.mark.parametrize("seed", range(3))
def test_the_fold_by_hand_gives_the_same_alerts(seed: int) -> None:
    """And the same payments are remembered, crashes or not, and nothing else."""
    harness, judge, expected = Harness(app), Judge(), []
    for number, sent in enumerate(generate(seed, 500)):
        harness.feed_batch([raw(sent)])
        alert = judge.fold(sent)
        expected += [] if alert is None else [alert]
        if number % 20 == 0:
            assert_nothing_else_is_remembered(harness.state, judge)
        if number % 97 == 0:
            harness.crash(seed=number)
    alerts = harness.outputs(fraud_alerts)
    assert [msgspec.to_builtins(one.value) for one in alerts] == expected
    assert len(expected) > 100


def test_it_is_deterministic() -> None:
    """Whatever the batches and crashes."""
    assert check(app, [raw(sent) for sent in generate(7, 40)]).left_out == ()


@pytest.mark.slow
@pytest.mark.kafka
async def test_on_a_real_broker(real_harness: Any) -> None:
    """The order between the inputs is any, and the log has it; each input's own order is kept; nothing twice."""
    sent = generate(11, 1000)
    async with real_harness(app, partitions=2, settings=SETTINGS) as harness:
        records = [(*decoded(one), one) for one in sent]
        written = await feed_and_kill(
            harness,
            [(topic, one.key, value, one.timestamp_ms) for topic, value, one in records],
            kills=5,
            seed=11,
        )
        of_place = {(w.topic, w.partition, w.offset): s for w, s in zip(written, sent, strict=True)}
        judges: dict[int, Judge] = defaultdict(Judge)
        expected: dict[int, list[Any]] = defaultdict(list)
        places: dict[tuple[str, int], list[int]] = defaultdict(list)
        for entry in await harness.outputs(fraud_log):
            logged, partition = entry.value, entry.partition
            places[logged.topic, partition].append(logged.offset)
            one = of_place[logged.topic, partition, logged.offset]
            alert = judges[partition].fold(one)
            assert logged.alerted == (alert is not None)
            if alert:
                expected[partition].append((one.key, alert))
        assert all(offsets == list(range(len(offsets))) for offsets in places.values())
        assert sum(map(len, places.values())) == len(sent)
        found: dict[int, list[Any]] = defaultdict(list)
        for output in await harness.outputs(fraud_alerts):
            found[output.partition].append((output.key, msgspec.to_builtins(output.value)))
        assert found == expected
        assert sum(map(len, found.values())) > 200
        for partition, judge in judges.items():
            assert_nothing_else_is_remembered(await harness.state(partition), judge)
