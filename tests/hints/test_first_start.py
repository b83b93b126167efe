"""Tests of the way from nothing to a healthy service, and back from settings that refuse to start: each step is
what was printed."""

import json

import pytest

from snapreplay.errors import SnapreplayError
from snapreplay.service.preflight import inspect
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from tests.hints.following import Operator, way_with, ways
from tests.support import reference
from tests.support.stage import Stage
from tests.support.tampering import delete, grow, recreate


async def refusal(who: Operator) -> str:
    """The hint with which a start is refused, before any partition."""
    app = who.load()
    stage = Stage(who.here.bootstrap_servers, app, **who.here.tables)
    with pytest.raises(SnapreplayError) as refused:
        await inspect(app, stage.settings(**who.settings), stage.cluster)
    return refused.value.hint


async def test_a_new_app_is_led_from_nothing_to_live(newcomer):
    """No topics, no genesis: two hints later it processes."""
    who = newcomer()
    await who.follow(await refusal(who))
    hint = await who.awaited()
    assert ways(hint)[0].startswith("`snapreplay init ")
    await who.follow(hint.split(": ")[0])
    await who.healthy()


async def test_missing_topics_of_our_own_are_created_and_initialised(newcomer):
    """The inputs are there: one way, two commands."""
    who = newcomer()
    await who.follow(await refusal(who))
    for suffix in ("increments", "snapshots"):
        delete(who.here.bootstrap_servers, f"{who.here.app.app_id}-{suffix}")
    hint = await refusal(who)
    assert ("topics ensure" in hint, "init" in hint) == (True, True)
    await who.follow(ways(hint)[0])
    await who.healthy()


async def kept(who: Operator, *names: str) -> dict[str, object]:
    """An app with a past and savepoints of it; returns its state then."""
    await who.here.prepare()
    async with who.running() as service:
        state = reference.as_plain(service.view(0))
    for name in names:
        await who.type("savepoint", "create", "hinted:app", name)
    return state


def delete_own(who: Operator, *suffixes: str) -> None:
    delete(who.here.bootstrap_servers, *(f"{who.here.app.app_id}-{suffix}" for suffix in suffixes))


async def begun_again(who: Operator, hint: str, before: dict[str, object]) -> None:
    """Follow the way that names the savepoint: the app continues with its state."""
    way = way_with(hint, "--savepoint")
    assert "before" in way
    app_id = who.here.app.app_id
    way = way.replace(f"delete {app_id}", f"delete {app_id} --yes {app_id}")
    await who.follow(way.replace("NAME", "before"))
    async with who.here.running(who.load(), **who.settings) as service:
        assert reference.as_plain(service.view(0)) == before


async def test_a_start_without_own_topics_names_the_savepoints(newcomer):
    """Refused as an app that has run, which `init` refuses, too. Each of the messages leads to the savepoint."""
    who = newcomer()
    state = await kept(who, "before", "older")
    delete_own(who, "increments", "snapshots")
    said = " ".join((await who.type("run", "hinted:app", "--no-wait", code=2)).split())
    assert "(before, older)" in said
    found = json.loads((await who.type("doctor", "hinted:app", "-o", "json", code=1)).splitlines()[-1])["findings"]
    remedies = [each["remedy"] for each in found if each["check"] == "topics"]
    assert remedies
    assert all("(before, older)" in each for each in remedies)
    await begun_again(who, said.split("hint: ")[1], state)


async def test_the_topic_of_dead_letters_is_created_though_only_the_start_knows_the_policy(newcomer):
    """The printed command names the policy, too: without it there would be nothing to create."""
    who = newcomer()
    await who.here.prepare()
    who.settings["errors"] = {"policy": "dead_letter"}
    await who.follow(await refusal(who))
    await who.healthy()


async def test_one_lost_topic_is_replaced_and_what_its_counterpart_holds_is_kept(operator):
    """`--replace-lost`, then the commands of the service's own hint: the state is the accepted one."""
    then, who = await operator()
    delete(then.here.bootstrap_servers, then.increments)
    await who.follow(way_with(await refusal(who), "--replace-lost"))
    await who.follow(way_with(await who.failure(), "snapreplay accept"))
    async with who.running() as service:
        assert service.view(0)["k0"]["n"] == 6


async def test_a_state_without_any_copy_is_given_up(operator):
    """Both own topics were made again: `init` refuses, and its last way processes the input from the start."""
    then, who = await operator()
    for topic in (then.increments, then.snapshots):
        recreate(then.here.bootstrap_servers, topic, 1, KEPT_FOR_EVER)
    await who.type("init", "hinted:app", code=4)
    (*_, given_up) = ways(who.said[-1])
    await who.follow(given_up)
    await who.healthy()


async def test_moved_keys_leave_the_state_to_be_taken_to_a_topic_with_the_old_count(operator):
    """The input has grown: a new one with the old count, what was not processed copied into it, and no key is lost."""
    then, who = await operator()
    await then.here.feed(20)
    unprocessed = (await then.here.read(then.input))[0][120:]
    grow(then.here.bootstrap_servers, then.input, 2)
    first = ways(await refusal(who))[0]
    before, after = first.split(", copy the unprocessed records into it, ")
    await who.follow(before)
    await then.here.send([(r.key.decode(), r.value) for r in unprocessed], who.load().inputs[0].name)
    await who.follow(after)
    async with who.running() as service:
        assert service.view(0)["k0"]["n"] == 7


async def test_an_own_topic_with_a_partition_too_many_moves_no_key(operator):
    """Kafka keeps the partition for ever: the state goes to a new app id with the same input and continues there."""
    then, who = await operator()
    await then.here.feed(20)
    grow(then.here.bootstrap_servers, then.increments, 2)
    hint = await refusal(who)
    assert "no key has moved" in hint
    await who.follow(hint)
    async with who.running() as service:
        assert service.view(0)["k0"]["n"] == 7
