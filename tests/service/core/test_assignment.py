"""Shares partitions and copies among processes."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from snapreplay.service.core.assignment import (
    INTRODUCTIONS_MAX,
    LAG_STEP_OFFSETS,
    Copies,
    Introductions,
    Member,
    Share,
    assigned,
    peers_of,
)
from snapreplay.service.core.peers import Peer

MEMBERS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Member,
        owned=st.frozensets(st.integers(0, 9)),
        warm=st.frozensets(st.integers(0, 9)),
        replicas=st.integers(0, 3),
        rack=st.sampled_from(["", "r1", "r2"]),
        is_leaving=st.booleans(),
        generation=st.sampled_from([-1, 3, 4]),
    ),
    min_size=1,
)
COUNTS = st.integers(1, 10)
DEAD = Member(frozenset({0}), generation=3)
"""A static member whose session is not over."""
LEAVES = Member(frozenset({0}), replicas=1, is_leaving=True, generation=4)


def owners(shares):
    return {partition: name for name, share in shares.items() for partition in share.owned}


def absent(members):
    """Those that are dead, and whose sessions are not over: the others have been through a generation without them."""
    latest = max(member.generation for member in members.values())
    return {name for name, member in members.items() if 0 <= member.generation < latest}


def present(members):
    """Those that may be given something."""
    there = {name: member for name, member in members.items() if name not in absent(members)} or members
    return {name: member for name, member in there.items() if not member.is_leaving} or there


def staying(members):
    """Those that may keep what they have: all, if no present member stays."""
    found = {name: member for name, member in members.items() if not member.is_leaving}
    return found if found.keys() - absent(members) else members


def after(members, shares):
    """The members when everybody has what it was given, and every copy is warm."""
    return {
        name: replace(member, owned=frozenset(shares[name].owned), warm=frozenset(shares[name].copies))
        for name, member in members.items()
    }


@given(MEMBERS, COUNTS)
def test_every_partition_has_one_owner_and_its_copies_elsewhere(members, count):
    """With any claims of the processes."""
    shares = assigned(members, range(count))
    assert Counter(each for share in shares.values() for each in share.owned) == Counter(range(count))
    holders = {name for name, member in present(members).items() if member.replicas}
    replicas = max((members[name].replicas for name in holders), default=0)
    for partition, owner in owners(shares).items():
        copies = {name for name, share in shares.items() if partition in share.copies}
        moving = {name for name, share in shares.items() if partition in share.next}
        assert owner not in copies
        assert copies <= holders
        assert moving <= copies
        assert len(copies) == min(replicas + len(moving), len(holders - {owner}))


@given(MEMBERS, COUNTS)
@example({"a": Member(replicas=1), "b": Member(frozenset({0}), is_leaving=True, generation=4), "c": DEAD}, 1)
def test_what_is_processed_moves_only_to_a_warm_copy_or_to_who_holds_none(members, count):
    """A move to a cold process would cost a restore. What one that leaves has taken over from a dead one must move."""
    left = {partition for member in members.values() if member.is_leaving for partition in member.owned}
    for partition, owner in owners(assigned(members, range(count))).items():
        had = {name for name, member in staying(members).items() if partition in member.owned}
        had -= absent(members) if partition in left else set()
        if had and owner not in had:
            assert partition in members[owner].warm or not members[owner].replicas


@given(MEMBERS, COUNTS)
@example({"a": Member(warm=frozenset({0}), is_leaving=True), "b": LEAVES, "c": Member(generation=3)}, 1)
def test_a_partition_without_an_owner_goes_to_a_warm_copy(members, count):
    """Being live comes before being even."""
    for partition, owner in owners(assigned(members, range(count))).items():
        has_owner = any(partition in member.owned for member in staying(members).values())
        warm = [name for name, member in present(members).items() if partition in member.warm]
        if warm and not has_owner and members[owner].replicas:
            assert owner in warm


@given(MEMBERS, COUNTS)
def test_it_becomes_balanced_and_then_nothing_moves(members, count):
    """Two more assignments do, once the copies are warm."""
    members = {name: replace(member, is_leaving=False, generation=-1) for name, member in members.items()}
    shares = assigned(members, range(count))
    for _ in range(3):
        members = after(members, shares)
        shares = assigned(members, range(count))
    counts = [len(share.owned) for share in shares.values()]
    assert max(counts) - min(counts) <= 1
    assert not any(share.next for share in shares.values())
    assert assigned(after(members, shares), range(count)) == shares


def settled(members, count):
    """Assign until nothing moves any more. Returns the members then, their shares, and how many moves that took."""
    before = {partition: name for name, member in members.items() for partition in member.owned}
    shares, moves = dict[str, Share](), 0
    for _ in range(4):
        shares = assigned(members, range(count))
        moves += sum(before.get(partition, name) != name for partition, name in owners(shares).items())
        members, before = after(members, shares), owners(shares)
    return members, shares, moves


@given(st.lists(st.sampled_from(["", "r1", "r2"]), min_size=2, max_size=6), COUNTS, st.integers(0, 2))
def test_no_more_moves_than_need_to(racks, count, replicas):
    """A process that joins is given its part, from those that have more. One that stops gives away what it has, and to
    be even again as much may move once more."""
    members = {name: Member(replicas=replicas, rack=rack) for name, rack in zip("abcdef", racks, strict=False)}
    members, shares, _ = settled(members, count)
    known = owners(shares)
    _, grown, moves = settled(members | {"new": Member(replicas=replicas)}, count)
    assert {each for each, name in owners(grown).items() if known[each] != name} == set(grown["new"].owned)
    assert moves == len(grown["new"].owned) <= -(-count // (len(members) + 1))
    leaving = members | {"a": replace(members["a"], is_leaving=True)}
    _, _, moves = settled(leaving, count)
    assert moves <= 2 * len(shares["a"].owned)


@given(MEMBERS, COUNTS)
@example({name: Member(replicas=1, rack=rack) for name, rack in zip("abc", ("r1", "r1", "r2"), strict=True)}, 1)
def test_a_copy_is_on_the_rack_of_its_owner_only_if_the_others_have_their_part(members, count):
    """A partition that moves is copied where it moves to, in any rack."""
    shares = assigned(members, range(count))
    holders = [name for name, member in present(members).items() if member.replicas]
    replicas = max((members[name].replicas for name in holders), default=0)
    part = -(-count * min(replicas, max(len(holders) - 1, 0)) // max(len(holders), 1))
    for partition, owner in owners(shares).items():
        copies = [name for name in holders if partition in shares[name].copies]
        racks = {members[name].rack for name in copies}
        if (
            copies
            and racks == {members[owner].rack} != {""}
            and not any(partition in each.next for each in shares.values())
        ):
            others = [name for name in holders if members[name].rack != members[owner].rack]
            assert all(len(shares[name].copies) >= part for name in others)


@given(MEMBERS, COUNTS)
def test_who_is_absent_is_given_nothing(members, count):
    """It keeps what it has, unless another process has taken it over."""
    shares = assigned(members, range(count))
    for name in absent(members) - present(members).keys():
        assert set(shares[name].owned) <= members[name].owned
        assert not shares[name].copies


def test_what_was_taken_over_from_a_dead_static_member_does_not_go_back_to_it():
    """Nor does what it had copies of, although it says that they are warm. What was not taken over stays with it."""
    dead = Peer("p1", "ledger-0", "host-a", "")
    members = {
        "a": Member(frozenset({0, 1}), frozenset({2, 3}), replicas=1, epochs={0: 1, 1: 1}, peer=dead, generation=3),
        "b": Member(frozenset({0, 2, 3}), replicas=1, epochs={0: 9, 2: 1, 3: 1}, generation=4),
        "c": Member(replicas=1),
    }
    shares = assigned(members, range(4))
    assert (shares["a"].owned, shares["b"].owned, shares["c"].next) == ((1,), (0, 2, 3), (3,))
    assert shares["b"].absent == ("p1",)


def test_the_dead_owners_partitions_go_to_their_copies_although_that_is_uneven():
    """The cold process gets a copy of what it is to own."""
    members = {
        "b": Member(frozenset({2, 3}), frozenset({0, 1}), replicas=1),
        "c": Member(frozenset({4, 5}), replicas=1),
    }
    shares = assigned(members, range(6))
    assert shares["b"].owned == (0, 1, 2, 3)
    assert shares["c"].next == (1,)  # balanced as soon as it is warm
    assert set(shares["c"].copies) >= {1}


def test_who_comes_back_gets_copies_first():
    """The owner continues meanwhile."""
    members = {"a": Member(frozenset(range(4)), replicas=1), "b": Member(replicas=1)}
    shares = assigned(members, range(4))
    assert (shares["a"].owned, shares["b"].owned, shares["b"].next) == ((0, 1, 2, 3), (), (2, 3))
    assert shares["b"].copies == (0, 1, 2, 3)


@pytest.mark.parametrize("later", ["a", "b"])
def test_of_two_that_process_a_partition_the_later_owner_keeps_it(later):
    """One of them was suspended, was thought dead, and has not heard yet that it was replaced."""
    epochs = {name: {0: 30 if name == later else 20} for name in "ab"}
    members = {name: Member(frozenset({0}), replicas=1, epochs=epochs[name]) for name in "ab"}
    assert assigned(members, range(1))[later].owned == (0,)


def test_who_leaves_gives_everything_to_the_copies():
    """It is given nothing, not even copies."""
    members = {
        "a": Member(frozenset({0, 1}), frozenset({2, 3}), replicas=1, is_leaving=True),
        "b": Member(frozenset({2, 3}), frozenset({0, 1}), replicas=1),
    }
    shares = assigned(members, range(4))
    assert shares["b"].owned == (0, 1, 2, 3)
    assert replace(shares["a"], copied=None) == Share()


def test_without_copies_a_process_that_comes_takes_its_half_at_once():
    """As it would with any other assignor."""
    members = {"a": Member(frozenset(range(4))), "b": Member()}
    shares = assigned(members, range(4))
    assert (shares["a"].owned, shares["b"].owned) == ((0, 1), (2, 3))


def test_copies_are_on_other_racks():
    """As far as no process has more than its part of them."""
    members = {
        "a": Member(frozenset({0, 1}), replicas=1, rack="r1"),
        "b": Member(frozenset({2, 3}), replicas=1, rack="r1"),
        "c": Member(frozenset({4, 5}), replicas=1, rack="r2"),
    }
    shares = assigned(members, range(6))
    assert set(shares["c"].copies) <= {0, 1, 2, 3}
    assert len(shares["c"].copies) == 2  # no more than its part, although the others have only each other


@given(MEMBERS, COUNTS)
def test_each_copied_partition_has_one_first_successor_a_warm_one_if_there_is_any(members, count):
    """If the owner seems to be dead, one process takes over, and the others do not."""
    shares = assigned(members, range(count))
    first = Counter(partition for share in shares.values() for partition in share.first)
    copied = {partition for share in shares.values() for partition in share.copies}
    assert first == dict.fromkeys(copied, 1)
    for name, share in shares.items():
        for partition in share.first:
            assert partition in share.copies
            holders = [each for each, other in shares.items() if partition in other.copies]
            is_warm = partition in members[name].warm
            assert is_warm or not any(partition in members[each].warm for each in holders)


def test_of_two_warm_copies_the_fresher_one_takes_over():
    """At a suspicion, and when the group has given up the owner. Where both are close, the one on another rack does."""

    def members(lag):
        return {
            "a": Member(frozenset({0, 3}), replicas=2, rack="r1"),
            "b": Member(frozenset({1}), frozenset({0, 3}), replicas=2, rack="r2", lags={0: lag}),
            "c": Member(frozenset({2}), frozenset({0, 3}), replicas=2, rack="r1"),
        }

    def successors(lag):
        left = {name: each for name, each in members(lag).items() if name != "a"}
        first = {name for name, share in assigned(members(lag), range(4)).items() if 0 in share.first}
        return first, owners(assigned(left, range(4)))[0]

    assert successors(LAG_STEP_OFFSETS - 1) == ({"b"}, "b")
    assert successors(LAG_STEP_OFFSETS) == ({"c"}, "c")


def test_peers_are_who_they_say_and_own_what_they_are_given():
    """One of an earlier version says nothing: it is known by the name that the group has for it."""
    one = Peer("p1", "ledger-0", "host-a", "http://host-a:8080", owned=(7,))
    members = {"b": Member(frozenset({1}), peer=one), "a": Member(frozenset({0}))}
    peers = peers_of(members, assigned(members, range(2)))
    assert peers == (Peer("a", "", "", "", (0,)), replace(one, owned=(1,)))


def test_who_is_not_known_asks_again_but_not_for_ever():
    """A static member that was started again is given its predecessor's assignment, then it is taken for absent. A
    leader of an older version names none."""
    me, other = (Peer(name, name, "host", "") for name in ("me", "other"))
    alone, absent = Share(peers=(other,)), Share(peers=(me, other), absent=("me",))
    introductions = Introductions()
    assert introductions.is_due("me", alone)
    assert introductions.is_due("me", absent)
    assert not introductions.is_due("me", Share(peers=(me, other)))
    assert not introductions.is_due("me", Share())
    assert [introductions.is_due("me", absent) for _ in range(INTRODUCTIONS_MAX + 2)].count(True) == INTRODUCTIONS_MAX
    assert not introductions.is_due("me", absent)


def test_nothing_is_given_away_to_who_is_absent():
    """A static member that is dead is a member until its session ends: a drained process keeps what it has, and what it
    has taken over goes to a living one with copies."""
    drained = Member(frozenset({0, 1}), frozenset(), 1, is_leaving=True, generation=7)
    dead = Member(frozenset({2, 3}), frozenset(), 1, generation=5)
    assert owners(assigned({"a": drained, "b": dead}, range(4))) == {0: "a", 1: "a", 2: "b", 3: "b"}
    drained = replace(drained, owned=frozenset(range(4)), epochs={2: 9, 3: 9})
    dead = replace(dead, epochs={2: 6, 3: 6})
    warm = Member(frozenset(), frozenset(range(4)), 1, generation=7)
    assert owners(assigned({"a": drained, "b": dead, "c": warm}, range(4))) == dict.fromkeys(range(4), "c")


ONE_RACK = "no process on another rack holds copies"
FULL = "the processes on other racks already have their share of copies"


def held(*partitions, rack="", replicas=1, **more):
    return Member(frozenset(partitions), replicas=replicas, rack=rack, **more)


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({}, Copies(2, 0, "it is the only process of the group")),
        ({"b": held()}, Copies(2, 1, "the group has 1 other process")),
        ({"b": held(), "c": held()}, Copies(2, 2)),
        (
            {"b": held(), "c": held(replicas=0)},
            Copies(2, 1, "the group has 2 other processes: 1 with standby.replicas=0"),
        ),
        (
            {"b": held(is_leaving=True), "c": held(replicas=0)},
            Copies(2, 0, "the group has 2 other processes: 1 drained or stopping, 1 with standby.replicas=0"),
        ),
        ({"b": held(generation=3)}, Copies(2, 0, "the group has 1 other process: 1 gone")),
    ],
    ids=["alone", "too-few", "enough", "one-holds-none", "one-is-drained", "one-is-dead"],
)
def test_a_missing_copy_has_its_reason(others, told):
    """There are more standbys than processes, or some of them hold none."""
    members = {"a": held(0, 1, replicas=2, generation=4), **others}
    assert assigned(members, range(2))["a"].copied == told


@pytest.mark.parametrize(
    ("racks", "on_rack", "why"),
    [
        (("r1", "r1", "r1"), 2, ONE_RACK),
        (("r1", "r2", "r2"), 0, ""),
        (("", "", ""), 0, ""),
        (("r1", "r1", "r2"), 2, FULL),
    ],
    ids=["one-rack", "two-racks", "no-racks", "full"],
)
def test_copies_on_the_rack_of_their_owner_are_counted(racks, on_rack, why):
    """The last case has a rack with one process, which takes no more than its part of the copies."""
    members = {name: held(2 * n, 2 * n + 1, rack=rack) for n, (name, rack) in enumerate(zip("abc", racks, strict=True))}
    told = assigned(members, range(6))["b"].copied
    assert told is not None
    assert (told.on_owners_rack, told.why_on_owners_rack) == (on_rack, why)


@given(MEMBERS, COUNTS)
def test_what_is_reported_is_what_is_given(members, count):
    """A copy that is there only while its partition moves is not counted, and what is missing has a reason."""
    shares = assigned(members, range(count))
    for partition, owner in owners(shares).items():
        copies = sum(partition in share.copies for share in shares.values())
        moving = sum(partition in share.next for share in shares.values())
        told = shares[owner].copied
        assert told is not None
        assert told.given in (copies, copies - moving)
        assert bool(told.why_missing) == (told.given < told.wanted)
