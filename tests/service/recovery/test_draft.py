"""The drafted upgrade of a job: taken over, brought forward, or refused in one line and done by the owner itself."""

from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from snapreplay.app.load import load_app
from snapreplay.service.decisions.inputs import Wish, carry_out, propose
from snapreplay.snapshots.format.envelope import RecordKind, decode, encode
from snapreplay.snapshots.format.records import ChunkRef
from snapreplay.snapshots.jobs.compaction import Outcome
from snapreplay.state.digest import Digest
from tests.service.recovery.test_upgrade import folded
from tests.support.accepting import accepted, fenced_while_writing
from tests.support.audited_topics import MemoryTopics
from tests.support.compacting import Killed, Steps, Topics
from tests.support.drafting import drafted, forged, second_version
from tests.support.in_memory import virtual
from tests.support.proposals import Job, answer, asked
from tests.support.tampering import flip


@pytest.fixture
def second(tmp_path, bench):
    return second_version(tmp_path, bench.app.app_id)


async def upgraded(bench, second, count, caplog):
    """Start the second version; what it says of drafts."""
    caplog.clear()
    async with bench.live(load_app(second)) as one:
        assert one.view() == folded(count)
        (decision,) = one.status.decisions
        said = [each.message for each in caplog.records if "is not used" in each.message]
        await bench.feed(20)
        await one.position(count + 20)
    async with bench.live(load_app(second)) as one:
        assert one.view() == folded(count + 20)
    return decision.decided, said


@virtual
async def test_a_draft_of_the_last_batch_becomes_the_snapshot(bench, second, caplog):
    """No chunk is written by the owner; the decision says who has drafted it."""
    await bench.past()
    result = drafted(bench, second)
    assert (result.outcome, result.entries) == (Outcome.DRAFTED, 20)
    chunks = len(Job(bench).chunks)
    async with bench.live(load_app(second)) as one:
        assert one.view() == folded(120)
        assert len(Job(bench).chunks) == chunks
    decided, said = await upgraded(bench, second, 120, caplog)
    assert decided.endswith(f"by draft-upgrade@test/1 after batch {result.batch}; 0 entries of it changed since")
    assert said == []
    assert sum(each.decision is not None for each in bench.batches()) == 1


@virtual
async def test_what_was_committed_since_is_upgraded_by_the_owner(bench, second, caplog):
    """The old version runs on, takes snapshots of its own and stops; the draft is found all the same."""
    await bench.past()
    drafted(bench, second)
    async with bench.live() as one:
        await bench.feed(5)
        await one.position(125)
        await one.snapshot()
        await bench.feed(3)
        await one.position(128)
        assert one.status.rejected_proposals == ()
    decided, said = await upgraded(bench, second, 128, caplog)
    assert "; 8 entries of it changed since" in decided
    assert said == []


@virtual
async def test_an_entry_that_came_and_one_that_went_since(bench, tmp_path, caplog):
    """Exactly as if the owner had upgraded everything."""
    second = second_version(tmp_path, bench.app.app_id, "return (key, old['sum'] * 100) if old['n'] < 7 else None")
    await bench.past()
    drafted(bench, second)
    async with bench.live() as one:
        await bench.send([("new", {"amount": 3}), ("k3", {"amount": 9})])
        await one.position(122)
    async with bench.live(load_app(second)) as one:
        assert one.view() == {key: cents for key, cents in folded(120).items() if key != "k3"} | {"new": 300}
        assert "; 2 entries of it changed since" in one.status.decisions[0].decided
    assert caplog.text.count("is not used") == 0


@virtual
async def test_entries_that_move_are_not_brought_forward(bench, tmp_path, caplog):
    """What a touched entry had become is not known: the owner upgrades by itself, and says so."""
    second = second_version(tmp_path, bench.app.app_id, "return 'x' + key, old['sum'] * 100")
    await bench.past()
    drafted(bench, second)
    async with bench.live() as one:
        await bench.feed(1)
        await one.position(121)
    async with bench.live(load_app(second)) as one:
        assert one.view() == {f"x{key}": cents for key, cents in folded(121).items()}
        assert "drafted" not in one.status.decisions[0].decided
    assert "batches were committed since, and entries move to other keys" in caplog.text


