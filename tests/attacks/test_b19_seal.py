"""Attack B19: somebody who may write to the own topics, and has no key. Every checksum, digest and offset is right."""

from typing import Any

import msgspec
import pytest

from snapreplay.service.core.adoption import Reason, pointer_to
from snapreplay.snapshots.format import changes
from snapreplay.snapshots.format.envelope import RecordKind, decode, encode, kind_of
from snapreplay.snapshots.format.records import ChangesRecord, Manifest
from tests.support.entries import rewrapped
from tests.support.proposals import (
    AHEAD_MS,
    Job,
    answer,
    asked,
    fed,
    forged_increment,
    key_file,
    of_key,
    ran,
    sealed,
    seals,
)
from tests.support.stage import until
from tests.support.tampering import flip

__all__ = ["key_file"]


async def test_everything_that_leads_to_the_state_is_sealed(bench, key_file):
    """From the genesis on, with the SHA-256 of all changes and chunks; a restart restores from it."""
    await sealed_by(bench, key_file)
    assert all(sealed(bench))
    recorded = [each.changes for each in bench.batches() if each.changes is not None]
    assert [len(each.sha256) for each in recorded] == [32] * len(recorded) != []
    (manifest, *_) = [
        entry
        for each in bench.log(bench.snapshots).committed()
        if isinstance(entry := decode(each.value or b""), Manifest)
    ]
    assert all(len(ref.sha256) == 32 for ref in manifest.chunks)
    restore = await bench.restored()
    assert restore.snapshot is not None
    assert restore.fallback_from is None


async def sealed_by(bench, key_file):
    """Its log is sealed with key a, and there is no owner."""
    await bench.prepare(**key_file("a"))
    await ran(bench)


# ---- on, over, off -------------------------------------------------------------------------------


async def test_the_seal_is_introduced_and_then_required(bench, key_file):
    """At once it is refused by name, with the way; after a snapshot under `introduce` nothing unsealed is needed."""
    await ran(bench)
    at_once = await bench.failure(**key_file("a"))
    assert at_once.error.kind == "SealRefused"
    assert "seal.policy=introduce" in at_once.error.hint
    await ran(bench, **key_file("a", policy="introduce"))
    assert set(sealed(bench)) == {True, False}
    await ran(bench, **key_file("a"))
    assert sealed(bench)[-1]


@pytest.mark.parametrize("policies", [("introduce", None), (None, "withdraw", "")])
async def test_a_quiet_partition_changes_over_by_itself(bench, key_file, policies):
    """No record comes: the snapshot is taken at once, and the pointer to it is as the policy says."""
    first, *rest = policies
    await bench.prepare(**({} if first else key_file("a")))
    await fed_once(bench, {} if first else key_file("a"))
    for policy in policies if first else rest:
        tables = {"seal": {}} if policy == "" else key_file("a", policy=policy or "required")
        async with bench.live(**tables) as one:
            if policy:
                await until(lambda: pointed(one), "the snapshot", 300.0)
    assert sealed(bench)[-1] == (policies[-1] is None)


async def fed_once(bench, tables):
    async with bench.live(**tables) as one:
        await fed(bench, one)


def pointed(one):
    return one.status.snapshot is not None and one.status.snapshot.state == "pointed"


async def test_a_new_key_writes_and_the_old_one_is_read(bench, key_file):
    """First it is added behind the old one, then put before it; then the old one goes."""
    await sealed_by(bench, key_file)
    await ran(bench, **key_file("a", "b"))
    too_early = await bench.failure(**key_file("b"))
    assert (too_early.error.kind, "'a'" in too_early.error.message) == ("SealRefused", True)
    assert "add the line of key 'a'" in too_early.error.hint
    await ran(bench, **key_file("b", "a"))
    await ran(bench, **key_file("b"))


async def test_the_seal_is_withdrawn_before_the_key(bench, key_file):
    """Without the key a sealed log is refused; after a snapshot under `withdraw` nothing sealed is needed."""
    await sealed_by(bench, key_file)
    at_once = await bench.failure(seal={})
    assert at_once.error.kind == "SealRefused"
    assert "seal.policy=withdraw" in at_once.error.hint
    await ran(bench, **key_file("a", policy="withdraw"))
    await ran(bench, seal={})
    assert not sealed(bench)[-1]


