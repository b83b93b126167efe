"""User data is read by other versions, and stays within the size of a record."""

import hashlib
import subprocess
import sys
from functools import partial

import msgspec
import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from snapreplay.service.core.assignment import Member
from snapreplay.service.core.peers import Peer
from snapreplay.service.kafka.assignor import StandbyAssignor
from tests.support.child import ROOT
from tests.support.deadlines import scaled

TOPIC = "app-increments"
RECORD_BYTES_MAX = 1_000_000


class Cluster:
    """A topic with this many partitions; None: it is not known."""

    def __init__(self, partitions):
        self._partitions = None if partitions is None else set(range(partitions))

    def partitions_for_topic(self, topic):
        return self._partitions


def peer(number):
    name = f"ledger-{number}"
    process_id = hashlib.sha256(name.encode()).hexdigest()[:32]  # as a random one, no two are alike
    return Peer(process_id, name, name, f"http://{name}.ledger.prod.svc.cluster.local:8080")


def group(members, partitions):
    """Let the group assign; return member → its assignor, and the bytes of all joins and assignments."""
    assignors = {name: StandbyAssignor(TOPIC, partial(members.get, name)) for name in members}
    joins = {name: each.metadata({TOPIC}) for name, each in assignors.items()}
    given = next(iter(assignors.values())).assign(Cluster(partitions), joins)
    for name, each in assignors.items():
        each.on_assignment(ConsumerProtocolMemberAssignment.decode(given[name].encode()))
    return assignors, sum(len(each.encode()) for each in (*joins.values(), *given.values()))


def test_everybody_hears_who_is_there_and_what_they_own():
    """Each one also hears which partitions it is to take over at a suspicion."""
    members = {
        "a": Member(frozenset({0, 1}), frozenset({2, 3}), replicas=1, peer=peer(0)),
        "b": Member(frozenset({2, 3}), frozenset({0, 1}), replicas=1, peer=peer(1)),
    }
    assignors, _ = group(members, 4)
    one, two = (assignors[name].share for name in "ab")
    assert one.peers == two.peers
    assert {each.process_id: each.owned for each in one.peers} == {
        peer(0).process_id: (0, 1),
        peer(1).process_id: (2, 3),
    }
    assert (one.first, two.first) == ((2, 3), (0, 1))


def test_a_leader_that_does_not_see_the_topic_takes_nothing_from_anybody():
    """It is asked again when it sees the topic, and that may be half a minute after all others do."""
    members = {
        "a": Member(frozenset({0, 1}), replicas=1, peer=peer(0)),
        "b": Member(frozenset({2}), replicas=1, peer=peer(1)),
        "c": Member(frozenset(), replicas=1, peer=peer(2)),
    }
    assignors, _ = group(members, None)
    assert [assignors[name].share.owned for name in members] == [(0, 1), (2,), ()]


def test_a_leader_that_does_not_see_the_topic_gives_away_what_a_dead_process_had():
    """The copies are as good as ever; a share without them would have them dropped."""
    members = {
        "a": Member(frozenset({0}), replicas=1, peer=peer(0)),
        "b": Member(frozenset({1}), frozenset({0, 2}), replicas=1, peer=peer(1)),
    }
    assignors, _ = group(members, None)
    owned = [assignors[name].share.owned for name in members]
    assert sorted(each for share in owned for each in share) == [0, 1, 2]
    assert 0 in assignors["b"].share.copies


def fleet(processes, each=100, lag=0):
    """Return so many processes, each with its partitions and warm copies of those of its neighbour, all behind by
    `lag`."""
    count = processes * each
    return {
        f"m{number}": Member(
            owned := frozenset(range(number * each, (number + 1) * each)),
            copied := frozenset((partition + each) % count for partition in owned),
            replicas=1,
            peer=peer(number),
            epochs={partition: 2**31 + partition for partition in owned},
            lags=dict.fromkeys(copied, lag) if lag else {},
        )
        for number in range(processes)
    }


@pytest.mark.parametrize("lag", [0, 10_000])
def test_a_hundred_processes_with_ten_thousand_partitions_fit_into_one_record(lag):
    """There each hears of the owners of its copies only. A group whose record is too large assigns nothing at all. That
    every copy is behind takes more room."""
    assignors, size_bytes = group(fleet(100, lag=lag), 10_000)
    assert size_bytes < RECORD_BYTES_MAX
    for assignor in assignors.values():
        share = assignor.share
        assert len(share.peers) == 100
        owned = {partition for known in share.peers for partition in known.owned}
        assert set(share.first) <= owned <= set(share.copies)


def test_three_hundred_processes_share_their_partitions_and_are_not_told_of_each_other(caplog):
    """A list of all for each would be three megabytes."""
    assignors, size_bytes = group(fleet(300, each=20), 6_000)
    assert size_bytes < RECORD_BYTES_MAX
    shares = [each.share for each in assignors.values()]
    assert {(len(each.owned), len(each.copies), each.peers) for each in shares} == {(20, 20, ())}
    assert "the group has too many processes (300)" in caplog.text


@pytest.mark.parametrize(
    "user_data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"copies": (1,), "peers": b"no zlib"}),
        msgspec.msgpack.encode({"copies": (1,), "later": 2}),
    ],
    ids=["empty", "foreign", "damaged", "other-version"],
)
def test_what_another_version_assigns_is_read_as_far_as_it_is_known(user_data):
    """The processes of two versions are in one group during every upgrade."""
    assignor = StandbyAssignor(TOPIC, Member)
    assignor.on_assignment(ConsumerProtocolMemberAssignment(0, [(TOPIC, [0])], user_data))
    assert (assignor.share.owned, assignor.share.peers, assignor.share.first) == ((0,), (), ())
    assert assignor.share.copies == ((1,) if b"copies" in user_data else ())


FIRST_TOGETHER = """
import os, sys, threading
from tests.service.kafka.test_assignor import TOPIC, Member, group, peer

def first():
    together.wait()
    group({"a": Member(frozenset({0}), peer=peer(1))}, 1)

sys.setswitchinterval(1e-6)
for _ in range(20):
    if not (child := os.fork()):
        together = threading.Barrier(4)
        threads = [threading.Thread(target=first) for _ in range(4)]
        [each.start() for each in threads]
        [each.join() for each in threads]
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "crashed"
"""


def test_several_apps_of_one_process_may_join_their_groups_at_the_same_time():
    subprocess.run([sys.executable, "-c", FIRST_TOGETHER], cwd=ROOT, check=True, timeout=scaled(60))
