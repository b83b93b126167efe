"""B8: what fails in the same way every time is no doubt. A record that the broker never takes, a batch that never ends
in time and a client that waits for a broker of yesterday must not be tried for ever."""

import time

import pytest

from snapreplay import App, Topic, nullable, utf8
from snapreplay.app.ranges import SkippedRange
from snapreplay.service.kafka.config import client_arguments
from tests.attacks.test_b9_restore_storm import assert_exactly_once, owner
from tests.support import apps
from tests.support.entries import read_entry
from tests.support.owner import Owner
from tests.support.proxy import INIT_PRODUCER_ID, Proxy
from tests.support.stage import until
from tests.support.tampering import configure, delete

pytestmark = pytest.mark.kafka

__all__ = ["owner"]

COUNT, BAD = 100, 37


def timed(name):
    """Outputs carry the time that the record asks for."""
    inputs, outputs = Topic(f"payments-{name}"), Topic(f"balances-{name}")
    app = App(name, inputs=[inputs], outputs=[outputs], state=apps.accounts)

    @app.handler(inputs)
    def on_payment(record, state, out):
        state[record.key]["n"] += 1
        at_ms = record.value.get("at_ms")
        out.send(outputs, key=record.key, value={"id": record.id}, timestamp_ms=at_ms)

    return app


def keyless(name):
    """Outputs without a key, where the record asks for it; their topic is compacted."""
    inputs, outputs = Topic(f"payments-{name}"), Topic(f"balances-{name}", key=nullable(utf8))
    app = App(name, inputs=[inputs], outputs=[outputs], state=apps.accounts)

    @app.handler(inputs)
    def on_payment(record, state, out):
        state[record.key]["n"] += 1
        key = None if record.value.get("keyless") else record.key
        out.send(outputs, key=key, value={"id": record.id})

    return app


def payments(bad):
    """One of them has more to it."""
    return [("0:a", {"amount": n, **(bad if n == BAD else {})}) for n in range(COUNT)]


@pytest.fixture
def shrunk(stage, unique):
    """An app that was LIVE when its output topic's limit was lowered: (stage, its runner)."""

    async def make(**tables):
        here = await stage(apps.ledger(unique("b8"), apps.grow), **tables)
        one = Owner(here, await here.context())
        await one.phase("live")
        await here.send([("0:b", {"amount": 1})])
        await one.position(1)
        topic = here.app.outputs[0].name
        configure(here.bootstrap_servers, topic, "max.message.bytes", "20000")
        return here, one

    return make


async def test_b8_a_record_that_the_broker_refuses_fails_alone(shrunk):
    """Its batch is cut down to it: all before is committed and in a snapshot, and FAILED names the record, the topic
    and the way out."""
    here, one = await shrunk()
    await here.send(payments({"padding": 30_000}))
    status = await one.phase("failed")
    assert status.error.kind == "HandlerFailed"
    assert status.error.record_id == f"{here.app.inputs[0].name}-0-{BAD + 1}"
    assert here.app.outputs[0].name in status.error.message
    assert "max.message.bytes" in status.error.hint or "limits" in status.error.hint
    assert len(await one.outputs()) == BAD + 1
    assert (status.snapshot.reason, status.snapshot.state) == ("failed_partition", "pointed")
    await one.end()


async def test_b8_a_record_that_the_broker_refuses_is_dead_lettered(shrunk):
    """By that policy it alone is skipped; all others are processed, each once, and a replay skips the same."""
    here, one = await shrunk(errors={"policy": "dead_letter"})
    await here.send(payments({"padding": 30_000}))
    await one.position(COUNT + 1)
    topic = here.app.inputs[0].name
    bad = f"{topic}-0-{BAD + 1}"
    assert await one.outputs() == [f"{topic}-0-{n}" for n in range(COUNT + 1) if n != BAD + 1]
    ((letter,),) = await here.read(f"{here.app.app_id}-dead-letters")
    why = dict(letter.headers)
    assert why["__snapreplay.errors.offset"] == str(BAD + 1).encode()
    assert bad in why["__snapreplay.errors.message"].decode()
    await one.end()
    last = [read_entry(r.value) for r in (await here.read(f"{here.app.app_id}-increments"))[0]]
    skipped = [part for each in last for part in getattr(each, "skipped", [])]
    assert skipped == [SkippedRange(topic, BAD + 1, BAD + 2)]
    replayed = Owner(here, await here.context(restore={"mode": "replay"}))
    assert (await replayed.phase("live")).restore.proof.equal
    await replayed.end()