# ---- what an attacker can write ------------------------------------------------------------------


UNSEALED = {
    "without a seal": (encode, "has no seal"),
    "with a key of the attacker's": (of_key("b"), "sealed with key 'b'"),
    "of another partition": (of_key("a", 1), "not that of this record in partition 0"),
}
FORGED: dict[str, Any] = {
    **UNSEALED,
    "a decision, which would lead past the whole log": (encode, "has no seal", {"decision": {"finding": "x"}}),
    "with another body": (lambda made: changed_inside(of_key("a")(made)), "is not that of this record"),
}


def changed_inside(value):
    """The body differs, its checksum is right, the seal is that of before."""
    made: Any = decode(value)
    other = seals("a").put_on(encode(msgspec.structs.replace(made, written_at_ms=1)), 0)
    return rewrapped(other, other[12:-32] + value[-32:])


async def test_without_a_seal_a_forged_increment_counts(bench):
    """Everything is as the owner writes it: only the key could tell."""
    await ran(bench)
    forged_increment(bench, stream_time_ms=AHEAD_MS)
    await ran(bench)
    assert bench.batches()[-1].stream_time_ms == AHEAD_MS  # every timer would have fired


@pytest.mark.parametrize("name", FORGED)
async def test_no_increment_counts_that_the_key_has_not_sealed(bench, key_file, name):
    """FAILED by name; nothing is taken from it."""
    made, says, *fields = FORGED[name]
    await sealed_by(bench, key_file)
    forged_increment(bench, made, **dict(*fields))
    status = await bench.failure()
    assert status.error.kind == "SealRefused"
    assert says in status.error.message
    assert "bring the topic back" in status.error.hint or "add the line of key" in status.error.hint


@pytest.mark.parametrize("number", [0, 2, -2])
async def test_a_copy_of_a_sealed_increment_is_not_the_next_one(bench, key_file, number):
    """Its seal is right. The chain is not: nothing is processed again."""
    await sealed_by(bench, key_file)
    records = bench.log(bench.increments).committed()
    copied = [each for each in records if kind_of(each.value or b"") is RecordKind.INCREMENT]
    value = copied[number].value
    bench.log(bench.increments).append(None, value, copied[number].headers, 1000, None)
    status = await bench.failure()
    assert status.error.kind in {"BrokenChain", "NoUsableSnapshot", "LogCut"}, status.error


async def test_an_unsealed_one_between_two_sealed_ones_is_refused(bench, key_file):
    """Also while the seal is introduced."""
    await sealed_by(bench, key_file)
    forged_increment(bench)
    status = await bench.failure(**key_file("a", policy="introduce"))
    assert status.error.kind == "SealRefused"
    assert "the increment before it has one" in status.error.message


async def test_changes_are_those_that_were_sealed(bench, key_file, monkeypatch):
    """Another value with the right crc32, as a collision would have it: the SHA-256 shows it."""
    await bench.prepare(**key_file("a"))
    async with bench.live() as one:
        await fed(bench, one)

    def other(value):
        entry: Any = decode(value)
        stores = {
            store: {key: v and v[:-1] + bytes([v[-1] ^ 1]) for key, v in each.items()}
            for store, each in entry.stores.items()
        }
        return encode(ChangesRecord(entry.batch, entry.part, stores), compress=True)

    before = bench.tamper(bench.increments, RecordKind.CHANGES, other)

    real = changes.joined_crc32([before.value])
    patched = pytest.MonkeyPatch()
    patched.setattr(changes, "joined_crc32", lambda _: real)
    restore = (await bench.restored()).fallback_reason
    patched.undo()
    assert "SHA-256" in restore


