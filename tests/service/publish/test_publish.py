"""Tests of what every decision writes, and in which order: tests/service/decisions hold it against real logs; here
is what does not depend on what was decided."""

import getpass
import os
import socket

import msgspec
import pytest
from msgspec import msgpack

from snapreplay.service.publish.publish import LogWentOn, by_whom, publish
from snapreplay.service.publish.snapshot_writer import ImageDiffers
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.reading import reading
from snapreplay.state.cursor import EntryStream
from snapreplay.state.digest import EMPTY, digest_of
from tests.support.in_memory import virtual

DECISION = {"finding": "test-1", "problem": "p", "decided": "d", "reason": "r", "by": "b"}
COUNT = 5_000


def entries():
    """One after the other, as a job that has them nowhere else would give them."""
    for number in range(COUNT):
        yield msgpack.encode(f"a{number}"), msgpack.encode({"sum": number})


async def standing_of(context, digest):
    """The last increment as if it had led to that state, and where the log ends."""
    async with reading(context.cluster) as reader:
        bounds = await reader.bounds(context.increments)
        last = await last_increment(reader, context.increments, bounds)
    assert last is not None
    return msgspec.structs.replace(last.increment, digest=digest), bounds.end_offset


@virtual
async def test_a_state_that_no_process_holds_is_given_entry_by_entry(bench):
    """The owner restores it, proven, and goes on with it."""
    await bench.prepare()
    context = await bench.context()
    digest = digest_of(entries())
    before, end_offset = await standing_of(context, digest)
    image = EntryStream(entries(), digest, 16)
    begun = await publish(context, image, before, DECISION, end_offset)
    assert begun.increment.batch == before.batch + 1
    async with bench.live() as one:
        assert (one.status.state_entries, one.status.digest) == (COUNT, str(digest))
        await bench.feed(10)
        await one.position(10)


@virtual
async def test_entries_that_are_not_those_of_the_digest_are_not_published(bench):
    """Nothing points to what was written; nor is anything published over what was committed meanwhile."""
    await bench.prepare()
    context = await bench.context()
    before, end_offset = await standing_of(context, EMPTY)
    with pytest.raises(ImageDiffers):
        await publish(context, EntryStream(entries(), EMPTY, 16), before, DECISION, end_offset)
    async with bench.live() as one:
        await bench.feed(10)
        await one.position(10)
    with pytest.raises(LogWentOn):
        await publish(context, EntryStream((), EMPTY, 16), before, DECISION, end_offset)


def test_a_decision_names_who_made_it(monkeypatch):
    """The user, or his number in a container that has no name for him, at this host."""
    assert by_whom() == f"{getpass.getuser()}@{socket.gethostname()}"
    monkeypatch.setattr(getpass, "getuser", lambda: (_ for _ in ()).throw(KeyError("uid")))
    assert by_whom() == f"{os.getuid()}@{socket.gethostname()}"
