"""The reset of an app on a real broker: to a savepoint, to the beginning, to a time; by one decision in each
partition."""

from __future__ import annotations

import asyncio
import re

import pytest

from snapreplay import App, MapState
from snapreplay.app import names
from snapreplay.errors import UsageError
from snapreplay.service.core.refusals import NotInitialised
from snapreplay.service.decisions import reset, savepoints
from snapreplay.service.decisions.deletion import StillRuns
from snapreplay.service.decisions.init import init_with_state
from snapreplay.service.decisions.reset import ResetTarget, carry_out
from snapreplay.service.decisions.savepoints import NoSuchSavepoint
from snapreplay.service.decisions.state_import import CannotTakeOver
from snapreplay.service.publish.state import LogWentOn
from snapreplay.service.topics.requirements import ensure_topics
from tests.support import apps, reference, tampering
from tests.support.stage import Stage

pytestmark = pytest.mark.kafka


async def propose(here, savepoint="", start="", reason="ticket 17"):
    return await reset.propose(here.app, here.settings(), here.cluster, ResetTarget(savepoint, start), reason)


async def done(here, savepoint="", start=""):
    return [await carry_out(each) for each in await propose(here, savepoint, start)]


async def kept_and_gone_on(stage, name, partitions=1):
    """Thirty records that a savepoint has, and twenty more."""
    here = await stage(apps.ledger(name), partitions)
    async with here.running() as service:
        await here.feed(30)
        await here.all_processed(service)
        await here.decided()
        await savepoints.create(here.app, here.settings(), here.cluster, "before")
        await here.feed(20)
        await here.all_processed(service)
    return here


async def states(here, app=None):
    """Return what the app comes to, by partition."""
    async with here.running(app) as service:
        await here.all_processed(service)
        return [reference.as_plain(service.view(number)) for number in range(here.partitions)]


async def test_an_app_goes_on_with_its_savepoint(stage, unique):
    """Under its own id, with fixed code: what the savepoint has stays as it was, and only what came later is processed
    again. A restore afterwards begins with the decision, which says who gave up what, and why."""
    here = await kept_and_gone_on(stage, unique("ledger"), 2)
    last = [each.last.increment.batch for each in await propose(here, "before")]
    begun = await done(here, "before")
    assert [each.increment.batch for each in begun] == [batch + 1 for batch in last]
    decision = begun[0].increment.decision
    assert decision["finding"].startswith("state-reset-")
    assert (decision["reason"], begun[0].increment.begins_anew) == ("ticket 17", True)
    assert "processed again, outputs written a second time" in decision["decided"]
    fixed = apps.ledger(here.app.app_id, apps.subtract)
    found = await states(here, fixed)
    for state, records, part in zip(found, await here.read(here.input), begun, strict=True):
        kept = part.increment.positions[here.input]
        assert 0 < kept < len(records)
        assert {key: each["sum"] for key, each in state.items()} == booked(reference.decoded(records), kept)
    assert await states(here, fixed) == found


@pytest.mark.whole
async def test_newer_code_upgrades_the_savepoint_that_it_goes_back_to(stage, unique):
    """As its owner would have done: the upgrade is declared. What came later is processed again, by the new code."""
    here = await kept_and_gone_on(stage, unique("ledger"))
    (payments,), (balances,) = here.app.inputs, here.app.outputs
    newer = App(
        here.app.app_id,
        inputs=[payments],
        outputs=[balances],
        state=lambda: MapState(str, int, default=int),
        schema_version=2,
    )

    @newer.handler(payments)
    def on_payment(record, state, out):
        state[record.key] += record.value["amount"] * 100

    newer.upgrade(from_schema=1, value=dict)(lambda key, old: (key, old["sum"] * 100))
    before = await states(here)
    resets = await reset.propose(newer, here.settings(), here.cluster, ResetTarget(savepoint="before"), "bad upgrade")
    (begun,) = [await reset.carry_out(each) for each in resets]
    assert begun.increment.origin.schema_version == 2
    assert set(begun.increment.fields) == set()
    async with here.running(newer) as service:
        await here.all_processed(service)
        found = dict(service.view(0).items())
    assert found == {key: each["sum"] * 100 for key, each in before[0].items()}


def booked(payments, kept):
    """The sums: payments are added up to `kept`, and subtracted from there on."""
    sums: dict[str, int] = {}
    for number, (key, value) in enumerate(payments):
        sums[key] = sums.get(key, 0) + value["amount"] * (1 if number < kept else -1)
    return sums


