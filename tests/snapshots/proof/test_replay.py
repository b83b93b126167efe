"""Proof by replay, of what the service's own code wrote in memory: batches 1 and 2, a snapshot, 4 and 5, a snapshot, 7
and 8 (3 and 6 point)."""

import random
from itertools import islice

import msgspec
import pytest

from snapreplay import App, MapState, Stores, Topic
from snapreplay.app.ranges import Anchor
from snapreplay.service.core.kafka_errors import NotAuthorized, OffsetTrimmed, ReadStalled, Unreachable
from snapreplay.snapshots.format.envelope import RecordKind, decode, encode
from snapreplay.snapshots.format.records import Increment
from snapreplay.snapshots.proof.records import Moment
from snapreplay.snapshots.proof.replay import prove, segments
from snapreplay.snapshots.proof.state import last_batch
from snapreplay.state.digest import Digest, digest_of_stores
from tests.damage import memory
from tests.damage.edits import of_kind
from tests.support import apps

INCREMENTS, SNAPSHOTS, PAYMENTS = *memory.OWN, "payments-memory"


class Logs:
    """`proof.Logs` of a world, and its input."""

    def __init__(self, world):
        self.world = world

    def increments(self, start_offset, end_offset):
        return self.input(INCREMENTS, start_offset, end_offset)

    def snapshots(self, start_offset, end_offset):
        return self.input(SNAPSHOTS, start_offset, end_offset)

    def input(self, topic, start_offset, end_offset):
        log = self.world.log(topic)
        if start_offset < log.start:
            raise OffsetTrimmed(f"{topic} begins at {log.start}")
        found = [r for r in log.committed() if start_offset <= r.offset < end_offset]
        yield from ([record] for record in found)


def now(world):
    log, snapshots = world.log(INCREMENTS), world.log(SNAPSHOTS)
    return Moment(0, log.start, log.end, snapshots.start, snapshots.end)


def proved(world, app=None):
    """The report of each segment."""
    logs, moment = Logs(world), now(world)
    last = last_batch(moment, logs)
    assert last is not None
    return [prove(app or world.app, s, logs) for s in segments(moment, last)]


def edited(world, kind, number, **fields):
    """Put other fields into one record of a kind."""
    slots = world.slots(INCREMENTS)
    slot = of_kind(slots, kind)[number]
    slot.value = encode(msgspec.structs.replace(decode(slot.value or b""), **fields))
    world.rewrite(INCREMENTS, slots)
    return world


@pytest.mark.parametrize("made", [{}, {"changes": False}])
def test_what_the_same_code_wrote_is_proved(made):
    """With changes and without."""
    reports = proved(memory.world(**made))
    assert [report.finding for report in reports] == [None, None, None]
    assert [report.records for report in reports] == [20, 20, 20]


def spoilt(value, account):
    """Remembers something else, silently: nothing of it is sent."""
    memory.book(value, account)
    account["pad"] += "!"


def unsteady(value, account):
    """Another number in every run."""
    memory.book(value, account)
    account["sum"] += random.randrange(10**9)


@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize(
    ("recorded", "replayed", "cause"),
    [(memory.book, spoilt, "recorded by version "), (unsteady, unsteady, "the code is not deterministic")],
)
def test_a_difference_is_named_with_its_cause(changes, recorded, replayed, cause):
    """Of the first batch of each segment, with a key if changes were recorded."""
    world = memory.world(changes=changes, app=apps.ledger("memory", recorded))
    reports = proved(world, apps.ledger("memory", replayed))
    for report, batch in zip(reports, (1, 4, 7), strict=True):
        assert report.finding is not None
        assert report.finding.detail.startswith(f"batch {batch} replays differently ({cause}")
        assert ("key" in report.finding.detail) is changes


def test_an_input_with_another_record_than_then_is_no_difference_of_the_code():
    """The anchor of a batch tells them apart, as in a recovery; without it the app would be blamed."""
    world = edited(memory.world(), RecordKind.INCREMENT, 4, anchors={PAYMENTS: Anchor(79, 7, 7)})
    findings = [report.finding for report in proved(world)]
    assert [each is not None for each in findings] == [False, True, False]
    assert findings[1] is not None
    assert "cannot be replayed: input payments-memory holds another record" in findings[1].detail


