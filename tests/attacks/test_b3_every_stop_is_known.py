"""B3: no stop of a recovery is forgotten: each can be accepted, or its hint holds another command."""

import inspect

from snapreplay import errors
from snapreplay.errors import StopError, UnknownFormatError
from snapreplay.service.core import refusals
from snapreplay.service.publish import claim as claiming
from snapreplay.service.recovery import acceptable_failures, inputs, mismatch
from snapreplay.service.topics import log_bounds, snapshots
from snapreplay.snapshots import plan
from snapreplay.snapshots.format.seal import SealRefused
from snapreplay.snapshots.log import batches, by_changes, by_replay
from snapreplay.state.unknown_store import UnknownStore
from tests.attacks import test_b21_shifted_copies as b21
from tests.attacks import test_c6_lost_end as c6
from tests.attacks.test_b3_a_way_out_of_failed import STUCK
from tests.support import apps

# What recoveries are made of; every class of stop is declared in one of them.
MODULES = (
    refusals,
    log_bounds,
    batches,
    by_changes,
    by_replay,
    inputs,
    mismatch,
    claiming,
    snapshots,
    plan,
    errors,
)
OTHER_WAYS = {
    refusals.HangingTransaction,
    refusals.DuplicateInstance,
    refusals.WrongLog,
    refusals.SchemaDiffers,
    UnknownFormatError,
    UnknownStore,
    SealRefused,
}
"""Stops that nobody can accept: going on would need another cluster, another program, another process,
another key."""

OF_PROGRAMS = {errors.NotBegun, errors.NotCaughtUp, errors.NotLive}
"""What a program hears that waits for partitions: no recovery raises it."""

ACCEPTED_ELSEWHERE = {
    "IncrementsBehind": c6.test_c6_an_older_directory_is_noticed_and_the_way_out_repeats_no_more_than_it_says,
    "OffsetsShifted": b21.test_b21_the_cause_is_named_and_the_way_out_leads_on,
}  # fmt: skip
"""Stops whose way out another test follows: it needs a broker of its own, or topics that a tool wrote again."""


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
    assert declared() - OF_PROGRAMS == set(acceptable_failures.KINDS) | OTHER_WAYS
    assert not set(acceptable_failures.KINDS) & OTHER_WAYS


def test_b3_every_acceptable_stop_was_accepted_once() -> None:
    """The table of ways out on the real broker, and the tests named beside it, leave none out."""
    made = {kind for stuck in STUCK.values() for kind in stuck.kinds}
    for kind, test in ACCEPTED_ELSEWHERE.items():
        followed = inspect.getsource(test)
        assert f'status.error.kind == "{kind}"' in followed
        assert "await accepted(here, status.error.hint)" in followed
    assert made | set(ACCEPTED_ELSEWHERE) == {kind.__name__ for kind in acceptable_failures.KINDS}


async def test_b3_another_schema_names_the_one_to_go_back_to(past) -> None:
    """What is stored cannot be read as another type: the version that can is in the hint, and works."""
    then = await past()
    newer = apps.ledger(then.here.app.app_id, schema_version=2)
    status = await then.here.failure(newer)
    assert status.error.kind == "SchemaDiffers"
    assert "`App(…, schema_version=1)`" in status.error.hint
    await then.here.restored()
