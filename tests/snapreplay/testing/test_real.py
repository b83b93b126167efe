"""RealHarness: a service process on a real broker that is killed, restarted and asked."""

import asyncio
import os
import signal
from collections import defaultdict
from typing import Any

import pytest

from snapreplay import Record
from snapreplay.errors import UnknownPartition, UsageError
from snapreplay.testing import Diverged, Expected, RealHarness, ServiceEnded, real_harness, record
from tests.support.apps import price_of
from tests.support.deadlines import is_running, scaled
from tests.support.tested import app, balances, payments, priced, rekeyed
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


def added_up(records: list[Record[str, Any]]) -> Expected:
    """The fold of the ledger, by hand."""
    sums, sent = defaultdict[str, int](int), []
    for each in records:
        sums[each.key] += each.value["amount"]
        sent.append((each.key, {"sum": sums[each.key]}))
    return Expected({key: {"sum": total} for key, total in sums.items()}, {balances: sent})


@pytest.mark.whole
async def test_nothing_is_lost_or_repeated_over_kills(harness_of):
    """Two processes with warm copies are killed by a seed while they are fed, and once more when they are not."""
    samples = [record(payments, key=f"k{n % 20}", value={"amount": n}) for n in range(200)]
    async with harness_of(app, partitions=4, processes=2, standbys=1, seed=5) as harness:
        fed = await harness.feed_all(samples, kills=2)
        assert {each.partition for each in fed} == {0, 1, 2, 3}
        await harness.compare(added_up)
        await harness.restart()
        await harness.compare(added_up)
        pid = harness.pid
        await harness.kill(0)
        await harness.start()
        assert harness.pid != pid
        await harness.compare(added_up)


async def test_records_are_fed_by_several_tasks_at_once(harness_of):
    """Each is written once, at an offset of its own."""
    async with harness_of(app, partitions=1) as harness:
        fed = await asyncio.gather(*(harness.feed(payments, key="a", value={"amount": n}) for n in range(20)))
        assert sorted(each.offset for each in fed) == [*range(20)]
        await harness.compare(added_up)


async def test_a_process_is_killed_alone(harness_of):
    """The other one takes over its partitions; what is fed meanwhile is not lost, and a partition is chosen by hand. A
    wrong fold is refused."""
    async with harness_of(app, partitions=2, processes=2, seed=5) as harness:
        with pytest.raises(UnknownPartition, match="partition 2 does not exist: there are 2"):
            await harness.feed(payments, key="k0", value={"amount": 0}, partition=2)
        with pytest.raises(UsageError, match="runs already"):
            await harness.start()
        pid = harness.pid
        await harness.kill(0)
        assert not is_running(pid)
        for partition, key in enumerate(("a", "b")):
            await harness.feed(payments, key=key, value={"amount": 3}, partition=partition)
        await harness.compare(added_up)
        with pytest.raises(Diverged, match=r"tested: state: key '.': {'sum': 3}, expected missing \(seed 5\)"):
            await harness.compare(lambda records: Expected(added_up(records[1:]).state))
        with pytest.raises(Diverged, match=r"outputs to balances: key '.', output 1: {'sum': 3}, expected missing"):
            await harness.compare(lambda records: added_up(records[1:]))
        await harness.stop()
        with pytest.raises(UsageError, match="does not run"):
            await harness.stop()


@pytest.mark.parametrize(
    ("standbys", "settings", "replicas", "session_ms"),
    [
        (2, {}, 2, 3000),
        (2, {"group": {"rebalance_timeout_ms": 40_000}}, 2, 3000),
        (2, {"standby": {}, "group": {"session_timeout_ms": 4000}}, 2, 4000),
        (0, {"standby": {"replicas": 1}}, 1, 3000),
    ],
)
def test_settings_change_only_what_they_name(harness_of, standbys, settings, replicas, session_ms):
    made = harness_of(app, standbys=standbys, settings=settings)._settings
    assert (made.standby.replicas, made.group.session_timeout_ms) == (replicas, session_ms)


def test_two_numbers_of_warm_copies_are_refused(harness_of):
    with pytest.raises(UsageError, match=r"standbys=2, and settings has standby\.replicas=1"):
        harness_of(app, standbys=2, settings={"standby": {"replicas": 1}})


async def test_what_is_sent_to_an_internal_topic_is_waited_for(harness_of):
    """Caught up, the app has handled what its records have led to in other partitions, over SIGKILLs, too."""
    (orders, by_customer), balances_of_customers = rekeyed.inputs, rekeyed.outputs[0]
    samples = [record(orders, key=f"o{n}", value={"amount": n}) for n in range(26)]
    async with harness_of(rekeyed, partitions=2) as harness:
        await harness.feed_all(samples, kills=1)
        await harness.compare(lambda _: Expected({f"c{n}": {"n": 2, "sum": 2 * n + 13} for n in range(13)}))
        assert len(await harness.outputs(by_customer)) == len(await harness.outputs(balances_of_customers)) == 26


@pytest.mark.whole
async def test_pending_calls_are_waited_for(harness_of):
    """Over SIGKILLs, too. Half of the attempts fail."""
    (asked, _), answers = priced.inputs, defaultdict[str, dict[str, Any]](lambda: {"sum": 0, "errors": [], "seen": 0})

    def by_hand(records: list[Record[str, Any]]) -> Expected:
        for each in records:
            answers[each.key]["sum"] += price_of(each.value)
            answers[each.key]["seen"] += 1
        return Expected(answers)

    samples = [record(asked, key=f"k{n % 5}", value={"amount": n}) for n in range(20)]
    async with harness_of(priced, partitions=2) as harness:
        await harness.feed_all(samples, kills=1)
        await harness.compare(by_hand)


async def test_a_dead_letter_is_read(harness_of):
    """The rest is processed, and outlives a stop."""
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


async def test_a_failing_record_is_named_and_the_service_ends_with_its_parent(harness_of):
    """Policy fail: `caught_up` says which record. Closing the pipe, as the death of the test process does, ends the
    service process."""
    harness = harness_of(app)
    await harness.start()
    await harness.feed_raw(payments, b"k", b"no json")
    with pytest.raises(ServiceEnded, match=r"FAILED.*payments-0-0.*cannot be read as json"):
        await harness.caught_up()
    process = harness._processes[0]._process
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


@pytest.mark.whole
async def test_a_harness_with_a_broker_of_its_own():
    """Its broker ends with the block."""
    samples = [record(payments, key=f"k{n % 5}", value={"amount": n}) for n in range(20)]
    async with real_harness(app, processes=3, standbys=2, deadline_s=scaled(60)) as harness:
        await harness.feed_all(samples)
        await harness.compare(added_up)
        pids = {each.pid for each in harness._processes}
    assert len(pids) == 3
    assert not any(map(is_running, pids))
