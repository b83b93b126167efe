"""Correcting entries: as expected or not at all, exactly once, beside a running owner, in every kind of log."""

import asyncio
import json

import msgspec
import pytest

from snapreplay import App, MapState, Stores, Topic
from snapreplay.app.names import witness_group
from snapreplay.service.core.witness import Witness
from snapreplay.service.decisions.init import init_app
from snapreplay.service.decisions.patch import OtherVersion, OwnerTookItBack, carry_out, close, propose
from snapreplay.service.ports import CommittedOffset, TopicPartition
from snapreplay.service.publish.state import LogWentOn
from snapreplay.service.recovery.input_identity import InputTrimmed
from snapreplay.state.correction import NotCorrected
from tests.support.accepting import fenced_while_writing, overtaken

WRONG, RIGHT = {"n": 7, "sum": 420}, {"n": 7, "sum": 400}
LINE = {"key": "k0", "expected": WRONG, "value": RIGHT}


async def proposed(bench, *lines, app=None, **tables):
    """Find what `patch --dry-run` finds."""
    news: list[str] = []
    text = [json.dumps(each).encode() for each in lines]
    return await propose(app or bench.app, bench.settings(**tables), bench.cluster, text, "ticket 17", news.append)


async def patched(bench, *lines, **given):
    """Do what `patch --yes` does."""
    return [await carry_out(each) for each in await proposed(bench, *lines, **given)]


async def past(bench, **tables):
    """120 records and 20 that add to k0: k0 is WRONG."""
    await bench.past(**tables)
    async with bench.live() as one:
        await one.feed(20)


async def test_an_entry_is_corrected_by_one_fenced_increment_that_says_so(bench):
    """From which value to which, why, by whom, the digest before and after, no outputs; the next owner has it."""
    await past(bench)
    before = bench.batches()[-1]
    outputs = await bench.read(bench.output)
    (begun,) = await patched(bench, LINE)
    after = bench.batches()[-1]
    assert (after, after.batch) == (begun.increment, before.batch + 1)
    assert (after.ranges, after.outputs, after.positions) == ([], {}, before.positions)
    assert after.begins_chain
    said = after.decision
    assert said["finding"].startswith("state-patched-")
    assert said["problem"] == f"1 entry of the state after batch {before.batch} had to be corrected"
    assert """state['k0']: {"n":7,"sum":420} → {"n":7,"sum":400}""" in said["decided"]
    assert f"digest {before.digest} became {after.digest}" in said["decided"]
    assert said["reason"] == "ticket 17"
    assert await bench.read(bench.output) == outputs
    async with bench.live() as one:
        assert one.view()["k0"] == RIGHT
        await one.feed(20)
        assert one.view()["k0"] == {"n": 8, "sum": 400 + 140}
        assert [each.finding for each in one.status.decisions] == [said["finding"]]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            {"key": "k0", "expected": RIGHT, "value": WRONG},
            'is {"n":7,"sum":420}, but was expected to be {"n":7,"sum":',
        ),
        ({"key": "k0", "absent": True, "value": RIGHT, "partition": 0}, "but was expected to be no entry"),
        ({"key": "unknown", "expected": WRONG, "delete": True}, "unknown.*is in no partition"),
        (
            {"key": "unknown", "expected": WRONG, "delete": True, "partition": 0},
            "is not there, but .* was expected; applying the line would change nothing",
        ),
        ({"key": "new", "absent": True, "value": RIGHT}, 'an entry that is added needs "partition"'),
    ],
)
async def test_nothing_is_corrected_if_one_line_expects_something_else(bench, line, why):
    """The other line would have been right."""
    await past(bench)
    good = {"key": "k1", "expected": {"n": 7, "sum": 427}, "delete": True}
    before = await bench.read(bench.increments)
    with pytest.raises(NotCorrected, match=f"1 line cannot be carried out, so nothing was changed:\n  line 2: .*{why}"):
        await patched(bench, good, line)
    assert await bench.read(bench.increments) == before


async def test_entries_are_added_and_deleted_and_taken_back(bench):
    """The lines that take a patch back lead to the same digest, by another decision."""
    await past(bench)
    before = bench.batches()[-1]
    (patch,) = await proposed(
        bench,
        {"key": "new", "absent": True, "value": RIGHT, "partition": 0},
        {"key": "k1", "expected": {"n": 7, "sum": 427}, "delete": True},
    )
    undo = [json.loads(each.undone()) for each in patch.corrections]
    await carry_out(patch)
    async with bench.live() as one:
        assert "k1" not in one.view()
        assert one.view()["new"] == RIGHT
    assert undo[0] == {
        "store": "default",
        "key": "new",
        "expected": RIGHT,
        "delete": True,
        "partition": 0,
        "reason": "takes back: ticket 17",
    }
    await patched(bench, *undo)
    assert bench.batches()[-1].digest == before.digest
    await bench.restored()


