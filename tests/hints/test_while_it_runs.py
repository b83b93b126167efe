"""Tests that what a hint says is done while the process that printed it runs: it continues without a restart."""

import asyncio
import re

from tests.hints.following import all_of, way_with
from tests.support.deadlines import scaled
from tests.support.stage import phase, until
from tests.support.tampering import create, delete, messages, trim, write_again


async def hint_of(service, kind):
    """Return the hint as soon as the partition has this error."""
    await until(lambda: (e := service.restore_status()[0].error) and e.kind == kind, kind)
    return service.restore_status()[0].error.hint


async def test_what_was_accepted_is_looked_at_again_by_the_process_that_runs(operator):
    """The printed `accept`, then the printed `retry`, typed while it holds the partition FAILED: LIVE, and no restart.
    What failed again says so, and the same two commands help."""
    then, who = await operator()
    await then.here.feed(20)
    trim(then.here.bootstrap_servers, then.input, 0, 130)
    async with who.served() as service:
        hint = (await phase(service, "failed")).error.hint
        (again,) = re.findall(r"`snapreplay (retry --partition 0)`", hint)
        said = await who.type(*again.split(), "--wait", code=1)
        assert "10 offsets are gone" in said
        await who.follow(way_with(hint, "snapreplay accept"))
        await phase(service, "live")
        await all_of(service, then.here.sent)
        assert service.view(0)["k0"]["n"] == 6


async def test_an_input_that_was_deleted_is_brought_back_with_its_old_offsets(operator):
    """InputMissing of a process that runs: every record where it was; it continues by itself."""
    then, who = await operator()
    records = await asyncio.to_thread(messages, then.here.bootstrap_servers, then.input, 120)
    async with who.served() as service:
        await service.wait_live(scaled(30))
        delete(then.here.bootstrap_servers, then.input)
        assert "with its old offsets" in await hint_of(service, "InputMissing")
        assert "InputMissing" in await who.type("restore-status", code=5)
        create(then.here.bootstrap_servers, then.input, 1)
        write_again(then.here.bootstrap_servers, then.input, records)
        await phase(service, "live")
        await then.here.feed(20)
        await all_of(service, then.here.sent)
        assert service.view(0)["k0"]["n"] == 7


async def test_an_output_that_was_deleted_is_created_as_printed(operator):
    """RefusedAgain, as it has no limits to be asked for: the printed commands, and what waited is processed."""
    then, who = await operator()
    output = then.here.app.outputs[0].name
    async with who.served() as service:
        await service.wait_live(scaled(30))
        delete(then.here.bootstrap_servers, output)
        await then.here.feed(20)
        error = (await phase(service, "failed")).error
        assert f"topic {output} does not exist" in error.message
        await who.follow(error.hint)
        await phase(service, "live")
        await all_of(service, then.here.sent)
