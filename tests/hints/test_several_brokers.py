"""Three brokers, one of them away, behind or damaged: what is printed then is done, and the finding is gone."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from snapreplay.app.ranges import InputRange
from snapreplay.app.record import InputRecord
from snapreplay.devbroker.broker import LocalCluster
from snapreplay.service.control.counters import EVENTS
from snapreplay.service.doctor.facts import TRANSACTION_TOPIC
from snapreplay.snapshots.log.by_replay import Input
from snapreplay.snapshots.log.reading import Reading
from tests.hints.following import Operator, all_of
from tests.hints.test_only_copy import hint_of
from tests.support.reassign import move, until_placed
from tests.support.stage import phase, until
from tests.support.tampering import configure

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

AWAY = 1
"""The broker that is stopped, by its node id: the first one of kafka.bootstrap.servers."""
DEADLINE_SECONDS = 90.0
SESSION_MS = 9000  # Kafka's own: for so long a broker that was killed is still listed


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Say where the brokers' data are, node-1 to node-3."""
    return tmp_path_factory.mktemp("brokers")


@pytest.fixture(scope="module")
def broker(disks: Path) -> Iterator[LocalCluster]:
    """Provide brokers instead of the session's, for all that the operator does."""
    properties = {"broker.session.timeout.ms": str(SESSION_MS)}
    with LocalCluster(3, data_dir=disks, properties=properties, heap_mb=256, deadline_s=DEADLINE_SECONDS) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def whole(broker: LocalCluster) -> Iterator[None]:
    """Leave the cluster whole after each test."""
    yield
    until_placed(broker.bootstrap_servers, None, lambda at: set(at.isrs) == set(at.replicas))


async def found(who: Operator, check: str) -> list[Any]:
    """The findings of this check, of the report that `snapreplay doctor` prints."""
    said = await who.type("doctor", "hinted:app", "-o", "json", code=None)
    return [each for each in json.loads(said.splitlines()[-1])["findings"] if each["check"] == check]


def ids(text: str) -> list[int]:
    """Read the ids of the brokers that are named: "[2, 3]", or "broker 3"."""
    return [int(each) for each in re.findall(r"\d+", re.findall(r"\[.+?\]|broker \d+", text)[0])]


async def start(cluster: LocalCluster, text: str) -> None:
    """The brokers that are named."""
    for node_id in ids(text):
        await asyncio.to_thread(cluster.restart_node, node_id - 1)


async def stop(cluster: LocalCluster, node_id: int) -> None:
    """Stop a broker in order, as an operator does: the cluster takes it off its list at once."""
    await asyncio.to_thread(cluster.node(node_id - 1).kill, DEADLINE_SECONDS)


async def test_a_broker_that_is_away_is_started(operator, broker):
    """Named by its address while the cluster still advertises it, missed in the count afterwards."""
    _, who = await operator()
    assert not await found(who, "brokers")
    broker.node(AWAY - 1).kill()
    (finding,) = await found(who, "brokers")
    assert finding["where"] == f"broker {AWAY} at {broker.node(AWAY - 1).bootstrap_server}"
    assert finding["remedy"].startswith("start it; ")
    await start(broker, finding["where"])
    assert not await found(who, "brokers")
    await stop(broker, AWAY)
    (finding,) = await found(who, "brokers")
    assert finding["problem"].startswith("2 brokers: ")
    assert finding["remedy"].startswith("start the missing brokers")
    await asyncio.to_thread(broker.restart_node, AWAY - 1)
    assert not await found(who, "brokers")
    await who.healthy()


async def test_replicas_that_are_behind_are_named_and_catch_up(operator, broker):
    """Also where so few are left that writes are refused. The printed command shows them, and then no more."""
    then, who = await operator()
    configure(broker.bootstrap_servers, then.input, "min.insync.replicas", "3")
    await stop(broker, AWAY)
    findings = await found(who, "replication")
    behind = [each for each in findings if "start these brokers" in each["remedy"]]
    assert {each["where"] for each in behind} >= {f"{then.input}-0", f"{then.increments}-0"}
    assert all(ids(each["problem"]) == [AWAY] for each in behind)
    await who.follow(behind[0]["remedy"])
    assert behind[0]["problem"] in who.said[-1]
    await start(broker, behind[0]["problem"])
    for finding in findings:
        await who.follow(finding["remedy"])
    for finding in behind:
        await until_another_answer(who, finding["remedy"], finding["problem"])
    assert not await found(who, "replication")
    await who.healthy()


