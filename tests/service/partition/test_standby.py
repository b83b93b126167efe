"""A warm copy of one partition: it follows the owner, and is handed over whole or not at all."""

import asyncio
import itertools
import re
from collections import Counter
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from snapreplay import App, Topic
from snapreplay.errors import DamagedError
from snapreplay.service.control.state_reads import BatchUnderWay, NotReadable
from snapreplay.service.control.status import SnapshotUsed, StatusBoard
from snapreplay.service.control.vocabulary import LONG_AGO
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.phase import CopyState
from snapreplay.service.core.retained import WarmCopy
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.live import committer
from snapreplay.service.partition import standby
from snapreplay.service.partition.standby import ACCEPTABLE_LAG_OFFSETS, LOOK_SECONDS, NoRoom, Standbys, StandbyTask
from snapreplay.service.recovery import follower
from snapreplay.service.recovery.examine import SEE_AGAIN_SECONDS, Examiner
from snapreplay.service.recovery.executor import RecoveryExecutor
from snapreplay.service.runtime import cooperative
from snapreplay.service.runtime.free_memory import memory_of
from snapreplay.snapshots.format.changes import split_changes
from snapreplay.snapshots.format.envelope import decode, encode
from snapreplay.snapshots.log.batches import apply_changes
from snapreplay.snapshots.log.by_replay import Input
from tests.support import apps
from tests.support.accepting import continues_by_a_witness, overtaken
from tests.support.in_memory import virtual
from tests.support.owner import Hang, unreachable
from tests.support.stage import until


class Copied:
    """A standby of the bench's partition, with every status that it has told. It ends with the bench."""

    def __init__(self, bench, context, left=None):
        bench.owners.append(self)
        self.told: list[Any] = []
        self.standby = StandbyTask(context, self.told.append, left)
        self.standby.start()

    @property
    def status(self):
        return self.told[-1] if self.told else self.standby.status

    async def failed(self, kind):
        def has_failed():
            return self.status.error is not None and (self.status.state, self.status.error.kind) == ("loading", kind)

        await until(has_failed, kind)

    async def end(self):
        await self.standby.end()

    async def handed_over(self):
        """End it. The store and the copy that it gave away, if it did."""
        given: list[Any] = []
        await self.standby.hand_over_to(lambda *each: given.append(each))
        return given

    async def warm(self, batch):
        await until(lambda: (self.status.state, self.status.batch) == ("warm", batch), f"batch {batch}")
        return self.status


async def followed(bench):
    """Return a live owner, and a warm copy of its ten records."""
    one = await bench.live_owner(records=10)
    copied = Copied(bench, await bench.context("two"))
    await copied.warm(one.status.batch)
    return one, copied


async def taken_over(bench, copied):
    """End the owner; let another one continue from the copy. Returns its status."""
    (handed,) = await copied.handed_over()
    two = await bench.owner("two")
    two.runner.take(*handed)
    await two.phase("live")
    return two


async def test_it_follows_every_batch_and_another_owner_continues_from_it(bench):
    """Nothing is loaded, the last batches are applied, and the digest is the recorded one."""
    one, copied = await followed(bench)
    await one.feed(10)
    status = await copied.warm(one.status.batch)
    assert (status.entries, status.digest) == (one.status.state_entries, str(one.runner.store.digest))
    assert status.digests_compared == one.status.batch + 1, "one of each batch, the genesis, too"
    await one.feed(10)
    two = await taken_over(bench, copied)
    restore = two.status.restore
    assert (restore.warm, restore.snapshot) == ("copied", None)
    assert restore.proof.recorded == restore.proof.computed
    await bench.feed(10)
    await bench.assert_exactly_once(two)


