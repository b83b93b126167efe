"""Ids of findings: the same for the same, another one for whatever an operator has not seen."""

import ast
import asyncio
from pathlib import Path
from typing import Any

import pytest

from snapreplay.service.core.refusals import DuplicateInstance, LogDamaged, NoRestoreMode
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.recovery.acceptable_failures import ALSO, KINDS, Resolution, findings_of
from snapreplay.service.recovery.inputs import InputReplaced, InputShorter, InputTrimmed
from snapreplay.service.recovery.mismatch import DigestMismatch
from snapreplay.service.runtime.context import ClusterView, Context, Identity
from snapreplay.snapshots.plan import NoUsableSnapshot
from tests.support import apps
from tests.support.entries import increment
from tests.support.stage import settings_for

ROOT = Path(__file__).resolve().parents[3]
LAST = FoundIncrement(increment(8), 40)


def context(partition: int = 0, app: Any = None, **tables: Any) -> Context:
    """Say where a finding is made; nothing of it is connected to anything."""
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
    """Its own hint says what helps."""
    assert not findings_of(DuplicateInstance("two", hint="rename one"), context(), LAST)


@pytest.mark.parametrize(
    ("mode", "way"), [("replay", Resolution.AS_REPLAYED), ("changes", Resolution.FROM_SNAPSHOT)]
)
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
