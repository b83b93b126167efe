"""Ids of findings: the same for the same, another one for whatever an operator has not seen."""

import asyncio
import shlex
from typing import Any

import pytest

from examples import ledger
from snapreplay.service.core.search import Found
from snapreplay.service.core.stops import DuplicateInstance, LogDamaged
from snapreplay.service.partition.advance import DigestMismatch
from snapreplay.service.partition.context import ClusterView, Context, Identity
from snapreplay.service.partition.findings import Way, finding_of, with_way_out
from snapreplay.service.partition.inputs import InputReplaced, InputShorter, InputTrimmed
from tests.support import apps
from tests.support.accepting import command_in, settings_in
from tests.support.entries import increment
from tests.support.stage import settings_for

LAST = Found(increment(8), 40)


def context(partition: int = 0, app: Any = None, **tables: Any) -> Context:
    """Where a finding is made; nothing of it is connected to anything."""
    view = ClusterView("cluster-1", 4, {}, 900_000)
    nowhere: Any = None
    settings = settings_for("127.0.0.1:1", **tables)
    identity = Identity.of_this_process("one")
    return Context(
        app or apps.ledger("found"),
        settings,
        nowhere,
        view,
        identity,
        partition,
        asyncio.Semaphore(1),
    )


def trimmed(**changed: Any) -> InputTrimmed:
    facts = {"topic": "payments", "position": 120, "log_start_offset": 130} | changed
    return InputTrimmed("gone", hint="raise retention.ms", **facts)


def id_of(error: Any, where: Context | None = None, last: Found | None = LAST) -> str:
    finding = finding_of(error, where or context(), last)
    assert finding is not None
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
        lambda: id_of(trimmed(), last=Found(increment(9), 45)),
        lambda: id_of(trimmed(), context(app=apps.ledger("another"))),
    ],
)
def test_a_larger_gap_or_a_longer_chain_is_another_finding(other):
    """What was not seen is not accepted: more records gone, another input, partition, app, or a batch since."""
    assert other() != id_of(trimmed())


def test_an_input_that_grows_again_stays_one_finding():
    """First it ends too early, later another record stands at the anchor: one topic made again, one id."""
    short: dict[str, Any] = {"topic": "payments", "position": 120}
    ids = {
        id_of(InputShorter("short", **short, end_offset=3)),
        id_of(InputShorter("short", **short, end_offset=7)),
        id_of(InputReplaced("other", **short, recorded=1, found=2)),
    }
    assert len(ids) == 1


def test_what_nobody_can_accept_has_no_id():
    """Its own hint says what helps, and stays as it is."""
    error = DuplicateInstance("two", hint="rename one")
    assert finding_of(error, context(), LAST) is None
    assert with_way_out(error, context(), LAST).hint == "rename one"


@pytest.mark.parametrize(
    ("road", "way"), [("replay", Way.AS_REPLAYED), ("changes", Way.FROM_SNAPSHOT)]
)
def test_a_digest_that_differs_is_accepted_by_the_road_that_found_it(road, way):
    """Replay gives a state that can be accepted; changes that do not add up give none."""
    facts = {"batch": 7, "recorded": "a", "computed": "b", "road": road}
    finding = finding_of(DigestMismatch("differs", **facts), context(), LAST)
    assert finding is not None
    assert finding.way is way


def test_the_hint_keeps_what_it_said_and_adds_the_command():
    """Whole, with partition and id, and what it will lead to."""
    error = with_way_out(trimmed(), context(3), LAST)
    assert error.hint.startswith("raise retention.ms; or accept it: `snapreplay accept MODULE:APP ")
    words = command_in(error.hint)
    assert words[3:7] == ["--partition", "3", "--finding", id_of(trimmed(), context(3))]
    assert error.hint.endswith(f"`: {Way.SKIP}; then restart this process")


def test_a_hint_without_words_of_its_own_is_the_command():
    """No "or" in front of the only way."""
    assert with_way_out(LogDamaged("broken"), context(), None).hint.startswith(
        "accept it: `snapreplay"
    )


def test_the_command_names_the_app_and_the_settings_that_found_it():
    """An app that can be imported by its name; lean mode and the road by replay are part of what was found."""
    lean = context(app=ledger.app, changes=False, restore={"road": "replay"})
    hint = with_way_out(trimmed(), lean, LAST).hint
    assert "accept examples.ledger:app --partition 0" in hint
    assert settings_in(hint) == {"changes": False, "restore": {"road": "replay"}}
    assert settings_in(with_way_out(trimmed(), context(), LAST).hint) == {}
    assert shlex.join(command_in(hint)).count("--set") == 2