async def test_an_owner_that_continues_while_a_copy_is_begun_has_not_lost_the_end_of_its_log(
    bench, monkeypatch, caplog
):
    """Its witness names a batch that was committed after the end of the log was asked for. It is looked at again."""
    one = await bench.live_owner(records=10)
    left = overtaken(monkeypatch, 1, partial(continues_by_a_witness, bench, one))
    copied = Copied(bench, await bench.context("two"))
    await until(lambda: copied.status.batch == one.status.batch and not left, "a warm copy")
    assert {each.state for each in copied.told} == {"warm"}
    assert "lost its newest records" not in caplog.text


async def test_it_leaves_no_trace(bench):
    """No claim, no fence, no output: the owner keeps its producer."""
    one = await bench.live_owner(records=10)
    before, epoch = await bench.read(bench.increments), one.status.owner_epoch
    copied = Copied(bench, await bench.context("two"))
    await copied.warm(one.status.batch)
    assert await bench.read(bench.increments) == before
    await one.feed(10)
    await copied.warm(one.status.batch)
    await copied.standby.end()
    await bench.feed(10)
    await bench.assert_exactly_once(one)
    assert one.status.owner_epoch == epoch


async def test_what_is_not_committed_is_not_copied(bench):
    """An increment of an open transaction is in the log, and does not exist."""
    one, copied = await followed(bench)
    increment = (await bench.read(bench.increments))[0][-1].value
    bench.open_transaction("somebody", bench.increments, increment)
    looks = len(copied.told)
    await until(lambda: len(copied.told) > looks + 2, "more looks")
    assert {(each.batch, each.error) for each in copied.told[looks:]} == {(one.status.batch, None)}


async def test_a_batch_that_is_partly_applied_is_not_shown(bench, monkeypatch):
    """Neither as the state before nor as the one after it."""
    one, copied = await followed(bench)
    seen, apply = [], apply_changes

    def half(step, store):
        with pytest.raises(BatchUnderWay):
            copied.standby.readable()
        seen.append(step.increment.batch)
        return apply(step, store)

    monkeypatch.setattr(follower, "apply_changes", half)
    await one.feed(10)
    await copied.warm(one.status.batch)
    assert one.status.batch in seen
    assert copied.standby.readable().last.batch == one.status.batch


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_copy_is_handed_over_whole_or_not_at_all(bench, monkeypatch, hangs):
    """What is cut off in the middle of a batch is no state of the log; what ends in time is waited for."""
    await bench.prepare(changelog={"enabled": False}, batch={"records_max": 5})
    one, copied = await followed(bench)
    before, begun = one.status.batch, asyncio.Event()

    async def slow():
        if copied.standby._last is None:
            begun.set()
            await asyncio.sleep(1000 if hangs else 0.1)

    monkeypatch.setattr(cooperative, "YIELD_AFTER_SECONDS", -1.0)
    monkeypatch.setattr(cooperative, "pause", slow)
    await one.feed(20)
    await begun.wait()
    handed = await copied.handed_over()
    assert (not handed) == hangs
    for store, copy in handed:
        assert store.digest == copy.last.increment.digest
        assert before < copy.last.increment.batch < one.status.batch, "the rest comes after the fence"


async def test_a_copy_between_two_batches_is_handed_over_at_once(bench, monkeypatch):
    """The log, or an input, may not be readable, and the new owner finds that out by itself."""
    one, copied = await followed(bench)
    before, hang = one.status.batch, Hang()
    monkeypatch.setattr(Examiner, "follow", hang)
    await one.feed(10)
    await hang.called.wait()
    at = asyncio.get_running_loop().time()
    ((store, copy),) = await copied.handed_over()
    assert asyncio.get_running_loop().time() - at < 0.1
    assert (copy.last.increment.batch, store.digest) == (before, copy.last.increment.digest)
    monkeypatch.undo()
    two = await bench.owner("two")
    two.runner.take(store, copy)
    assert (await two.phase("live")).restore.warm == "copied"
    await bench.assert_exactly_once(two)


