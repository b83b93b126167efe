"""Attack A9: complete snapshots that nobody points to are counted as kept, and the one that counts is trimmed."""

import asyncio
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from snapreplay.snapshots.format.envelope import decode, encode
from snapreplay.snapshots.format.records import Chunk, ChunkRef, Manifest
from tests.support import apps, inside
from tests.support.kafka import until_async
from tests.support.stage import Stage, processed, snapshot


def orphans(servers: str, topic: str, records: list[Any], count: int) -> None:
    """`count` times the newest snapshot once more, whole and intact, as a crash loop or a zombie leaves it."""
    entries = [decode(record.value) for record in records]
    manifest = next(each for each in reversed(entries) if isinstance(each, Manifest))
    producer = Producer({"bootstrap.servers": servers})
    end_offset = records[-1].offset + 1
    for number in range(count):
        name = f"orphan-{number}"
        refs: list[ChunkRef] = []
        for entry in entries:
            if isinstance(entry, Chunk) and entry.snapshot_id == manifest.snapshot_id:
                value = encode(msgspec.structs.replace(entry, snapshot_id=name))
                producer.produce(topic, value=value, partition=0)
                refs.append(msgspec.structs.replace(manifest.chunks[len(refs)], offset=end_offset))
                end_offset += 1
        orphan = msgspec.structs.replace(manifest, snapshot_id=name, chunks=refs)
        producer.produce(topic, value=encode(orphan), partition=0)
        end_offset += 1
    assert producer.flush(20) == 0


async def log_start(here: Stage) -> int:
    reader = await here.cluster.reader()
    try:
        return (await reader.bounds((await here.context()).snapshots)).start_offset
    finally:
        await reader.close()


@pytest.mark.kafka
@pytest.mark.whole
async def test_a9_orphans_push_out_nothing(stage, unique):
    """Two pointed snapshots are kept; after each came three whole ones that nobody points to. The owner's trim keeps
    the two and what is between them, and a recovery starts from the newest pointed one."""
    here = await stage(apps.ledger(unique("a9")), retention={"snapshots_kept": 2})
    topic = here.snapshots
    taken, kept, wanted = [], [], 0
    async with here.running() as service:
        for _ in range(3):
            await here.feed(10)
            await processed(service, {0: here.sent})
            taken.append(await snapshot(service))
            pointers = inside.committer(inside.runner(service)).chain.last.pointers
            wanted = pointers[-1].first_chunk_offset
            await until_async(lambda: log_start(here), wanted.__eq__)
            (records,) = await here.read(topic)  # nothing trims it now
            await asyncio.to_thread(orphans, here.bootstrap_servers, topic, records, 3)
            kept = [pointer.snapshot_id for pointer in pointers]
        assert kept == taken[:0:-1]
    restore = await here.restored()
    assert restore.snapshot.snapshot_id == taken[-1]
    assert await log_start(here) == wanted