async def test_batches_that_a_running_owner_commits_meanwhile_are_kept(bench, monkeypatch):
    """During the look they are no lost end of the log, not even with a snapshot. Then the owner is fenced, its batches
    since the proposal are followed, and it comes back to the corrected state."""
    await past(bench)
    async with bench.live() as one:

        async def go_on():
            await one.feed(20)
            await one.snapshot()

        epoch, left = one.status.owner_epoch, overtaken(monkeypatch, 1, go_on)
        (patch,) = await proposed(bench, {"key": "new", "absent": True, "value": RIGHT, "partition": 0})
        assert not left
        await one.feed(20)
        await carry_out(patch)
        await one.feed(20)
        assert one.status.owner_epoch > epoch
        assert one.view()["new"] == RIGHT
        assert one.view()["k0"] == {"n": 10, "sum": 420 + 140 + 160 + 180}


async def test_a_patch_that_stopped_half_way_is_run_again_as_it_is(bench):
    """The partition that is done is passed over. When all are, nothing is left to do."""
    two = bench.beside(App("two", inputs=[Topic("in-two")], state=lambda: MapState(str, int)), 2)
    two.app.handler(two.app.inputs[0])(lambda *_: None)
    await init_app(two.app, two.settings(), two.cluster)
    lines = [{"key": "new", "absent": True, "value": 7, "partition": number} for number in range(2)]
    first, _ = await proposed(two, *lines)
    await carry_out(first)
    (second,) = await proposed(two, *lines)
    assert (first.partition, second.partition) == (0, 1)
    await carry_out(second)
    assert await proposed(two, *lines) == []
    with pytest.raises(NotCorrected, match="state\\['new'\\] is 7"):
        await proposed(two, *[{**each, "value": 8} for each in lines])


async def test_a_key_that_two_partitions_have_needs_a_partition(bench):
    """Nothing is guessed; the other one keeps its value."""
    two = bench.beside(App("two", inputs=[Topic("in-two")], state=lambda: MapState(str, int)), 2)
    two.app.handler(two.app.inputs[0])(lambda *_: None)
    await init_app(two.app, two.settings(), two.cluster)
    await patched(two, *({"key": "eve", "absent": True, "value": 1, "partition": number} for number in range(2)))
    line = {"key": "eve", "expected": 1, "value": 2}
    with pytest.raises(NotCorrected, match="state\\['eve'\\] is in the partitions 0, 1: say which"):
        await proposed(two, line)
    (begun,) = await patched(two, line | {"partition": 1})
    assert "state['eve']: 1 → 2" in begun.increment.decision["decided"]
    assert await proposed(two, line | {"partition": 1}) == []
    (left,) = await proposed(two, line | {"partition": 0})
    await close([left])


async def test_an_owner_without_input_comes_back_to_the_corrected_state(bench):
    """Nothing is committed that could tell it of the fence: the end of its log does."""
    await past(bench)
    async with bench.live() as one:
        watch = asyncio.create_task(one.watch_end())
        epoch = one.status.owner_epoch
        await patched(bench, LINE)
        await one.again_live(epoch)
        assert one.view()["k0"] == RIGHT
    await watch


async def test_an_entry_that_changes_after_the_look_is_not_corrected(bench):
    """The owner's value stays, and the owner comes back."""
    await past(bench)
    async with bench.live() as one:
        (patch,) = await proposed(bench, LINE)
        await one.feed(1)
        with pytest.raises(NotCorrected, match=r'is {"n":8,"sum":560}, but was expected'):
            await carry_out(patch)
        await one.feed(19)
    await bench.restored()


async def test_without_recorded_changes_an_owner_that_continues_is_followed_by_replay(bench):
    """If its records are gone, nothing is decided; once the owner was stopped, the same patch is done."""
    await past(bench, changelog={"enabled": False})
    async with bench.live() as one:
        (patch,) = await proposed(bench, LINE)
        await one.feed(20)
        with pytest.raises(NotCorrected, match=r'is {"n":8,"sum":560}, but was expected'):
            await carry_out(patch)
        (patch,) = await proposed(bench, {"key": "k0", "expected": {"n": 8, "sum": 560}, "value": RIGHT})
        await one.feed(20)
        bench.trim(bench.input, 180)
        with pytest.raises(LogWentOn, match="has committed up to batch") as refused:
            await carry_out(patch)
        assert "stop the app, run the command again" in refused.value.hint
    await patched(bench, {"key": "k0", "expected": {"n": 9, "sum": 720}, "value": RIGHT})
    async with bench.live() as one:
        assert one.view()["k0"] == RIGHT


