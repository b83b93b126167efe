"""A disk that is older than the others: what the status says then, typed as printed."""

import asyncio
import json
import sys

import pytest
from confluent_kafka import Producer

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from tests.hints.following import Operator, way_with
from tests.support import apps
from tests.support.deadlines import scaled
from tests.support.older_disk import OlderDisk
from tests.support.stage import Stage, processed, until
from tests.support.tampering import create, messages, write_again

pytestmark = pytest.mark.kafka

STATES = "__transaction_state-*"  # what the coordinators know


def open_transaction(servers, transactional_id, topic):
    """Leave a transaction open as an owner does that is killed in the middle of one."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"never committed", partition=0)
    assert producer.flush(30) == 0
    return producer


@pytest.mark.whole
async def test_an_older_transaction_state_leaves_the_state_to_be_taken_to_a_new_app_id(tmp_path, monkeypatch, unique):
    """The coordinator waits for ever for the end of a transaction that the topics have left behind. Doctor names it,
    with the same way out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    disk = OlderDisk(tmp_path)
    with disk.broker as broker:
        monkeypatch.setenv("SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        name = unique("stuck")
        here = await Stage(broker.bootstrap_servers, apps.ledger(name)).prepare()
        who = Operator(here, tmp_path, f"apps.ledger({name!r})")
        left = await asyncio.to_thread(open_transaction, broker.bootstrap_servers, f"{name}-0", f"{name}-increments")
        await asyncio.to_thread(disk.keep, STATES)
        left.abort_transaction(30)
        for part in (1, 2):
            async with here.running() as service:
                await here.feed(20)
                await processed(service, {0: part * 20})
        await asyncio.to_thread(disk.put_back, STATES)
        async with who.served() as service:
            await until(
                lambda: (e := service.restore_status()[0].error) and e.kind == "TransactionStuck",
                "TransactionStuck",
                60.0,
            )
            hint = service.restore_status()[0].error.hint
        told = await who.type("doctor", "hinted:app", "-o", "json", code=1)
        findings = json.loads(told.splitlines()[-1])["findings"]
        (remedy,) = [each["remedy"] for each in findings if each["check"] == "transactions"]
        assert way_with(remedy, "new app id") == way_with(hint, "new app id")
        await who.follow(way_with(remedy, "new app id"))
        async with who.running() as service:
            assert service.view(0)["k0"]["n"] == 2


@pytest.mark.whole
async def test_copies_in_another_cluster_are_told_by_doctor_and_the_named_cluster_has_none(operator):
    """The topics were loaded into another cluster: it names the old one, where nothing is wrong with the topics."""
    then, who = await operator()
    servers = then.here.bootstrap_servers
    with LocalBroker(deadline_s=scaled(60)) as other:
        for topic in (then.input, then.here.app.outputs[0].name, then.increments, then.snapshots):
            (records,) = await then.here.read(topic)
            found = await asyncio.to_thread(messages, servers, topic, len(records))
            await asyncio.to_thread(create, other.bootstrap_servers, topic, 1, KEPT_FOR_EVER)
            await asyncio.to_thread(write_again, other.bootstrap_servers, topic, found)
        command = ("doctor", "hinted:app", "--bootstrap-servers")
        told = await who.type(*command, other.bootstrap_servers, code=None)
        assert "began in cluster" in told
        assert "deleted and created again" not in told
    assert "began in cluster" not in await who.type(*command, servers, code=None)
