"""The table of damages in docs/internals/results.md is what happens: every row of it in memory, some of them again on
Kafka (test_broker.py)."""

from pathlib import Path
from typing import Any

import pytest

from tests.damage import memory
from tests.damage.edits import of_kind
from tests.damage.gallery import Case, Trim, cases, ends, table, told
from tests.damage.memory import Outcome, World

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/internals/results.md"
CASES = {f"{case.record}, {case.damage}": case for case in cases()}


@pytest.fixture(scope="module")
def worlds() -> dict[bool, World]:
    """Make worlds with and without changes in the log."""
    return {changes: memory.world(changes=changes) for changes in (True, False)}


def damaged(world: World, edits: Any) -> World:
    """A copy with these edits made."""
    copy = world.copy()
    for part, edit in edits:
        topic = f"{copy.app.app_id}-{part}"
        slots, log = copy.slots(topic), copy.log(topic)
        if isinstance(edit, Trim):
            log.trim(of_kind(slots, edit.kind)[edit.number].offset if edit.kind else log.end)
        else:
            edit(slots)
            copy.rewrite(topic, slots)
    return copy


def checked(world: World, outcome: Outcome, case: Case) -> str:
    """Return how it ended; where it went LIVE the state is right."""
    snapshots = [pointer.snapshot_id for pointer in world.last.pointers]
    assert case.says in told(outcome.restore, outcome.error)
    if outcome.error is None:
        assert outcome.entries == world.entries
        assert outcome.last == world.last
        assert outcome.restore.proof
        assert outcome.restore.proof.equal
    error = type(outcome.error).__name__ if outcome.error else None
    return ends(outcome.restore, snapshots, error)


@pytest.mark.parametrize("name", CASES)
def test_every_damage_ends_as_the_document_says(worlds, name):
    """All its variants end in the same way, with the words of the case in the status; LIVE only with the right state
    and proof."""
    case = CASES[name]
    world = worlds[case.changes]
    found = set()
    for edits in case.edits:
        outcome = memory.recovered(damaged(world, edits))
        found.add(checked(world, outcome, case))
    (end,) = found
    assert (case.record, case.damage, end) in table(DOCUMENT.read_text())


def test_the_document_has_no_row_that_is_not_tried():
    """Nor one twice."""
    rows = [(record, damage) for record, damage, _ in table(DOCUMENT.read_text())]
    assert rows == [(case.record, case.damage) for case in cases()]


def test_undamaged_it_recovers_from_the_newest_snapshot(worlds):
    """What the others are compared with."""
    for world in worlds.values():
        outcome = memory.recovered(world.copy())
        assert (outcome.error, outcome.restore.fallback_reason) == (None, None)
        assert outcome.entries == world.entries
        assert outcome.restore.snapshot
        assert outcome.restore.snapshot.snapshot_id == world.last.pointers[0].snapshot_id