@pytest.mark.parametrize("error", [NotAuthorized, Unreachable, ReadStalled])
def test_an_input_that_cannot_be_read_now_ends_the_proof(error):
    """It may be there: no later audit would make up for batches that are left out."""
    world = memory.world()
    logs, moment = Logs(world), now(world)
    last = last_batch(moment, logs)
    assert last is not None

    class Failing(Logs):
        def input(self, topic, start_offset, end_offset):
            yield from islice(super().input(topic, start_offset, end_offset), 3 if topic == PAYMENTS else None)
            if topic == PAYMENTS:
                raise error(f"cannot read {topic}")

    with pytest.raises(error, match=PAYMENTS):
        prove(world.app, segments(moment, last)[0], Failing(world))


def test_a_digest_without_a_record_is_compared():
    """As an owner leaves it when it stops."""
    world = edited(memory.world(), RecordKind.INCREMENT, 3, digest=Digest(1, 2, 3))
    entry = decode(of_kind(world.slots(INCREMENTS), RecordKind.INCREMENT)[3].value or b"")
    assert isinstance(entry, Increment)
    assert entry.ranges == []
    finding = proved(world)[1].finding
    assert finding is not None
    assert f"batch {entry.batch} replays differently" in finding.detail


def test_damage_is_a_finding_and_a_trimmed_input_is_none():
    """Of one segment; the others are proved."""
    world = memory.world()
    slots = world.slots(INCREMENTS)
    damaged = of_kind(slots, RecordKind.INCREMENT)[1]
    damaged.value = (damaged.value or b"")[:-1] + b"?"
    world.rewrite(INCREMENTS, slots)
    world.log(PAYMENTS).trim(30)
    first, second, third = proved(world)
    assert first.finding is not None
    assert "cannot be replayed" in first.finding.detail
    assert (second.finding, second.without_input) == (None, True)
    assert (third.finding, third.records) == (None, 20)


def test_batches_of_a_retired_input_are_told_and_are_no_damage():
    """This version has no handler for its records. Nothing is wrong with the log."""
    world = memory.world()
    logs, moment = Logs(world), now(world)
    last = last_batch(moment, logs)
    assert last is not None
    without = [msgspec.structs.replace(each, positions={"other": 0}) for each in segments(moment, last)]
    reports = [prove(world.app, each, logs) for each in without]
    assert [(each.finding, each.without_input) for each in reports] == [(None, True)] * 3


def test_what_a_decision_gave_up_is_not_replayed():
    """Its snapshot is a beginning, the genesis is none."""
    world = edited(memory.world(), RecordKind.INCREMENT, -1, last_decision_offset=4)
    assert len(proved(world)) == 2


def sorted_out(retired=()):
    """Early payments are kept in a store that is retired later."""
    payments = Topic(PAYMENTS)

    def state():
        kept = {} if retired else {"old": MapState(str, int)}
        return Stores(retired=retired, main=MapState(str, int), **kept)

    app = App("memory", inputs=[payments], outputs=[], state=state)

    @app.handler(payments)
    def on_payment(record, state, out):
        amount = record.value["amount"]
        (state.main if amount >= 20 else state.old)[record.key] = amount

    return app


@pytest.mark.parametrize("cleared", [["old"], []])
def test_a_store_that_a_batch_has_cleared_is_not_in_what_is_replayed(cleared):
    """The snapshot before it has the store still; without that word the digest is another one."""
    world = memory.world(app=sorted_out())
    for number in (-2, -1):
        last = decode(of_kind(world.slots(INCREMENTS), RecordKind.INCREMENT)[number].value or b"")
        assert isinstance(last, Increment)
        left = {"main": last.store_digests["main"]}
        digest = digest_of_stores(left)
        said = {"cleared": cleared if number == -2 else []}
        edited(world, RecordKind.INCREMENT, number, store_digests=left, digest=digest, **said)
    finding = proved(world, sorted_out(retired=("old",)))[2].finding
    assert (finding is None) is bool(cleared)


def test_a_topic_that_takes_less_today_has_taken_what_it_has():
    """What was committed was accepted."""

    larger = apps.ledger("memory", memory.book, {"more": "x" * 2_000_000})
    finding = proved(memory.world(), larger)[0].finding
    assert finding is not None
    assert "other outputs to balances-memory; by the same changes" in finding.detail
