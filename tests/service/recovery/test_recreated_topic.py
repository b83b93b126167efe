"""A log that does not fit together because it is another topic, on a real broker."""

import asyncio

import pytest

from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from tests.support.tampering import messages, recreate, topic_id, write_again

pytestmark = pytest.mark.kafka


def remade(name, old, servers):
    return (
        f"topic {name} was deleted and created again: its id was {old},"
        f" now it is {topic_id(servers, name)}; "
    )


async def test_an_empty_log_is_known_by_what_a_snapshot_recorded(past):
    """No increment is left: the newest manifest names the topic that its increment was in."""
    then = await past()
    servers = then.here.bootstrap_servers
    old = topic_id(servers, then.increments)
    await asyncio.to_thread(recreate, servers, then.increments, 1, KEPT_FOR_EVER)
    status = await then.here.failure()
    assert status.error.kind == "NotInitialised"
    assert status.error.message.startswith(remade(then.increments, old, servers))
    assert "backup or mirror" in status.error.hint
    assert "snapreplay accept" in status.error.hint


async def test_a_part_of_the_log_in_another_topic_is_not_blamed_on_two_owners(past):
    """What was brought back begins in the middle: the ids say why nothing fits."""
    then = await past()
    servers = then.here.bootstrap_servers
    old = topic_id(servers, then.increments)
    kept = await asyncio.to_thread(messages, servers, then.increments, 12)
    await asyncio.to_thread(recreate, servers, then.increments, 1, KEPT_FOR_EVER)
    await asyncio.to_thread(write_again, servers, then.increments, kept[-3:])
    status = await then.here.failure()
    assert status.error.kind in {"LogShorter", "BrokenChain", "LogCut"}
    assert status.error.message.startswith(remade(then.increments, old, servers))
    assert "two owners" not in status.error.hint
