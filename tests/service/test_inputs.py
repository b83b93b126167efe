"""Inputs that come and go: topics that match a pattern are taken in while the app runs, others by a command."""

import asyncio
import logging
from typing import Any

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.service.decisions.inputs import NotRetirable, Wish, carry_out, propose
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.ports import NewTopic
from tests.support.stage import Stage, phase, processed, until
from tests.support.tampering import delete, grow


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


async def test_a_pattern_that_matches_nothing_is_named_and_works_later(broker, unique, monkeypatch, caplog):
    """It is the only input: until a topic appears the app is LIVE, and ends on request."""
    monkeypatch.setattr("snapreplay.service.supervisor.WATCH_SECONDS", 0.2)
    here = await Stage(broker.bootstrap_servers, orders(unique("none"))).prepare()
    async with here.running():
        said = [each for each in caplog.messages if "matches" in each]
        assert said == [f"no topic that can be read matches {here.input!r} yet; a topic that appears later is added"]
    assert "did not end" not in caplog.text
    async with here.running() as service:
        await appears(here, f"orders-{here.app.app_id}-west", 10)
        await processed(service, {0: 5}, f"orders-{here.app.app_id}-west")


async def test_40_topics_of_a_pattern_are_taken_in_at_once(here, caplog, monkeypatch):
    """By one increment. A recovery asks for all of them with a few requests, and what is said of them can be read."""
    caplog.set_level(logging.INFO, "snapreplay")
    east, *topics = (f"orders-{here.app.app_id}-{each}" for each in ("east", *range(100, 140)))
    async with here.running() as service:
        await here.cluster.create_topics([NewTopic(each, 1) for each in topics])
        await until(lambda: len(service.restore_status()[0].inputs) == 41, "all are inputs", 60.0)
        await here.send([("k0", {"amount": 10})], topics[-1])
        await processed(service, {0: 1}, topics[-1])
    asked, ask = [], KafkaReader.bounds_of

    async def counted(*given: Any) -> Any:
        asked.append(given)
        return await ask(*given)

    monkeypatch.setattr(KafkaReader, "bounds_of", counted)
    async with here.running() as service:
        assert service.view(0).get("k0") == {"sum": 11, "from": sorted([east, topics[-1]])}
    assert len(asked) < 20
    (decision,) = [each.decision for each in await here.batches() if each.decision]
    assert decision["decided"].startswith(f"inputs {', '.join(topics[:3])} and 37 more are read from offset 0 on")
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
        assert f"--retire {west}`" in service.restore_status()[0].error.hint
        (proposed,) = await propose(here.app, settings, cluster, Wish(retire=(west,)))
        await carry_out(proposed)
        await here.send([("k0", {"amount": 5})], east)
        await processed(service, {0: 6}, east)
        await appears(here, west, 100)
        await processed(service, {0: 5}, west)
    async with here.running() as service:
        assert service.view(0).get("k0")["sum"] == 116


@pytest.mark.whole
async def test_the_version_before_resumes_where_an_input_was_retired(here):
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
