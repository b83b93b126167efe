"""What a hint says is done while the process that printed it runs: it goes on without a restart."""

import asyncio
import re
import time

import pytest

from snapreplay.service.partition import recoverer
from snapreplay.service.partition.claiming import claim_record
from tests.attacks.test_b8_what_fails_for_ever import keyless, payments, timed
from tests.hints.following import all_of, way_with
from tests.support.stage import phase, until
from tests.support.tampering import configure, create, delete, messages, trim, write_again

pytestmark = pytest.mark.kafka

NEXT_WEEK_MS = int(time.time() * 1000) + 7 * 86_400_000


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


async def test_a_claim_that_is_not_ours_is_looked_for_again_by_a_retry(operator, monkeypatch):
    """Another record is where the first claim was written, as after an exchange of the topic in this moment."""
    _, who = await operator()
    ids = iter(["another's"])
    monkeypatch.setattr(
        recoverer, "claim_record", lambda here, ours: claim_record(here, next(ids, ours))
    )
    async with who.served() as service:
        error = (await phase(service, "failed")).error
        assert error.kind == "ForeignClaim"
        await who.follow(error.hint)
        await phase(service, "live")


@pytest.mark.slow
async def test_an_output_that_is_too_large_for_its_topic_is_taken_once_the_topic_takes_it(operator):
    """A limit that was lowered under a running owner: the printed command and a retry, and the record is processed."""
    then, who = await operator()
    output = then.here.app.outputs[0].name
    who.change(f"apps.ledger({then.here.app.app_id!r}, apps.grow)")
    async with who.served() as service:
        await service.wait_live(30)
        configure(then.here.bootstrap_servers, output, "max.message.bytes", "20000")
        await then.here.send([("0:a", {"amount": 1, "padding": 30_000})])
        hint = (await phase(service, "failed")).error.hint
        await who.follow(way_with(hint, "kafka-configs.sh"))
        await who.type("retry", "--wait")
        await all_of(service, then.here.sent + 1)


async def test_an_input_that_was_deleted_is_brought_back_with_its_old_offsets(operator):
    """InputMissing of a process that runs: every record where it was; it goes on by itself."""
    then, who = await operator()
    records = await asyncio.to_thread(messages, then.here.bootstrap_servers, then.input, 120)
    async with who.served() as service:
        await service.wait_live(30)
        delete(then.here.bootstrap_servers, then.input)
        await until(lambda: service.restore_status()[0].error, "noticed")
        error = service.restore_status()[0].error
        assert (error.kind, "with its old offsets" in error.hint) == ("InputMissing", True)
        create(then.here.bootstrap_servers, then.input, 1)
        write_again(then.here.bootstrap_servers, then.input, records)
        await phase(service, "live")
        await then.here.feed(20)
        await all_of(service, then.here.sent)
        assert service.view(0)["k0"]["n"] == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "bad", "config"),
    [
        pytest.param(keyless, {"keyless": True}, "cleanup.policy=compact", id="without a key"),
        pytest.param(
            timed, {"at_ms": NEXT_WEEK_MS}, "message.timestamp.after.max.ms=1000", id="a time"
        ),
    ],
)
async def test_a_record_that_its_topic_refuses_is_taken_once_the_topic_takes_it(
    stage, unique, newcomer, make, bad, config
):
    """HandlerFailed by a policy or a limit of the output's topic: the printed command, and it is processed."""
    here, who = await stage(make(unique("refused"))), newcomer()
    configure(here.bootstrap_servers, here.app.outputs[0].name, *config.split("="))
    await here.send(payments(bad))
    hint = (await here.failure()).error.hint
    await who.follow(way_with(hint, "kafka-configs.sh"))
    async with here.running() as service:
        await here.all_processed(service)
