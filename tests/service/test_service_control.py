"""Tests of what HTTP may ask of a running service: answered from the last reports, from any thread."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from snapreplay.errors import PartitionNotLive, UnknownPartition
from snapreplay.service import service_control
from snapreplay.service import service_control as module
from snapreplay.service.clock import time_of
from snapreplay.service.config.settings import Settings
from snapreplay.service.control import status
from snapreplay.service.control.operations import Busy, NotFailed, RetryPartition, TriggerSnapshot
from snapreplay.service.control.protocol import Topology, TopologyInput
from snapreplay.service.control.status import (
    PartitionError,
    PartitionStatus,
    RecoveryStatus,
    SnapshotState,
    SnapshotStatus,
    SnapshotUsed,
    StatusBoard,
)
from snapreplay.service.core.assignment import Share
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.peers import Peer
from snapreplay.service.core.phase import Phase
from snapreplay.service.runtime.context import ClusterView, Identity
from snapreplay.service.runtime.pulse import Pulse
from snapreplay.service.service import Service
from snapreplay.service.service_control import ServiceControl
from tests.support import apps
from tests.support.deadlines import within

VIEW = ClusterView("cluster-1", 4, {}, 900_000)
NO_CLUSTER: Any = None  # nothing here asks Kafka
AT = time_of(1000)
SNAPSHOT = SnapshotStatus(0, "s1", SnapshotState.WRITING, "trigger", 5, AT)


class Bench:
    """A control, its board, and the snapshots that were asked for."""

    def __init__(self):
        self.board = StatusBoard()
        self.asked: list[Any] = []
        self.retried: list[Any] = []
        self.now = 1000.0
        self.membership: Any = SimpleNamespace(
            trouble=None, aside=None, mixed_with="", come_back=lambda: None, share=Share()
        )
        self.identity = Identity.of_this_process("one")
        self.suspected: list[Any] = []
        self.control = ServiceControl(
            apps.ledger("ledger"), self.identity, self.board, Pulse(lambda: self.now), Settings(), NO_CLUSTER
        )

    def open(self):
        """Let requests reach runners that always say that they are LIVE."""

        def runner(number: int) -> Any:
            def asked(reason, done):
                self.asked.append((number, reason, done))
                return True

            return SimpleNamespace(request_snapshot=asked)

        supervisor: Any = SimpleNamespace(
            runners={number: runner(number) for number in (0, 2)},
            retry=lambda *asked: self.retried.append(asked),
            view=VIEW,
            taken_over=frozenset(),
            take_over=lambda process_id, why, *, silent_seconds: self.suspected.append(
                (process_id, why, silent_seconds)
            ),
        )
        at_once: Any = SimpleNamespace(call_soon_threadsafe=lambda call, *arguments: call(*arguments))
        self.supervisor = supervisor
        self.control.open(supervisor, self.membership, at_once)

    def ready(self):
        return [(check.name, check.ok) for check in self.control.ready_checks()]


@pytest.fixture
def bench():
    """Make a bench that was reached, with partitions 0 LIVE and 2 loading."""
    made = Bench()
    made.open()
    made.control.reached(VIEW)
    made.control.member_of({0, 2})
    made.board.publish(PartitionStatus(0, Phase.LIVE))
    made.board.publish(PartitionStatus(2, Phase.LOADING))
    return made


def test_ready_is_a_member_whose_partitions_are_all_live(bench):
    """Each partition that was assigned counts, also before its runner says a word."""
    assert bench.ready()[4:] == [("partition 0", True), ("partition 2", False)]
    bench.board.publish(PartitionStatus(2, Phase.LIVE))
    assert bench.control.ready()
    bench.control.member_of({0, 2, 3})
    assert bench.ready()[-1] == ("partition 3", False)
    bench.control.member_of(set())
    assert bench.control.ready(), "a member without partitions is ready"
    bench.supervisor.taken_over = frozenset({3})
    assert bench.ready()[-1] == ("partition 3", False), "it is processed here, as the group will hear"


def test_ready_says_why_a_partition_is_not_live(bench):
    """With its error, not only its phase; that of a LIVE one is none, but that another may own it."""
    problem = PartitionError("NotAuthorized", "User:ada may not Read topic payments", "", "retry", "", AT)
    bench.board.publish(PartitionStatus(0, Phase.LIVE, error=problem))
    bench.board.publish(PartitionStatus(2, Phase.LOADING, error=problem))
    details = [check.detail for check in bench.control.ready_checks()[4:]]
    assert details == ["live", "loading: User:ada may not Read topic payments"]
    bench.board.publish(PartitionStatus(0, Phase.LIVE, ownership_doubt="stood still"))
    assert bench.ready()[4] == ("partition 0", False)
    assert bench.control.ready_checks()[4].detail == "live; stood still"


def test_ready_says_what_is_missing(monkeypatch):
    """Cluster, membership and since when it is lost, instance id, the loop, in this order."""
    bench = Bench()
    monkeypatch.setattr(service_control, "wall_time", lambda: AT)
    bench.open()
    assert bench.ready() == [("cluster", False), ("member", False), ("instance id", True), ("runner loop", True)]
    bench.control.unreachable(Unreachable("no broker at x:1"))
    assert bench.control.ready_checks()[0].detail == "no broker at x:1"
    bench.control.reached(VIEW)
    bench.control.member_of(set())
    assert bench.control.ready()
    bench.membership.trouble = "no broker answers"
    cut_off = bench.control.ready_checks()[1]
    assert (cut_off.detail, cut_off.since) == ("no broker answers", AT)
    monkeypatch.setattr(service_control, "wall_time", lambda: time_of(9000))
    assert bench.control.ready_checks()[1].since == AT
    assert not bench.control.ready()
    bench.membership.trouble = None
    assert bench.control.ready_checks()[1].since is None
    bench.membership.aside = "stepped down for process 7"
    assert bench.ready()[1:3] == [("member", False), ("instance id", False)]
    assert bench.control.ready_checks()[2].detail == "stepped down for process 7"
    # Killed and started again, it would be the younger one and throw out the other.
    assert [(c.ok, c.detail) for c in bench.control.live_checks()][1:] == [(True, bench.membership.aside)]


@pytest.mark.parametrize("trouble", [{}, {"trouble": "no broker answers"}, {"aside": "stepped down"}])
def test_only_who_is_heard_by_the_group_suspects_others(bench, caplog, trouble):
    """Else it may itself be cut off. The log says why nothing is taken over."""
    vars(bench.membership).update(trouble)
    bench.control.suspect("p1", "connection refused")
    bench.control.suspect("p1", "silent for 3.0 s", silent_seconds=3.0)
    acted = [("p1", "connection refused", None), ("p1", "silent for 3.0 s", 3.0)]
    assert bench.suspected == ([] if trouble else acted)
    assert all(why in caplog.text for why in trouble.values())


def test_no_process_is_its_own_peer(bench):
    """Nor is the process whose name it has: it was started again, and the group has not heard of that yet."""
    me, other = bench.identity, Peer("p2", "two", "host", "")
    former = Peer("p1", me.instance_id, me.host, "")
    bench.membership.share = Share(peers=(former, other, Peer(me.process_id, me.instance_id, me.host, "")))
    assert bench.control.document().peers == (other,)


def test_the_facts_have_what_the_app_declares(bench):
    """A call's answers come through an internal topic, which is an input, too."""
    app = apps.priced("shop", apps.price_of)
    control = ServiceControl(app, bench.identity, bench.board, Pulse(lambda: 0.0), Settings(), NO_CLUSTER)
    answers = TopologyInput("shop-internal-price-results", "on_price", is_internal=True)
    inputs = (TopologyInput("payments-shop", "on_payment"), answers)
    assert control.facts().topology == Topology(inputs, (answers.topic,), calls=("price",))


