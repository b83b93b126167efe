"""Inputs that come and go: topics that match a pattern are taken in while the app runs, others by a command."""

import asyncio
import logging
from typing import Any

import pytest

from snapreplay import App, MapState, Topic, json, nullable, raw
from snapreplay.app import names
from snapreplay.service.decisions import savepoints
from snapreplay.service.decisions.inputs import NotRetirable, Wish, carry_out, propose
from snapreplay.service.doctor.collect import examine
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.ports import NewTopic
from tests.support.stage import Stage, phase, processed, until
from tests.support.tampering import delete, grow

pytestmark = pytest.mark.kafka


def orders(name: str, *more: Topic[Any, Any], which: str = ".*") -> App[Any]:
    """Sums per key over all topics that match orders-NAME-…, and which topics a key came from."""
    inputs = [Topic.matching(f"orders-{name}-{which}"), *more]
    app: App[Any] = App(name, inputs=inputs, outputs=[Topic(f"sums-{name}")], state=lambda: MapState(str, dict))
    (sums,) = app.outputs

    def on_order(record: Any, state: Any, out: Any) -> None:
        account = state.get(record.key, {"sum": 0, "from": []})
        account["sum"] += record.value["amount"]
        account["from"] = sorted({*account["from"], record.topic})
        state[record.key] = account
        out.send(sums, key=record.key, value={"id": record.id, "sum": account["sum"]})

    for each in inputs:
        app.handler(each)(on_order)
    return app


async def appears(here: Any, topic: str, amount: int) -> None:
    await here.cluster.create_topics([NewTopic(topic, here.partitions)])
    await here.send([(f"k{number}", {"amount": amount}) for number in range(5)], topic)


@pytest.fixture
async def here(broker, unique, monkeypatch):
    """An app with a pattern that one topic matches; the cluster is looked at five times a second."""
    monkeypatch.setattr("snapreplay.service.supervisor.WATCH_SECONDS", 0.2)
    stage = Stage(broker.bootstrap_servers, orders(unique("orders")))
    await appears(stage, f"orders-{stage.app.app_id}-east", 1)
    return await stage.prepare()


async def test_a_topic_that_appears_is_taken_in_from_its_beginning(here):
    """Without a restart; a crash and a recovery later, everything counted once."""
    east, west = (f"orders-{here.app.app_id}-{each}" for each in ("east", "west"))
    async with here.running() as service:
        await processed(service, {0: 5}, east)
        await appears(here, west, 10)
        await processed(service, {0: 5}, west)
        (status,) = service.restore_status()
        assert status.decisions[0].finding.startswith("inputs-changed-")
        assert f"input {west} is read from offset 0 on" in status.decisions[0].decided
        assert (await service.control.history(0)).decisions == status.decisions
        assert {each.topic for each in status.inputs} == {east, west}
    async with here.running() as service:
        assert service.view(0).get("k3") == {"sum": 11, "from": [east, west]}
    assert [each.batch for each in await here.batches()] == list(range(len(await here.batches())))


async def test_a_topic_with_other_partitions_is_named_and_the_others_go_on(here, caplog):
    """It would move the keys. A topic that has got more of them while it is an input ends the processing."""
    east, odd = (f"orders-{here.app.app_id}-{each}" for each in ("east", "odd"))
    async with here.running() as service:
        await here.cluster.create_topics([NewTopic(odd, 3)])
        await until(lambda: f"topic {odd} matches" in caplog.text, "it is named")
        caplog.clear()
    async with here.running() as service:
        assert f"topic {odd} matches" in caplog.text
        caplog.clear()
    async with here.running() as service:
        assert "it has 3 partitions and the other inputs have 1: it is not read" in caplog.text
        await here.send([("k0", {"amount": 5})], east)
        await processed(service, {0: 6}, east)
        await asyncio.to_thread(grow, here.bootstrap_servers, east, 2)
        error = (await phase(service, "failed")).error
        assert f"{east} has 2 partitions" in error.message
    error = (await here.failure()).error
    assert (error.kind, error.message) == ("InputGrown", f"input {east} has 2 partitions, but the app has 1")


async def test_a_pattern_that_matches_nothing_is_named_and_goes_on(broker, unique, monkeypatch, caplog):
    """It is the only input: until a topic appears the app is LIVE, and ends when it is told to."""
    monkeypatch.setattr("snapreplay.service.supervisor.WATCH_SECONDS", 0.2)
    here = await Stage(broker.bootstrap_servers, orders(unique("none"))).prepare()
    async with here.running():
        said = [each for each in caplog.messages if "matches" in each]
        assert said == [f"no topic that can be read matches {here.input!r} yet; a topic that appears later is added"]
    assert "did not end" not in caplog.text
    async with here.running() as service:
        await appears(here, f"orders-{here.app.app_id}-west", 10)
        await processed(service, {0: 5}, f"orders-{here.app.app_id}-west")


