"""False alarms become rare, and an assignment that knows nothing of a takeover does not end it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.service.core.suspicion import PAUSE_SECONDS_MAX, FalseAlarms, Takeover


def test_after_each_false_alarm_the_process_is_left_alone_for_twice_as_long():
    """From 10 seconds to 10 minutes; long after the last one it begins anew."""
    alarms, now, pauses = FalseAlarms(), 0.0, []
    assert alarms.until == -math.inf
    for _ in range(8):
        alarms = alarms.another(now)
        pauses.append(alarms.until - now)
        now = alarms.until
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600]
    much_later = now + 2 * PAUSE_SECONDS_MAX
    assert alarms.is_over(much_later)
    assert alarms.another(much_later).until - much_later == 10


@given(st.lists(st.floats(0, 10_000), min_size=1))
def test_suspicions_that_are_always_false_act_ever_more_rarely(gaps):
    """Whenever they come: of those within an hour, a dozen at most."""
    alarms, now, acted = FalseAlarms(), 0.0, []
    for gap in gaps:
        now += gap
        if now >= alarms.until:
            alarms = alarms.another(now)
            acted.append(now)
    assert all(sum(begin <= at < begin + 3600 for at in acted) <= 12 for begin in acted)


@pytest.mark.parametrize(
    ("given_", "ended"),
    [({}, False), ({"is_given": True}, True), ({"is_known": True}, True), ({"is_fenced": True}, True)],
    ids=["from before", "confirmed", "decided", "fenced"],
)
def test_what_ends_a_takeover(given_, ended):
    """An assignment from before our claim was known says nothing about it."""
    facts = {"is_given": False, "is_known": False, "is_fenced": False} | given_
    assert Takeover("p1", 0.0).is_ended(**facts) is ended
