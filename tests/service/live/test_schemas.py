"""A partition whose records need a schema: it waits for a registry that does not answer, by name, and loses nothing."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from snapreplay import App, MapState, SchemaRegistry, Topic
from snapreplay.service.control.protocol import partition_check
from snapreplay.service.live import recoverability_monitor
from snapreplay.service.runtime import schemas as waiting
from tests.support.deadlines import scaled
from tests.support.scripted_registry import ScriptedRegistry, scripted_registry
from tests.support.stage import Stage, phase, processed, until


class Order(msgspec.Struct):
    id: str
    amount: int


class Total(msgspec.Struct):
    amount: int


WRITTEN = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "int"}],
}
TOTAL = {"type": "record", "name": "Total", "fields": [{"name": "amount", "type": "long"}]}


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with scripted_registry() as started:
        started.add(WRITTEN, "orders-value")
        yield started


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "AGAIN_SECONDS", (0.05,))


def totals(name: str, url: str, **config: Any) -> App[Any]:
    registry = SchemaRegistry(url, **config)
    orders = Topic(f"orders-{name}", value=registry.avro(Order))
    sums = Topic(f"totals-{name}", value=registry.avro(Total, subject="totals-value"))
    app: App[Any] = App(name, inputs=[orders], outputs=[sums], state=lambda: MapState(str, int, default=int))

    @app.handler(orders)
    def on_order(record: Any, state: Any, out: Any) -> None:
        state[record.key] += record.value.amount
        out.send(sums, key=record.key, value=Total(state[record.key]))

    return app


def order(schema_id: int, amount: int) -> bytes:
    return bytes([0]) + schema_id.to_bytes(4) + b"\x02a" + bytes([2 * amount])


BROKEN = {
    "500": (500, '{"error_code": 50001, "message": "the store is down"}'),
    "401": (401, '{"error_code": 401, "message": "Unauthorized"}'),
    "404 of something else": (404, "<html>not here</html>"),
    "HTML": (200, "<html>a proxy's page</html>"),
    "no schema": (200, "{}"),
}

CAUSES = {
    "500": "500",
    "401": "401",
    "404 of something else": "404",
    "HTML": "Expecting value",
    "no schema": "the answer has no schema",
}


def waits_for(service: Any) -> str:
    restore = service.restore_status()[0].restore
    return restore.waiting_for if restore else ""


def check_of(service: Any) -> Any:
    return partition_check(0, service.restore_status()[0])


async def waiting_for(service: Any, *words: str) -> str:
    await phase(service, "live")
    await until(lambda: all(word in waits_for(service) for word in words), words)
    assert not check_of(service).ok
    assert words[0] in check_of(service).detail
    return waits_for(service)


async def orders(of: Stage, *values: bytes) -> None:
    await of.send([(f"k{number % 2}", value) for number, value in enumerate(values)])


@pytest.mark.parametrize(("broken", "cause"), [(BROKEN[name], cause) for name, cause in CAUSES.items()], ids=CAUSES)
async def test_a_registry_that_gives_no_schema_makes_the_partition_wait(stage, request, registry, broken, cause):
    """No record is skipped, although failing ones become dead letters. The id is named, and the process not ready."""
    app = totals(f"wait-{request.node.callspec.id.replace(' ', '-')}", registry.url)
    registry.add(TOTAL, "totals-value")
    one = await stage(app, errors={"policy": "dead_letter"})
    async with one.running() as service:
        await orders(one, order(1, 1), order(1, 2))
        await processed(service, {0: 2})
        registry.broken = broken
        new = registry.add({**WRITTEN, "doc": "a later version"}, "orders-value")
        await orders(one, order(1, 3), order(new, 4), order(new, 5))
        # On a busy machine the first attempt may end without an answer, and says so.
        await waiting_for(service, f"schema {new}", registry.url, cause)
        # The record before them may have been applied, if it was fetched alone.
        assert service.restore_status()[0].inputs[0].position in (2, 3)
        registry.broken = None
        await processed(service, {0: 5})
        assert dict(service.view(0)) == {"k0": 1 + 3 + 5, "k1": 2 + 4}
        assert waits_for(service) == ""
        assert check_of(service).ok
    assert await one.read(one.dead_letters) == [[]]
    (sent,) = await one.read(one.output)
    assert [each.value for each in sent][-1] == b"\0\0\0\0\2" + bytes([2 * (1 + 3 + 5)])


async def test_a_registry_that_is_down_at_the_start_is_waited_for(stage, registry):
    """What writing needs is asked for before the first record. A stop ends the wait."""
    one = await stage(totals("down", registry.url, auto_register=True))
    registry.broken = BROKEN["500"]
    await orders(one, order(1, 1))
    async with one.started(totals("down", registry.url)) as service:
        await waiting_for(service, "totals-value")
    async with one.started(totals("down", registry.url)) as service:
        await waiting_for(service, "totals-value")
        registry.broken = None
        await processed(service, {0: 1})


async def test_a_slow_registry_stops_nothing_but_its_partition(stage, registry):
    registry.add(TOTAL, "totals-value")
    one = await stage(totals("slow", registry.url))
    async with one.running() as service:
        registry.gate.clear()
        await orders(one, order(1, 1))
        await until(lambda: registry.asked[-1:] == ["/schemas/ids/1"], "a question")
        done = await service.trigger_snapshot([0])
        assert done.state == "succeeded"
        registry.gate.set()
        await processed(service, {0: 1})


class Hanging:
    """Schemas of a registry that does not answer until the gate is open."""

    def __init__(self) -> None:
        self.gate, self.begun = threading.Event(), list[int]()

    def fetch(self, schema_id: int, _: float) -> None:
        self.begun.append(schema_id)
        self.gate.wait(60)


async def test_a_registry_that_hangs_takes_no_thread_of_the_loop_and_a_stop_asks_nothing_more():
    """Kafka's addresses are looked up in the loop's threads. Each of 40 partitions needs three schemas."""
    hanging: Any = Hanging()
    tasks = [
        asyncio.create_task(waiting.fetching({(hanging, 3 * number + each) for each in range(3)}, lambda _: None))
        for number in range(40)
    ]
    try:
        await until(lambda: hanging.begun, "a question")
        async with asyncio.timeout(scaled(10)):
            await asyncio.to_thread(int)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        asked = list(hanging.begun)
        hanging.gate.set()
    await asyncio.get_running_loop().run_in_executor(waiting._THREADS, int)
    assert hanging.begun == asked


async def test_ids_that_no_registry_has_are_waited_for_together(registry, monkeypatch):
    """Foreign records may each name another one: two seconds for each would be a standstill."""
    monkeypatch.setattr("snapreplay.registry.client.ABSENT_SECONDS", 0.5)
    schemas: Any = SchemaRegistry(registry.url).avro(Order).schemas
    await waiting.fetching({(schemas, each) for each in range(100, 120)}, lambda _: None)
    assert set(registry.asked) == {f"/schemas/ids/{each}" for each in range(100, 120)}
    assert len(registry.asked) < 2 * 20


async def test_what_is_wrong_with_the_record_is_its_own_fault(stage, registry):
    """An id that the registry does not know, bytes that end too early: a dead letter, and the next record."""
    bad = [order(77, 1), order(1, 1)[:3], order(1, 1)[:-1], order(1, 1) + b"x", b'{"id": "a"}', b""]
    registry.add(TOTAL, "totals-value")
    one = await stage(totals("own", registry.url), errors={"policy": "dead_letter"})
    async with one.running() as service:
        await orders(one, order(1, 1), *bad, order(1, 2))
        await processed(service, {0: 2 + len(bad)})
        assert sum(dict(service.view(0)).values()) == 3
    (letters,) = await one.read(one.dead_letters)
    assert [each.value for each in letters] == bad


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_only_a_replay_needs_the_registry(stage, registry, monkeypatch, mode):
    """A recovery by changes decodes nothing. A replay waits, named, and ends with the same state. The plan says so."""
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 0.2)
    registry.add(TOTAL, "totals-value")
    name = f"recovers-{mode}"
    one = await stage(totals(name, registry.url), restore={"mode": mode})
    async with one.running() as service:
        await orders(one, order(1, 1), order(1, 2), order(1, 3))
        await processed(service, {0: 3})
        await until(lambda: service.restore_status()[0].restore_plan, "a plan")
        assert service.restore_status()[0].restore_plan.replay_needs == (registry.url,)
    registry.broken, registry.asked = BROKEN["500"], []
    app = totals(name, registry.url)  # another process knows no schema
    async with one.started(app) as service:
        await until(lambda: waits_for(service), "a wait")
        status = service.restore_status()[0]
        assert status.phase == ("live" if mode == "changes" else "advancing")
        registry.broken = None
        await orders(one, order(1, 4))
        await processed(service, {0: 4})
        assert service.restore_status()[0].restore.mode == mode
        assert dict(service.view(0)) == {"k0": 1 + 3 + 4, "k1": 2}


async def test_an_output_without_a_registered_schema_fails_before_the_first_record(stage, registry):
    registry.add(TOTAL, "totals-value")
    one = await stage(totals("unregistered", registry.url))
    registry.subjects.pop("totals-value")
    async with one.started(totals("unregistered", registry.url)) as service:
        await orders(one, order(1, 1))
        failed = await phase(service, "failed")
        assert failed.error.kind == "UsageError"
        assert "totals-value" in failed.error.message
        assert "auto_register=True" in failed.error.hint
        registry.add(TOTAL, "totals-value")
        await service.retry(0)
        await processed(service, {0: 1})
