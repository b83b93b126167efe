"""A pause over HTTP: asked of any process, kept when its owner is killed, ended by the command."""

import asyncio

import httpx2
import pytest
from typer.testing import CliRunner

from snapreplay.api.cli.root import app
from tests.support import apps
from tests.support.child import Load
from tests.support.deadlines import scaled
from tests.support.stage import until

pytestmark = pytest.mark.kafka


async def ended(child, operation):
    """Wait for its end; return its state, as this process says."""

    def state():
        return child.get(f"/api/v1/operations/{operation['id']}")["state"]

    await until(lambda: state() != "running", "the end of the operation")
    return state()


async def accepted(url, body):
    """Ask until the owner can be asked."""
    answers = []
    with httpx2.Client(trust_env=False, timeout=scaled(10)) as http:

        def is_answered():
            answers.append(http.post(url, json=body))
            return answers[-1].status_code != 503

        await until(is_answered, "an owner that can be asked")
    return answers[-1].raise_for_status().json()


def row(child, partition):
    return child.get(f"/api/v1/partitions/{partition}")


@pytest.mark.whole
async def test_a_pause_outlives_its_owner(stage, unique, children):
    """Two processes; one is asked to pause a partition of the other, which is killed: the heir does not process it
    either, until it is resumed. All others go on, and every record counts once."""
    here = await stage(apps.ledger(unique("pause")), partitions=2)
    one, two = (children.start("ledger", here.app.app_id, instance_id=name) for name in ("one", "two"))
    await asyncio.to_thread(one.wait_http)
    await asyncio.to_thread(two.wait_http)
    with Load(here):
        await until(lambda: len(one.live()) == len(two.live()) == 1, "one and one")
        await until(one.knows_all_live, "one that knows of both")
        (number,) = two.live()
        why = {"reason": "the service behind is down"}
        begun = await accepted(f"{one.url}/api/v1/partitions/{number}/pause", why)
        assert [part["process_id"] for part in begun["parts"]] == [two.get("/api/v1")["process_id"]]
        assert await ended(one, begun) == "succeeded"
        paused = row(two, number)
        assert (paused["phase"], paused["paused_reason"]) == ("live", why["reason"])
        assert f'snapreplay_paused{{app="{here.app.app_id}",partition="{number}"}} 1.0' in two.raw("/metrics")
        two.kill()
        await until(lambda: len(one.live()) == 2, "the heir")
        heir = row(one, number)
        assert (heir["paused_since"], heir["paused_reason"]) == (paused["paused_since"], why["reason"])
        await until(lambda: (row(one, number)["inputs"][0]["lag"] or 0) > 50, "a lag that grows")
        assert row(one, number)["batch"] == paused["batch"]
        assert row(one, 1 - number)["paused_since"] is None
        result = await asyncio.to_thread(
            CliRunner().invoke, app, ["resume", "--url", one.url, "-p", str(number), "--wait"]
        )
        assert (result.exit_code, "succeeded" in result.output) == (0, True), result.output
    with httpx2.Client(trust_env=False) as http:
        assert http.post(f"{one.url}/api/v1/partitions/7/pause").status_code == 404
    await until(lambda: row(one, number)["inputs"][0]["lag"] == 0, "all processed")
    assert await asyncio.to_thread(one.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)
