"""Events pass once."""

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


def test_after_an_hour_an_id_is_new_again_and_the_state_stays_small():
    """Old ids are forgotten when stream time moves on."""
    harness = Harness(app)
    harness.feed_batch([event(f"e{n}", n) for n in range(50)])
    harness.feed(events, key="e0", value=b"x", timestamp_ms=3 * HOUR_MS)
    assert passed(harness)[-1] == "e0"
    assert set(harness.state) == {"swept", "id/e0"}


def test_an_event_id_cannot_collide_with_the_sweeper():
    """An event called like the sweeper's own key is an event."""
    harness = Harness(app)
    harness.feed_batch([event("swept", 1), event("swept", 2)])
    assert passed(harness) == ["swept"]


def test_state_and_outputs_depend_on_the_records_only():
    """Iteration and deletion included."""
    check(app, [event(f"e{n * n % 17}", n * HOUR_MS // 7) for n in range(80)])
