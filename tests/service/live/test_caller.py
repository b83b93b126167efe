"""Calls of a LIVE partition, in virtual time: attempts, their ends, the circuit, and what another owner does."""

import asyncio
import logging
import time

import msgspec
import pytest

from snapreplay import CallRefused
from snapreplay.service.core.kafka_errors import RefusedRecord
from snapreplay.service.runtime import circuits
from tests.simulation.producer import SimAppender
from tests.support import apps
from tests.support.stage import until


async def answers(bench, one, count):
    """Wait until so many answers are handled; the state then."""
    await until(lambda: sum(each["seen"] for each in one.view().values()) == count, "answers", 600)
    return one.view()


class Mute(Exception):
    def __str__(self):
        return str(1 // 0)


def failing(error, times=10**9):
    """A function that raises so many times, and the calls that it got."""
    got = []

    async def price(call):
        got.append(call)
        await asyncio.sleep(0.01)
        if len(got) <= times:
            raise error
        return apps.price_of(call.request)

    return price, got


@pytest.mark.parametrize(
    ("error", "attempts", "text"),
    [
        (ValueError("no street"), 3, "ValueError: no street"),
        (CallRefused("never"), 1, "CallRefused: never"),
        (MemoryError(), 3, "MemoryError"),
        (SystemExit(3), 3, "RuntimeError: SystemExit: 3"),
        (KeyboardInterrupt(), 3, "RuntimeError: KeyboardInterrupt"),
        (asyncio.CancelledError(), 3, "RuntimeError: CancelledError"),
        (GeneratorExit(), 3, "RuntimeError: GeneratorExit"),
        (FileNotFoundError("a\udc80"), 3, "FileNotFoundError: a\\udc80"),
        (Mute(), 3, "Mute: its text cannot be shown: ZeroDivisionError"),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, BaseException) else "",
)
async def test_the_last_error_is_the_answer(bench, error, attempts, text):
    """After all attempts and any error; each attempt has the same id. The partition continues."""
    price, got = failing(error)
    await bench.prepare(apps.priced("shop", price, retries=2))
    async with bench.live() as one:
        await bench.feed(1)
        assert (await answers(bench, one, 1))["k0"]["errors"] == [text]
        assert [each.attempt for each in got] == list(range(1, attempts + 1))
        assert {each.id for each in got} == {"shop/payments-shop-0-0/0"}
        assert one.status.phase == "live"


@pytest.mark.parametrize("heeds", [True, False])
async def test_a_call_that_never_returns_ends_after_its_time(bench, heeds):
    """Even if it does not heed that it is cancelled."""

    async def price(call):
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if heeds or closing:
                    raise

    closing = []
    await bench.prepare(apps.priced("shop", price, retries=1, timeout_ms=500))
    async with bench.live() as one:
        await bench.feed(1)
        assert (await answers(bench, one, 1))["k0"]["errors"] == ["TimeoutError: no result after 500 ms"]
        closing.append(True)


async def test_a_result_that_cannot_be_encoded_is_an_error(bench):
    """At once: another attempt would return the same."""

    async def price(call):
        got.append(call)
        return object()

    got: list[object] = []
    await bench.prepare(apps.priced("shop", price))
    async with bench.live() as one:
        await bench.feed(1)
        (error,) = (await answers(bench, one, 1))["k0"]["errors"]
        assert (len(got), "result <object" in error) == (1, True)


async def test_the_circuit_opens_and_closes(bench, caplog):
    """While it is open one attempt at a time is made; the status says so."""
    under_way, most, broken = [0], [0], [True]

    async def price(call):
        under_way[0] += 1
        if one.status.calls and one.status.calls[0].circuit_open:
            most[0] = max(most[0], under_way[0])
        try:
            await asyncio.sleep(0.05)
            if broken[0]:
                raise ConnectionError("refused")
            return apps.price_of(call.request)
        finally:
            under_way[0] -= 1

    await bench.prepare(apps.priced("shop", price, retries=None, concurrency=5))
    async with bench.live() as one:
        await bench.feed(40)
        await until(lambda: one.status.calls[0].failures > circuits.FAILURES_MAX + 5, "failures", 600)
        (call,) = one.status.calls
        assert (call.pending, call.circuit_open, call.last_error) == (40, True, "ConnectionError: refused")
        assert call.oldest_at is not None
        assert most == [1]
        broken[0] = False
        await answers(bench, one, 40)
        assert (one.status.calls[0].pending, one.status.calls[0].oldest_at, one.status.calls[0].failures) == (
            0,
            None,
            0,
        )
    assert "call price failed 10 times in a row" in caplog.text


async def test_calls_of_a_key_are_made_in_order_if_asked_for(bench):
    """A failure of one keeps those behind it waiting, and nothing else; a new owner keeps to it."""
    done, failed = [], set()

    async def price(call):
        await asyncio.sleep(0.01)
        if call.request["amount"] in (1, 22) and call.id not in failed:
            failed.add(call.id)
            raise ConnectionError
        if call.request["amount"] == 43 and not is_second:
            await asyncio.Event().wait()
        done.append((call.key, call.request["amount"]))
        return 1

    is_second: list[bool] = []
    await bench.prepare(apps.priced("shop", price, ordered=True))
    async with bench.live() as one:
        await bench.feed(120)
        await answers(bench, one, 116)
    is_second.append(True)
    async with bench.live() as two:
        await answers(bench, two, 120)
    for key in {key for key, _ in done}:
        assert [n for each, n in done if each == key] == sorted(n for each, n in done if each == key)
    assert len(done) == 120


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_an_answer_that_is_a_dead_letter_is_not_asked_for_again(bench, mode):
    """Neither by this owner nor by the next one, which agrees about the state."""
    price, got = failing(ConnectionError(), 0)

    async def dear(call):
        await price(call)
        return "no number"

    await bench.prepare(apps.priced("shop", dear), errors={"policy": "dead_letter"}, restore={"mode": mode})
    async with bench.live() as one:
        await bench.feed(3)
        await until(lambda: one.status.skipped_total == 3, "dead letters", 600)
        assert one.status.calls[0].pending == 0
    async with bench.live() as two:
        assert two.status.restore.proof.equal
        await bench.feed(1)
        await until(lambda: two.status.skipped_total == 1, "dead letters", 600)
    assert len(got) == len({each.id for each in got}) == 4


async def test_an_answer_whose_time_is_refused_has_the_time_of_writing(bench, monkeypatch):
    """The result stays. A result that is refused at any time is an error with the time of the request."""

    async def refusing(self, record, partition):
        tried.append((record.timestamp_ms, msgspec.msgpack.decode(record.value)[2] != ""))
        is_large = msgspec.msgpack.decode(record.value)[3] == b"2"
        if record.timestamp_ms == 1000 or is_large:
            raise RefusedRecord("the broker refuses a record", topic=record.topic, error="InvalidTimestampError")
        return await append(self, record, partition)

    tried: list[tuple[int | None, bool]] = []
    append = SimAppender.append
    monkeypatch.setattr(SimAppender, "append", refusing)
    await bench.prepare(apps.priced("shop", apps.price_always, concurrency=1))
    async with bench.live() as one:
        await bench.feed(1)
        await answers(bench, one, 1)
        assert tried == [(1000, False), (None, False)]
        assert one.view()["k0"] == {"sum": 0, "errors": [], "seen": 1}
        tried.clear()
        await bench.feed(1)
        account = (await answers(bench, one, 2))["k1"]
        assert tried == [(1001, False), (None, False), (1001, True)]
        assert (account["sum"], account["errors"][0][:13]) == (0, "RefusedRecord")


async def test_a_call_that_blocks_the_loop_is_named(bench, caplog, monkeypatch):
    """The log says what to do."""
    monkeypatch.setattr(circuits, "BLOCKED_SECONDS", 0.01)

    async def price(call):
        await asyncio.sleep(0)
        time.sleep(0.02)  # noqa: ASYNC251 - it blocks
        return 1

    await bench.prepare(apps.priced("shop", price))
    async with bench.live() as one:
        await bench.feed(1)
        await answers(bench, one, 1)
    assert "call price blocked the event loop for" in caplog.text


async def test_an_owner_that_was_replaced_calls_no_more(bench, caplog):
    """The next one makes what has no answer again, under the same ids."""
    caplog.set_level(logging.ERROR)
    under_way: list[tuple[str, str]] = []
    never = asyncio.Event()  # it keeps the tasks that wait for it

    def hanging(name):
        async def price(call):
            under_way.append((name, call.id))
            try:
                await never.wait()
            finally:
                under_way.remove((name, call.id))

        return apps.priced("shop", price, timeout_ms=86_400_000)

    await bench.prepare(hanging("one"))
    await (await bench.owner()).phase("live")
    await bench.feed(3)
    await until(lambda: len(under_way) == 3, "calls")
    ids = {call_id for _, call_id in under_way}
    await bench.live_owner("two", hanging("two"))
    await bench.feed(1)  # the first owner tries to commit it
    await until(lambda: [name for name, _ in under_way] == ["two"] * 4, "calls", 600)
    assert {call_id for _, call_id in under_way} > ids


async def test_answers_in_the_log_are_handled_before_anything_is_called_again(bench):
    """The owner before has written them, and was gone before it handled them. One that comes twice counts once."""
    got = []

    async def hang(call):
        got.append(call)
        await asyncio.Event().wait()

    await bench.prepare(apps.priced("shop", hang))
    async with bench.live():
        await bench.feed(5)
        await until(lambda: len(got) == 5, "calls")
    for call in (*got, got[0]):
        reply = msgspec.msgpack.encode([call.id, 1, "", b"%d" % apps.price_of(call.request)])
        bench.log("shop-internal-price-results").append(call.key.encode(), reply, (), 1, None)
    got.clear()
    async with bench.live() as two:
        await answers(bench, two, 5)
        await two.position(6, "shop-internal-price-results")
        assert {key: each["sum"] for key, each in two.view().items()} == {f"k{n}": 2 * n for n in range(5)}
    assert got == []


async def test_a_call_that_was_renamed_or_removed_stops_the_partition(bench):
    """By name; with the call again it resumes."""
    price, _ = failing(ConnectionError())
    await bench.prepare(apps.priced("shop", price, retries=None))
    async with bench.live() as one:
        await bench.feed(3)
        await until(lambda: one.status.calls[0].pending == 3, "calls")
    renamed = bench.beside(apps.priced("shop", price, call_name="cost"))
    status = await renamed.failure(renamed.app)
    assert status.error.kind == "WrongLog"
    assert "shop-internal-price-results" in status.error.message
    async with bench.live(apps.priced("shop", apps.price_always)) as two:
        await answers(bench, two, 3)
