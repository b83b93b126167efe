"""Every course of one attempt of a recovery, walked through its machine, with and without a state in memory."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from snapreplay.app.ranges import Anchor
from snapreplay.errors import DamagedError, RetryableError, StopError
from snapreplay.service.core import effects, events
from snapreplay.service.core.lineage import Lineage
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.core.recovery import Recovery, step
from snapreplay.service.core.refusals import Expected
from snapreplay.service.core.retained import Ending, RetainedState, WarmCopy
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import NO_OFFSET, Claim
from snapreplay.snapshots.log.batches import Base
from snapreplay.snapshots.plan import FromSnapshot, LogStarts
from snapreplay.state.contract import unknown_store
from snapreplay.state.digest import Digest
from snapreplay.state.fields import StoreFields
from tests.support.entries import ORIGIN, increment, pointer

INPUTS = frozenset({"payments", "refunds"})
US = Expected("ledger", 1, "cluster-1", 2, 4, INPUTS, "log", "one", "p1", 1000)
NEWER = replace(US, schema_version=2, upgrades={(1, "default"): StoreFields(frozenset())})
THEIRS = Claim("c2", "ledger", "cluster-1", "p2", "two", "host", 2, 2000)
NAMESAKE = msgspec.structs.replace(THEIRS, instance_id="one")
ANOTHER_APP = msgspec.structs.replace(ORIGIN, app_id="another")
IDS, NEW_IDS = {"payments": "in", "log": "old"}, {"payments": "in", "log": "new"}


def found(batch: int, offset: int, owner_epoch: int = 20) -> FoundIncrement:
    """An increment of an owner before us."""
    made = increment(
        batch,
        owner_epoch=owner_epoch,
        previous_offset=offset - 4,
        pointers=[pointer(7)],
        anchors={"payments": Anchor(8, 1, 2)},
        digest=Digest(1, 2, 3),
    )
    return FoundIncrement(msgspec.structs.replace(made, topic_ids=IDS), offset)


BEFORE, LAST, DOUBTFUL = found(8, 25), found(9, 29), found(10, 33)
ANOTHERS = found(11, 37, owner_epoch=30)
OF_A_LONGER_LOG = found(11, 37, owner_epoch=50)
FOREIGN = FoundIncrement(increment(11, origin=ANOTHER_APP, owner_epoch=30, topic_ids=IDS), 37)
ENDING = Ending(asked=True, output=("balances", 0, 7))
KEPT = RetainedState(LAST.increment, 29, DOUBTFUL.increment, ending=ENDING, lineage=Lineage(1, 1))

REFUSALS = [unknown_store("ghost", "default"), unknown_store("default", "other")]
FAILED = [events.EffectFailed(error) for error in (RetryableError("r"), StopError("s"), DamagedError("d"))]
WRITTEN = events.StateWritten(FoundIncrement(increment(11, pointers=[pointer(10)]), 50))
ANSWERS: dict[type[effects.Effect], list[events.Event]] = {
    effects.Fence: [events.FenceDone(Lineage(1, 2), unbroken=alone) for alone in (True, False)],
    effects.WriteClaim: [events.ClaimAcknowledged("c1", 40)],
    effects.SeeClaim: [
        *(events.ClaimHidden(*seen) for seen in ((40, 50, 5), (40, 50, 10**9), (50, 50, 10**9))),
        *(events.ClaimSeen(0, newer) for newer in (None, THEIRS, NAMESAKE)),
        events.ClaimSeen(40, None),
    ],
    effects.ReadWindow: [
        events.WindowRead(each) for each in (None, BEFORE, LAST, DOUBTFUL, ANOTHERS, OF_A_LONGER_LOG, FOREIGN)
    ],
    effects.ReadTopicIds: [
        *(events.TopicIdsRead(ids) for ids in (IDS, NEW_IDS, {})),
        events.TopicIdsRead(IDS, restorable=False),
    ],
    effects.ResolveDoubt: [events.DoubtResolved(committed) for committed in (True, False, None)],
    effects.Reenter: [events.Reentered(), events.RetainedUnusable()],
    effects.ReadStarts: [events.StartsRead(LogStarts(*starts)) for starts in ((0, 0), (14, 0), (14, 99))],
    effects.CheckInputs: [
        events.InputsChecked(),
        events.InputsChecked(("orders-new",)),
        events.InputsRefused(StopError("another log")),
        events.InputsRefused(RetryableError("missing")),
    ],
    effects.BeginChain: [WRITTEN],
    effects.WriteState: [WRITTEN],
    effects.Upgrade: [WRITTEN],
    effects.AddInputs: [events.InputsAdded(WRITTEN.last)],
}


def answers(effect: effects.Effect) -> list[events.Event]:
    """All that can come of an effect; nothing, when it ends the attempt."""
    match effect:
        case effects.Wait() | effects.GoLive() | effects.GiveWay() | effects.Fail():
            return []
        case effects.Load(FromSnapshot(which)):
            loaded = events.StartLoaded(Base(which.batch, which.increment_offset, 26, {}))
            damaged = events.SnapshotUnusable(which.snapshot_id, "damaged")
            return [loaded, damaged, *(msgspec.structs.replace(damaged, refusal=each) for each in REFUSALS), *FAILED]
        case effects.Load():
            return [events.StartLoaded(Base(-1, NO_OFFSET, 0, {})), *FAILED]
        case effects.Advance(copy=WarmCopy()):
            return [events.Advanced(), events.CopyUnusable(), FAILED[0]]
        case effects.Advance(mode=mode):
            advanced = [events.Advanced(), events.Advanced(damage="an increment")]
            return [*advanced, events.ModeUnavailable(mode, DamagedError("d")), *FAILED]
        case _:
            return [*ANSWERS[type(effect)], *FAILED]


@dataclass(frozen=True)
class Taken:
    """One step that was taken."""

    before: Recovery
    event: events.Event
    after: Recovery
    effect: effects.Effect


Way = tuple[Taken, ...]
"""The steps of one attempt so far."""


def ways(recovery: Recovery, event: events.Event) -> Iterator[Way]:
    """Every way of one attempt from this event on, as long as it is so far: each step is the last one of one way. A
    claim that is hidden is looked for once more in each."""
    left: list[tuple[Recovery, events.Event, Way, int]] = [(recovery, event, (), 0)]
    while left:
        recovery, event, way, hidden = left.pop()
        after, effect = step(recovery, event)
        way = (*way, Taken(recovery, event, after, effect))
        hidden += isinstance(event, events.ClaimHidden)
        following = answers(effect) if hidden < 2 else []
        yield way
        left += [(after, answer, way, hidden) for answer in reversed(following)]


def all_ways() -> Iterator[Way]:
    """Yield the ways with and without a state in memory, with one that is to be upgraded, and with a warm copy."""
    for expected, kept in ((US, None), (US, KEPT), (NEWER, None)):
        yield from ways(Recovery(expected, RestoreMode.CHANGES, kept=kept), events.Begin())
    for copied in (BEFORE, LAST, found(9, 29, owner_epoch=21)):
        yield from ways(Recovery(US, RestoreMode.CHANGES, copy=WarmCopy(copied)), events.Begin())
