"""Writing one full snapshot: chunks, manifest, pointer, and what abandons it."""

from typing import Any

import msgspec
import pytest

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.chain import Chain
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.publish.snapshot_writer import ImageDiffers, OffsetUnknown
from snapreplay.service.runtime.report import Reporter
from snapreplay.state.digest import Digest
from snapreplay.state.steps import all_of
from snapreplay.state.stores import store_of
from tests.simulation.producer import SimAppender
from tests.support.entries import entries_of, increment, read_chunk, read_entry


async def context_of(bench):
    """Chunks are as small as they may be."""
    await bench.prepare(snapshot={"chunk_bytes_max": 10_000})
    return await bench.context()


def filled(app, count):
    """A store of `count` accounts, and the chain that its digest belongs to."""
    store = store_of(app.state())
    store.begin()
    for number in range(count):
        store.view[f"k{number}"] = {"n": number, "sum": number**5}
    all_of(store.staging())
    digest = all_of(store.sealing()).digest
    store.merge()
    last = increment(7, digest=digest, positions={"payments": 12}, stream_time_ms=99)
    return store, Chain(apps_origin(app), 4, last, 31, 3)


def apps_origin(app):
    return msgspec.structs.replace(increment(0).origin, app_id=app.app_id)


def newest(board) -> Any:
    """The snapshot that partition 0 shows."""
    return board.get(0).snapshot


async def test_chunks_then_the_manifest_then_the_pointer(bench):
    """Several chunks within the limit hold every entry once; the manifest says where, the pointer where it is."""
    context = await context_of(bench)
    store, chain = filled(context.app, 3000)
    board = StatusBoard()
    marked = snapshot_writer.mark(store, chain, "trigger")
    pointer, _ = await snapshot_writer.write(context, marked, Reporter(board, 0))
    values = {record.offset: record.value for record in bench.log(bench.snapshots).committed()}
    manifest = read_entry(values[pointer.manifest_offset])
    assert max(values) == pointer.manifest_offset
    assert len(manifest.chunks) > 1
    assert all(ref.size_bytes <= 10_000 for ref in manifest.chunks)
    entries: dict[bytes, bytes] = {}
    for ref in manifest.chunks:
        chunk = read_chunk(values[ref.offset], ref, pointer.snapshot_id, verify_sums=True)
        entries |= entries_of(chunk)
    assert len(entries) == manifest.entry_count == 3000
    assert (manifest.digest, manifest.entries_digest) == (store.digest, store.digest)
    assert (manifest.batch, manifest.increment_offset, manifest.owner_epoch) == (7, 31, 4)
    assert (pointer.batch, pointer.increment_offset, pointer.digest) == (7, 31, store.digest)
    assert pointer.first_chunk_offset == manifest.chunks[0].offset == 0
    status = newest(board)
    assert (status.state, status.entries, status.chunks) == ("written", 3000, len(manifest.chunks))


async def test_an_empty_state_has_a_manifest_and_no_chunk(bench):
    """The pointer's first chunk is then the manifest itself."""
    context = await context_of(bench)
    store, chain = filled(context.app, 0)
    marked = snapshot_writer.mark(store, chain, "trigger")
    pointer, _ = await snapshot_writer.write(context, marked, Reporter(StatusBoard(), 0))
    assert pointer.first_chunk_offset == pointer.manifest_offset == 0


async def test_an_image_that_is_not_the_batchs_state_is_never_pointed_to(bench):
    """A defect: STOP, and no manifest."""
    context = await context_of(bench)
    store, chain = filled(context.app, 10)
    forged = msgspec.structs.replace(chain.last, digest=Digest(10, 1, 2))
    marked = snapshot_writer.mark(store, Chain(chain.origin, 4, forged, 31, 3), "trigger")
    board = StatusBoard()
    with pytest.raises(ImageDiffers, match="batch 7 adds up to"):
        await snapshot_writer.write(context, marked, Reporter(board, 0))
    assert newest(board).state == "failed"
    assert bench.log(bench.snapshots).end == 1, "the chunk, which will have no reader"


async def test_an_acknowledgement_without_an_offset_abandons_it(bench, monkeypatch):
    """What cannot be pointed to does not exist; the store can be marked again."""
    context = await context_of(bench)
    store, chain = filled(context.app, 10)
    marked = snapshot_writer.mark(store, chain, "trigger")

    async def unknown(*_):
        return -1

    monkeypatch.setattr(SimAppender, "append", unknown)
    with pytest.raises(OffsetUnknown):
        await snapshot_writer.write(context, marked, Reporter(StatusBoard(), 0))
    snapshot_writer.mark(store, chain, "trigger").cursor.release()
