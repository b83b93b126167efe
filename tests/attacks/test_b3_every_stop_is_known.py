"""B3: no stop of a recovery is forgotten: each can be accepted, or its hint holds another command."""

import re
from typing import Any

import pytest

from snapreplay import errors
from snapreplay.errors import SnapreplayError, StopError, UnknownFormatError
from snapreplay.service.core import refusals
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.publish import claim as claiming
from snapreplay.service.recovery import acceptable_failures, inputs, mismatch, replay
from snapreplay.service.topics import increments, log_bounds, snapshots
from snapreplay.snapshots import plan
from snapreplay.snapshots.format.envelope import decode, encode
from snapreplay.snapshots.format.records import Genesis, Origin
from tests.attacks.test_b3_a_way_out_of_failed import STUCK
from tests.service.core.test_refusals import EXPECTED, claim
from tests.support import apps
from tests.support.entries import GENESIS, increment
from tests.support.tampering import of_version

# What recoveries are made of; every class of stop is declared in one of them.
MODULES = (
    refusals,
    log_bounds,
    increments,
    replay,
    inputs,
    mismatch,
    claiming,
    snapshots,
    plan,
    errors,
)
COMMAND = re.compile(
    r"`snapreplay (run|init|doctor) |`kafka-[a-z]+\.sh|`--[a-z]+ |`App\(|`pip install |`abort`"
)
OTHER_WAYS = {
    refusals.HangingTransaction,
    refusals.DuplicateInstance,
    refusals.WrongLog,
    refusals.SchemaDiffers,
    UnknownFormatError,
}
"""Stops that nobody can accept: going on would need another cluster, another program, another process."""


def declared() -> set[type[StopError]]:
    """Every class of stop that the parts of a recovery declare."""
    return {
        each
        for module in MODULES
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, StopError) and each is not StopError
    }


def test_b3_every_stop_can_be_accepted_or_has_another_way() -> None:
    """A new kind of stop has no way out until somebody thinks of one: here."""
    assert declared() == set(acceptable_failures.KINDS) | OTHER_WAYS
    assert not set(acceptable_failures.KINDS) & OTHER_WAYS


def test_b3_every_acceptable_stop_was_accepted_once() -> None:
    """The table of ways out on the real broker leaves none out."""
    made = {kind for stuck in STUCK.values() for kind in stuck.kinds}
    assert made == {kind.__name__ for kind in acceptable_failures.KINDS}


def _wrong(**changed: Any) -> SnapreplayError:
    problem = refusals.refuse(EXPECTED, 50, FoundIncrement(increment(3, **changed), 45))
    assert problem is not None
    return problem


def _newer_format() -> SnapreplayError:
    with pytest.raises(UnknownFormatError) as raised:
        decode(of_version(2)(encode(increment(3))) or b"")
    return raised.value


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (refusals.pinned(EXPECTED, 9, 5, 12), "`snapreplay doctor MODULE:APP`"),
        (refusals.duplicate_instance(EXPECTED, claim()), "--set instance_id="),
        (_wrong(origin=Origin("other", "1", 1, "f")), "snapreplay init"),
        (_wrong(genesis=Genesis("other", 4, GENESIS.start_offsets)), "--bootstrap-servers"),
        (_wrong(genesis=Genesis("cluster-1", 8, GENESIS.start_offsets)), "--partitions 8"),
        (_wrong(genesis=Genesis("cluster-1", 4, {"payments": 0})), "snapreplay init"),
        (_newer_format(), "pip install --upgrade snapreplay"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_b3_what_cannot_be_accepted_says_what_to_do_instead(error, command) -> None:
    """The hint holds a command that changes what is wrong; for moved keys it says that no acceptance could."""
    assert type(error) in OTHER_WAYS
    assert COMMAND.search(error.hint), error.hint
    assert command in error.hint
    assert ("cannot be accepted" in error.hint) == ("--partitions" in error.hint)


async def test_b3_another_schema_names_the_one_to_go_back_to(past) -> None:
    """What is stored cannot be read as another type: the version that can is in the hint, and works."""
    then = await past()
    newer = apps.ledger(then.here.app.app_id, schema_version=2)
    status = await then.here.failure(newer)
    assert status.error.kind == "SchemaDiffers"
    assert "`App(…, schema_version=1)`" in status.error.hint
    await then.here.restored()
