"""The group says how many copies the partitions of each process have, and why not more."""

import pytest
from hypothesis import given

from snapreplay.service.core.assignment import Copies, Member, assigned
from tests.service.core.test_assignment import COUNTS, MEMBERS, owners

ONE_RACK = "no process on another rack holds copies"
FULL = "the processes on other racks hold as many copies as their part"


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
def test_what_is_told_is_what_is_given(members, count):
    """A copy that is there only while its partition moves is not counted, and what is missing has a reason."""
    shares = assigned(members, range(count))
    for partition, owner in owners(shares).items():
        copies = sum(partition in share.copies for share in shares.values())
        moving = sum(partition in share.next for share in shares.values())
        told = shares[owner].copied
        assert told is not None
        assert told.given in (copies, copies - moving)
        assert bool(told.why_missing) == (told.given < told.wanted)
