"""B3: FAILED without a way out. Every stop of a recovery holds a command, and the command works.

Each way of being stuck is made on a real log; then the printed command is followed until the partition is LIVE, and
state and outputs are what the decision said: no more lost, and no more written twice.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from snapreplay import errors
from snapreplay.app.ranges import InputRange
from snapreplay.errors import StopError, UnknownFormatError
from snapreplay.service.core import refusals
from snapreplay.service.ports import TopicPartition
from snapreplay.service.publish import owned
from snapreplay.service.recovery import acceptable_failures, follower, input_identity
from snapreplay.service.recovery.acceptable_failures import Resolution
from snapreplay.service.topics import log_bounds, snapshots
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from snapreplay.service.topics.snapshots import manifest_in
from snapreplay.snapshots import plan
from snapreplay.snapshots.format.envelope import RecordKind, encode
from snapreplay.snapshots.log import batches, by_replay
from snapreplay.state.contract import UnknownStore
from snapreplay.state.digest import Digest
from tests.support import apps, reference
from tests.support.accepting import accepted
from tests.support.stage import processed
from tests.support.tampering import append, copy_again, cut, flip, recreate, tamper, trim, with_fields

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("impatient")]

REPLAY = {"restore": {"mode": "replay"}}
LEAN = {"changelog": {"enabled": False}}
WRONG = Digest(20, 1, 2)


async def gap(then: Any) -> None:
    await then.here.feed(20)
    trim(then.here.bootstrap_servers, then.input, 0, 130)


async def made_again(then: Any, records: int) -> None:
    recreate(then.here.bootstrap_servers, then.input, 1)
    await then.here.feed(records)


async def cut_input(then: Any, kept: int) -> None:
    """The same records up to `kept`; behind them new ones where others had been processed."""
    await copy_again(then.here, then.input, kept)
    await then.here.feed(5)


async def increments_lost(then: Any) -> None:
    recreate(then.here.bootstrap_servers, then.increments, 1, KEPT_FOR_EVER)


async def increments_trimmed(then: Any) -> None:
    (log,) = await then.here.read(then.increments)
    trim(then.here.bootstrap_servers, then.increments, 0, log[-1].offset)


async def increments_cut(then: Any) -> None:
    """Batch 5, of which there is a snapshot, and everything behind it."""
    await tamper(then.here, then.increments, RecordKind.CHANGES, cut, 3)


async def manifest_forged(then: Any) -> None:
    """Two of them, with an owner's fields and ahead of the log, while there is no owner; the last leads nowhere."""
    (log,) = await then.here.read(then.increments)
    (records,) = await then.here.read(then.snapshots)
    manifest: Any = [m for r in records if (m := manifest_in(r.value or b"", TopicPartition("snapshots", 0), 0))][-1]
    ahead = {"batch": 20, "increment_offset": log[-1].offset + 50}
    forged = [
        encode(msgspec.structs.replace(manifest, **(ahead | further))) for further in ({}, {"batch": 21, "chunks": []})
    ]
    append(then.here.bootstrap_servers, then.snapshots, *forged)


async def in_increment(then: Any, change: Any, number: int = -1) -> None:
    await tamper(then.here, then.increments, RecordKind.INCREMENT, change, number)


def other_rule(then: Any, rule: Any, version: str = "") -> Any:
    """The same app with another handler; without a version it claims to be the same."""
    app = apps.ledger(then.here.app.app_id, rule, version=version or None)
    return app if version else apps.unseen(app, then.here.app.version)


def refuse(value: Any, account: dict[str, int]) -> None:
    """A handler that takes no record any more."""
    raise ValueError("only today")