async def test_a_topic_that_appears_with_another_partition_count_is_named_and_left(here, caplog):
    """By the service, and by doctor as what it is: no key has moved, and nobody needs a new app id."""
    wrong = f"orders-{here.app.app_id}-wrong"
    async with here.running() as service:
        await here.cluster.create_topics([NewTopic(wrong, here.partitions + 1)])
        await until(lambda: f"topic {wrong} matches" in caplog.text, "it is named")
        found = {each.where: each for each in (await examine(here.app, here.settings())).findings}
        assert f"it has {here.partitions + 1} partitions" in found[wrong].problem
        assert "keys have moved" not in str(found)
        assert {each.phase for each in service.restore_status()} == {"live"}


async def another_app(stage: Stage, *, beside: str) -> Stage:
    """An app whose id begins like the topics of a pattern, with a dead letter and a savepoint."""
    payments = Topic(f"pay-{beside}", value=json(int))
    app: App[Any] = App(f"orders-{beside}-ledger", inputs=[payments], state=lambda: MapState(str, int, default=int))

    @app.handler(payments)
    def on_payment(record: Any, state: Any, out: Any) -> None:
        state[record.key] += record.value

    other = await Stage(stage.bootstrap_servers, app, errors={"policy": "dead_letter"}).prepare()
    async with other.running() as service:
        await other.send([("k", 5), ("k", "bad")], payments.name)
        await processed(service, {0: 2}, payments.name)
        await savepoints.create(app, other.settings(), other.cluster, "sp1")
    return other


async def test_own_topics_of_another_app_are_left_out_and_named(here, caplog):
    """It comes into being while the pattern is watched, and was there at a start. Log and status name its
    topics, and doctor finds nothing."""
    caplog.set_level(logging.INFO, "snapreplay")
    name = here.app.app_id
    east = f"orders-{name}-east"
    async with here.running() as service:
        other = await another_app(here, beside=name)
        theirs = {
            *names.own_pair(other.app.app_id),
            names.dead_letters_topic(other.app.app_id),
            *names.own_pair(names.savepoint_id(other.app.app_id, "sp1")),
        }
        await until(lambda: len(service.control.facts().topics_not_read) == len(theirs), "all of them are named")
        for each in theirs:
            (line,) = [said for said in service.control.facts().topics_not_read if f"topic {each} " in said]
            assert f"an own topic of app {other.app.app_id}." in line
            assert line in caplog.text
    async with here.running() as service:
        assert {each.topic for each in service.restore_status()[0].inputs} == {east}
    report = await examine(here.app, here.settings())
    assert {each.check for each in report.findings} == {"brokers"}


@pytest.mark.whole
async def test_a_pattern_that_names_the_ending_is_meant(broker, unique, monkeypatch):
    """Dead letters of all apps, by `….*-dead-letters`; and a topic that is declared by its name."""
    monkeypatch.setattr("snapreplay.service.supervisor.WATCH_SECONDS", 0.2)
    name = unique("meant")
    other = await another_app(Stage(broker.bootstrap_servers, orders(name)), beside=name)
    letters, increments = names.dead_letters_topic(other.app.app_id), names.increments_topic(other.app.app_id)
    inputs: list[Topic[Any, Any]] = [
        Topic.matching(f"orders-{name}-.*-dead-letters", value=nullable(raw)),
        Topic(increments, key=nullable(raw), value=nullable(raw)),
    ]
    app: App[Any] = App(f"{name}-letters", inputs=inputs, state=lambda: MapState(str, int, default=int))
    for each in inputs:
        app.handler(each)(lambda record, state, out: state.__setitem__(record.topic, state[record.topic] + 1))
    here = await Stage(broker.bootstrap_servers, app).prepare()
    async with here.running() as service:
        await processed(service, {0: 1}, letters)
        await until(lambda: service.view(0).get(increments, 0) > 0, "the named topic is read")


async def test_500_topics_of_a_pattern_are_taken_in_at_once(here, caplog, monkeypatch):
    """By one increment. A recovery asks for all of them with a few requests, and what is said of them can be read."""
    caplog.set_level(logging.INFO, "snapreplay")
    east, *topics = (f"orders-{here.app.app_id}-{each}" for each in ("east", *range(100, 600)))
    async with here.running() as service:
        await here.cluster.create_topics([NewTopic(each, 1) for each in topics])
        await until(lambda: len(service.restore_status()[0].inputs) == 501, "all are inputs", 60.0)
        await here.send([("k0", {"amount": 10})], topics[-1])
        await processed(service, {0: 1}, topics[-1])
    asked, ask = [], KafkaReader._ask_bounds

    async def counted(*given: Any) -> Any:
        asked.append(given)
        return await ask(*given)

    monkeypatch.setattr(KafkaReader, "_ask_bounds", counted)
    async with here.running() as service:
        assert service.view(0).get("k0") == {"sum": 11, "from": sorted([east, topics[-1]])}
    assert len(asked) < 50
    (decision,) = [each.decision for each in await here.batches() if each.decision]
    assert decision["decided"].startswith(f"inputs {', '.join(topics[:3])} and 497 more are read from offset 0 on")
    assert max(map(len, caplog.messages)) < 1000
    await here.cluster.delete_topics(topics)