async def test_after_any_error_it_says_why_and_starts_over(bench, monkeypatch):
    """It is no owner: nothing is FAILED."""
    one = await bench.live_owner(records=10)
    follow, refused = Examiner.follow, list[Any]()

    async def first_refused(self, *given):
        if not refused:
            refused.append(given)
            raise DamagedError("increments-0 offset 7: checksum")
        return await follow(self, *given)

    monkeypatch.setattr(Examiner, "follow", first_refused)
    copied = Copied(bench, await bench.context("two"))
    await copied.warm(one.status.batch)
    await one.feed(10)
    assert (await copied.warm(one.status.batch)).error is None
    (failed,) = [each for each in copied.told if each.error is not None]
    assert (failed.state, failed.error.kind) == ("loading", "DamagedError")


async def test_a_copy_that_is_ahead_of_the_log_is_kept(bench):
    """The log has lost its end: the new owner says so, and the copy is still there."""
    one, copied = await followed(bench)
    await one.end()
    records = (await bench.read(bench.increments))[0]
    bench.recreate(bench.increments, records[:-3])
    await until(lambda: copied.status.state == "ahead", "ahead")
    assert "but batch" in copied.status.error.message
    ((_, copy),) = await copied.handed_over()
    assert copy.last.increment.batch == copied.status.batch


@pytest.mark.parametrize("is_seen_short", [True, False], ids=["seen in between", "grown again between two looks"])
@pytest.mark.parametrize("beyond", [0, 5], ids=["to the same end", "beyond the old end"])
async def test_a_copy_on_a_lost_branch_is_not_warm_again_when_the_log_has_grown(bench, is_seen_short, beyond):
    """Something else lies where its increment was, and no newer increment: it is ahead, and no fresh copy of anything.
    Once the log has its increment again, it is warm."""
    one, copied = await followed(bench)
    await one.end()
    log, batch = bench.log(bench.increments), copied.status.batch
    kept, end = log.frozen(), log.end
    first = bench.last_batch()[0]
    log.cut(first)
    if is_seen_short:
        await until(lambda: copied.status.state == "ahead", "ahead")
    while log.end < end + beyond:
        log.append(None, b"foreign", (), 1, None)
    await until(lambda: copied.status.state == "ahead", "ahead", 2 * SEE_AGAIN_SECONDS)
    at = asyncio.get_running_loop().time()
    await asyncio.sleep(10)
    assert {each.state for each in copied.told[-5:]} == {"ahead"}
    assert f"batch {batch} was committed at offset" in copied.status.error.message
    found = copied.standby.readable()
    assert found.age_seconds >= asyncio.get_running_loop().time() - at
    log.cut(first)
    log.copy(kept, end)
    assert (await copied.warm(batch)).error is None


async def test_a_copy_that_could_not_look_sees_its_increment_again_before_it_continues(bench, monkeypatch):
    """While no broker answered, the log was cut and another batch of the same number took its place."""
    await bench.prepare()
    one, copied = await followed(bench)
    log, newer = bench.log(bench.increments), Examiner.newer
    batch, looks = one.status.batch, len(copied.told)
    await until(lambda: len(copied.told) > looks + 2, "looks that find nothing newer")

    monkeypatch.setattr(Examiner, "newer", unreachable)
    await until(lambda: copied.status.error is not None, "no answer")
    _, known = bench.last_batch()
    record = log.records[known]
    forged = msgspec.structs.replace(decode(record.value), written_at_ms=1)
    log.records[known] = msgspec.structs.replace(record, value=encode(forged))
    await one.feed(10)
    monkeypatch.setattr(Examiner, "newer", newer)
    await copied.failed("BrokenChain")
    assert copied.status.batch == batch


async def test_a_copy_is_warm_up_to_the_acceptable_lag(bench):
    """A copy that is further behind is not gone on from before the session timeout, and no partition moves to it."""
    _, copied = await followed(bench)
    assert ACCEPTABLE_LAG_OFFSETS == 10_000  # as docs/operators.md#standbys says
    is_warm = {}
    for lag in (0, 10_000, 10_001):
        copied.standby._lag_offsets = lag
        is_warm[lag] = copied.standby.is_warm
    assert is_warm == {0: True, 10_000: True, 10_001: False}


