"""Tests of what is believed of a batch that was advanced over: outputs, digest, and by which code."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from snapreplay.app.ranges import InputRange
from snapreplay.errors import DamagedError
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.recovery.comparison import CodeChanged, Comparison, DigestMismatch, OutputsDiffer, ReplayFailed
from snapreplay.service.recovery.follower import Tally, prove
from snapreplay.snapshots.log.batches import Step, Unread
from snapreplay.snapshots.log.reading import TopicPartition
from snapreplay.state.digest import Digest, digest_of
from snapreplay.state.objects import ObjectStore
from snapreplay.state.steps import Steps, all_of
from snapreplay.state.stores import store_of
from tests.support import apps
from tests.support.entries import ORIGIN, increment

LOG = TopicPartition("x-increments", 0)
SAME, OTHER = ORIGIN.app_version, "2+code:00000000"
RIGHT = digest_of(apps.Tape().snapshot())
WRONG = Digest(1, 2, 3)
SENT = {"balances": 11, "alerts": 12}
LESS = {"alerts": 12}


def step(batch: int, digest: Digest | None = None, **changed: Any) -> Step:
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
    """A state that is not a map, and empty."""
    found = Comparison(store_of(apps.Tape()), mode, version, 0)
    for each, sent in batches:
        all_of(found.batch(each, sent))
    found.end()
    return found


async def test_the_same_outputs_by_the_same_code_are_believed() -> None:
    """Without any digest, and with one."""
    found = await compared(SAME, [(step(1), SENT), (step(2, RIGHT), SENT), (step(3), SENT)])
    assert found.digests == 1


@pytest.mark.parametrize("sent", [LESS, {}, SENT | {"balances": 12}, SENT | {"more": 1}])
async def test_other_outputs_by_the_same_code_are_not(sent: dict[str, int]) -> None:
    """Whatever the digest says: batch, topic and both hashes."""
    with pytest.raises(OutputsDiffer, match=r"batch 1 \(increment at offset 10\)") as raised:
        await compared(SAME, [(step(1, RIGHT), sent)])
    topic = "more" if "more" in sent else "balances"
    assert raised.value.facts["topic"] == topic
    assert raised.value.facts["recorded"] != raised.value.facts["computed"]


async def test_the_same_state_is_hashed_once() -> None:
    """Empty increments carry the digest of the batch before them, and the proof at the end asks for it once more; a
    batch of records is hashed anew."""
    empty = step(3, RIGHT, ranges=[], record_count=0, outputs_xxh64={})
    with pytest.MonkeyPatch.context() as patch:
        hashed: list[object] = []
        digesting = ObjectStore.digesting

        def counted(store: ObjectStore) -> Steps[Digest]:
            hashed.append(store)
            return digesting(store)

        patch.setattr(ObjectStore, "digesting", counted)
        found = await compared(SAME, [(step(2, RIGHT), SENT), (empty, {})])
        proof = await prove(store_of(apps.Tape()), empty.increment, Tally(computed=found.computed))
        assert (found.digests, len(hashed), proof is not None) == (2, 1, True)
        found = await compared(SAME, [(step(2, RIGHT), SENT), (step(3, RIGHT), SENT)])
        assert (found.digests, len(hashed)) == (2, 3)
        assert (await compared(SAME, [(step(2, RIGHT), SENT), (step(3), SENT)])).computed is None


async def test_changed_code_is_believed_up_to_the_last_digest() -> None:
    """Also when it sends something else: the state is what was committed."""
    assert (await compared(OTHER, [(step(1), SENT), (step(2, RIGHT), LESS)])).digests == 1
    assert (await compared(OTHER, [(step(1), LESS), (step(2, RIGHT), SENT)])).digests == 1


NO_DIGEST = r"batch 3 .* no digest of the state follows"
FIRST_OUTPUTS = r"batch 1 .* outputs to balances"
NOT_BELIEVED: list[Any] = [
    (SAME, [(step(1), SENT), (step(2, WRONG), SENT)], DigestMismatch, "batch 2"),
    (OTHER, [(step(1, WRONG), SENT)], CodeChanged, f"digest {RIGHT} by replay, but {WRONG} was recorded"),
    (OTHER, [(step(2, RIGHT), SENT), (step(3), SENT), (step(4), SENT)], CodeChanged, NO_DIGEST),
    # not the batch where it shows in the state
    (OTHER, [(step(1), LESS), (step(2), SENT), (step(3), SENT)], CodeChanged, FIRST_OUTPUTS),
    (OTHER, [(step(1), LESS), (step(3, WRONG), SENT)], CodeChanged, FIRST_OUTPUTS),
]


@pytest.mark.parametrize(("version", "batches", "error", "told"), NOT_BELIEVED)
async def test_the_first_batch_that_is_not_believed_is_named(version: str, batches: Any, error: Any, told: str) -> None:
    """Changed code is told as such, with both versions; by the same code it stays a mismatch."""
    with pytest.raises(error, match=told) as raised:
        await compared(version, batches)
    if told is FIRST_OUTPUTS:
        assert raised.value.facts["recorded_version"] == SAME
        assert raised.value.facts["version"] == OTHER


async def test_by_changes_no_code_runs() -> None:
    """Nothing is asked of outputs, and no version matters."""
    await compared(OTHER, [(step(1), None), (step(2, RIGHT), None)], RestoreMode.CHANGES)
    with pytest.raises(DigestMismatch):
        await compared(OTHER, [(step(1, WRONG), None)], RestoreMode.CHANGES)


@pytest.mark.parametrize("digest", [None, WRONG])
async def test_behind_an_increment_that_cannot_be_read_only_the_digest_counts(digest: Digest | None) -> None:
    """Otherwise it is the damage that is named."""
    damage = DamagedError("broken")
    given = step(2, digest)
    behind = replace(given, unread=(Unread(15, (), damage),))
    with pytest.raises(DamagedError, match="broken"):
        await compared(SAME, [(behind, None)], RestoreMode.CHANGES)


async def test_a_refusal_in_replay_means_changed_code_where_the_code_changed() -> None:
    """By the same code it stays what it is."""
    refused = ReplayFailed("no such account")
    store = store_of(apps.Tape())
    same = Comparison(store, RestoreMode.REPLAY, SAME, 0)
    other = Comparison(store, RestoreMode.REPLAY, OTHER, 0)
    assert same.refused(step(1), refused) is refused
    assert isinstance(other.refused(step(1), refused), CodeChanged)
    assert "no such account" in other.refused(step(1), refused).message


OTHER = "2+code:00000000"
