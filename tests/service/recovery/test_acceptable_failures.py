"""Ids of findings: the same for the same, another one for all that an operator has not seen."""

import ast
import asyncio
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from examples import ledger
from snapreplay.app.ranges import InputRange
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.core.recovery import Recovery
from snapreplay.service.core.refusals import LogDamaged, NoRestoreMode, SchemaDiffers
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.recovery.acceptable_failures import (
    ALSO,
    KINDS,
    Resolution,
    findings_of,
    newest_acceptable_snapshot,
    with_way_out,
)
from snapreplay.service.recovery.follower import DigestMismatch
from snapreplay.service.recovery.input_identity import InputTrimmed
from snapreplay.service.runtime.context import ClusterView, Context, Identity
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.snapshots.format.records import Pointer
from snapreplay.snapshots.log.loading import NullSink
from snapreplay.snapshots.plan import FromGenesis, FromSnapshot, NoUsableSnapshot
from snapreplay.state.digest import EMPTY
from snapreplay.state.stores import store_of
from tests.support import apps
from tests.support.accepting import command_in, settings_in
from tests.support.entries import GENESIS, increment
from tests.support.proposals import JOB, Job
from tests.support.stage import settings_for
from tests.support.tampering import flip

ROOT = Path(__file__).resolve().parents[3]
LAST = FoundIncrement(increment(8), 40)


def context(partition: int = 0, app: Any = None, **tables: Any) -> Context:
    """Say where a finding is made; nothing of it is connected to anything."""
    view = ClusterView("cluster-1", 4, {}, 900_000)
    nowhere: Any = None
    settings = settings_for("127.0.0.1:1", **tables)
    identity = Identity.of_this_process("one")
    return Context(app or apps.ledger("found"), settings, nowhere, view, identity, partition, asyncio.Semaphore(1))


def trimmed(**changed: Any) -> InputTrimmed:
    facts = {"topic": "payments", "position": 120, "log_start_offset": 130} | changed
    return InputTrimmed("gone", hint="raise retention.ms", **facts)


def id_of(error: Any, where: Context | None = None, last: FoundIncrement | None = LAST) -> str:
    (finding,) = findings_of(error, where or context(), last)
    return finding.id


def test_the_same_finding_has_the_same_id_on_every_start():
    """Another process, another message: the facts are the same."""
    assert id_of(trimmed()) == id_of(trimmed(), context())
    assert id_of(trimmed()).startswith("input-gap-")


@pytest.mark.parametrize(
    "other",
    [
        lambda: id_of(trimmed(log_start_offset=131)),
        lambda: id_of(trimmed(topic="refunds")),
        lambda: id_of(trimmed(), context(1)),
        lambda: id_of(trimmed(), last=FoundIncrement(increment(9), 45)),
        lambda: id_of(trimmed(), context(app=apps.ledger("another"))),
    ],
)
def test_a_larger_gap_or_a_longer_chain_is_another_finding(other):
    """What was not seen is not accepted: more records gone, another input, partition, app, or a batch since."""
    assert other() != id_of(trimmed())


@pytest.mark.parametrize(("mode", "way"), [("replay", Resolution.AS_REPLAYED), ("changes", Resolution.FROM_SNAPSHOT)])
def test_a_digest_that_differs_is_accepted_by_the_mode_that_found_it(mode, way):
    """Replay gives a state that can be accepted; changes that do not add up give none."""
    facts = {"batch": 7, "recorded": "a", "computed": "b", "mode": mode}
    (finding,) = findings_of(DigestMismatch("differs", **facts), context(), LAST)
    assert finding.way is way