async def test_what_cannot_be_read_for_a_moment_costs_no_copy(bench, monkeypatch):
    """Nothing was applied, so the copy is what it was."""
    one, copied = await followed(bench)
    newer, refused = Examiner.newer, list[Any]()

    async def first_refused(self):
        if not refused:
            refused.append(self)
            raise Unreachable("no broker")
        return await newer(self)

    monkeypatch.setattr(Examiner, "newer", first_refused)
    await one.feed(10)
    assert (await copied.warm(one.status.batch)).error is None
    assert [each.state for each in copied.told if each.error is not None] == ["warm"]
    assert refused


async def test_a_copy_that_cannot_look_is_not_taken_for_a_fresh_one(bench):
    """Another warm copy takes over first, if there is one. A copy that is ahead of the log is as fresh as can be."""
    _, copied = await followed(bench)
    for state, lag in ((CopyState.WARM, ACCEPTABLE_LAG_OFFSETS), (CopyState.AHEAD, 0)):
        assert copied.standby.known_lag == 0
        copied.standby._keep(state, Unreachable("no broker"))
        assert copied.standby.known_lag == lag
        copied.standby._update(state=CopyState.WARM, error=None)


async def test_a_copy_whose_increment_is_another_one_by_now_is_restored_in_full(bench):
    """A log that was cut may have another batch of the same number at the same place."""
    one, copied = await followed(bench)
    ((store, copy),) = await copied.handed_over()
    await one.feed(10)
    forged = msgspec.structs.replace(copy.last.increment, written_at_ms=1)
    two = await bench.owner("two")
    two.runner.take(store, WarmCopy(FoundIncrement(forged, copy.last.offset)))
    await two.phase("live")
    assert two.status.restore.warm is None
    await bench.assert_exactly_once(two)


@pytest.mark.parametrize(
    ("part_bytes", "is_recorded"),
    [(900_000, True), (200, True), (900_000, False)],
    ids=["in one record", "in several records", "by replay"],
)
async def test_a_reader_sees_whole_batches_only(bench, monkeypatch, part_bytes, is_recorded):
    """At each pause while the copy is loaded and follows: what a batch has, or nothing. In the end it is the newest."""
    monkeypatch.setattr(cooperative, "YIELD_AFTER_SECONDS", -1.0)
    monkeypatch.setattr(committer, "split_changes", partial(split_changes, record_bytes_max=part_bytes))
    seen: Counter[str] = Counter()

    def look():
        try:
            found = copied.standby.readable()
        except BatchUnderWay:
            seen["under way"] += 1
        except NotReadable:
            seen["loading"] += 1
        else:
            counts = sum(account["n"] for account in found.store.committed_view().values())
            assert counts == sum(found.last.positions.values()), f"batch {found.last.batch}"
            seen["whole"] += 1

    async def pause():
        look()
        await asyncio.sleep(0)

    await bench.prepare(changelog={"enabled": is_recorded})
    one = await bench.live_owner(records=40)
    copied = Copied(bench, await bench.context("two"))
    monkeypatch.setattr(cooperative, "pause", pause)
    await copied.warm(one.status.batch)
    await one.feed(40)
    await copied.warm(one.status.batch)
    found = copied.standby.readable()
    assert (found.last.batch, found.role, found.age_seconds <= 1.0) == (one.status.batch, "standby", True)
    assert seen["whole"]
    assert bool(seen["under way"]) == (part_bytes < 10_000 or not is_recorded), seen


async def test_a_copy_that_starts_over_shows_nothing(bench):
    """A read says that it is being loaded."""
    _, copied = await followed(bench)
    copied.standby.readable()
    copied.standby._failed(DamagedError("a changes record is damaged"))
    with pytest.raises(NotReadable, match="is being loaded"):
        copied.standby.readable()