def draft_of(**changed):
    return {"draft_of": lambda manifest: msgspec.structs.replace(manifest.draft_of, **changed)}


def of_origin(**changed):
    return {"origin": lambda manifest: msgspec.structs.replace(manifest.origin, **changed)}


def with_digest():
    other = Digest(20, 1, 2)
    return {"digest": lambda _: other, "entries_digest": lambda _: other}


FORGED = {
    "another app": (of_origin(app_id="other"), "it is of app 'other'"),
    "older code": (of_origin(app_version="code:00000000"), "it was made by app version code:00000000"),
    "another schema_version": (of_origin(schema_version=3), "its schema_version is 3"),
    "of another old version": (draft_of(schema_version=7), "its schema_version is 7"),
    "of another old state": (draft_of(digest=Digest(20, 1, 2)), "its digest is 20:"),
    "ahead of the log": ({"batch": lambda manifest: manifest.batch + 9}, "but the last increment is batch"),
    "another batch": ({"batch": lambda manifest: manifest.batch - 1}, "its batch is"),
    "entries that do not hash": (with_digest(), "adds up to digest"),
    "a chunk less": ({"chunks": lambda manifest: manifest.chunks[:-1]}, "adds up to digest"),
    "shards": ({"shard_count": lambda manifest: 8}, "it has 8 shards"),
}


@pytest.mark.parametrize(("changed", "why"), FORGED.values(), ids=FORGED)
@virtual
async def test_a_draft_that_is_not_of_this_state_is_named_and_ignored(bench, second, caplog, changed, why):
    """One line; the owner upgrades by itself."""
    await bench.past()
    forged(bench, drafted(bench, second), **changed)
    decided, said = await upgraded(bench, second, 120, caplog)
    (line,) = said
    assert why in line
    assert "drafted" not in decided


@pytest.mark.parametrize("fault", ["damaged", "trimmed"])
@virtual
async def test_a_draft_whose_chunk_is_damaged_or_gone_is_ignored(bench, second, caplog, fault):
    """Nothing of it is loaded."""
    await bench.past()
    result = drafted(bench, second)
    if fault == "damaged":
        bench.tamper(bench.snapshots, RecordKind.CHUNK, flip)
    else:
        bench.log(bench.snapshots).records[result.manifest_offset - 1] = None
    decided, said = await upgraded(bench, second, 120, caplog)
    assert len(said) == 1
    assert "drafted" not in decided


@virtual
async def test_a_drafted_entry_that_is_not_as_its_slice_says_is_found(bench, second, caplog):
    """It is hashed: that all sums agree with each other proves nothing."""
    await bench.past()
    result, job = drafted(bench, second), Job(bench)
    chunk: Any = decode(job.chunks[-1].value)
    first, *rest = chunk.slices
    ((key, value), *others) = first.entries.items()
    entries = {key: value[:-1] + bytes([value[-1] ^ 1]), **dict(others)}
    changed = encode(msgspec.structs.replace(chunk, slices=[msgspec.structs.replace(first, entries=entries), *rest]))
    ref = ChunkRef(job.append(changed), chunk.sequence, len(changed), crc32(changed))
    forged(bench, result, chunks=lambda manifest: [*manifest.chunks[:-1], ref])
    decided, (line,) = await upgraded(bench, second, 120, caplog)
    assert f"chunk {chunk.sequence} of snapshot {result.snapshot_id}" in line
    assert "drafted" not in decided


@virtual
async def test_a_draft_by_other_packages_is_found_by_its_sample(bench, tmp_path, caplog):
    """The version of the code does not cover them, but the owner upgrades some entries itself and compares."""
    rate = tmp_path / "rate"
    body = f"import pathlib; return key, old['sum'] * int(pathlib.Path({str(rate)!r}).read_text())"
    second = second_version(tmp_path, bench.app.app_id, body)
    await bench.past()
    rate.write_text("99")
    drafted(bench, second)
    rate.write_text("100")
    decided, (line,) = await upgraded(bench, second, 120, caplog)
    assert "it has another value of key" in line
    assert "drafted" not in decided


