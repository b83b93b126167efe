"""`init --state-of` on real logs: another app's state, proven, is where a new app id begins."""

import msgspec
import pytest

from snapreplay import MapState, Topic
from snapreplay.errors import StopError, UsageError
from snapreplay.service.core.refusals import SchemaDiffers
from snapreplay.service.decisions.init import AlreadyBegun, init_app, init_with_state
from snapreplay.service.decisions.state_import import CannotTakeOver, NoSuchState
from snapreplay.service.publish.publish import publish
from snapreplay.service.topics import stale_leader
from snapreplay.service.topics.requirements import ensure_topics
from tests.support import apps, reference
from tests.support.entries import read_entry
from tests.support.owner import Owner
from tests.support.stage import Stage, processed, until
from tests.support.tampering import recreate, trim

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(stale_leader, "ASK_AGAIN_SECONDS", 0.1)


@pytest.fixture
def heir_of(unique):
    """A stage of another app id beside one with a past, its topics made, not initialised."""

    async def make(here, partitions=1, **options):
        app = options.pop("app", None) or apps.heir(here.app, unique("heir"), **options)
        heir = Stage(here.bootstrap_servers, app, partitions)
        await ensure_topics(
            heir.app, heir.settings(), heir.cluster, create_io_partitions=partitions
        )
        return heir

    return make


async def taken_over(heir, source, begin="positions"):
    return await init_with_state(heir.app, heir.settings(), heir.cluster, source.app.app_id, begin)


async def test_a_new_app_goes_on_where_the_other_one_stands(past, heir_of):
    """Its state is that of the last committed batch; each record counts once, as if the id had always been this one."""
    then = await past()
    await then.here.feed(20)
    heir = await heir_of(then.here)
    (line,) = await taken_over(heir, then.here)
    assert (
        f"begins with the state of app {then.here.app.app_id} after its batch 8 (20 entries" in line
    )
    assert f"{then.input} from offset 120" in line
    async with heir.running() as service:
        await heir.assert_exactly_once(service)
        (decision,) = service.restore_status()[0].decisions
        assert decision.finding.startswith("state-taken-over-")
        assert decision.by
    await heir.restored()


async def test_it_stands_in_the_log_as_a_chain_that_begins_there(past, heir_of):
    """One claim, then one increment that points to the state's snapshot and names its origin."""
    then = await past()
    heir = await heir_of(then.here)
    await taken_over(heir, then.here)
    (records,) = await heir.read(f"{heir.app.app_id}-increments")
    _, increment = [read_entry(record.value) for record in records]
    assert increment.begins_anew
    assert increment.batch == 1
    assert increment.decision["state_of"] == then.here.app.app_id
    assert increment.genesis.start_offsets == increment.positions == {then.input: 120}
    assert set(increment.anchors) == {then.input}
    assert [pointer.digest for pointer in increment.pointers] == [increment.digest]


@pytest.mark.parametrize(
    ("begin", "numbers"), [("earliest", [*range(120), *range(130, 140)]), ("latest", range(120))]
)
async def test_after_a_gap_it_begins_where_it_is_told(past, heir_of, begin, numbers):
    """The input was trimmed beyond the position: refused there, and the start or the end of the input is a place."""
    then = await past()
    await then.here.feed(20)
    trim(then.here.bootstrap_servers, then.input, 0, 130)
    heir = await heir_of(then.here)
    with pytest.raises(CannotTakeOver, match="10 offsets are gone") as refused:
        await taken_over(heir, then.here)
    assert f"--from {begin}" in refused.value.hint
    await taken_over(heir, then.here, begin)
    async with heir.running() as service:
        await processed(service, {0: 140})
        assert reference.as_plain(service.view(0)) == reference.booked(list(numbers), [])


async def test_an_input_that_is_another_log_is_no_place_to_go_on(past, heir_of):
    """The same name and a longer log: the last record that was processed is not there."""
    then = await past()
    recreate(then.here.bootstrap_servers, then.input, 1)
    await then.here.feed(130)
    heir = await heir_of(then.here)
    with pytest.raises(CannotTakeOver, match="than the one that was processed"):
        await taken_over(heir, then.here)