async def test_alive_is_a_loop_that_turns(bench):
    """A handler may block for minutes; a loop that is silent for longer is dead. Ready needs one that turned lately."""
    bench.board.publish(PartitionStatus(2, Phase.LIVE))
    bench.control.beat(asyncio.get_running_loop())
    await asyncio.sleep(0)
    assert bench.control.ready()
    bench.now += module.STUCK_SECONDS - 1
    assert bench.control.live_checks()[0].ok
    assert ("runner loop", False) in bench.ready()
    bench.now += 2
    assert not bench.control.live_checks()[0].ok
    bench.control.stop()


def test_a_trigger_asks_each_partition_and_hears_from_it(bench):
    """The operation is running until it does. Without a name all LIVE ones are meant."""
    operation = bench.control.perform(TriggerSnapshot(None, "deploy"))
    ((partition, reason, done),) = bench.asked
    assert (partition, reason, operation.state) == (0, "trigger", "running")
    done("succeeded", "s1", "")
    assert bench.control.operation(operation.id).state == "succeeded"
    assert bench.control.document().operations[0].reason == "deploy"


@pytest.mark.parametrize(
    ("partitions", "error"),
    [([0, 4], UnknownPartition), ([-1], UnknownPartition), ([1], PartitionNotLive), ([0, 2], PartitionNotLive)],
)
def test_a_trigger_is_all_or_nothing(bench, partitions, error):
    """Unknown, elsewhere, or not LIVE: nothing is started."""
    with pytest.raises(error):
        bench.control.perform(TriggerSnapshot(partitions))
    assert bench.asked == []