@virtual
async def test_an_owner_that_dies_with_a_draft_leaves_the_old_state(bench, second, monkeypatch):
    """Fenced before the decision, twice: the next one takes the draft over again."""
    await bench.past()
    drafted(bench, second)
    left = fenced_while_writing(monkeypatch, 2)
    async with bench.live(load_app(second)) as one:
        assert one.view() == folded(120)
        assert "drafted by" in one.status.decisions[0].decided
    assert left == [0]
    assert sum(each.decision is not None for each in bench.batches()) == 1


@virtual
async def test_a_job_that_dies_at_any_step_changes_nothing(bench, second, caplog):
    """Orphans only; the old version goes on, and the new one upgrades."""
    await bench.past()
    logs, at = MemoryTopics(bench.broker.logs), 0
    while True:
        at += 1
        try:
            drafted(bench, second, Topics(logs, Steps(at)))
            break
        except Killed:
            continue
    assert at > 10
    await bench.restored()
    decided, said = await upgraded(bench, second, 120, caplog)
    assert said == []
    assert "drafted by" in decided


@virtual
async def test_an_upgrade_that_fails_is_known_before_the_old_version_stops(bench, tmp_path):
    """The job names the entry."""
    await bench.past()
    second = second_version(tmp_path, bench.app.app_id, "return key, 1 // (key != 'k7')")
    result = drafted(bench, second)
    assert result.outcome is Outcome.NOT_POSSIBLE
    assert "state['k7']" in result.reason
    assert "ZeroDivisionError" in result.reason


@virtual
async def test_a_state_that_is_upgraded_needs_no_draft(bench, tmp_path, second):
    """One that no declared upgrade leads from is named, and declared."""
    await bench.past()
    result = drafted(bench, second_version(tmp_path, bench.app.app_id, from_schema=2))
    assert result.outcome is Outcome.NOT_POSSIBLE
    assert "the app has no upgrade of it to 3" in result.reason
    assert "`@app.upgrade(from_schema=1, …)`" in result.hint
    assert drafted(bench, second).outcome is Outcome.DRAFTED
    async with bench.live(load_app(second)):
        pass
    assert drafted(bench, second).outcome is Outcome.NOTHING_TO_DO


@virtual
async def test_a_live_owner_does_not_adopt_a_draft(bench, second):
    """The old version refuses it by name."""
    await bench.past()
    result = drafted(bench, second)
    async with bench.live() as one:
        _, _, detail = await answer(asked(one, result.manifest_offset))
        assert "its schema_version is 2" in detail


@pytest.fixture
def second_with_refunds(second):
    file = Path(second)
    text = file.read_text("utf-8").replace("app = App", 'refunds = Topic("refunds-app")\napp = App')
    text = text.replace("inputs=[payments]", "inputs=[payments, refunds]")
    file.write_text(text.replace("@app.handler(payments)", "@app.handler(refunds)\n@app.handler(payments)"), "utf-8")
    return second


@virtual
async def test_a_draft_from_before_an_input_was_added_becomes_a_snapshot_of_today(bench, second_with_refunds):
    """Its manifest names the inputs that the state has now: if only it is left, the state can be accepted."""
    await bench.past()
    bench.broker.create("refunds-app", 1)
    drafted(bench, second_with_refunds)
    two = load_app(second_with_refunds)
    (proposed,) = await propose(two, bench.settings(), bench.cluster, Wish("earliest"))
    await carry_out(proposed)
    async with bench.live(two) as one:
        assert one.view() == folded(120)
        assert "by draft-upgrade" in one.status.decisions[0].decided
    bench.recreate(bench.increments)
    bench.app = two
    status = await bench.failure()
    await accepted(bench, status.error.hint)
    async with bench.live() as one:
        assert one.view() == folded(120)