@dataclass(frozen=True)
class Stuck:
    """`kinds` FAILED one after the other, each accepted; then the state is `add` over `added` and `subtract` over
    `subtracted` (payment numbers, half-open), and outputs of the numbers in `twice` were written a second time. `app`
    is what fails, `after` what continues, if it is another one."""

    make: Callable[[Any], Awaitable[None]]
    kinds: tuple[str, ...]
    says: str
    added: tuple[tuple[int, int], ...] = ((0, 120),)
    subtracted: tuple[int, int] = (0, 0)
    twice: tuple[int, int] = (0, 0)
    past: dict[str, Any] | None = None
    now: dict[str, Any] | None = None
    app: Callable[[Any], Any] = lambda then: then.here.app
    after: Callable[[Any], Any] | None = None
    way: str = ""


AGAIN = (80, 120)
STUCK: dict[str, Stuck] = {
    "input trimmed": Stuck(
        gap, ("InputTrimmed",), "offsets 120 to 130 are never processed", ((0, 120), (130, 140))
    ),
    "input made again, shorter": Stuck(
        lambda then: made_again(then, 10), ("InputShorter",), "holds none of", ((0, 130),)
    ),
    "input made again, longer": Stuck(
        lambda then: made_again(then, 130), ("InputReplaced",), "holds none of", ((0, 250),)
    ),
    "input cut, as by an unclean election": Stuck(
        lambda then: cut_input(then, 100), ("InputShorter",), "up to offset 100, and other", ((0, 125),)
    ),
    "code changed": Stuck(
        lambda then: then.here.feed(0), ("CodeChanged",), "replaced by what app version 2+code:",
        ((0, 80),), (80, 120), now=REPLAY, app=lambda then: other_rule(then, apps.subtract, "2"),
    ),
    "replay sends something else": Stuck(
        lambda then: then.here.feed(0), ("OutputsDiffer",), "the state is replaced by what app version",
        ((0, 80),), (80, 120), now=REPLAY, app=lambda then: other_rule(then, apps.subtract),
    ),
    "changes give another state": Stuck(
        lambda then: in_increment(then, with_fields(digest=WRONG), -2),
        ("DigestMismatch",), "offsets 80 to 120 are processed again", twice=AGAIN,
    ),
    "increments lost": Stuck(
        increments_lost, ("NotInitialised",), "what was processed from there on", twice=AGAIN
    ),
    "increments cut": Stuck(
        increments_cut, ("LogCut",), "the state becomes that of snapshot", twice=AGAIN,
        way=Resolution.FROM_SNAPSHOT,
    ),
    "a cut log taken for a forged manifest": Stuck(
        increments_cut, ("LogCut",), "if an owner wrote it after all, the batches after 4 are processed again",
        twice=(60, 120), way=Resolution.KEEP_LOG,
    ),
    "a manifest forged while there was no owner": Stuck(
        manifest_forged, ("LogCut",), "the state stays that of batch 8", way=Resolution.KEEP_LOG
    ),
    "increments of a longer log": Stuck(
        lambda then: in_increment(then, with_fields(owner_epoch=10**6)),
        ("LogShorter",), "the state becomes that of snapshot", twice=AGAIN,
    ),
    "chain broken": Stuck(
        lambda then: in_increment(then, with_fields(batch=6), -2),
        ("BrokenChain",), "the state becomes that of snapshot", twice=AGAIN,
    ),
    "last increment damaged": Stuck(
        lambda then: in_increment(then, flip), ("LogDamaged",), "the state becomes that of", twice=AGAIN
    ),
    "no changes, and an increment behind the snapshot damaged": Stuck(
        lambda then: in_increment(then, flip, -2),
        ("NoRestoreMode",), "the state becomes that of", twice=AGAIN, past=LEAN,
    ),
    "increments trimmed": Stuck(
        increments_trimmed, ("NoUsableSnapshot",), "the state becomes that of snapshot", twice=AGAIN
    ),
    "no changes, and the input trimmed": Stuck(
        lambda then: _trim_input(then, 100), ("NoRestoreMode",),
        "resumes at offset 100; offsets 80 to 100 are gone: their outputs stay, their effect on the state is lost;"
        " offsets 100 to 120 are processed again, outputs written a second time",
        ((0, 80), (100, 120)), twice=(100, 120), past=LEAN,
    ),
    "no changes, and all of the input trimmed": Stuck(
        lambda then: _feed_and_trim(then, 130), ("InputTrimmed",),
        "resumes at offset 130; offsets 80 to 120 are gone: their outputs stay, their effect on the state is lost;"
        " offsets 120 to 130 are never processed",
        ((0, 80), (130, 140)), past=LEAN,
    ),
    "a handler that refuses in replay": Stuck(
        lambda then: then.here.feed(0), ("ReplayFailed",), "offsets 80 to 120 are processed again",
        now=REPLAY, app=lambda then: other_rule(then, refuse), after=lambda then: then.here.app, twice=AGAIN,
    ),
    "another count of records": Stuck(
        lambda then: in_increment(then, with_fields(ranges=[InputRange(then.input, 100, 120, 21)])),
        ("InputDiffers",), "the state becomes that of snapshot", now=REPLAY, twice=AGAIN,
    ),
}  # fmt: skip


