"""The reset of an app on a real broker: to a savepoint, to the beginning, to a time; by one decision in each
partition."""

import pytest

from snapreplay.errors import UsageError
from snapreplay.service.core.refusals import NotInitialised
from snapreplay.service.decisions import reset, savepoints
from snapreplay.service.decisions.deletion import StillRuns
from snapreplay.service.decisions.reset import ResetTarget, carry_out
from snapreplay.service.decisions.savepoints import NoSuchSavepoint
from snapreplay.service.publish.state import LogWentOn
from snapreplay.service.topics.requirements import ensure_topics
from tests.support import apps, reference
from tests.support.stage import Stage


async def propose(here, savepoint="", start="", reason="ticket 17"):
    return await reset.propose(here.app, here.settings(), here.cluster, ResetTarget(savepoint, start), reason)


async def done(here, savepoint="", start=""):
    return [await carry_out(each) for each in await propose(here, savepoint, start)]


async def kept_and_gone_on(stage, name, partitions=1):
    """Thirty records that a savepoint has, and twenty more."""
    here = await stage(apps.ledger(name), partitions)
    async with here.running(records=30) as service:
        await here.decided()
        await savepoints.create(here.app, here.settings(), here.cluster, "before")
        await here.process(service, 20)
    return here


async def states(here, app=None):
    """Return what the app comes to, by partition."""
    async with here.running(app) as service:
        await here.all_processed(service)
        return [reference.as_plain(service.view(number)) for number in range(here.partitions)]


async def test_an_app_resumes_from_its_savepoint(stage, unique):
    """Under its own id, with fixed code: what the savepoint has stays as it was, and only what came later is processed
    again. A restore afterwards begins with the decision, which says who gave up what, and why."""
    here = await kept_and_gone_on(stage, unique("ledger"), 2)
    last = [each.last.increment.batch for each in await propose(here, "before")]
    begun = await done(here, "before")
    assert [each.increment.batch for each in begun] == [batch + 1 for batch in last]
    decision = begun[0].increment.decision
    assert decision["finding"].startswith("state-reset-")
    assert (decision["reason"], begun[0].increment.begins_chain) == ("ticket 17", True)
    assert "processed again, outputs written a second time" in decision["decided"]
    fixed = apps.ledger(here.app.app_id, apps.subtract)
    found = await states(here, fixed)
    for state, records, part in zip(found, await here.read(here.input), begun, strict=True):
        kept = part.increment.positions[here.input]
        assert 0 < kept < len(records)
        assert {key: each["sum"] for key, each in state.items()} == booked(reference.decoded(records), kept)
    assert await states(here, fixed) == found


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
        await here.process(service, 1)
    with pytest.raises(LogWentOn):
        await carry_out(proposed)
    await here.restored()
    new = Stage(broker.bootstrap_servers, apps.ledger(unique("new")))
    await ensure_topics(new.app, new.settings(), new.cluster, create_io_partitions=1)
    with pytest.raises(NotInitialised):
        await propose(new, start="earliest")


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
