"""Tests of what a hint offers: the command to accept what leads to a state, and never one that cannot succeed.

On a real broker, followed to a healthy service: tests/attacks (B3) and tests/hints.
"""

import shlex
from typing import Any

import pytest

from examples import ledger
from snapreplay.app.ranges import InputRange
from snapreplay.service.core.recovery import Recovery
from snapreplay.service.core.refusals import DuplicateInstance, LogDamaged
from snapreplay.service.core.restore_mode import RestoreMode
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.recovery.acceptable_failures import Resolution
from snapreplay.service.recovery.ways_out import with_way_out
from snapreplay.snapshots.format.records import Pointer
from snapreplay.snapshots.plan import FromGenesis, FromSnapshot
from tests.service.recovery.test_acceptable_failures import LAST, context, id_of, trimmed
from tests.support.accepting import command_in, settings_in
from tests.support.entries import GENESIS, increment

POINTED = FromSnapshot(Pointer("s", 9, 8, 5, 30, None))
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
    assert f"`: {Resolution.SKIP}; then `snapreplay retry --partition 3`" in error.hint


async def test_a_hint_without_words_of_its_own_is_the_command():
    """No "or" in front of the only way."""
    hint = (await with_way_out(LogDamaged("broken"), context(), recovery(start=POINTED))).hint
    assert hint.startswith("accept it: `snapreplay")


async def test_the_command_names_the_app_and_the_settings_that_found_it():
    """An app that can be imported by its name; lean mode and the mode by replay are part of what was found."""
    lean = context(app=ledger.app, changelog={"enabled": False}, restore={"mode": "replay"})
    hint = (await with_way_out(trimmed(), lean, recovery())).hint
    assert "accept examples.ledger:app --partition 0" in hint
    assert settings_in(hint) == {"changelog": {"enabled": False}, "restore": {"mode": "replay"}}
    assert settings_in((await with_way_out(trimmed(), context(), recovery())).hint) == {}
    assert shlex.join(command_in(hint)).count("--set") == 2


async def test_what_cannot_be_accepted_keeps_its_own_hint():
    """Nothing is looked for, nothing added."""
    error = DuplicateInstance("two", hint="rename one")
    assert (await with_way_out(error, context(), recovery())).hint == "rename one"


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
