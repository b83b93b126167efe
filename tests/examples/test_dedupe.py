"""Events pass once."""

import random

import pytest

from examples.dedupe import HOUR_MS, app, events, unique_events
from snapreplay.testing import Harness, check, record


def event(key, at_ms):
    return record(events, key=key, value=b"x", timestamp_ms=at_ms)


def passed(harness):
    return [one.key for one in harness.outputs(unique_events)]


def test_duplicates_within_an_hour_are_dropped_also_after_a_crash():
    """In one batch, in the next, and after the state came back."""
    harness = Harness(app)
    harness.feed_batch([event("a", 0), event("b", 1), event("a", 2)])
    harness.crash()
    harness.feed_batch([event("b", HOUR_MS), event("c", HOUR_MS)])
    assert passed(harness) == ["a", "b", "c"]


def test_an_hour_after_it_was_first_seen_an_id_is_new_again():
    """Duplicates in between do not keep it; to the millisecond, also after a crash."""
    harness = Harness(app)
    for at_ms in (0, HOUR_MS // 2, HOUR_MS - 1):
        harness.feed_batch([event("a", at_ms)])
        harness.crash()
    assert passed(harness) == ["a"]
    harness.feed_batch([event("a", HOUR_MS)])
    assert passed(harness) == ["a", "a"]


def test_old_ids_are_forgotten_without_input_of_their_own():
    """The state stays small: any record, or time alone on quiet input, expires them."""
    harness = Harness(app)
    harness.feed_batch([event(f"e{n}", n) for n in range(50)])
    harness.feed(events, key="new", value=b"x", timestamp_ms=HOUR_MS + 9)
    assert set(harness.view()) == {*(f"e{n}" for n in range(10, 50)), "new"}
    harness.advance_time(3 * HOUR_MS)
    assert not harness.view()


@pytest.mark.parametrize("seed", range(3))
def test_it_agrees_with_a_fold_by_hand(seed):
    """Record by record, with late records and crashes: outputs and what is remembered."""
    rng, harness = random.Random(seed), Harness(app)
    first_ms: dict[str, int] = {}
    expected, now_ms = [], 0
    for _ in range(300):
        at_ms = now_ms + rng.choice((-HOUR_MS // 3, 0, 1, HOUR_MS // 20, HOUR_MS // 3))
        at_ms, key = max(at_ms, 0), f"e{rng.randrange(12)}"
        now_ms = max(now_ms, at_ms)
        first_ms = {one: ms for one, ms in first_ms.items() if now_ms - ms < HOUR_MS}
        if key not in first_ms:
            first_ms[key] = now_ms
            expected.append(key)
        harness.feed_batch([event(key, at_ms)])
        if rng.random() < 0.1:
            harness.crash(seed=seed)
        assert set(harness.view()) == set(first_ms)
    assert passed(harness) == expected


def test_state_and_outputs_depend_on_the_records_only():
    """Expiry included."""
    samples = [event(f"e{n * n % 17}", n * HOUR_MS // 7) for n in range(80)]
    assert check(app, samples).left_out == ()
