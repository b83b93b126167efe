"""False alarms become rare, and an assignment that knows nothing of a takeover does not end it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from snapreplay.service.core.assignment import Share
from snapreplay.service.core.peers import Peer
from snapreplay.service.core.suspicion import (
    PAUSE_SECONDS_MAX,
    Alarm,
    Assigned,
    BeginTakeover,
    FalseAlarms,
    Ignore,
    Listen,
    Lived,
    Suspected,
    Takeover,
    Watch,
    step,
)


def test_after_each_false_alarm_the_process_is_left_alone_for_twice_as_long():
    """From 10 seconds to 10 minutes; long after the last one it begins again."""
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
    ("owner", "absent", "ended"), [("third", (), True), ("third", ("third",), False), ("p1", (), False)]
)
def test_a_takeover_yields_to_a_third_process_that_lives(owner, absent, ended):
    """The assignment is from before our claim. An absent process, or the suspected one, does not end it."""
    share = Share(peers=(Peer(owner, "", "", "", owned=(7,)),), absent=absent)
    watch, _ = step(Watch(under_way={7: Takeover("p1", 0.0, epoch=3)}), Assigned(frozenset(), share), 0.0)
    assert (not watch.under_way) is ended


def taken_at(now, absent=()):
    """Know that the partition that was ours went to another process then."""
    one, two = Peer("one", "", "", "", owned=(7,)), Peer("two", "", "", "")
    watch, _ = step(Watch(), Assigned(frozenset({7}), Share(owned=(7,), peers=(one, two))), 0.0)
    peers = (replace(one, owned=()), replace(two, owned=(7,)))
    share = Share(copies=(7,), first=(7,), peers=peers, absent=absent)
    watch, _ = step(watch, Assigned(frozenset(), share), now)
    return watch


@pytest.mark.parametrize(
    ("answered_at", "is_quiet", "effect"),
    [
        (99.0, False, Lived),
        (99.0, True, Lived),
        (101.0, False, Listen),
        (101.0, True, BeginTakeover),
        (None, False, BeginTakeover),
    ],
    ids=["silent", "found out while listening", "heard since", "and commits nothing", "refused"],
)
def test_who_was_given_a_partition_of_ours_lived_then(answered_at, is_quiet, effect):
    """It does not hear us either, and each would take over from the other in turn. What is heard of it afterwards, or
    a closed port, says more."""
    _, effects = step(taken_at(100.0), Suspected("two", frozenset({7}), answered_at, is_quiet), 104.0)
    assert [type(each) for each in effects] == [effect]


@pytest.mark.parametrize(("now", "effect"), [(109.9, Ignore), (110.0, BeginTakeover)])
def test_a_suspicion_soon_after_a_false_alarm_is_ignored(now, effect):
    known, alarms = taken_at(100.0), {"two": FalseAlarms().another(100.0)}
    _, effects = step(Watch(known.share, alarms=alarms), Suspected("two", frozenset({7})), now)
    assert [type(each) for each in effects] == [effect]


def test_an_absent_member_to_which_a_partition_goes_back_shows_no_sign_of_life():
    """It has claimed later than we, who had not yet: the coordinator keeps what it said before it died."""
    _, effects = step(taken_at(100.0, absent=("two",)), Suspected("two", frozenset({7}), 99.0), 104.0)
    assert [type(each) for each in effects] == [Listen]


def test_an_assignment_that_was_made_in_knowledge_of_the_claim_ends_a_takeover():
    """It names the suspected process all the same: that one lives."""
    share = Share(peers=(Peer("p1", "", "", "", owned=(7,)),), claimed=(7,))
    watch, effects = step(Watch(under_way={7: Takeover("p1", 0.0, epoch=3)}), Assigned(frozenset(), share), 0.0)
    assert (watch.under_way, [type(each) for each in effects]) == ({}, [Alarm])