def test_every_error_that_can_be_accepted_is_made_with_the_facts_that_identify_it():
    """A name that is mistyped, here or there, would be None in every id: two failures would be one."""
    made: dict[str, list[set[str | None]]] = {}
    for path in (*ROOT.glob("service/**/*.py"), *ROOT.glob("snapshots/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                given = {word.arg for word in node.keywords}
                made.setdefault(node.func.id, []).append(given)
    optional = {LogDamaged, NoRestoreMode}  # what is behind them may be one of several
    for error, kind in (*KINDS.items(), *ALSO.items()):
        assert made.get(error.__name__) or error is NoUsableSnapshot
        for given in made.get(error.__name__, []) if error not in optional else ():
            assert set(kind.facts) <= given or None in given, (error, given)


POINTED = FromSnapshot(Pointer("s", 9, 8, 5, 30, EMPTY))
LEAN = FoundIncrement(increment(8, ranges=[InputRange("payments", 0, 1, 1)], changes=None), 40)


def recovery(**fields: Any) -> Recovery:
    """One that failed after it came to the last increment's state."""
    known: dict[str, Any] = {"last": LAST, "state_is_last": True} | fields
    return Recovery(context().expected, RestoreMode.CHANGES, **known)


async def test_the_hint_keeps_what_it_said_and_adds_the_command():
    """Whole, with partition and id, what it will lead to, and how the partition looks again."""
    error = await with_way_out(trimmed(), context(3), recovery())
    assert error.hint.startswith("raise retention.ms; or accept it: `snapreplay accept MODULE:APP ")
    words = command_in(error.hint)
    assert words[3:7] == ["--partition", "3", "--finding", id_of(trimmed(), context(3))]
    assert f"` ({Resolution.SKIP}); then `snapreplay retry --partition 3`" in error.hint


async def test_the_command_names_the_app_and_the_settings_that_found_it():
    """An app that can be imported by its name; lean mode and the mode by replay are part of what was found."""
    lean = context(app=ledger.app, changelog={"enabled": False}, restore={"mode": "replay"})
    hint = (await with_way_out(trimmed(), lean, recovery())).hint
    assert "accept examples.ledger:app --partition 0" in hint
    assert settings_in(hint) == {"changelog": {"enabled": False}, "restore": {"mode": "replay"}}
    assert settings_in((await with_way_out(trimmed(), context(), recovery())).hint) == {}
    assert shlex.join(command_in(hint)).count("--set") == 2


@pytest.mark.parametrize(
    ("fields", "offered"),
    [
        ({"state_is_last": False, "start": POINTED}, True),
        ({"state_is_last": False, "start": FromGenesis(GENESIS, 0)}, True),
        ({"state_is_last": False, "start": FromGenesis(GENESIS, 0), "last": LEAN}, False),
    ],
    ids=["a snapshot", "changes", "neither"],
)
async def test_a_gap_is_accepted_only_where_the_state_can_be_had_without_the_input(fields, offered):
    """By a snapshot or by changes; a lean log without a snapshot leads nowhere, and the hint says what remains."""
    error = await with_way_out(trimmed(), context(), recovery(**fields))
    assert ("snapreplay accept" in error.hint) is offered
    assert "snapreplay init" in error.hint


@pytest.mark.parametrize("rest", [0, 3])
async def test_a_log_that_does_not_fit_is_known_as_another_topic(bench, rest):
    """Empty, the newest manifest names the topic that its increment was in; with a part of the old log, its increments
    do, and two owners are not blamed."""
    await bench.past()
    old = bench.broker.topic_ids[bench.increments]
    kept = bench.log(bench.increments).committed()
    bench.recreate(bench.increments, kept[len(kept) - rest :])
    error = (await bench.failure()).error
    assert error.kind == ("LogShorter" if rest else "NotInitialised")
    assert error.message.startswith(
        f"topic {bench.increments} was deleted and created again: its id was {old},"
        f" now it is {bench.broker.topic_ids[bench.increments]}; "
    )
    assert "backup or mirror" in error.hint
    assert "snapreplay accept" in error.hint
    assert "two owners" not in error.hint


async def test_the_newest_snapshot_that_reads_back_whole_is_found(bench):
    """Checked to the last entry whether something keeps the entries or nothing does; a damaged one is passed over."""
    then = await bench.past()
    context = await bench.context()
    store = store_of(bench.app.state())
    for sink in (NullSink(), store):
        manifest, passed_over = await newest_acceptable_snapshot(context, sink)
        assert manifest is not None
        assert (manifest.snapshot_id, passed_over) == (then.second, ())
        assert sink is not store or store.digest == manifest.entries_digest
    bench.tamper(bench.snapshots, RecordKind.CHUNK, flip)
    manifest, passed_over = await newest_acceptable_snapshot(context, NullSink())
    assert manifest is not None
    assert manifest.snapshot_id == then.first
    assert [then.second in line for line in passed_over] == [True]
    bench.tamper(bench.snapshots, RecordKind.CHUNK, flip, 0)
    manifest, passed_over = await newest_acceptable_snapshot(context, NullSink())
    assert (manifest, len(passed_over)) == (None, 2)


async def test_the_sums_of_a_proposal_are_not_believed(bench):
    """No owner has hashed it, perhaps: an entry that is not the hashed one makes it useless. A true one is as good as
    another snapshot."""

    def lying(parts):
        first = parts[0][0]
        entries = dict.fromkeys(first.entries, b"\x01")
        parts[0][0] = msgspec.structs.replace(first, entries=entries)

    then = await bench.past()
    context, job = await bench.context(), Job(bench)
    job.propose(forge=lying)
    manifest, (why,) = await newest_acceptable_snapshot(context, NullSink())
    assert manifest is not None
    assert manifest.snapshot_id == then.second
    assert "add up to" in why
    job.propose()
    manifest, _ = await newest_acceptable_snapshot(context, NullSink())
    assert manifest is not None
    assert manifest.proposed_by == JOB


async def test_an_older_snapshot_is_no_substitute_for_one_of_another_schema(bench):
    """It would be another state: both schema versions are named."""
    await bench.past()
    bench.app = apps.ledger(bench.app.app_id, schema_version=2)
    with pytest.raises(SchemaDiffers, match="written with schema_version 1, but the app has 2"):
        await newest_acceptable_snapshot(await bench.context(), NullSink())


async def test_a_late_proposal_hides_no_newer_snapshot_of_an_owner(bench):
    """A slow job wrote its manifest behind the owner's: it is used only if the newer state is damaged, and before an
    older one."""
    then = await bench.past()
    context, job = await bench.context(), Job(bench)
    job.propose(4)
    manifest, passed_over = await newest_acceptable_snapshot(context, NullSink())
    assert manifest is not None
    assert (manifest.snapshot_id, passed_over) == (then.second, ())
    bench.tamper(bench.snapshots, RecordKind.CHUNK, flip, -3)
    manifest, (why,) = await newest_acceptable_snapshot(context, NullSink())
    assert manifest is not None
    assert (manifest.proposed_by, manifest.batch) == (JOB, 4)
    assert then.second in why


async def test_a_proposal_of_a_log_that_was_replaced_is_used_last(bench):
    """Its offsets are of another topic, so they cannot be compared."""
    then = await bench.past()
    names = {bench.increments: "another"}
    Job(bench).propose(at=1000, topic_ids=names, owner_epoch=1000)
    manifest, _ = await newest_acceptable_snapshot(await bench.context(), NullSink())
    assert manifest is not None
    assert manifest.snapshot_id == then.second
