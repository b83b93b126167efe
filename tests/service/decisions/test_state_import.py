"""`init --state-of`: another app's state, proven, is where a new app id begins."""

import msgspec
import pytest

from snapreplay import MapState, Topic
from snapreplay.app import names
from snapreplay.service.core.refusals import SchemaDiffers
from snapreplay.service.decisions.init import AlreadyBegun, init_app, init_with_state
from snapreplay.service.decisions.state_import import CannotTakeOver, NoSuchState
from snapreplay.snapshots.format.envelope import encode
from snapreplay.snapshots.format.records import Paused
from tests.support import apps, reference
from tests.support.entries import read_entry


def heir_of(bench, name="heir", partitions=1, **options):
    """Another app id beside one with a past."""
    return bench.beside(apps.heir(bench.app, name, **options), partitions)


async def taken_over(heir, source, begin="positions"):
    return await init_with_state(heir.app, heir.settings(), heir.cluster, source.app.app_id, begin)


async def test_a_new_app_resumes_where_the_other_one_ended(bench):
    """Its state is that of the last committed batch; each record counts once, as if the id had always been this one.
    In its log that is one claim, then one increment that points to the state's snapshot and names its origin."""
    await bench.past()
    await bench.feed(20)
    heir = heir_of(bench)
    (line,) = await taken_over(heir, bench)
    assert "begins with the state of app app after its batch 8 (20 entries" in line
    assert f"{bench.input} from offset 120" in line
    _, increment = [read_entry(each.value) for each in heir.log(heir.increments).committed()]
    assert increment.begins_chain
    assert increment.batch == 1
    assert increment.decision["state_of"] == "app"
    assert increment.genesis.start_offsets == increment.positions == {bench.input: 120}
    assert set(increment.anchors) == {bench.input}
    assert [pointer.digest for pointer in increment.pointers] == [increment.digest]
    async with heir.live() as one:
        await heir.assert_exactly_once(one)
        (decision,) = one.status.decisions
        assert decision.finding.startswith("state-taken-over-")
        assert decision.by
    await heir.restored()


@pytest.mark.parametrize("begin", ["positions", "latest"])
async def test_a_record_whose_turn_the_other_app_has_begun_comes_first(bench, begin):
    """What was due before it has happened in the state. At another place it is not the next record."""
    await bench.past()
    log = bench.log(bench.increments)
    last = log.committed()[-1]
    begun = msgspec.structs.replace(read_entry(last.value), begun_input=bench.input, paused=Paused(1_000, "repairs"))
    log.records[last.offset] = msgspec.structs.replace(last, value=encode(begun))
    heir = heir_of(bench)
    await taken_over(heir, bench, begin)
    increment = read_entry(heir.log(heir.increments).committed()[-1].value)
    assert increment.begun_input == (bench.input if begin == "positions" else None)
    assert increment.paused is None, "who pauses an app does not pause the next one"


@pytest.mark.parametrize(("begin", "numbers"), [("earliest", [*range(120), *range(130, 140)]), ("latest", range(120))])
async def test_after_a_gap_it_begins_where_the_command_says(bench, begin, numbers):
    """The input was trimmed beyond the position: refused there, and the start or the end of the input is a place."""
    await bench.past()
    await bench.feed(20)
    bench.trim(bench.input, 130)
    heir = heir_of(bench)
    with pytest.raises(CannotTakeOver, match="10 offsets are gone") as refused:
        await taken_over(heir, bench)
    assert f"--from {begin}" in refused.value.hint
    await taken_over(heir, bench, begin)
    async with heir.live() as one:
        await one.position(140)
        assert one.view() == reference.booked(list(numbers), [])


async def test_an_input_that_is_another_log_is_no_place_to_go_on(bench):
    """The same name and a longer log: the last record that was processed is not there."""
    await bench.past()
    bench.recreate(bench.input)
    await bench.feed(130)
    with pytest.raises(CannotTakeOver, match="than the processed one"):
        await taken_over(heir_of(bench), bench)


class Picky(msgspec.Struct):
    """Raises what no codec knows."""

    n: int = 0

    def __post_init__(self):
        raise KeyError("no such account")


OTHER_STATES = {
    "what a type raises": (lambda: MapState(str, Picky), "has other types than this app's.*no such account"),
    "values": (lambda: MapState(str, list), "has other types than this app's"),
    "keys": (lambda: MapState(int, dict), "has other types than this app's"),
}


@pytest.mark.parametrize(("state", "message"), OTHER_STATES.values(), ids=OTHER_STATES)
async def test_a_state_of_another_type_is_refused(bench, state, message):
    """Before anything is written, not at the first record that touches such a value."""
    await bench.past()
    heir = heir_of(bench, state=state)
    with pytest.raises(CannotTakeOver, match=message):
        await taken_over(heir, bench)
    assert heir.log(heir.increments).end == 0


async def test_another_schema_or_partition_count_is_refused(bench):
    """What cannot be read and what would be in other partitions: both numbers are named."""
    await bench.past()
    with pytest.raises(SchemaDiffers, match=r"written with schema_version 1, but the app has 2"):
        await taken_over(heir_of(bench, schema_version=2), bench)
    wider = heir_of(bench, "wide", 2, inputs=[Topic("wider")], outputs=[Topic("widest")])
    with pytest.raises(NoSuchState, match=r"its state has 1 partition, but the inputs of .* have 2"):
        await taken_over(wider, bench)
    other = heir_of(bench, "other", inputs=[Topic("another")])
    with pytest.raises(CannotTakeOver, match="offsets of other topics mean nothing here"):
        await taken_over(other, bench)


async def test_an_app_that_has_a_chain_keeps_it(bench):
    """Neither an app that ran nor one that was initialised gets another state; nor is there one of an unknown id."""
    await bench.past()
    heir = heir_of(bench)
    with pytest.raises(NoSuchState, match=r"apps with increments here: .*app"):
        await init_with_state(heir.app, heir.settings(), heir.cluster, "unknown")
    with pytest.raises(NoSuchState, match="cannot begin with its own state"):
        await taken_over(heir, heir)
    await init_app(heir.app, heir.settings(), heir.cluster)
    with pytest.raises(AlreadyBegun, match="already initialised, at batch 0") as refused:
        await taken_over(heir, bench)
    assert "--state-of app" in refused.value.hint


@pytest.mark.parametrize("source", [None, "app"])
async def test_a_new_beginning_is_no_log_that_lost_its_end(bench, source):
    """Giving up all increments gives up what the witness proves, too; with the state of an app or without."""
    await bench.past()
    heir = heir_of(bench)
    begin = (heir.app, heir.settings(), heir.cluster)
    await init_app(*begin)
    async with heir.live() as one:
        for _ in range(3):
            await one.feed(20)
        group_id = names.witness_group(heir.app.app_id)
        await one.context.witnesses.end(heir.cluster.offset_committer(group_id))
    heir.log(heir.increments).cut(0)
    if source is None:
        await init_app(*begin, state_is_lost=True)
    else:
        await init_with_state(*begin, source, state_is_lost=True)
    async with heir.live() as one:
        await one.position(bench.sent)
