"""A warm copy by replay: the log has no changes, or the app is to replay. Its handlers run, and nothing leaves them."""

import asyncio
from typing import Any

import pytest

from snapreplay import App, Topic
from snapreplay.service.partition.standby import StandbyTask
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.snapshots.log.by_replay import Input
from tests.service.partition.test_standby import Copied, followed, live, taken_over
from tests.support import apps
from tests.support.in_memory import virtual

WAYS: dict[str, Any] = {
    "no changes are recorded": (apps.ledger("app"), {"changelog": {"enabled": False}}),
    "the state is no map": (apps.tape("app"), {}),
    "it is to replay": (apps.ledger("app"), {"restore": {"mode": "replay"}}),
}


async def replayed(bench, way):
    """Return a live owner, and a warm copy of its ten records that was replayed."""
    app, tables = WAYS[way]
    await bench.prepare(app, **tables)
    return await followed(bench)


async def digest_of(store):
    return await run_cooperatively(store.digesting())


@pytest.mark.parametrize("way", WAYS)
@virtual
async def test_it_replays_every_batch_and_another_owner_goes_on_from_it(bench, way):
    """Nothing is loaded, and each record has one output: those of the copy are dropped."""
    one, copied = await replayed(bench, way)
    await bench.feed(10)
    await one.position(20)
    await copied.warm(one.status.batch)
    assert await digest_of(copied.standby._store) == await digest_of(one.runner.store)
    assert [each.error for each in copied.told if each.error] == []
    await bench.feed(10)
    await one.position(30)
    two = await taken_over(bench, copied)
    assert (two.status.restore.warm, two.status.restore.snapshot) == ("copied", None)
    await bench.feed(10)
    await two.position(40)
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
@virtual
async def test_a_batch_that_comes_out_otherwise_is_not_kept(bench, differs, kind):
    """The app is not deterministic. The copy says so, and begins again from the owner's next snapshot."""
    await bench.prepare(restless(differs), changelog={"enabled": False})
    one, copied = await followed(bench)
    before = copied.status.batch
    await bench.feed(10, restless=True)
    await one.position(20)
    await copied.failed(kind)
    assert {each.batch for each in copied.told if each.state == "warm"} <= {0, before}
    assert await copied.handed_over() == []
    await one.snapshot()
    again = Copied(await bench.context("two"))
    assert (await again.warm(one.status.batch)).error is None
    await again.standby.end()


@virtual
async def test_it_replays_what_an_owner_does_not_record(bench):
    """While `changelog.enabled` is switched over, process by process: the copy begins by a replay and stays with it."""
    await bench.prepare(changelog={"enabled": False})
    one = await live(bench)
    await bench.feed(10)
    await one.position(10)
    copied = Copied(await bench.context("two", changelog={"enabled": True}))
    await copied.warm(one.status.batch)
    await bench.feed(10)
    await one.position(20)
    await copied.warm(one.status.batch)
    assert {each.state for each in copied.told if each.batch} == {"warm"}
    await copied.standby.end()


@pytest.mark.parametrize(("app", "is_proven"), [(apps.ledger, True), (apps.tape, False)], ids=["a map", "no map"])
@virtual
async def test_another_version_than_the_owners_is_judged_as_in_every_replay(bench, monkeypatch, app, is_proven):
    """It is warm if a digest proves it. A state that is no map waits for an owner of its own version."""
    heard, at = [], StandbyTask._at

    def noted(standby, step):
        heard.append(step)
        at(standby, step)

    monkeypatch.setattr(StandbyTask, "_at", noted)
    await bench.prepare(app("app", version="1"), changelog={"enabled": False})
    one = await live(bench)
    await bench.feed(10)
    await one.position(10)
    await one.snapshot()
    copied = Copied(await bench.context("two", app("app", version="2")))
    await copied.warm(one.status.batch)
    await bench.feed(10)
    await one.position(20)
    if is_proven:
        await copied.warm(one.status.batch)
    else:
        await copied.failed("CodeChanged")
        assert set(heard) == {None}, "no batch is handed over before it is proven"
        await one.end()
        two = await bench.owner("two", app("app", version="2"))
        await two.phase("live")
        await bench.feed(10)
        await two.position(30)
        await copied.warm(two.status.batch)
    await copied.standby.end()


@virtual
async def test_it_is_read_while_it_waits_for_the_input(bench, monkeypatch):
    """The batch before it is whole until the records of this one are there."""
    one, copied = await replayed(bench, "no changes are recorded")
    before, taking, seen = one.status.batch, Input.taking, []

    def looked(self, part):
        seen.append(copied.standby.readable().last.batch)
        return (yield from taking(self, part))

    monkeypatch.setattr(Input, "taking", looked)
    await bench.feed(10)
    await one.position(20)
    await copied.warm(one.status.batch)
    assert seen[0] == before
    await copied.standby.end()
