"""Calls to the outside on a real broker: no crash forgets one, and each answer counts once."""

import asyncio
import random
from typing import Any

import msgspec
import pytest

from snapreplay.app.names import internal_topic
from tests.support import apps, reference
from tests.support.child import Load
from tests.support.stage import until


async def folded(here):
    """Partition → key → what the state must be, as folded by hand from the payments: each has one answer."""
    states = []
    for number, records in enumerate(await here.read(here.input)):
        state: dict[str, Any] = {}
        for key, (_, value) in zip((each.key for each in records), reference.decoded(records), strict=True):
            account = state.setdefault(key.decode(), {"sum": 0, "errors": [], "seen": 0})
            account["sum"] += apps.price_of(value)
            account["seen"] += 1
        states.append((number, state))
    return states


async def answered(here, service):
    """Wait until the answers of all payments are handled. Each one still in their topic answers a payment: those that
    no recovery needs are deleted."""
    expected = await folded(here)
    await until(
        lambda: all(reference.as_plain(service.view(number)) == state for number, state in expected),
        lambda: [reference.as_plain(service.view(number)) for number, _ in expected],
        60,
    )
    assert all(each.calls[0].pending == 0 for each in service.restore_status())
    replies = await here.read(internal_topic(here.app.app_id, "price-results"))
    found = {msgspec.msgpack.decode(each.value)[0] for records in replies for each in records}
    payments = enumerate(await here.read(here.input))
    ids = {f"{here.app.app_id}/{here.input}-{n}-{each.offset}/0" for n, records in payments for each in records}
    assert found <= ids


@pytest.mark.whole
@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_each_payment_gets_its_price_while_processes_are_killed(stage, unique, children, mode):
    """Four partitions, two processes, four SIGKILLs while calls are pending; half of the attempts fail. A replay calls
    nothing."""
    dice = random.Random(mode)
    name = unique("priced")
    here = await stage(apps.priced(name, apps.price_sometimes, retries=None, concurrency=100), partitions=4)
    kept = {"restore__mode": mode, "snapshot__every_records": 200}
    with Load(here, pause_s=0.1, count=10):
        other = children.start("priced", name, instance_id="other", **kept)
        for _ in range(4):
            child = children.start("priced", name, **kept)
            await asyncio.to_thread(child.wait_http)
            await asyncio.sleep(dice.uniform(0.5, 1.5))
            child.kill()
        other.kill()
    async with here.running(restore={"mode": mode}) as service:
        assert all(status.restore.proof.equal for status in service.restore_status())
        await answered(here, service)

    async def never(call):
        raise AssertionError(f"{call} is made again")

    again = apps.priced(name, never)
    async with here.running(again, restore={"mode": mode}) as service:
        assert all(status.restore.proof.equal for status in service.restore_status())
        await answered(here, service)
        assert [each.calls[0].failures for each in service.restore_status()] == [0] * 4
