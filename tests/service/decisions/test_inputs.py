"""Inputs are added and retired by an increment in the chain as it is: the state stays, and every reader continues."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import pytest

from snapreplay.errors import UsageError
from snapreplay.service.blocking import BlockingReader
from snapreplay.service.decisions import accept
from snapreplay.service.decisions.inputs import NotDrained, NotRetirable, Wish, carry_out, propose
from snapreplay.service.publish.state import LogWentOn
from snapreplay.snapshots.jobs.compaction import folded as folded_in
from snapreplay.snapshots.jobs.fixed_logs import PartitionLogs, moment_of
from snapreplay.snapshots.log.batches import Batches, apply_changes
from snapreplay.snapshots.proof.partition import audit_partition
from snapreplay.snapshots.proof.replay import SegmentReport, prove
from snapreplay.snapshots.proof.report import Level
from snapreplay.snapshots.proof.state import Entries
from snapreplay.state.steps import all_of
from tests.support.accepting import finding_in
from tests.support.rewired import Story, folded, sums
from tests.support.stage import Stage, phase, processed, until
from tests.support.tampering import delete, trim

pytestmark = pytest.mark.kafka


@pytest.fixture
async def story(broker, unique):
    return Story(broker.bootstrap_servers, unique("inputs"))


async def test_one_is_added_another_retired_and_taken_back(story):
    """The state is folded by hand all the way; the version before is refused by name, and by a restart, too."""
    one, two, three = story.of("a"), story.of("a", "b"), story.of("b")
    await one.prepare()
    await story.feed("a", 1, 3)
    assert await story.run(one, {"a": 15}) == folded((1, 3))
    await story.created("b")
    await story.feed("b", 100, 2)
    await story.refused(two)
    (added,) = await story.change(two, "earliest")
    assert added.increment.decision["decided"].startswith(f"input b-{story.name} is read from offset 0 on")
    await story.refused(one)
    assert await story.run(two, {"a": 15, "b": 10}) == folded((1, 3), (100, 2))
    await story.feed("a", 7, 1)
    with pytest.raises(
        NotDrained,
        match=f"input a-{story.name}-0 is not processed to its end: it was read up to offset 15, and 5 records",
    ):
        await story.change(three)
    assert await story.run(two, {"a": 20}) == folded((1, 3), (100, 2), (7, 1))
    (retired,) = await story.change(three, reason="moved")
    assert retired.increment.decision["decided"].startswith(f"input a-{story.name} is retired at offset 20")
    assert set(retired.increment.positions) == {f"b-{story.name}"} == set(retired.increment.genesis.start_offsets)
    assert await story.change(three) == []
    await story.feed("a", 9, 1)
    await story.feed("b", 50, 1)
    assert await story.run(three, {"b": 15}) == folded((1, 3), (100, 2), (7, 1), (50, 1))
    await story.change(two, "resume")
    assert await story.run(two, {"a": 25, "b": 15}) == folded((1, 3), (100, 2), (7, 1), (50, 1), (9, 1))


async def test_the_version_before_may_run_meanwhile(story):
    """It is fenced, keeps nothing that is nowhere else, and leaves the group; what it had committed counts."""
    one, two = story.of("a"), story.of("a", "b")
    await one.prepare()
    await story.created("b")
    async with one.running() as service:
        await story.feed("a", 1, 1)
        await processed(service, {0: 5}, f"a-{story.name}")
        (proposed,) = await propose(two.app, two.settings(), two.cluster, Wish("earliest"))
        await story.feed("a", 2, 1)
        await processed(service, {0: 10}, f"a-{story.name}")
        done = await carry_out(proposed)
        assert done.increment.positions == {f"a-{story.name}": 10, f"b-{story.name}": 0}
        await story.feed("a", 3, 1)
        assert (await phase(service, "failed")).error.kind == "WrongLog"
    assert (await carry_out(proposed)) == done
    await story.feed("b", 100, 1)
    assert await story.run(two, {"a": 15, "b": 5}) in (folded((1, 3), (100, 1)), folded((1, 2), (100, 1), (3, 1)))


async def test_a_new_input_begins_where_the_command_says(story):
    """At its end, or at the first record that is not earlier than a time; without that, and with a typo, nowhere."""
    one, two, three = story.of("a"), story.of("a", "b"), story.of("a", "b", "c")
    await one.prepare()
    await story.created("b", "c")
    await story.feed("b", 100, 1)
    await story.change(two, "latest")
    await story.feed("c", 5, 1)
    between = datetime.now(UTC).isoformat()
    await story.feed("c", 6, 2)
    with pytest.raises(UsageError, match=f"new input c-{story.name} needs a place to begin"):
        await story.change(three)
    with pytest.raises(UsageError, match="--from 2026-11-03 is not a valid value"):
        await story.change(three, "2026-11-03")
    with pytest.raises(UsageError, match="the log does not show that"):
        await story.change(three, "resume")
    (added,) = await story.change(three, between)
    assert added.increment.positions == {f"a-{story.name}": 0, f"b-{story.name}": 5, f"c-{story.name}": 5}
    assert await story.run(three, {"c": 15}) == folded((6, 2))


async def test_what_only_a_replay_restores_is_not_retired(broker, unique):
    """Without recorded changes the records of the input are needed, until a snapshot is taken."""
    story = Story(broker.bootstrap_servers, unique("replayed"), changelog={"enabled": False})
    one, two, three = story.of("a"), story.of("a", "b"), story.of("b")
    await one.prepare()
    await story.created("b")
    await story.feed("a", 1, 2)
    assert await story.run(one, {"a": 10}) == folded((1, 2))
    await story.change(two, "earliest")
    await story.feed("b", 100, 1)
    assert await story.run(two, {"a": 10, "b": 5}) == folded((1, 2), (100, 1))
    with pytest.raises(NotRetirable, match="can be restored only by a replay of a-"):
        await story.change(three)
    async with two.running(snapshot={"before_stop": True}):
        pass
    (late,) = await propose(three.app, three.settings(), three.cluster, Wish())
    await story.created("c")
    await story.change(story.of("b", "c"), "earliest")
    with pytest.raises(LogWentOn, match="another command has changed them meanwhile"):
        await carry_out(late)
    await story.change(three)
    assert await story.run(three, {"b": 5}) == folded((1, 2), (100, 1))


async def test_a_batch_that_passed_markers_only_needs_no_replay(bench):
    """A snapshot has everything before it, and no other is taken behind it: nothing has changed."""
    two, one = sums("lean", "a", "b"), sums("lean", "b")
    await bench.prepare(two, changelog={"enabled": False})
    async with bench.live() as owner:
        await bench.send([("k0", 1)], "a-lean")
        await owner.position(1, "a-lean")
        await owner.snapshot()
        epoch = bench.open_transaction("other", "a-lean", b"2")
        bench.broker.end_transaction("other", epoch, commit=False)
        await until(lambda: bench.batches()[-1].positions["a-lean"] == 3, "the marker is passed", 60.0)
    (proposed,) = await propose(one, bench.settings(), bench.cluster, Wish())
    await carry_out(proposed)
    async with bench.live(one) as owner:
        assert (owner.view(), owner.status.restore.mode) == ({"k0": 1}, "replay")


async def test_unwanted_records_are_left(story):
    """Only if it is said; and what the app declares is not retired, nor what is no input."""
    two, one = story.of("a", "b"), story.of("b")
    await story.created("b")
    await two.prepare()
    await story.feed("a", 1, 1)
    with pytest.raises(NotRetirable, match=f"input a-{story.name} exists, and the app declares it"):
        await story.change(two, retire=(f"a-{story.name}",))
    assert await story.run(two, {"a": 5}) == folded((1, 1))
    (drained,) = await propose(one.app, one.settings(), one.cluster, Wish())
    await story.feed("a", 2, 1)
    with pytest.raises(NotDrained, match="read up to offset 5, and 5 records are left"):
        await carry_out(drained)
    (left,) = await story.change(one, leave_records=True)
    assert "5 records are left up to offset 10: the rest, up to offset 10, is" in left.increment.decision["decided"]
    with pytest.raises(UsageError, match="topic no-such is not an input"):
        await story.change(one, retire=("no-such",))


@pytest.mark.parametrize("changes", [True, pytest.param(False, marks=pytest.mark.whole)], ids=["changes", "replay"])
@pytest.mark.parametrize(
    "made_again", [False, pytest.param(True, marks=pytest.mark.whole)], ids=["resumed", "made again"]
)
async def test_every_reader_of_the_log_follows_an_input_that_is_taken_in_again(broker, unique, changes, made_again):
    """The state after each batch, a snapshot from the log alone, an audit by replay. Batches of a topic that was made
    again cannot be replayed, and are no damage: their records are not those of the topic that has the name now."""
    story = Story(broker.bootstrap_servers, unique("again"), changelog={"enabled": changes})
    two, one = story.of("a", "b"), story.of("b")
    await story.created("b")
    await two.prepare()
    await story.feed("a", 1, 1)
    async with two.running(snapshot={"before_stop": not changes}) as service:
        await processed(service, {0: 5}, f"a-{story.name}")
    await story.change(one)
    await story.feed("b", 20, 1)
    await story.run(one, {"b": 5})
    if made_again:
        await asyncio.to_thread(delete, story.servers, f"a-{story.name}")
        await story.created("a")
    await story.feed("a", 7, 2)
    if made_again:  # its offsets mean something else
        with pytest.raises(UsageError, match=f"topic a-{story.name} was created again since it was retired"):
            await story.change(two, "resume")
    await story.change(two, "earliest" if made_again else "resume")
    ended = {"a": 10 if made_again else 15, "b": 5}
    states = [{}, folded((1, 1)), folded((1, 1), (20, 1)), folded((1, 1), (20, 1), (7, 2))]
    assert await story.run(two, ended) == states[-1]
    found = await asyncio.to_thread(_read_from_the_log, two)
    if changes:
        assert found.compacted == states[-1]
        assert list(dict.fromkeys(map(str, found.states))) == list(map(str, states))
        assert [each.without_input for each in found.segments] == [made_again]
    assert [each.finding for each in found.segments] == [None] * len(found.segments)
    if not made_again:
        assert [each.without_input for each in found.segments] == [False] * len(found.segments)


class Read(NamedTuple):
    """The answers of those who read the log alone; `states` after each batch, as far as changes lead there."""

    states: list[dict[str, int]]
    compacted: dict[str, int]
    segments: list[SegmentReport]


def _read_from_the_log(stage: Stage) -> Read:
    app, states = stage.app, []
    app.validate()
    with BlockingReader(stage.settings()) as client:
        logs, moment = PartitionLogs(client, app.app_id, 0), moment_of(client, app.app_id, 0)
        steps = list(Batches().of(logs.increments(moment.log_start, moment.log_end)))
        entries = Entries()
        has_changes = steps[-1].increment.changes is not None
        for step in steps if has_changes else ():
            all_of(apply_changes(step, entries))
            assert step.increment.digest == entries.digest
            shards = entries.stores["default"].by_shard() if entries.stores else ()
            states.append(_plain({key: value for shard in shards for key, value in shard.items()}))
        state: dict[bytes, bytes] = {}
        if has_changes:
            found = folded_in(app.app_id, moment, logs)
            assert found is not None
            slices = all_of(found.cursor.slicing(1 << 20))
            state = {key: value for each in slices for key, value in each.entries.items()}
        report = audit_partition(app.app_id, moment, logs, Level.REPLAY)
        assert report.findings == []
        segments = [prove(app, each, logs) for each in report.segments]
    return Read(states, _plain(state), segments)


def _plain(entries: Mapping[bytes, bytes]) -> dict[str, int]:
    found = {msgspec.msgpack.decode(key): msgspec.msgpack.decode(value) for key, value in entries.items()}
    return dict(sorted(found.items()))


async def test_an_input_whose_records_are_gone_was_not_processed_to_its_end(story):
    """Trimmed unprocessed, or made again: its retirement must say that the rest is left."""
    two, one = story.of("a", "b"), story.of("b")
    await story.created("b")
    await two.prepare()
    await story.feed("a", 1, 2)
    await asyncio.to_thread(trim, story.servers, f"a-{story.name}", 0, 10)
    with pytest.raises(NotDrained, match="read up to offset 0, and its log goes from offset 10 to 10"):
        await story.change(one)
    await asyncio.to_thread(delete, story.servers, f"a-{story.name}")
    await story.created("a")
    with pytest.raises(NotDrained, match="read up to offset 0, and it was created again"):
        await story.change(one)
    (left,) = await story.change(one, leave_records=True)
    assert left.increment.positions == {f"b-{story.name}": 0}


@pytest.mark.parametrize("how", ["retired", pytest.param("added", marks=pytest.mark.whole)])
async def test_an_older_state_that_is_accepted_has_the_inputs_of_today(broker, unique, how):
    """What was added since is read again from where it began; what was retired since stays retired."""
    story = Story(broker.bootstrap_servers, unique(how), changelog={"enabled": False})
    versions = (("a", "b"), ("b",)) if how == "retired" else (("b",), ("a", "b"))
    first, second = (story.of(*each) for each in versions)
    await story.created({"retired": "b", "added": "a"}[how])
    await first.prepare()
    await story.feed("b", 2, 1)
    async with first.running(snapshot={"before_stop": True}) as service:
        await processed(service, {0: 5}, f"b-{story.name}")
    await story.change(second, *(["earliest"] if how == "added" else []))
    await story.feed("b", 3, 1)
    if how == "added":
        await story.feed("a", 7, 1)
    await story.run(second, {"b": 10, **({"a": 5} if how == "added" else {})})
    await story.feed("b", 4, 1)
    await asyncio.to_thread(trim, story.servers, f"b-{story.name}", 0, 12)
    error = (await second.failure()).error
    asked = (second.app, second.settings(), second.cluster, 0, finding_in(error.hint), "tried")
    acceptance = await accept.propose(*asked)
    said = {"retired": "stays retired", "added": "it is processed again from offset 0 on"}[how]
    assert said in "; ".join(acceptance.plan)
    await accept.carry_out(acceptance)
    assert set((await second.batches())[-1].positions) == {f"{each}-{story.name}" for each in versions[1]}
    await story.run(second, {"b": 15, **({"a": 5} if how == "added" else {})})
