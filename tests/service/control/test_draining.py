"""Rules of a drain: when it is refused, what its operation says, and when it is over."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from snapreplay.service.config.settings import Settings
from snapreplay.service.control.draining import Draining
from snapreplay.service.control.operation_registry import OperationRegistry
from snapreplay.service.control.operations import (
    Busy,
    CancelOperation,
    DrainProcess,
    NoSuccessor,
    OperationState,
    UndrainProcess,
)
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.assignment import Share
from snapreplay.service.core.peers import Peer
from snapreplay.service.runtime.context import Identity
from snapreplay.service.runtime.pulse import Pulse
from snapreplay.service.service_control import ServiceControl
from tests.support import apps
from tests.support.fake_control import FakeGroup

ME, TWO = Peer("p1", "one", "host-1", ""), Peer("p2", "two", "host-2", "", owned=(1,))
LEAVING = Peer("p3", "three", "host-3", "", is_leaving=True)
DRAIN, UNDRAIN = DrainProcess(by="ada", reason="a new kernel"), UndrainProcess(by="ada")


class Bench:
    """A process that has partitions 0 and 1, in a group with others."""

    def __init__(self):
        self.operations, self.held = OperationRegistry(), {0, 1}
        self.draining = Draining(self.operations, lambda: self.held)
        self.group = FakeGroup(Share(peers=(ME, TWO)))

    def ask(self, asked, *peers):
        return self.draining.perform(asked, self.group, peers)

    @property
    def status(self) -> Any:
        return self.draining.status

    @property
    def newest(self):
        return self.operations.all()[0]


def test_it_has_succeeded_when_no_partition_is_left():
    """Each part says who has it now. From the first moment the group knows it, and the status has who asked."""
    bench = Bench()
    operation = bench.ask(DRAIN, TWO)
    assert (bench.group.gives_away, bench.group.asked, operation.state) == (True, 1, "running")
    found = bench.status
    assert (found.state, found.by, found.reason) == ("draining", "ada", "a new kernel")
    with pytest.raises(Busy):
        bench.ask(DRAIN, TWO)
    bench.held = {0}
    bench.draining.look([TWO])
    assert [(part.state, part.detail) for part in bench.newest.parts] == [
        ("pending", ""),
        ("succeeded", "given to two on host-2"),
    ]
    bench.held = set()
    bench.draining.look([TWO])
    assert (bench.newest.state, bench.status.state) == ("succeeded", "drained")
    assert bench.status.since == found.since
    assert [(check.ok, check.detail) for check in bench.draining.checks()] == [(True, "drained, requested by ada")]
    assert bench.ask(DRAIN).state == "succeeded", "once more, and there is nothing to do"


@pytest.mark.parametrize(
    ("peers", "why"),
    [((), "there is no other process"), ((LEAVING,), "all other processes are drained or stopping: three on")],
)
def test_it_is_refused_if_no_process_would_take_the_partitions(peers, why):
    """Nothing has changed then."""
    bench = Bench()
    with pytest.raises(NoSuccessor, match=why):
        bench.ask(DRAIN, *peers)
    assert (bench.group.gives_away, bench.group.asked, bench.status) == (False, 0, None)
    assert bench.operations.all() == []
    assert bench.ask(DRAIN, *peers, TWO).state == "running"


def test_it_is_begun_if_the_leader_tells_nothing_of_the_others():
    """In a very large group. If there is no member after all, the leader leaves the partitions where they are."""
    bench = Bench()
    bench.group.share = Share()
    assert bench.ask(DRAIN).state == "running"


def test_a_process_outside_of_the_group_cannot_be_drained():
    """The group would not hear of it."""
    with pytest.raises(NoSuccessor, match="not a member"):
        Bench().draining.perform(DRAIN, None, [TWO])


def test_who_is_absent_takes_nothing():
    """A member that is dead, and whose session has not ended yet."""
    bench = Bench()
    bench.group.share = Share(peers=(ME, TWO), absent=("p2",))
    with pytest.raises(NoSuccessor, match="there is no other process"):
        bench.ask(DRAIN, TWO)


def test_a_second_drain_is_not_confused_with_the_first():
    """What went in the last second counts for the first one. A cancel of the first does not end the second."""
    bench = Bench()
    me, settings, no_cluster = Identity.of_this_process("one"), Settings(), cast(Any, None)
    control = ServiceControl(apps.ledger("x"), me, StatusBoard(), Pulse(), settings, no_cluster)
    control._membership, control._assigned = cast(Any, bench.group), {0, 1}
    control._supervisor = cast(Any, SimpleNamespace(held={0, 1}, withdraw=lambda *_: None))
    bench.group.share = Share(peers=(TWO,))

    def state(operation):
        found = control.operation(operation.id)
        return found and found.state

    first = control.perform(DRAIN)
    control._supervisor = cast(Any, SimpleNamespace(held={2}, withdraw=lambda *_: None))
    control.perform(DRAIN)
    assert state(first) == "succeeded"
    control.perform(UNDRAIN)
    second = control.perform(DRAIN)
    assert control.perform(CancelOperation(second.id, by="ada")).state == "cancelled"
    third = control.perform(DRAIN)
    assert control.perform(CancelOperation(second.id, by="ada")).state == "cancelled"
    assert (bench.group.gives_away, state(third)) == (True, "running")
    control.stop()
    assert state(third) == "failed"


def test_an_undrain_cancels_what_is_left_of_the_drain():
    """What is gone is gone; the group may give partitions again."""
    bench = Bench()
    drain = bench.ask(DRAIN, TWO)
    bench.held = {0}
    bench.draining.look([TWO])
    assert bench.ask(UNDRAIN, TWO).state == "succeeded"
    assert (bench.group.gives_away, bench.group.asked, bench.status) == (False, 2, None)
    ended = bench.operations.get(drain.id)
    assert ended is not None
    assert (ended.state, [part.state for part in ended.parts]) == ("cancelled", ["cancelled", "succeeded"])
    assert bench.draining.checks() == []


def test_whoever_takes_partitions_again_for_want_of_others_is_draining(caplog):
    """The operation stays ended; the log has it."""
    bench = Bench()
    drain = bench.ask(DRAIN, TWO)
    bench.held = set()
    bench.draining.look([TWO])
    bench.held = {0}
    bench.draining.look([])
    now, ended = bench.status, bench.operations.get(drain.id)
    assert ended is not None
    assert (now.state, ended.state) == ("draining", OperationState.SUCCEEDED)
    assert "no other process takes them" in caplog.text
