"""B19: an input that loses its tail and grows again: nothing of it is left out in silence.

An older directory of its partition cuts the log. Unclean elections: tests/simulation/test_losses.py, tests/chaos.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from snapreplay.service.control.operations import TriggerSnapshot
from tests.support import apps, inside, reference
from tests.support.accepting import accepted
from tests.support.deadlines import scaled
from tests.support.older_disk import OlderDisk
from tests.support.stage import Stage, phase, snapshot, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.usefixtures("impatient")]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OlderDisk]:
    disk = OlderDisk(tmp_path_factory.mktemp("disk"))
    with disk.broker:
        yield disk


def aborted(servers: str, topic: str, count: int) -> None:
    """A transaction of `count` records that is aborted, and its marker."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"{topic}-aborts"})
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(scaled(20.0)) == 0
    producer.abort_transaction()


def others(count: int) -> list[tuple[str, Any]]:
    return [(f"k{n}", {"amount": 10_000 + n}) for n in range(count)]


async def staged(disk: OlderDisk, app_id: str) -> Stage:
    return await Stage(disk.broker.bootstrap_servers, apps.ledger(app_id)).prepare()


async def passed_the_marker(service: Any, position: int) -> None:
    """Wait until the position has moved behind what holds no record, after a look at the log."""
    await until(lambda: service.restore_status()[0].inputs[0].position >= 200, 200)
    await snapshot(service)
    service.control.perform(TriggerSnapshot([0], "look"))  # nothing has changed since: only the log is looked at
    live = inside.live(inside.runner(service))
    await until(lambda: set(live.last.positions.values()) == {position}, position)  # committed, not only displayed


@pytest.mark.whole
@pytest.mark.parametrize("owner", ["stopped", "running"])
async def test_b19_a_log_cut_between_the_last_record_and_the_position_is_another_one(
    disk: OlderDisk, unique: Callable[[str], str], owner: str
) -> None:
    """Below the position are an aborted transaction and its marker. The log loses them, and other records take their
    offsets: they would never be processed."""
    here = await staged(disk, unique("tail"))
    topic, servers = here.input, here.bootstrap_servers
    await here.feed(200)
    await asyncio.to_thread(disk.keep, f"{topic}-0")
    await asyncio.to_thread(aborted, servers, topic, 300)
    async with here.running() as service:
        await passed_the_marker(service, 501)
        if owner == "running":
            await asyncio.to_thread(disk.put_back, f"{topic}-0")
            await here.send(others(700), topic)
            await phase(service, "failed")
    if owner == "stopped":
        await asyncio.to_thread(disk.put_back, f"{topic}-0")
        await here.send(others(700), topic)
    status = await here.failure()
    assert status.error.kind in ("InputReplaced", "InputShorter")
    assert f"{topic}-0" in status.error.message
    assert "200 to 501" in status.error.message
    if status.error.kind == "InputShorter":  # the feeding was not done yet
        status = await here.failure()
    proposal, _ = await accepted(here, status.error.hint)
    assert "up to offset 200" in str(proposal)
    async with here.running() as service:
        await here.assert_exactly_once(service)


@pytest.mark.whole
@pytest.mark.parametrize("committed", [pytest.param(0, id="fetched"), pytest.param(540, id="committed")])
async def test_b19_what_was_fetched_before_a_cut_is_read_again(
    disk: OlderDisk, unique: Callable[[str], str], committed: int
) -> None:
    """The owner stands still with 1,520 records fetched. Then the log ends at 520 and 2,000 others come. If what is
    committed is still there, the partition goes on with what is there now; else it is refused with the offsets."""
    app_id = unique("fetched")
    happened = threading.Event()

    def add_and_stand_still(payment: Any, balance: dict[str, int]) -> None:
        apps.add(payment, balance)
        if payment["amount"] == committed + 5 and not happened.is_set():
            happened.set()
            disk.put_back(f"{topic}-0")
            reference.send(disk.broker.bootstrap_servers, topic, 1, others(2000))

    app = apps.ledger(app_id, add_and_stand_still)
    topic = app.inputs[0].name
    here = await Stage(disk.broker.bootstrap_servers, app, batch={"records_max": 20}).prepare()
    await here.feed(520)
    await asyncio.to_thread(disk.keep, f"{topic}-0")
    await here.feed(1000)
    async with here.running() as service:
        await until(happened.is_set, "the cut")
        if not committed:
            await here.assert_exactly_once(service)
            return
        status = await phase(service, "failed")
    assert status.error.kind == "InputReplaced"
    assert f"{topic}-0: offsets 520 to 5" in status.error.message
