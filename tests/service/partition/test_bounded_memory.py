"""Writing and loading a full snapshot hold a few chunks besides the state, however large it is.

`python -m benchmarks.memory` measures the same of whole processes, with 5 M keys.
"""

import random
import tracemalloc
from contextlib import contextmanager

import pytest

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.chain import Chain
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.snapshots import load_manifest, load_state
from snapreplay.state.steps import all_of
from snapreplay.state.stores import store_of
from tests.support import apps
from tests.support.entries import increment

MIB = 2**20
ENTRIES = 20_000
PAD_BYTES = 1500  # in hexadecimal: 60 MB of entries, 30 MB of chunks, for half of it compresses away
IN_FLIGHT_MAX = 12 * MIB
"""Two fetches of 2 MiB, one chunk of 4 MiB unpacked, and as much again for room: 3 to 5 MiB were measured."""


@pytest.fixture
async def context(stage, unique):
    """Partition 0 of a ledger."""
    here = await stage(apps.ledger(unique("bounded")))
    return await here.context()


@contextmanager
def tracing():
    """Count the bytes taken from here on; yields the question how many are held now, and were at most."""
    tracemalloc.start()
    try:
        yield tracemalloc.get_traced_memory
    finally:
        tracemalloc.stop()


def filled(app):
    """A store with `ENTRIES` large values, and the chain that its digest belongs to."""
    store, dice = store_of(app.state()), random.Random(1)
    store.begin()
    for number in range(ENTRIES):
        store.view[f"k{number}"] = {"pad": dice.randbytes(PAD_BYTES).hex()}
    all_of(store.staging())
    digest = all_of(store.sealing()).digest
    store.merge()
    last = increment(7, digest=digest, positions={"payments": 12})
    return store, Chain(last.origin, 4, last, 31, 3)


async def test_writing_and_loading_hold_a_few_chunks_besides_the_state(context):
    """The image is read, packed, read back and sent chunk by chunk; chunks are fetched as they are taken over."""
    store, chain = filled(context.app)
    marked = snapshot_writer.mark(store, chain, "trigger")
    with tracing() as traced:
        pointer, _ = await snapshot_writer.write(context, marked, Reporter(StatusBoard(), 0))
        _, peak = traced()
    assert store.size_bytes > 4 * IN_FLIGHT_MAX, "too small a state to tell"
    assert peak < IN_FLIGHT_MAX, f"{peak / MIB:.1f} MiB"
    restored = store_of(context.app.state())
    async with reading(context.cluster, read_committed=False, large=True) as reader:
        manifest = await load_manifest(reader, context.snapshots, pointer)
        version = context.app.schema_version
        with tracing() as traced:
            await load_state(reader, context.snapshots, manifest, version, restored, lambda *_: None)
            left, peak = traced()
    assert restored.digest == manifest.digest == store.digest
    assert peak - left < IN_FLIGHT_MAX, f"{(peak - left) / MIB:.1f} MiB"
