"""An internal topic is output and input of one app: what is sent to it is handled once, in the partition of its key."""

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter

import pytest

from snapreplay.app.load import load_app
from snapreplay.app.names import internal_topic
from snapreplay.service.core.partitioners import murmur_positive
from tests.support import apps, reference
from tests.support.child import ROOT, Load
from tests.support.deadlines import scaled
from tests.support.stage import Stage, processed

pytestmark = pytest.mark.kafka


async def assert_rekeyed(here, service):
    """Each order is once in the internal topic, in the partition of its customer; outputs and state follow from it, as
    folded by hand."""
    orders, by_customer, balances = here.input, internal_topic(here.app.app_id, "by-customer"), here.output
    sent = await here.read(orders)
    await processed(service, {n: len(records) for n, records in enumerate(sent)}, orders)
    inputs = await here.read(by_customer)
    await processed(service, {n: each[-1].offset + 1 for n, each in enumerate(inputs) if each}, by_customer)
    outputs, states = reference.balances(by_customer, inputs, apps.add)
    found = await here.read(balances)
    for number in range(here.partitions):
        assert reference.decoded(found[number]) == outputs[number], f"partition {number}"
        assert reference.as_plain(service.view(number)) == states[number]
        assert {murmur_positive(each.key) % here.partitions for each in inputs[number]} <= {number}
    ids = [f"{orders}-{number}-{each.offset}" for number, records in enumerate(sent) for each in records]
    copied = [value["order"] for records in inputs for _, value in reference.decoded(records)]
    assert Counter(copied) == Counter(ids)


@pytest.mark.whole
@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_orders_get_a_new_key_while_processes_are_killed(stage, unique, children, mode):
    """Four partitions, two processes, four SIGKILLs at random moments, orders all the time."""
    dice = random.Random(mode)
    here = await stage(apps.rekeyed(unique("rekeyed")), partitions=4)
    kept = {"restore__mode": mode, "snapshot__every_records": 200}
    with Load(here, pause_s=0.02, count=40):
        other = children.start("rekeyed", here.app.app_id, instance_id="other", **kept)
        for _ in range(4):
            child = children.start("rekeyed", here.app.app_id, **kept)
            await asyncio.to_thread(child.wait_http)
            await asyncio.sleep(dice.uniform(0.3, 1.5))
            child.kill()
        other.kill()
    async with here.running(restore={"mode": mode}) as service:
        assert all(status.restore.proof.equal for status in service.restore_status())
        await assert_rekeyed(here, service)


async def test_an_audit_replays_what_went_through_it(broker, unique, tmp_path):
    """In another process, from the genesis on: orders and the records that they have led to."""
    name = unique("rekeyed")
    path = tmp_path / "shop.py"
    path.write_text(f"from tests.support import apps\n\napp = apps.rekeyed({name!r})\n")
    here = await Stage(broker.bootstrap_servers, load_app(str(path)), partitions=2).prepare()
    async with here.running() as service:
        await here.feed(40)
        await assert_rekeyed(here, service)
        await here.decided()
    words = ["audit", str(path), "--engine", "python", "--level", "replay", "-o", "json"]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "snapreplay.api.cli", *words, "--bootstrap-servers", broker.bootstrap_servers],
        cwd=ROOT,
        capture_output=True,
        timeout=scaled(60),
        check=False,
    )
    report = json.loads(done.stdout or b"{}")
    assert (done.returncode, report["findings"]) == (0, []), done.stderr.decode()
    assert report["checked"]["records_replayed"] == 80