def test_a_retry_asks_a_failed_partition_and_hears_from_it(bench):
    """The operation is running until it does; a second one meanwhile is refused with its id."""
    bench.board.publish(PartitionStatus(2, Phase.FAILED))
    operation = bench.control.perform(RetryPartition(2))
    ((partition, done),) = bench.retried
    assert (partition, operation.kind, operation.state) == (2, "retry", "running")
    with pytest.raises(Busy) as refused:
        bench.control.perform(RetryPartition(2))
    assert refused.value.operation_id == operation.id
    done("failed", None, "the topic is gone")
    (part,) = bench.control.operation(operation.id).parts
    assert (part.state, part.detail) == ("failed", "the topic is gone")
    bench.control.perform(RetryPartition(2))


@pytest.mark.parametrize(
    ("partition", "error"), [(4, UnknownPartition), (-1, UnknownPartition), (1, PartitionNotLive), (0, NotFailed)]
)
def test_a_retry_is_for_failed_partitions_of_this_process(bench, partition, error):
    """Unknown, elsewhere, or in another phase: nothing is started."""
    with pytest.raises(error):
        bench.control.perform(RetryPartition(partition))
    assert bench.retried == []


def test_snapshots_are_remembered_newest_first_with_their_last_state(bench, monkeypatch):
    """Only so many."""
    monkeypatch.setattr(status, "SNAPSHOTS_KEPT", 2)
    for number in range(3):
        for state in ("writing", "pointed"):
            taken = msgspec.structs.replace(SNAPSHOT, snapshot_id=f"s{number}", state=state)
            bench.board.publish(PartitionStatus(0, Phase.LIVE, snapshot=taken))
    found = [(s.snapshot_id, s.state) for s in bench.control.document().snapshots]
    assert found == [("s2", "pointed"), ("s1", "pointed")]


def test_the_snapshot_restored_from_is_listed_once_it_proved_itself(bench):
    """One that was tried and given up is not; what this process wrote itself keeps its own story."""
    used = SnapshotUsed("s0", 4, 17, entries=9, size_bytes=300, created_at=AT, chunks=2)
    restore = RecoveryStatus(1, AT, snapshot=used)
    bench.board.publish(PartitionStatus(0, Phase.LOADING, restore=restore))
    assert bench.control.document().snapshots == ()
    bench.board.publish(PartitionStatus(0, Phase.LIVE, restore=restore))
    bench.board.publish(PartitionStatus(0, Phase.LIVE, restore=restore, snapshot=SNAPSHOT))
    found = [(s.snapshot_id, s.reason, s.state, s.chunks) for s in bench.control.document().snapshots]
    assert found == [("s1", "trigger", "writing", 0), ("s0", "restored", "pointed", 2)]
    own = msgspec.structs.replace(restore, snapshot=msgspec.structs.replace(used, snapshot_id="s1"))
    bench.board.publish(PartitionStatus(0, Phase.LIVE, restore=own, snapshot=SNAPSHOT))
    assert [s.reason for s in bench.control.document().snapshots] == ["trigger", "restored"]


async def test_whoever_waits_hears_of_changes_from_other_threads(bench):
    """For the length of the block, and not longer."""
    with bench.control.changes(asyncio.get_running_loop()) as changed:
        news = PartitionStatus(2, Phase.LIVE)
        thread = threading.Thread(target=bench.board.publish, args=(news,))
        thread.start()
        async with within(30):
            await changed.wait()
        thread.join()
    changed.clear()
    bench.board.publish(news)
    await asyncio.sleep(0)
    assert not changed.is_set()


def test_facts_of_the_cluster_are_there_once_it_was_reached(bench):
    """Who we are is known before."""
    before = Bench().control.facts()
    assert (before.app_id, before.instance_id, before.partition_count) == ("ledger", "one", None)
    after = bench.control.facts()
    assert (after.cluster_id, after.partition_count) == ("cluster-1", 4)
    assert after.app_version.startswith("code:")


def test_the_service_answers_every_question_before_it_has_started():
    """HTTP is up before the cluster is reached, so nothing may be missing then; what is asked for fails at once."""
    control = Service(apps.ledger("idle"), Settings()).control
    document = control.document()
    assert document.facts.partition_count is None
    assert (document.partitions, document.snapshots, document.operations) == ((), (), ())
    assert [check.name for check in document.ready_checks if not check.ok] == ["cluster", "member"]
    assert all(check.ok for check in document.live_checks)
    assert control.operation("no such id") is None
    bench = Bench()
    bench.board.publish(PartitionStatus(2, Phase.FAILED))
    (part,) = bench.control.perform(RetryPartition(2)).parts
    assert (part.state, part.detail) == ("failed", "the service is not running")