async def test_what_was_interrupted_is_completed(stage, unique, heir_of, monkeypatch):
    """Partition 1 was not written: plain `init` refuses it with the command that does, and that one finishes."""
    here = await stage(apps.ledger(unique("two")), 2)
    async with here.running() as service:
        await here.feed(40)
        await here.all_processed(service)
    heir = await heir_of(here, 2)
    calls = []

    async def once(*arguments):
        calls.append(1)
        if len(calls) > 1:
            raise StopError("killed")
        return await publish(*arguments)

    monkeypatch.setattr("snapreplay.service.decisions.init.publish", once)
    with pytest.raises(StopError, match="killed"):
        await taken_over(heir, here)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="init was interrupted") as refused:
        await init_app(heir.app, heir.settings(), heir.cluster)
    assert f"init MODULE:APP --state-of {here.app.app_id}`" in refused.value.hint
    owner = Owner(heir, await heir.context())
    await heir.send([("0:a", {"amount": 1})] * 3)
    await until(lambda: (owner.status.batch or 0) > 1, "a batch of the other partition")
    await owner.end()
    lines = await taken_over(heir, here)
    assert lines[0].startswith("partition 0: already initialised, at batch ")
    assert lines[1].startswith("partition 1: begins with the state of")
    async with heir.running() as service:
        await heir.feed(20)
        await heir.all_processed(service)
        assert sum(len(service.view(number)) for number in (0, 1)) == 20 + 1


async def test_state_that_is_no_map_is_taken_over_from_its_last_snapshot(stage, unique, heir_of):
    """A graceful stop leaves a snapshot of the last batch; without one there are no changes to bring it forward."""
    here = await stage(apps.tape(unique("tape"), apps.Undoable))
    async with here.running() as service:
        await here.feed(20)
        await here.all_processed(service)
    heir_app = apps.tape(unique("heir"), apps.Undoable)
    heir_app.inputs, heir_app.outputs = here.app.inputs, here.app.outputs
    heir_app.handlers = here.app.handlers
    heir = await heir_of(here, app=heir_app)
    with pytest.raises(CannotTakeOver, match="cannot be restored") as refused:
        await taken_over(heir, here)
    assert "start" in refused.value.hint
    async with here.running(snapshot={"before_stop": True}):
        pass
    await taken_over(heir, here)
    async with heir.running() as service:
        await here.feed(5)
        await processed(service, {0: 25})
        (outputs,) = await heir.read(heir.app.outputs[0].name)
        assert len(outputs) == 25
        assert outputs[-1].value.endswith(b'"n":25}')


class Picky(msgspec.Struct):
    """Raises what no codec knows."""

    n: int = 0

    def __post_init__(self):
        raise KeyError("no such account")


OTHER_STATES = {
    "what a type raises": (
        lambda: MapState(str, Picky),
        "has other types than this app's.*no such account",
    ),
    "values": (lambda: MapState(str, list), "has other types than this app's"),
    "keys": (lambda: MapState(int, dict), "has other types than this app's"),
    "no map": (apps.Tape, "is a MapState, but that of this app is no map"),
}


@pytest.mark.parametrize("name", OTHER_STATES)
async def test_a_state_of_another_type_is_refused(past, heir_of, name):
    """Before anything is written, not at the first record that touches such a value."""
    state, message = OTHER_STATES[name]
    then = await past()
    heir = await heir_of(then.here, state=state)
    with pytest.raises(CannotTakeOver, match=message):
        await taken_over(heir, then.here)
    assert await heir.read(f"{heir.app.app_id}-increments") == [[]]


async def test_another_schema_or_partition_count_is_refused(past, heir_of, unique):
    """What cannot be read and what would be in other partitions: both numbers are named."""
    then = await past()
    with pytest.raises(SchemaDiffers, match=r"written with schema_version 1, but the app has 2"):
        await taken_over(await heir_of(then.here, schema_version=2), then.here)
    wider = Topic(unique("wider"))
    with pytest.raises(
        NoSuchState, match=r"its state has 1 partition, but the inputs of .* have 2"
    ):
        await taken_over(await heir_of(then.here, 2, inputs=[wider]), then.here)
    other = await heir_of(then.here, inputs=[Topic(unique("other"))])
    with pytest.raises(CannotTakeOver, match="offsets of other topics mean nothing here"):
        await taken_over(other, then.here)


async def test_an_app_that_has_a_chain_keeps_it(past, heir_of):
    """Neither an app that ran nor one that was initialised gets another state; nor is there one of an unknown id."""
    then = await past()
    heir = await heir_of(then.here)
    with pytest.raises(NoSuchState, match=rf"apps with increments here: .*{then.here.app.app_id}"):
        await init_with_state(heir.app, heir.settings(), heir.cluster, "nobody")
    with pytest.raises(NoSuchState, match="cannot begin with its own state"):
        await taken_over(heir, heir)
    await init_app(heir.app, heir.settings(), heir.cluster)
    with pytest.raises(AlreadyBegun, match="already initialised, at batch 0") as refused:
        await taken_over(heir, then.here)
    assert f"--state-of {then.here.app.app_id}" in refused.value.hint
