"""What operators decide about an app with internal topics: begin, add one, move the state, set it back, delete."""

from functools import partial
from typing import Any

import pytest

from snapreplay import App
from snapreplay.errors import StopError
from snapreplay.service.config.settings import Settings
from snapreplay.service.decisions import reset
from snapreplay.service.decisions.deletion import carry_out, propose
from snapreplay.service.decisions.init import init_with_state
from snapreplay.service.decisions.reset import ResetTarget
from snapreplay.service.decisions.state_import import CannotTakeOver
from snapreplay.service.live.recoverability_monitor import WATCH_SECONDS
from snapreplay.service.ports import NewTopic
from snapreplay.service.preflight import OwnTopicsMissing, inspect
from snapreplay.service.topics.requirements import MissingInput, ensure_topics
from tests.service.live.test_pausing import WHY, asked
from tests.support import apps
from tests.support.healthy import Topics, topic
from tests.support.stage import Stage, until

INTERNAL = "app-internal-by-customer"


async def test_topics_ensure_creates_it_with_the_partitions_of_the_other_inputs():
    """Kept for ever; a start without it names the command; while the app runs, its partitions wait for it."""
    app, settings = apps.rekeyed("x"), Settings()
    cluster: Any = Topics([topic("orders-x", partition_count=3), topic("balances-x", partition_count=3)])
    lines = await ensure_topics(app, settings, cluster)
    assert "created x-internal-by-customer (3 partitions)" in lines
    made = cluster.known["x-internal-by-customer"]
    assert (made.partition_count, made.config["retention.ms"]) == (3, "-1")
    view = await inspect(app, settings, cluster)
    del cluster.known[made.name]
    with pytest.raises(OwnTopicsMissing) as refused:
        await inspect(app, settings, cluster)
    assert refused.value.message == "topics of app 'x' are missing: x-internal-by-customer"
    assert refused.value.hint == "`snapreplay topics ensure MODULE:APP`"
    with pytest.raises(MissingInput, match="x-internal-by-customer"):
        await inspect(app, settings, cluster, running=view)
    cluster.known[made.name] = topic(made.name, partition_count=4)
    for look in (ensure_topics, inspect):
        with pytest.raises(StopError, match="by-customer has 4 partitions, but the other inputs of app 'x' have 3"):
            await look(app, settings, cluster)


def without(app):
    """The version before: it has no internal topic."""
    before = App(app.app_id, inputs=app.inputs[:1], outputs=app.outputs[:1], state=app.state)
    before.handler(app.inputs[0])(lambda record, state, out: None)
    return before


async def test_the_owner_adds_it_to_the_inputs_by_itself(bench):
    """The version before is refused from then on, as with any other input."""
    app = apps.rekeyed("app")
    await bench.prepare(without(app))
    await bench.feed(5)
    async with bench.live() as one:
        await one.position(5)
    bench.app = app
    bench.create_topics()
    async with bench.live() as one:
        await bench.feed(20)
        await until(lambda: sum(each["n"] for each in one.view().values()) == 20, "what came since")
        (decision,) = one.status.decisions
        assert f"input {INTERNAL} is read from offset 0 on" in decision.decided
        assert decision.reason == "the app declares these internal topics"
    assert (await bench.failure(without(app))).error.kind == "WrongLog"


async def in_flight(bench):
    """One order was processed whole; of another one, the record in the internal topic was not."""
    await bench.prepare(apps.rekeyed("app"))
    await bench.feed(1)
    async with bench.live() as one:
        await until(lambda: len(one.view()) == 1, "the first order")
    bench.log(INTERNAL).append(b"c7", b'{"amount": 7}', (), 1000, None)


async def test_a_state_with_records_in_flight_is_no_beginning(bench):
    """Some were sent before it, and others after it: a new app would lose or repeat them. Once all are processed, it
    begins with an internal topic of its own."""
    await in_flight(bench)
    heir = bench.beside(apps.rekeyed("app"))
    heir.app.app_id = "heir"
    heir.app.inputs[1].name = "heir-internal-by-customer"
    heir.create_topics()
    with pytest.raises(CannotTakeOver, match=f"{INTERNAL}-0 has records from offset 2 on") as refused:
        await init_with_state(heir.app, heir.settings(), heir.cluster, "app", "positions")
    assert "snapreplay lag" in refused.value.hint
    async with bench.live() as one:
        await until(lambda: len(one.view()) == 2, "the order in flight")
    await init_with_state(heir.app, heir.settings(), heir.cluster, "app", "positions")
    async with heir.live() as one:
        await heir.feed(3)
        await until(lambda: sum(each["n"] for each in one.view().values()) == 5, "orders of both")