async def test_a_topic_that_is_deleted_is_waited_for_until_it_is_retired(here):
    """And when it is made again, it is a new input."""
    east, west = (f"orders-{here.app.app_id}-{each}" for each in ("east", "west"))
    await appears(here, west, 10)
    settings, cluster = here.settings(), here.cluster
    async with here.running() as service:
        await processed(service, {0: 5}, east)
        await processed(service, {0: 5}, west)
        with pytest.raises(NotRetirable, match=f"input {west} exists"):
            await propose(here.app, settings, cluster, Wish(retire=(west,)))
        await asyncio.to_thread(delete, here.bootstrap_servers, west)
        await until(lambda: (service.restore_status()[0].error or Nothing).kind == "InputMissing", "it is missed")
        assert (
            f"--retire {west} --bootstrap-servers {here.bootstrap_servers}`" in service.restore_status()[0].error.hint
        )
        (proposed,) = await propose(here.app, settings, cluster, Wish(retire=(west,)))
        await carry_out(proposed)
        await here.send([("k0", {"amount": 5})], east)
        await processed(service, {0: 6}, east)
        await appears(here, west, 100)
        await processed(service, {0: 5}, west)
    async with here.running() as service:
        assert service.view(0).get("k0")["sum"] == 116


@pytest.mark.whole
async def test_a_topic_that_is_deleted_while_nobody_runs_is_named_at_the_next_start(here):
    """Before anything is asked about its log: that would be asked for five minutes."""
    west = f"orders-{here.app.app_id}-west"
    await appears(here, west, 10)
    async with here.running() as service:
        await processed(service, {0: 5}, west)
    await asyncio.to_thread(delete, here.bootstrap_servers, west)
    async with here.started() as service:
        await until(
            lambda: (status := service.restore_status()) and (status[0].error or Nothing).kind == "InputMissing"
        )


@pytest.mark.whole
async def test_the_version_before_goes_on_where_an_input_was_retired(here):
    """Its pattern still matches. It runs while a narrower one is prepared, or comes back: nothing counts twice."""
    east, west = (f"orders-{here.app.app_id}-{each}" for each in ("east", "west"))
    narrow = orders(here.app.app_id, which="(?!east).*")
    await appears(here, west, 10)
    async with here.running() as service:
        for topic in (east, west):
            await processed(service, {0: 5}, topic)
        (proposed,) = await propose(narrow, here.settings(), here.cluster, Wish())
        await carry_out(proposed)
        await here.send([("k0", {"amount": 5})], east)
        await processed(service, {0: 6}, east)
        assert service.view(0).get("k0") == {"sum": 16, "from": [east, west]}
        assert "on, where it was retired after batch" in service.restore_status()[0].decisions[0].decided
    (proposed,) = await propose(narrow, here.settings(), here.cluster, Wish())
    assert list(proposed.change.retired) == [east]
    await carry_out(proposed)
    async with here.running(narrow) as service:
        await here.send([("k0", {"amount": 100})], west)
        await processed(service, {0: 6}, west)
    await asyncio.to_thread(delete, here.bootstrap_servers, east)
    await appears(here, east, 1000)
    async with here.running() as service:
        await processed(service, {0: 5}, east)
        assert service.view(0).get("k0")["sum"] == 1116


async def test_an_app_keeps_an_input(here):
    """Its only topic is retired together with another one that is added."""
    name, settings, cluster = here.app.app_id, here.settings(), here.cluster
    await asyncio.to_thread(delete, here.bootstrap_servers, f"orders-{name}-east")
    with pytest.raises(NotRetirable, match="would have no input left"):
        await propose(here.app, settings, cluster, Wish(retire=(f"orders-{name}-east",)))
    more = orders(name, Topic(f"bills-{name}"))
    await appears(here, f"bills-{name}", 3)
    (proposed,) = await propose(more, settings, cluster, Wish("earliest", (f"orders-{name}-east",)))
    await carry_out(proposed)
    async with here.running(more) as service:
        await processed(service, {0: 5}, f"bills-{name}")


class Nothing:
    kind = ""