async def test_a_damaged_increment_is_not_bridged(bench, key_file):
    """Without a seal the digest of the next one would do (ADR 8). Nothing shows that its changes were sealed."""
    await bench.prepare(**key_file("a"))
    async with bench.live() as one:
        for _ in range(3):
            await fed(bench, one)
    bench.trim(bench.input, 30)  # so that a replay leads nowhere
    bench.tamper(bench.increments, RecordKind.INCREMENT, flip, 2)
    assert (await bench.failure()).error.kind == "NoRestoreMode"


@pytest.mark.parametrize("name", UNSEALED)
@pytest.mark.parametrize("policy", ["required", "introduce"])
async def test_a_proposal_needs_the_key(bench, key_file, name, policy):
    """A job without it is told; with it, the proposal is adopted. Also while the seal is introduced: the increments are
    sealed already."""
    value, says = UNSEALED[name]
    await bench.prepare(**key_file("a"))
    async with bench.live(**key_file("a", policy=policy)) as one:
        await fed(bench, one)
        offset = Job(bench).propose(encoded=value)
        state, _, detail = await answer(asked(one, offset))
        assert state == "failed"
        assert detail.startswith(f"{Reason.SEAL_REFUSED}: ")
        assert says in detail
        offset = Job(bench).propose(encoded=of_key("a"))
        assert (await answer(asked(one, offset)))[0] == "succeeded"


async def test_a_snapshot_without_a_seal_leads_to_the_older_one(bench, key_file):
    """The pointer is sealed, and what lies there is not."""
    await bench.prepare(**key_file("a"))
    then = []
    async with bench.live() as one:
        for _ in range(2):
            await fed(bench, one)
            then.append(await one.snapshot())
    bench.tamper(bench.snapshots, RecordKind.MANIFEST, lambda value: encode(decode(value)))
    restore = await bench.restored()
    assert (restore.snapshot.snapshot_id, restore.fallback_from) == tuple(then)
    assert "has no seal" in restore.fallback_reason


async def test_a_manifest_without_a_seal_is_no_witness(bench, key_file):
    """Ahead of the log and with an owner's fields, it made a healthy partition FAILED."""
    await sealed_by(bench, key_file)
    offset, last = Job(bench).increments[-1]
    ahead = msgspec.structs.replace(last, batch=last.batch + 5)
    Job(bench).propose(at=offset + 100, batch=ahead.batch, proposed_by=None, positions=ahead.positions)
    assert (await bench.restored()).fallback_from is None


def newest_manifest(bench: Any) -> Any:
    return decode(bench.log(bench.snapshots).committed()[-1].value or b"")


async def test_nothing_unsealed_follows_the_snapshot_of_a_sealed_batch(bench, key_file):
    """Nothing lies between the snapshot and the forged batch: the seal of the snapshot's own batch counts."""
    await bench.prepare(**key_file("a"))
    async with bench.live() as one:
        await fed(bench, one)
    job = Job(bench)
    offset, last = job.increments[-1]
    manifest_offset = job.propose(encoded=of_key("a"))
    pointer = pointer_to(newest_manifest(bench), manifest_offset)
    assert (pointer.increment_offset, pointer.digest) == (offset, last.digest)
    forged_increment(bench, pointers=[pointer], stream_time_ms=AHEAD_MS)
    status = await bench.failure(**key_file("a", policy="introduce"))
    assert status.error.kind == "SealRefused"
    assert "the increment before it has one" in status.error.message


async def test_nothing_unsealed_points_to_a_snapshot_of_its_own(bench, key_file):
    """Base and last increment are the same batch, so no walk meets the sealed one before it."""
    await bench.prepare(**key_file("a"))
    async with bench.live() as one:
        await fed(bench, one)
    job = Job(bench)
    batch, at = job.increments[-1][1].batch + 1, bench.log(bench.increments).end
    manifest_offset = job.propose(at=at, batch=batch, proposed_by=None, stream_time_ms=AHEAD_MS)
    pointer = pointer_to(newest_manifest(bench), manifest_offset)
    assert forged_increment(bench, pointers=[pointer], stream_time_ms=AHEAD_MS) == at
    status = await bench.failure(**key_file("a", policy="introduce"))
    assert status.error.kind == "SealRefused"
    assert "the increment before it has one" in status.error.message
