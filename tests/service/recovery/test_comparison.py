"""Tests of what is believed of a batch that was advanced over: outputs, digest, and by which code."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from snapreplay.app.ranges import InputRange
from snapreplay.errors import DamagedError
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.recovery.follower import CodeChanged, Comparison, DigestMismatch, OutputsDiffer, ReplayFailed
from snapreplay.snapshots.log.batches import Step, Unread
from snapreplay.snapshots.log.reading import TopicPartition
from snapreplay.state.digest import EMPTY, Digest
from snapreplay.state.map import MapState
from snapreplay.state.stores import store_of
from tests.support.entries import ORIGIN, increment

LOG = TopicPartition("x-increments", 0)
SAME, OTHER = ORIGIN.app_version, "2+code:00000000"
RIGHT = EMPTY
WRONG = Digest(1, 2, 3)
SENT = {"balances": 11, "alerts": 12}
LESS = {"alerts": 12}


def step(batch: int, digest: Digest = RIGHT, **changed: Any) -> Step:
    fields: dict[str, Any] = {
        "ranges": [InputRange("payments", batch, batch + 1, 1)],
        "record_count": 1,
        "outputs_xxh64": SENT,
        "digest": digest,
    }
    return Step(LOG, 10 * batch, increment(batch, **(fields | changed)), ())


async def compared(
    version: str, batches: Iterable[tuple[Step, dict[str, int] | None]], mode: RestoreMode = RestoreMode.REPLAY
) -> Comparison:
    """An empty state."""
    found = Comparison(store_of(MapState(str, int)), mode, version, 0)
    for each, sent in batches:
        found.batch(each, sent)
    return found


async def test_the_same_outputs_by_the_same_code_are_believed() -> None:
    """Each digest is counted."""
    found = await compared(SAME, [(step(1), SENT), (step(2), SENT), (step(3), SENT)])
    assert found.digests == 3


@pytest.mark.parametrize("sent", [LESS, {}, SENT | {"balances": 12}, SENT | {"more": 1}])
async def test_other_outputs_by_the_same_code_are_not(sent: dict[str, int]) -> None:
    """With any digest: batch, topic and both hashes."""
    with pytest.raises(OutputsDiffer, match=r"batch 1 \(increment at offset 10\)") as raised:
        await compared(SAME, [(step(1), sent)])
    topic = "more" if "more" in sent else "balances"
    assert raised.value.facts["topic"] == topic
    assert raised.value.facts["recorded"] != raised.value.facts["computed"]


async def test_changed_code_is_believed_by_the_digest() -> None:
    """Also when it sends something else: the state is what was committed."""
    assert (await compared(OTHER, [(step(1), SENT), (step(2), LESS)])).digests == 2


OUTPUTS = r"batch 1 .* outputs to balances"
NOT_BELIEVED: list[Any] = [
    (SAME, [(step(1), SENT), (step(2, WRONG), SENT)], DigestMismatch, "batch 2"),
    (OTHER, [(step(1, WRONG), SENT)], CodeChanged, f"digest {RIGHT} by replay, but {WRONG} was recorded"),
    (OTHER, [(step(1, WRONG), LESS)], CodeChanged, OUTPUTS),
]


@pytest.mark.parametrize(("version", "batches", "error", "told"), NOT_BELIEVED)
async def test_the_first_batch_that_is_not_believed_is_named(version: str, batches: Any, error: Any, told: str) -> None:
    """Changed code is reported as such, with both versions; by the same code it stays a mismatch."""
    with pytest.raises(error, match=told) as raised:
        await compared(version, batches)
    if told is OUTPUTS:
        assert raised.value.facts["recorded_version"] == SAME
        assert raised.value.facts["version"] == OTHER


async def test_by_changes_no_code_runs() -> None:
    """Nothing is asked of outputs, and no version matters."""
    await compared(OTHER, [(step(1), None), (step(2), None)], RestoreMode.CHANGES)
    with pytest.raises(DigestMismatch):
        await compared(OTHER, [(step(1, WRONG), None)], RestoreMode.CHANGES)


async def test_behind_an_increment_that_cannot_be_read_only_the_digest_counts() -> None:
    """Otherwise it is the damage that is named."""
    damage = DamagedError("broken")
    behind = replace(step(2, WRONG), unread=(Unread(15, (), damage),))
    with pytest.raises(DamagedError, match="broken"):
        await compared(SAME, [(behind, None)], RestoreMode.CHANGES)


async def test_a_refusal_in_replay_means_changed_code_where_the_code_changed() -> None:
    """By the same code it stays what it is."""
    refused = ReplayFailed("no such account")
    store = store_of(MapState(str, int))
    same = Comparison(store, RestoreMode.REPLAY, SAME, 0)
    other = Comparison(store, RestoreMode.REPLAY, OTHER, 0)
    assert same.refused(step(1), refused) is refused
    assert isinstance(other.refused(step(1), refused), CodeChanged)
    assert "no such account" in other.refused(step(1), refused).message