# The others end in the same few lines of code, and each error is made by
# tests/service/recovery/test_acceptable_failures.py.
QUICK = {"increments cut"}


async def _trim_input(then: Any, before: int) -> None:
    trim(then.here.bootstrap_servers, then.input, 0, before)


async def _feed_and_trim(then: Any, before: int) -> None:
    await then.here.feed(20)
    await _trim_input(then, before)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.whole) for name in STUCK]
)
async def test_b3_the_printed_command_leads_out(past, name) -> None:
    """FAILED, accepted as printed, LIVE: exactly the records that the decision names are missing or counted twice."""
    stuck = STUCK[name]
    then = await past(**(stuck.past or {}))
    here, app = then.here, stuck.app(then)
    await stuck.make(then)
    settings = (stuck.past or {}) | (stuck.now or {})
    said = ""
    for kind in stuck.kinds:
        status = await here.failure(app, **settings)
        assert status.error.kind == kind
        proposal, _ = await accepted(here, status.error.hint, app, stuck.way)
        said += " ".join(proposal.plan)
    assert stuck.says in said
    numbers = [n for first, end in stuck.added for n in range(first, end)]
    expected = reference.booked(numbers, range(*stuck.subtracted))
    async with here.running(stuck.after(then) if stuck.after else app, **settings) as service:
        (input_records,) = await here.read(then.input)
        await processed(service, {0: input_records[-1].offset + 1})
        assert reference.as_plain(service.view(0)) == expected
        assert len(service.restore_status()[0].decisions) == len(stuck.kinds)
    await _assert_written(then, stuck, numbers)


async def _assert_written(then: Any, stuck: Stuck, numbers: list[int]) -> None:
    """Every payment that counts has its output; only those named have two."""
    (outputs,) = await then.here.read(then.here.output)
    written = len(outputs)
    subtracted, twice = stuck.subtracted, stuck.twice
    once = set(numbers) | set(range(*subtracted)) | set(range(120))
    assert written == len(once) + twice[1] - twice[0]


# What recoveries are made of; every class of stop is declared in one of them.
MODULES = (refusals, log_bounds, batches, by_replay, input_identity, follower, owned, snapshots, plan, errors)
OTHER_WAYS = {
    refusals.HangingTransaction,
    refusals.DuplicateInstance,
    refusals.WrongLog,
    refusals.SchemaDiffers,
    refusals.NotUpgradable,
    input_identity.InputGrown,
    input_identity.InputShrunk,
    UnknownFormatError,
    UnknownStore,
}
"""Stops that cannot be accepted: only another cluster, program or process would help."""

OF_PROGRAMS = {errors.NotBegun, errors.NotCaughtUp, errors.NotLive}
"""What a program hears that waits for partitions: no recovery raises it."""


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
