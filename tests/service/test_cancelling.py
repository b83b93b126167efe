"""Operations of a service on a real broker that are cancelled: by the command, before they end."""

import asyncio
import re

import pytest
from typer.testing import CliRunner

from snapreplay.api.cli.root import app
from snapreplay.api.server import HttpServer
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.recovery.examine import Examiner
from tests.support import apps
from tests.support.stage import Stage, until

pytestmark = pytest.mark.kafka


async def typed(service, *words):
    """Give a command to the service; return its exit code, and what it printed in one line."""
    host, port = service.http_address
    shown = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--url", f"http://{host}:{port}"])
    return shown.exit_code, re.sub(r"\s+", " ", shown.output)


async def begun(service, *words):
    """Ask for an operation that is not awaited; its id."""
    asking = asyncio.create_task(typed(service, *words))
    before = {each.id for each in service.control.document().operations}
    await until(lambda: {each.id for each in service.control.document().operations} - before, "the operation")
    assert (await asking)[0] == 0
    (found,) = {each.id for each in service.control.document().operations} - before
    return found


async def test_drills_and_snapshots_are_cancelled_until_they_change_something(stage, unique, monkeypatch):
    """The state of the operation says so. What is being written is not cancelled, and says why. Processing goes on."""
    gate, examine, appender = asyncio.Event(), Examiner.examine_beside_owner, KafkaCluster.appender

    async def examined(self, *given):
        await gate.wait()
        return await examine(self, *given)

    async def appending(self):
        await gate.wait()
        return await appender(self)

    monkeypatch.setattr(Examiner, "examine_beside_owner", examined)
    monkeypatch.setattr(KafkaCluster, "appender", appending)
    here: Stage = await stage(apps.ledger(unique("cancel")))
    async with here.running(http=HttpServer()) as service:
        await here.feed(100)
        await here.all_processed(service)
        drill = await begun(service, "drill")
        code, output = await typed(service, "cancel", drill)
        assert (code, f"operation {drill}: drill cancelled" in output) == (0, True), output
        await until(lambda: service.restore_status()[0].drill.state == "given_up", "its end")
        assert service.restore_status()[0].drill.detail == "it was cancelled"
        writing = await begun(service, "trigger-snapshot")
        await until(lambda: service.control.operation(writing).parts[0].state == "running", "the first snapshot")
        code, output = await typed(service, "cancel", writing)
        assert (code, "are being written already" in output) == (1, True), output
        gate.set()
        await until(lambda: service.control.operation(writing).state == "succeeded", "its end")
        await here.feed(100)
        await here.assert_exactly_once(service)
