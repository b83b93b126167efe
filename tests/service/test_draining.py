"""Drains of one of two processes under load, on a real broker: by the command, over HTTP, and by Python."""

import asyncio

import pytest
from typer.testing import CliRunner

from snapreplay.api.cli.root import app
from snapreplay.service.control.operations import NoSuccessor
from tests.service.test_standbys import shared, warm
from tests.support import apps
from tests.support.child import Load
from tests.support.deadlines import scaled
from tests.support.stage import until


async def typed(child, *words):
    shown = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--url", child.url])
    return shown.exit_code, shown.output


def drain_of(child):
    return child.get("/api/v1")["drain"]


@pytest.mark.whole
async def test_a_drained_process_hands_over_and_takes_none_until_it_is_undrained(stage, unique, children):
    """Its partitions continue from the warm copies while records come. It is ready, and has neither partitions nor
    copies. The last process that is not drained is not drained either. Each record counts once."""
    here = await stage(apps.ledger(unique("drain")), partitions=4)
    with Load(here):
        one, two = await shared(children, here.app.app_id)
        given = one.live()
        code, output = await typed(one, "drain", "--reason", "a new kernel", "--wait")
        assert (code, output.count("succeeded")) == (0, 3), output
        assert "given to two on" in output
        await until(lambda: len(two.live()) == 4, "all partitions with the other one")
        assert {two.partitions()[number]["warm"] for number in given} == {"copied"}
        found = drain_of(one)
        assert (found["state"], found["reason"]) == ("drained", "a new kernel")
        assert found["by"].startswith("somebody at ")
        await until(lambda: not warm(one), "no copies with the drained one")
        await until(one.is_ready, "ready")
        assert "snapreplay_drained" in one.raw("/metrics")
        code, output = await typed(two, "drain")
        assert code == 1
        assert "one on" in output
        assert "all other processes are drained or stopping" in output
        code, _ = await typed(two, "undrain", "--host", one.get("/api/v1")["host"])
        assert code == 0
        assert drain_of(one) is None
        await until(lambda: len(one.live()) == len(two.live()) == 2, "two and two again")
    for child in (one, two):
        assert await asyncio.to_thread(child.terminate) == 0
    async with here.running() as service:
        await here.assert_exactly_once(service)


async def test_a_program_drains_its_service(stage, unique):
    """Not if it is alone, nor with others that are drained, too. The last one left takes the partitions all
    the same, and gives them away as soon as somebody else is there."""
    here = await stage(apps.ledger(unique("drain")), partitions=2)
    await here.feed(40)
    async with here.running() as one:
        with pytest.raises(NoSuccessor, match="there is no other process"):
            await one.drain()
        async with here.started(instance_id="two") as two:
            await until(lambda: one.control.document().peers, "two in the group")
            ended = await one.drain("a test")
            assert ended.state == "succeeded"
            assert one.restore_status() == []
            assert one.control.facts().drain.state == "drained"
            await two.wait_live(scaled(60))
            with pytest.raises(NoSuccessor, match="all other processes are drained or stopping: one on"):
                await two.drain()
            assert len(two.restore_status()) == 2
        await until(lambda: len(one.restore_status()) == 2, "the partitions with the last one that is left")
        await here.all_processed(one)
        assert one.control.facts().drain.state == "draining"
        async with here.started(instance_id="two") as two:
            await until(lambda: one.restore_status() == [], "the partitions given away again")
            await one.undrain()
            assert one.control.facts().drain is None
            await until(lambda: len(one.restore_status()) == len(two.restore_status()) == 1, "one and one")
        await here.assert_exactly_once(one)