WAYS: dict[str, Any] = {
    "no changes are recorded": (apps.ledger("app"), {"changelog": {"enabled": False}}),
    "it is to replay": (apps.ledger("app"), {"restore": {"mode": "replay"}}),
}


async def replayed(bench, way):
    """Return a live owner, and a warm copy of its ten records that was replayed."""
    app, tables = WAYS[way]
    await bench.prepare(app, **tables)
    return await followed(bench)


async def digest_of(store):
    return store.digest


@pytest.mark.parametrize("way", WAYS)
async def test_it_replays_every_batch_and_another_owner_continues_from_it(bench, way):
    """Nothing is loaded, and each record has one output: those of the copy are dropped."""
    one, copied = await replayed(bench, way)
    await one.feed(10)
    await copied.warm(one.status.batch)
    assert await digest_of(copied.standby._store) == await digest_of(one.runner.store)
    assert [each.error for each in copied.told if each.error] == []
    await one.feed(10)
    two = await taken_over(bench, copied)
    assert (two.status.restore.warm, two.status.restore.snapshot) == ("copied", None)
    await two.feed(10)
    sent = (await bench.read(bench.input))[0]
    assert await two.outputs() == [f"{bench.input}-0-{each.offset}" for each in sent]


def restless(differs):
    """An app that gives another state, or another output, where a standby runs it on some records."""
    payments, balances = Topic("payments-app"), Topic("balances-app")
    app = App("app", inputs=[payments], outputs=[balances], state=apps.accounts)

    @app.handler(payments)
    def on_payment(record, state, out):
        task = asyncio.current_task()
        is_copy = task is not None and task.get_name().startswith("standby")
        wrong = int(is_copy and record.value.get("restless", False))
        state[record.key]["sum"] += record.value["amount"] + (wrong if differs == "state" else 0)
        out.send(balances, key=record.key, value={"id": record.id, "wrong": wrong if differs == "outputs" else 0})

    return app


@pytest.mark.parametrize(("differs", "kind"), [("state", "DigestMismatch"), ("outputs", "OutputsDiffer")])
async def test_a_batch_that_comes_out_otherwise_is_not_kept(bench, differs, kind):
    """The app is not deterministic. The copy says so, and begins again from the owner's next snapshot."""
    await bench.prepare(restless(differs), changelog={"enabled": False})
    one, copied = await followed(bench)
    before = copied.status.batch
    await one.feed(10, restless=True)
    await copied.failed(kind)
    assert {each.batch for each in copied.told if each.state == "warm"} <= {0, before}
    assert await copied.handed_over() == []
    await one.snapshot()
    again = Copied(bench, await bench.context("two"))
    assert (await again.warm(one.status.batch)).error is None


async def test_it_replays_what_an_owner_does_not_record(bench):
    """While `changelog.enabled` is switched over, process by process: the copy begins by a replay and stays with it."""
    await bench.prepare(changelog={"enabled": False})
    one = await bench.live_owner(records=10)
    copied = Copied(bench, await bench.context("two", changelog={"enabled": True}))
    await copied.warm(one.status.batch)
    await one.feed(10)
    await copied.warm(one.status.batch)
    assert {each.state for each in copied.told if each.batch} == {"warm"}


async def test_another_version_than_the_owners_is_judged_as_in_every_replay(bench):
    """It is warm if a digest proves it."""
    await bench.prepare(apps.ledger("app", version="1"), changelog={"enabled": False})
    one = await bench.live_owner(records=10)
    await one.snapshot()
    copied = Copied(bench, await bench.context("two", apps.ledger("app", version="2")))
    await copied.warm(one.status.batch)
    await one.feed(10)
    await copied.warm(one.status.batch)


async def test_it_is_read_while_it_waits_for_the_input(bench, monkeypatch):
    """The batch before it is whole until the records of this one are there."""
    one, copied = await replayed(bench, "no changes are recorded")
    before, taking, seen = one.status.batch, Input.taking, []

    def looked(self, part):
        seen.append(copied.standby.readable().last.batch)
        return (yield from taking(self, part))

    monkeypatch.setattr(Input, "taking", looked)
    await one.feed(10)
    await copied.warm(one.status.batch)
    assert seen[0] == before