async def test_commits_that_are_not_answered_are_settled_and_their_broker_is_started(newcomer, broker):
    """Three times the output has fewer replicas than it must have. Doctor names the one that is missing."""
    kafka = {"bootstrap.servers": broker.bootstrap_servers, "request.timeout.ms": 1000}
    who = newcomer(kafka=kafka, timeouts={"commit_ms": 2000})
    here = who.here
    await here.prepare()
    must_have = partial(configure, broker.bootstrap_servers, here.output, "min.insync.replicas")
    labels = {"app": here.app.app_id, "partition": "0", "kind": "CommitInDoubt", "reaction": "retry"}
    async with who.served() as service:
        await service.wait_live(DEADLINE_SECONDS)
        await stop(broker, AWAY)
        for number in range(1, 4):
            must_have("3")
            await here.feed(5)
            in_doubt = partial(EVENTS.get_sample_value, "snapreplay_failures_total", labels)
            await until(lambda: in_doubt() == number, f"commit {number} in doubt", DEADLINE_SECONDS)  # noqa: B023 - awaited
            if number < 3:
                must_have("2")
                await here.all_processed(service)
        behind = [each for each in await found(who, "replication") if each["where"] == f"{here.output}-0"]
        assert [ids(each["problem"]) for each in behind] == [[AWAY]]
        await start(broker, behind[0]["problem"])
        await here.assert_exactly_once(service)
        assert service.restore_status()[0].error is None


async def until_another_answer(who: Operator, remedy: str, problem: str) -> None:
    """Type the remedy again until the problem is not shown."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    await who.follow(remedy)
    while problem in who.said[-1]:
        assert time.monotonic() < deadline, who.said[-1]
        await who.follow(remedy)


async def test_a_topic_with_one_copy_gets_those_that_are_printed(operator, broker):
    """Kafka's log of transactions, and the input; then what is printed of their new replicas and of
    min.insync.replicas."""
    then, who = await operator()
    servers = broker.bootstrap_servers
    configure(servers, TRANSACTION_TOPIC, "min.insync.replicas", "1")
    for topic in (TRANSACTION_TOPIC, then.input):
        await asyncio.to_thread(move, servers, topic, [2])
    (finding,) = await found(who, "transaction log")
    await who.follow(finding["remedy"])
    assert not await found(who, "transaction log")
    while findings := await found(who, "replication"):
        for each in findings:
            await who.follow(each["remedy"])
    await who.healthy()


async def test_a_read_that_stalls_names_the_command_that_names_the_broker(operator, broker, monkeypatch):
    """The only copy of the input goes away in the middle of a replay: back with its broker, without a restart."""
    then, who = await operator()
    configure(broker.bootstrap_servers, then.input, "min.insync.replicas", "1")
    await asyncio.to_thread(move, broker.bootstrap_servers, then.input, [AWAY])
    reached, gone, take = threading.Event(), threading.Event(), Input.taking

    def held(cursor: Input, part: InputRange) -> Reading[list[InputRecord]]:
        reached.set()
        yield gone.wait
        return (yield from take(cursor, part))

    monkeypatch.setattr(Input, "taking", held)
    who.settings |= {"restore": {"mode": "replay"}, "timeouts": {"progress_ms": 3000}}
    async with who.served() as service:
        await until(reached.is_set, "the replay")
        await stop(broker, AWAY)
        gone.set()
        await who.follow(await hint_of(service, "ReadStalled"))
        (problem,) = re.findall(r"no leader: none of its replicas \[.+\] is running", who.said[-1])
        await start(broker, problem)
        await phase(service, "live")
        await then.here.feed(20)
        await then.here.assert_exactly_once(service)


async def test_an_intact_replica_leads_and_the_damaged_copy_is_made_anew(operator, broker, disks):
    """All that lies behind the damaged batch is processed once, by the process that stood still."""
    then, who = await operator()
    damaged = 2
    for replicas in ((damaged,), (damaged, 1)):
        await asyncio.to_thread(move, broker.bootstrap_servers, then.input, replicas)
    configure(broker.bootstrap_servers, then.input, "min.insync.replicas", "1")
    await then.here.feed(20, note="intact")
    copy = disks / f"node-{damaged}" / f"{then.input}-0"
    flip(copy / "00000000000000000000.log", b"intact")
    await then.here.feed(20)
    async with who.served() as service:
        hint = (await phase(service, "failed")).error.hint
        named, after = hint.split(" Stop that broker")
        assert f"broker {damaged} at {broker.node(damaged - 1).bootstrap_server}" in named
        await stop(broker, damaged)
        await who.follow(after)
        await phase(service, "live")
        await all_of(service, then.here.sent)
        await then.here.assert_exactly_once(service)
    assert f"remove the directory {copy.name}" in after
    shutil.rmtree(copy)
    await asyncio.to_thread(broker.restart_node, damaged - 1)
    await asyncio.to_thread(move, broker.bootstrap_servers, then.input, [damaged])
    (records,) = await then.here.read(then.input)
    assert sum(b"intact" in (each.value or b"") for each in records) == 20
    await who.healthy()


def flip(path: Path, marker: bytes) -> None:
    """One bit of these bytes, in place: the broker sends what its file holds."""
    at = path.read_bytes().index(marker)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([marker[0] ^ 1]))