async def test_an_app_begins_again(stage, unique):
    """With an empty state. From the beginning everything is processed again, and outputs are written a second time.
    From the end of the input only what comes from then on counts."""
    here = await kept_and_gone_on(stage, unique("ledger"))
    before = await states(here)
    (begun,) = await done(here, start="earliest")
    assert begun.increment.positions == {here.input: 0}
    assert begun.increment.digest.count == 0
    assert await states(here) == before
    assert len((await here.read(here.output))[0]) == 100
    (begun,) = await done(here, start="latest")
    assert begun.increment.positions == {here.input: 50}
    await here.feed(1)
    ((account,),) = [state.values() for state in await states(here)]
    assert account["n"] == 1


async def test_a_time_is_a_place_in_the_inputs(stage, unique):
    """The first record that is not older. After all of them, that is the end."""
    here = await kept_and_gone_on(stage, unique("ledger"))
    for time, position in (("2000-01-01T00:00:00+00:00", 0), ("2100-01-01T00:00:00+00:00", 50)):
        (proposed,) = await propose(here, start=time)
        assert proposed.before.positions == {here.input: position}


@pytest.mark.parametrize(
    ("savepoint", "start", "said"),
    [
        ("", "", "it is not clear"),
        ("before", "earliest", "it is not clear"),
        ("", "resume", "not a valid value"),
        ("", "2026-11-03", "not a valid value"),
        ("after", "", "no savepoint after; its savepoints: none"),
    ],
)
async def test_what_is_no_place_is_refused(stage, unique, savepoint, start, said):
    """The values that may be given are named. Nothing is written."""
    here = await stage(apps.ledger(unique("ledger")))
    with pytest.raises(UsageError, match=said) as refused:
        await propose(here, savepoint, start)
    assert isinstance(refused.value, NoSuchSavepoint) or refused.value.hint
    assert len(await here.batches()) == 1


async def test_a_reset_needs_a_stopped_app_with_a_log(stage, unique, broker):
    """A running one is not fenced, and one that never began has nothing to give up. What a process commits between
    the look and the decision is not given up unseen."""
    here = await kept_and_gone_on(stage, unique("ledger"))
    (proposed,) = await propose(here, "before")
    async with here.running() as service:
        with pytest.raises(StillRuns):
            await propose(here, "before")
        await here.feed(1)
        await here.all_processed(service)
    with pytest.raises(LogWentOn):
        await carry_out(proposed)
    await here.restored()
    new = Stage(broker.bootstrap_servers, apps.ledger(unique("new")))
    await ensure_topics(new.app, new.settings(), new.cluster, create_io_partitions=1)
    with pytest.raises(NotInitialised):
        await propose(new, start="earliest")


@pytest.mark.whole
async def test_a_savepoint_of_another_input_starts_another_app(stage, unique):
    """Its offsets mean nothing in the topic that was created again, and a reset throws no state away for that. The way
    that the hint names is gone."""
    here = await kept_and_gone_on(stage, unique("ledger"))
    await asyncio.to_thread(tampering.delete, here.bootstrap_servers, here.input)
    await asyncio.to_thread(tampering.create, here.bootstrap_servers, here.input)
    before = here.app.app_id
    with pytest.raises(CannotTakeOver, match="--from positions") as refused:
        await propose(here, "before")
    typed = re.search(r"`snapreplay init MODULE:APP (.*)`", refused.value.hint)
    assert typed is not None
    assert typed[1] == f"--state-of {before} --savepoint before --from earliest"
    heir = Stage(here.bootstrap_servers, apps.heir(here.app, f"{before}-2"), here.partitions)
    await ensure_topics(heir.app, heir.settings(), heir.cluster)
    saved = names.savepoint_id(before, "before")
    (said,) = await init_with_state(heir.app, heir.settings(), heir.cluster, saved, "earliest")
    assert "begins with the state" in said


@pytest.mark.whole
async def test_another_reset_to_the_same_place_is_not_there_already(stage, unique):
    """A state that is no map has no digest: what it was set back to tells the two apart."""
    here = await stage(apps.tape(unique("tape"), poison=False))
    async with here.running() as service:
        await here.feed(5)
        await here.all_processed(service)
        await here.decided()
        await savepoints.create(here.app, here.settings(), here.cluster, "full")
    await done(here, "full")
    assert [each.is_done for each in await propose(here, "full")] == [True]
    assert [each.is_done for each in await propose(here, start="latest")] == [False]


@pytest.mark.whole
async def test_an_interrupted_reset_is_repeated(stage, unique):
    """The partition that is done is left alone."""
    here = await kept_and_gone_on(stage, unique("two"), 2)
    first, _ = await propose(here, "before")
    await carry_out(first)
    again = await propose(here, "before")
    assert [each.is_done for each in again] == [True, False]
    await carry_out(again[1])
    assert [each.is_done for each in await propose(here, "before")] == [True, True]
    async with here.running() as service:
        await here.all_processed(service)