async def test_what_an_owner_left_is_kept_although_the_log_has_lost_its_end(bench):
    """It may be the only copy of that batch. It is looked at again and again."""
    one, copied = await followed(bench)
    (left,) = await copied.handed_over()
    await one.end()
    records = (await bench.read(bench.increments))[0]
    bench.recreate(bench.increments, records[:-3])
    again = Copied(bench, await bench.context("two"), left)
    await until(lambda: [each.state for each in again.told] == ["ahead"] * 3, "three looks")
    ((store, copy),) = await again.handed_over()
    assert store is left[0]
    assert copy is left[1]
    assert store.digest == copy.last.increment.digest


async def test_what_an_owner_left_is_not_warm_while_the_snapshot_is_loaded_in_its_place(bench, monkeypatch):
    """Else the partition would move here, and be restored first."""
    _, copied = await followed(bench)
    ((store, copy),) = await copied.handed_over()
    forged = msgspec.structs.replace(copy.last.increment, written_at_ms=1)
    load, begun, lets_go = RecoveryExecutor.load, asyncio.Event(), asyncio.Event()

    async def slow(self, effect):
        begun.set()
        await lets_go.wait()
        return await load(self, effect)

    monkeypatch.setattr(RecoveryExecutor, "load", slow)
    left = WarmCopy(FoundIncrement(forged, copy.last.offset))
    again = Copied(bench, await bench.context("two"), (store, left))
    await begun.wait()
    assert not again.standby.is_warm
    lets_go.set()
    await again.warm(copy.last.increment.batch)
    assert again.standby.is_warm


async def test_copies_look_at_the_same_time(bench, monkeypatch):
    """Whenever each was begun: then many of them ask a broker as one."""
    one = await bench.live_owner()
    newer, looked = Examiner.newer, dict[Any, list[float]]()

    async def noted(self):
        looked.setdefault(self, []).append(asyncio.get_running_loop().time())
        return await newer(self)

    monkeypatch.setattr(Examiner, "newer", noted)
    copies = []
    for name in ("two", "three", "four"):
        copies.append(Copied(bench, await bench.context(name)))
        await copies[-1].warm(one.status.batch)
        await asyncio.sleep(0.17)  # in virtual time, between two looks
    await until(lambda: len(looked) == len(copies) and min(map(len, looked.values())) > 4, "some looks")
    assert len({round(each, 3) for times in looked.values() for each in times[-3:]}) <= 4


async def test_a_copy_that_does_not_fit_is_not_loaded_before_it_does(bench, monkeypatch):
    """The process would end, and its own partitions with it. The status has the reason."""
    one = await bench.live_owner(records=10)
    await one.snapshot()
    monkeypatch.setattr(standby, "available_bytes", lambda _: 10)
    copied = Copied(bench, await bench.context("two"))
    await until(lambda: len(copied.told) == 3, "three attempts")
    assert {(each.state, each.error.kind) for each in copied.told} == {("loading", "NoRoom")}
    assert re.fullmatch(r"the copy takes about [\d,]+ bytes of memory, and 10 are free", copied.status.error.message)
    monkeypatch.setattr(standby, "available_bytes", lambda _: 10**9)
    assert (await copied.warm(one.status.batch)).error is None


async def test_it_is_said_once_a_minute_that_a_copy_does_not_fit(bench, monkeypatch, caplog):
    """Although what is free is another figure at each attempt."""
    await bench.prepare(restore={"retry_backoff_max_ms": 5000})
    one = await bench.live_owner(records=10)
    await one.snapshot()
    free = itertools.count(10)
    monkeypatch.setattr(standby, "available_bytes", lambda _: next(free))
    copied = Copied(bench, await bench.context("two"))
    await until(lambda: len(copied.told) == 40, "forty attempts", 1000)
    said = [each.message for each in caplog.records if "starts over" in each.message]
    assert 2 <= len(said) <= 10
    assert "(repeated" in said[-1]