async def test_an_app_that_is_set_back_skips_what_is_in_it(bench):
    """What the orders lead to is sent again: with what was there before, it would count twice."""
    await in_flight(bench)
    settings, cluster = bench.settings(), bench.cluster
    for each in await reset.propose(bench.app, settings, cluster, ResetTarget(start="earliest")):
        await reset.carry_out(each)
    async with bench.live() as one:
        await until(lambda: sum(each["n"] for each in one.view().values()) == 1, "the first order again")
        await bench.feed(2)
        await until(lambda: sum(each["n"] for each in one.view().values()) == 3, "what came since")


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_what_no_recovery_needs_is_deleted(bench, mode):
    """Up to where the oldest kept snapshot begins; a replay from it still finds all that it needs."""
    await bench.prepare(apps.rekeyed("app"))
    async with bench.live() as one:
        for count in (10, 20, 30):
            await bench.feed(10)
            await until(partial(has_booked, one, count), count)
            await one.snapshot()
        await until(lambda: bench.log(INTERNAL).start > 0, "trimmed")
        assert bench.log(INTERNAL).start < bench.batches()[-1].positions[INTERNAL]
        await bench.feed(10)
        await until(partial(has_booked, one, 40), 40)
    async with bench.live(restore={"mode": mode}) as one:
        assert one.status.restore.proof.equal
        assert has_booked(one, 40)


async def test_a_paused_partition_shows_the_lag_of_an_internal_topic(bench):
    """What another partition sends to it meanwhile waits, and counts once it is resumed."""
    await bench.prepare(apps.rekeyed("app"))
    await bench.feed(5)
    async with bench.live() as one:
        await until(partial(has_booked, one, 5), 5)
        assert await asked(one, WHY) == ("succeeded", "")
        await bench.feed(3)
        for amount in (1, 2):
            bench.log(INTERNAL).append(b"c1", b'{"amount": %d}' % amount, (), 1000, None)
        lags = {bench.input: 3, INTERNAL: 2}
        await until(lambda: {each.topic: each.lag for each in one.status.inputs} == lags, lags, 2 * WATCH_SECONDS)
        assert has_booked(one, 5)
        assert await asked(one, None) == ("succeeded", "")
        await until(partial(has_booked, one, 10), 10)


async def test_a_record_of_another_program_is_handled_if_it_decodes(bench):
    """Nothing in the topic shows who wrote a record; the error of one that does not decode names it."""
    await bench.prepare(apps.rekeyed("app"), errors={"policy": "dead_letter"})
    log = bench.log(INTERNAL)
    log.append(b"c1", b'{"amount": 5}', (), 1000, None)
    log.append(b"c1", b"\0\0\0\0\7", (), 1000, None)
    async with bench.live() as one:
        await bench.feed(3)
        await until(partial(has_booked, one, 4), 4)
    (dead,) = (await bench.read(bench.dead_letters))[0]
    assert (dead.key, dict(dead.headers)["__snapreplay.errors.topic"]) == (b"c1", INTERNAL.encode())


def has_booked(one, count):
    return sum(each["n"] for each in one.view().values()) == count


async def test_a_deletion_takes_it_along_and_nothing_of_others(stage, unique):
    """A topic with such a name that the app has never read, and that holds records, may be somebody else's."""
    here = await stage(apps.rekeyed(unique("rekeyed")))
    async with here.running() as service:
        await here.process(service, 10)
    app_id = here.app.app_id
    stranger = App(app_id, inputs=here.app.inputs[:1], outputs=[], state=here.app.state).topic("stranger").name
    unused = App(app_id, inputs=here.app.inputs[:1], outputs=[], state=here.app.state).topic("unused").name
    await here.cluster.create_topics([NewTopic(name, 1) for name in (stranger, unused)])
    await here.send([("a", 1)], stranger)
    deletion = await propose(app_id, here.cluster)
    assert set(deletion.topics) == {here.increments, here.snapshots, here.app.inputs[1].name, unused}
    assert deletion.kept == (stranger,)
    await carry_out(deletion, here.cluster)
    assert stranger in await here.cluster.topic_names()
    again = await Stage(here.bootstrap_servers, here.app).cluster.topic_names()
    assert here.app.inputs[1].name not in again