async def test_b8_a_batch_that_is_only_too_large_together_is_cut_until_it_fits(shrunk):
    """No record is to blame: the new limit is asked for, and all are processed."""
    here, one = await shrunk()
    await here.send([("0:a", {"amount": n, "padding": 1000}) for n in range(COUNT)])
    await one.position(COUNT + 1)
    assert len(await one.outputs()) == COUNT + 1
    assert one.status.phase == "live"
    await one.end()


async def test_b8_a_timestamp_that_the_broker_refuses_is_the_records_fault(stage, unique):
    """An output may carry a time of its own; an hour ahead, Kafka does not take it."""
    here = await stage(timed(unique("b8-time")))
    one = Owner(here, await here.context())
    await one.phase("live")
    await here.send(payments({"at_ms": int(time.time() * 1000) + 10 * 86_400_000}))
    status = await one.phase("failed")
    assert status.error.record_id == f"{here.app.inputs[0].name}-0-{BAD}"
    assert "imestamp" in status.error.message
    assert len(await one.outputs()) == BAD
    await one.end()


async def test_b8_an_output_without_a_key_for_a_compacted_topic_is_the_records_fault(stage, unique):
    """The client has no name for that refusal (INVALID_RECORD): it is one all the same, not a doubt."""
    here = await stage(keyless(unique("b8-keyless")))
    configure(here.bootstrap_servers, here.app.outputs[0].name, "cleanup.policy", "compact")
    one = Owner(here, await here.context())
    await one.phase("live")
    await here.send(payments({"keyless": True}))
    status = await one.phase("failed")
    assert status.error.kind == "HandlerFailed"
    assert status.error.record_id == f"{here.app.inputs[0].name}-0-{BAD}"
    assert here.app.outputs[0].name in status.error.message
    assert "key" in status.error.hint
    assert len(await one.outputs()) == BAD
    await one.end()


async def test_b8_a_topic_that_is_gone_is_no_records_fault(stage, unique):
    """Nothing is dead-lettered for it: FAILED names the topic after some attempts."""
    here = await stage(apps.ledger(unique("b8-gone")), errors={"policy": "dead_letter"})
    one = Owner(here, await here.context())
    await one.phase("live")
    topic = here.app.outputs[0].name
    delete(here.bootstrap_servers, topic)
    await here.send(payments({}))
    status = await one.phase("failed")
    assert status.error.kind == "RefusedAgain"
    assert topic in status.error.message
    assert "`snapreplay topics ensure MODULE:APP --partitions N`" in status.error.hint
    assert await here.read(f"{here.app.app_id}-dead-letters") == [[]]
    await one.end()


async def test_b8_a_fence_that_is_not_answered_is_tried_with_a_new_client(owner, broker):
    """The client itself would wait for ever; our deadline ends it, and the next one gets through."""
    proxy, tables = Proxy(broker.bootstrap_servers), {"timeouts": {"fence_ms": 800}}
    kafka = {"bootstrap.servers": broker.bootstrap_servers, "request.timeout.ms": 700}
    async with proxy.through():
        one = await owner(kafka=kafka, **tables)
        await one.here.feed(10)
        await one.position(10)
        await one.end()
        proxy.fault = lambda key: "mute" if key == INIT_PRODUCER_ID else "pass"
        two = Owner(one.here, await one.here.context(kafka=kafka, **tables))
        await until(lambda: two.status.restore and two.status.restore.attempt == 2, "another try")
        assert two.status.error.kind == "Unreachable"
        proxy.fault = lambda _: "pass"
        await two.phase("live")
        assert two.status.error is None
        await one.here.feed(10)
        await assert_exactly_once(two, 20)
        await two.end()


async def test_b8_a_new_client_begins_at_another_address_and_forgets_old_metadata(stage, unique):
    """A client that learnt of the cluster from a leader of yesterday asks again within half a minute."""
    here = await stage(apps.ledger(unique("b8-address")))
    given = [f"broker-{n}:9092" for n in range(5)]
    settings = here.settings(kafka={"bootstrap.servers": ",".join(given)})
    made = [client_arguments(settings) for _ in range(100)]
    assert {arguments["bootstrap_servers"][0] for arguments in made} == set(given)
    assert all(sorted(arguments["bootstrap_servers"]) == given for arguments in made)
    assert all(arguments["metadata_max_age_ms"] <= 30_000 for arguments in made)