async def test_the_rest_of_a_copy_is_judged_by_the_part_that_is_loaded(bench, monkeypatch):
    """A manifest does not say how large the entries are when unpacked. What was loaded is given up at once."""
    _, copied = await followed(bench)
    store = copied.standby._store
    here = standby.Room(store, lambda: None)
    here.restore(snapshot=SnapshotUsed("5c1d", 1, 9, entries=100, size_bytes=1000, created_at=LONG_AGO))
    rest_bytes = memory_of(10 * store.size_bytes, 100) * 9 // 10
    monkeypatch.setattr(standby, "available_bytes", lambda _: rest_bytes)
    here.progress("bytes", 0, 100, 1000)
    monkeypatch.setattr(standby, "available_bytes", lambda _: rest_bytes - 1)
    here.progress("records", 0, 100, 1000)
    with pytest.raises(standby.NoRoom, match="of which 10% are loaded") as raised:
        here.progress("bytes", 0, 100, 1000)
    copied.standby._failed(raised.value)
    assert store.size_bytes == 0


TOO_LARGE = 1


@pytest.fixture
def held(bench, monkeypatch):
    """`await held(examined)` holds copies of two partitions that are to be owned here; what the group was asked for,
    in order. `examined()` comes before partition 1 is loaded."""
    examine, made = Examiner.examine_beside_owner, list[Standbys]()

    async def hold(examined):
        async def examining(self, *given):
            if self._context.partition == TOO_LARGE:
                await examined()
            return await examine(self, *given)

        monkeypatch.setattr(Examiner, "examine_beside_owner", examining)
        bench.create_topics(2)
        await bench.prepare()
        context, asked = await bench.context("two"), list[Any]()
        made.append(Standbys(lambda number: replace(context, partition=number), StatusBoard(), lambda _: False))
        made[0].hold({0, 1}, frozenset({0, 1}), lambda: asked.append(set(made[0].warm)))
        await until(lambda: made[0].warm == {0}, "the first one")
        return asked, made[0]

    return hold


@virtual
async def test_a_copy_that_cannot_be_loaded_holds_up_no_other(held):
    """A process that was added because memory is short would get nothing as long as one state is too large for it."""

    async def no_room():
        raise NoRoom("the copy takes about 2,000,000,000 bytes of memory, and 1,000,000,000 are free")

    asked, standbys = await held(no_room)
    await until(lambda: asked, "a new assignment is asked for")
    assert asked == [{0}]
    await standbys.end()


@virtual
async def test_a_copy_that_is_still_loaded_is_waited_for(held):
    """Else each of them would cost a rebalance."""
    lets_go = asyncio.Event()
    asked, standbys = await held(lets_go.wait)
    await asyncio.sleep(30)  # of virtual time
    assert not asked
    lets_go.set()
    await until(lambda: asked, "a new assignment is asked for")
    assert asked == [{0, 1}]
    await standbys.end()


async def test_a_look_of_one_copy_does_not_go_through_all_others(bench, monkeypatch):
    """Each of some hundred copies looks twice a second."""
    bench.create_topics(20)
    await bench.prepare()
    context, asked, is_warm = await bench.context("two"), list[StandbyTask](), vars(StandbyTask)["is_warm"].fget

    def counted(standby):
        asked.append(standby)
        return is_warm(standby)

    monkeypatch.setattr(StandbyTask, "is_warm", property(counted))
    standbys = Standbys(lambda number: replace(context, partition=number), StatusBoard(), lambda _: False)
    standbys.hold(set(range(20)), frozenset({0}), lambda: None)
    await asyncio.sleep(60)  # of virtual time
    assert standbys.warm == set(range(20))
    looks = 20 * 60 / LOOK_SECONDS
    assert len(asked) < looks / 10
    await standbys.end()