async def test_a_patch_that_was_fenced_is_tried_again(bench, monkeypatch):
    """The running owner takes its partition back; later tries have more time."""
    await past(bench)
    fenced_while_writing(monkeypatch, 3)
    await patched(bench, LINE)
    async with bench.live() as one:
        assert one.view()["k0"] == RIGHT


async def test_a_patch_that_is_fenced_every_time_gives_up_with_a_way_out(bench, monkeypatch):
    """Nothing was changed; stopping the app, which ends the fences, is the way."""
    await past(bench)
    fenced_while_writing(monkeypatch, 4)
    with pytest.raises(OwnerTookItBack, match="took partition 0 back 4 times") as refused:
        await patched(bench, LINE)
    assert refused.value.hint.startswith("if the app runs, stop it; if another patch runs, wait for it")
    await bench.restored()
    await patched(bench, LINE)


async def test_a_partition_that_could_not_recover_is_not_patched(bench):
    """The error of the recovery, with its own hint."""
    await bench.past()
    await bench.feed(20)
    bench.trim(bench.input, 130)
    with pytest.raises(InputTrimmed, match="10 offsets are gone") as refused:
        await patched(bench, LINE)
    assert "snapreplay accept" in refused.value.hint


class Narrow(msgspec.Struct):
    n: int = 0


class Wider(msgspec.Struct):
    n: int = 0
    more: int = 0


def typed(value):
    """Count payments by key in values of this type."""
    inputs = Topic("payments-app")
    app = App("app", inputs=[inputs], state=lambda: MapState(str, value, default=value))

    @app.handler(inputs)
    def on_payment(record, state, out):
        state[record.key].n += 1

    return app


def shop(name):
    """Two stores; what is in `offers` expires an hour after it was touched."""
    inputs = Topic(f"payments-{name}")
    app = App(
        name,
        inputs=[inputs],
        state=lambda: Stores(items=MapState(str, int), offers=MapState(tuple[str, int], int, ttl_ms=3_600_000)),
    )

    @app.handler(inputs)
    def on_item(record, state, out):
        state.items[record.key] = record.value["amount"]
        state.offers[record.key, 1] = record.value["amount"]

    return app


async def test_stores_are_named_and_tuples_are_keys(bench):
    """One decision over two stores; what expires was touched by it."""
    await bench.prepare(shop("app"))
    async with bench.live() as one:
        await one.feed(3)
    await patched(
        bench,
        {"store": "items", "key": "k2", "expected": 2, "value": 5},
        {"store": "offers", "key": ["k1", 1], "expected": 1, "delete": True},
        {"store": "offers", "key": ["k2", 1], "expected": 2, "value": 6, "reason": "agreed by phone"},
    )
    said = bench.batches()[-1].decision
    assert "state.items['k2']: 2 → 5; state.offers[('k1', 1)]: 1 → no entry" in said["decided"]
    assert said["reason"] == "ticket 17; agreed by phone"
    async with bench.live() as one:
        state = one.runner.store.committed_view()
        assert dict(state.items) == {"k0": 0, "k1": 1, "k2": 5}
        assert dict(state.offers) == {("k0", 1): 0, ("k2", 1): 6}


async def test_an_entry_stands_in_one_line_also_if_only_one_names_the_partition(bench):
    """Their order would decide."""
    await past(bench)
    with pytest.raises(NotCorrected, match=r"line 2: .*is in line 1 already"):
        await proposed(bench, LINE, {"key": "k0", "expected": WRONG, "delete": True, "partition": 0})


async def test_an_input_that_was_copied_since_the_look_is_the_input_of_the_next_batches(bench):
    """The owner has gone on with a faithful copy: the decision names the topic that its positions are in."""
    await past(bench)
    (patch,) = await proposed(bench, {"key": "new", "absent": True, "value": RIGHT, "partition": 0})
    bench.copy_again(bench.input, 140)
    async with bench.live() as one:
        await one.feed(20)
    begun = await carry_out(patch)
    assert begun.increment.positions == {bench.input: 160}
    assert begun.increment.topic_ids == bench.batches()[-2].topic_ids
    assert begun.increment.topic_ids[bench.input] == bench.broker.topic_ids[bench.input]


async def test_other_fields_than_the_running_version_has_are_not_recorded(bench):
    """The running version could not continue with them."""
    await bench.prepare(typed(Narrow))
    async with bench.live() as one:
        await one.feed(1)
    line = {"key": "k0", "expected": {"n": 1}, "value": {"n": 2}}
    with pytest.raises(OtherVersion, match="values have other fields in app version") as refused:
        await proposed(bench, line, app=typed(Wider))
    assert (
        refused.value.hint
        == "run the command with the version that wrote the state; or let this version commit a batch first"
    )
    await patched(bench, line)
    async with bench.live(typed(Wider)) as one:
        await one.feed(1)
    await patched(bench, {"key": "k0", "expected": {"n": 2}, "value": {"n": 2, "more": 1}}, app=typed(Wider))


