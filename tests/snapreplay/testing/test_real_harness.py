"""RealHarness: a service process on a real broker that is killed, restarted and asked."""

from __future__ import annotations

import os
import signal

import pytest

from snapreplay.errors import UnknownPartition, UsageError
from snapreplay.testing import RealHarness, ServiceEnded
from tests.support.deadlines import is_running, scaled
from tests.support.tested import app, balances, payments, rekeyed
from tests.support.waiting import eventually

pytestmark = pytest.mark.kafka


@pytest.fixture
def harness_of(broker, unique):
    """Makes harnesses with names of their own; what is left of them is killed."""
    made = []

    def make(program, **options):
        prefix = f"{unique('real')}-"
        made.append(RealHarness(program, broker, prefix=prefix, deadline_s=scaled(60), **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


async def test_nothing_is_lost_or_repeated_over_kills(harness_of):
    """Two partitions, a SIGKILL in the midst of the input, records fed while the service is down, a restart: each
    record has one output, and the state is that of all records."""
    async with harness_of(app, partitions=2) as harness:
        for n in range(10):
            await harness.feed(payments, key=f"k{n % 5}", value={"amount": n})
        with pytest.raises(UnknownPartition, match="partition 2 does not exist: there are 2"):
            await harness.feed(payments, key="k0", value={"amount": 0}, partition=2)
        pid = harness.pid
        await harness.kill()
        assert not is_running(pid)
        fed = [await harness.feed(payments, key=f"k{n % 5}", value={"amount": n}) for n in range(10, 20)]
        await harness.restart()
        await harness.caught_up()
        states = {**(await harness.state(0)), **(await harness.state(1))}
        outputs = await harness.outputs(balances)
    assert {each.partition for each in fed} == {0, 1}
    assert states == {f"k{k}": {"sum": sum(range(k, 20, 5))} for k in range(5)}
    assert len(outputs) == 20
    last = {each.key: each.value for each in outputs}
    assert last == states


async def test_what_is_sent_to_an_internal_topic_is_waited_for(harness_of):
    """Caught up, the app has handled what its records have led to in other partitions, over a SIGKILL, too."""
    (orders, by_customer), balances_of_customers = rekeyed.inputs, rekeyed.outputs[0]
    async with harness_of(rekeyed, partitions=2) as harness:
        for n in range(13):
            await harness.feed(orders, key=f"o{n}", value={"amount": n})
        await harness.kill()
        for n in range(13, 26):
            await harness.feed(orders, key=f"o{n}", value={"amount": n})
        await harness.restart()
        await harness.caught_up()
        states = {**(await harness.state(0)), **(await harness.state(1))}
        assert len(await harness.outputs(by_customer)) == len(await harness.outputs(balances_of_customers)) == 26
    assert states == {f"c{n}": {"n": 2, "sum": 2 * n + 13} for n in range(13)}


async def test_a_failing_record_is_told_and_a_dead_letter_read(harness_of):
    """Policy fail: `caught_up` says which record; with dead_letter it goes there, and the rest is processed."""
    async with harness_of(app) as harness:
        await harness.feed_raw(payments, b"k", b"no json")
        with pytest.raises(ServiceEnded, match=r"FAILED.*payments-0-0.*cannot be read as json"):
            await harness.caught_up()
    async with harness_of(app, settings={"errors": {"policy": "dead_letter"}}) as harness:
        await harness.feed_raw(payments, b"k", b"no json")
        await harness.feed(payments, key="k", value={"amount": 1}, timestamp_ms=1000)
        await harness.caught_up()
        (dead,) = await harness.dead_letters()
        (sent,) = await harness.outputs(balances)
        await harness.stop()
        with pytest.raises(UsageError, match="does not run") as refused:
            await harness.state()
        assert "`await harness.restart()`" in refused.value.hint
        await harness.restart()
        assert await harness.state() == {"k": {"sum": 1}}
    assert dead.value == b"no json"
    assert (sent.value, sent.offset) == ({"sum": 1}, 0)


async def test_the_service_ends_with_its_parent(harness_of):
    """Closing the pipe, as the death of the test process does, ends the service process."""
    harness = harness_of(app)
    await harness.start()
    process = harness._process._process
    process.stdin.close()
    eventually(lambda: not is_running(process.pid), "the end of the service")


@pytest.mark.whole
async def test_a_service_that_ends_by_itself_shows_its_log(harness_of):
    """As one that runs out of memory; it can be started again."""
    harness = harness_of(app)
    await harness.start()
    os.kill(harness.pid, signal.SIGKILL)
    with pytest.raises(ServiceEnded, match="not caught up: the service process ended by itself; its log ends with"):
        await harness.caught_up()
    await harness.restart()
    await harness.caught_up()
