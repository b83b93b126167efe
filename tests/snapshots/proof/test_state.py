"""The entries of a snapshot and the last batch, from a log in memory."""

import msgspec
import pytest

from snapreplay.errors import DamagedError
from snapreplay.snapshots.proof.state import entries_of, last_batch, manifest_of
from snapreplay.state.digest import Digest
from tests.support.audited_log import Story
from tests.support.audited_topics import MemoryTopics
from tests.support.compacting import logs_of, now


def told():
    """A partition's story and its logs."""
    story = Story(MemoryTopics(), "ledger", 1)
    story.tell({})
    return story, logs_of(story)


def test_a_snapshot_is_what_its_manifest_says_altogether() -> None:
    """Each chunk may be whole, and the entries still be others."""
    story, logs = told()
    pointer = story.partitions[0].pointers[0]
    manifest = manifest_of(logs, pointer)
    assert entries_of(logs, manifest).digest == manifest.entries_digest
    other = msgspec.structs.replace(manifest, entries_digest=Digest(1, 2, 3))
    with pytest.raises(DamagedError, match="but its manifest says 1:"):
        entries_of(logs, other)


def test_the_last_batch_is_found_however_far_it_is_from_the_end() -> None:
    """Behind it are 600 records of a transaction whose increment never came."""
    story, logs = told()
    story.topics.commit(story.log, {0: [b"foreign"] * 600})
    found = last_batch(now(story), logs)
    assert found is not None
    assert found.increment.batch == 5