def timed_shop(name):
    """As `shop`, with timers of all entries."""
    app = shop(name)
    (inputs,) = app.inputs
    put = app.handlers[inputs]

    def on_item(record, state, out):
        put(record, state, out)
        state.items.schedule(record.key, 1_000_000, timer="ring")
        state.items.schedule(record.key, 2_000_000, timer="bell")
        state.offers.schedule((record.key, 1), 1_000_000, timer="ring")

    app.handlers[inputs] = on_item
    for each in ("ring", "bell"):
        app.timer(each)(lambda timer, state, out: None)
    return app


async def test_the_timers_of_a_deleted_entry_are_deleted_with_it(bench):
    """They would fire without it. Those of other entries, and of the same key in another store, stay; the command names
    them beforehand, and the decision names them for good."""
    await bench.prepare(timed_shop("app"))
    async with bench.live() as one:
        await one.feed(3)
    line = {"store": "items", "key": "k1", "expected": 1, "delete": True}
    other = {"store": "items", "key": "k2", "expected": 2, "value": 5}
    (patch,) = await proposed(bench, line, other)
    assert patch.timers == {1: ["bell", "ring"]}
    await carry_out(patch)
    said = bench.batches()[-1].decision
    assert "state.items['k1']: 1 → no entry and its timers bell, ring; state.items['k2']: 2 → 5" in said["decided"]
    async with bench.live() as one:
        state = one.runner.store.view
        assert dict(one.runner.store.committed_view().items) == {"k0": 0, "k2": 5}
        timers = {
            (key, name): state.items.scheduled(key, timer=name) for key in ("k0", "k1") for name in ("ring", "bell")
        }
        assert timers == {
            ("k0", "ring"): 1_000_000,
            ("k0", "bell"): 2_000_000,
            ("k1", "ring"): None,
            ("k1", "bell"): None,
        }
        assert state.offers.scheduled(("k1", 1), timer="ring") == 1_000_000


@pytest.mark.parametrize("has_owner", [False, True], ids=["at once", "after more records"])
async def test_the_slower_of_two_patches_at_once_learns_of_the_other(bench, has_owner):
    """It decides nothing. Run again, it finds the entry as the other one has left it: the same lines are done already,
    unless records have changed the entry since."""
    await past(bench)
    (slower,) = await proposed(bench, LINE)
    (begun,) = await patched(bench, LINE)
    if has_owner:
        async with bench.live() as one:
            await one.feed(20)
    with pytest.raises(LogWentOn, match=f"another decision was made .* offset {begun.offset}. Nothing") as refused:
        await carry_out(slower)
    assert refused.value.hint == "run the command again: it examines the present state"
    if has_owner:
        with pytest.raises(NotCorrected):
            await proposed(bench, LINE)
    else:
        assert await proposed(bench, LINE) == []


async def test_an_undo_at_once_is_not_done_already(bench, monkeypatch):
    """What it is to undo is committed, and its marker is still on the way: the entry seems to be as it was before."""
    await past(bench)
    monkeypatch.setattr(bench.broker, "_marker_lag", lambda: 2.0)
    (begun,) = await patched(bench, LINE)
    undo = {"key": LINE["key"], "expected": RIGHT, "value": WRONG}
    with pytest.raises(LogWentOn, match=f"another decision was made .* offset {begun.offset}. Nothing"):
        await proposed(bench, undo)
    (again,) = await proposed(bench, undo)
    await close([again])


async def test_batches_that_a_witness_knows_are_not_decided_away(bench):
    """The owner has committed three more, and the log was rolled back to where it was. Nothing is written but the
    claim."""
    await past(bench)
    (patch,) = await proposed(bench, LINE)
    later = msgspec.structs.replace(patch.last.increment, batch=patch.last.increment.batch + 3)
    witness = Witness.of(bench.increments, later, patch.last.offset + 9)
    place = witness_group(bench.app.app_id), TopicPartition(bench.increments, 0)
    bench.broker.group_offsets[place] = CommittedOffset(patch.last.offset + 10, witness.metadata)
    before = bench.batches()
    with pytest.raises(LogWentOn, match="its log has lost its newest records since it was examined"):
        await carry_out(patch)
    assert bench.batches() == before


async def test_a_log_that_was_made_again_since_the_look_is_not_decided_about(bench):
    """What was examined may be another state, even if all of it is there again."""
    await past(bench)
    (patch,) = await proposed(bench, LINE)
    bench.copy_again(bench.increments, len((await bench.read(bench.increments))[0]))
    with pytest.raises(LogWentOn, match="its log was truncated or created again since it was examined"):
        await carry_out(patch)
