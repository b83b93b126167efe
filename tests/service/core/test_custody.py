"""The rule: what the log must hold before a state in memory may be dropped."""

import msgspec
import pytest
from msgspec.structs import replace

from snapreplay.service.core import custody
from snapreplay.service.core.custody import Verdict, verdict
from snapreplay.service.core.retained import RetainedState
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import OWN_KIND, PATCHED_KIND, UPGRADED_KIND
from tests.support.entries import increment

TOPIC = "ledger-increments"
OLD, NEW = {TOPIC: "old"}, {TOPIC: "new"}


def made(batch, *, epoch, ids=OLD, decision=None, later_ms=0):
    """An increment that bears these topic ids."""
    plain = increment(batch, owner_epoch=epoch)
    written_at_ms = plain.written_at_ms + later_ms
    return msgspec.structs.replace(plain, topic_ids=ids, decision=decision, written_at_ms=written_at_ms)


LAST = made(9, epoch=30)
DOUBTFUL = made(10, epoch=30, later_ms=5)
KEPT = RetainedState(LAST, 33, DOUBTFUL)


def at(increment, offset):
    return FoundIncrement(increment, offset)


CHOSEN = {"finding": "increments-lost-12345678"}
BY_ITSELF = {"finding": f"{OWN_KIND}-12345678"}
UPGRADED, PATCHED = ({"finding": f"{kind}-1"} for kind in (UPGRADED_KIND, PATCHED_KIND))
OURS, COMMITTED = at(LAST, 33), at(DOUBTFUL, 37)
OLDER = at(made(5, epoch=30), 21)
SAME, ONLY_COPY, LEADS_ON, DISPUTED = (Verdict.SAME, Verdict.ONLY_COPY, Verdict.LEADS_ON, Verdict.DISPUTED)
FENCED = {"unbroken": False}
VERDICTS = {
    "it ends with our batch": (OURS, OLD, {}, SAME),
    "it ends with the one in doubt": (COMMITTED, OLD, {}, SAME),
    "a cluster without ids": (OURS, {}, {}, SAME),
    "all records were deleted": (None, OLD, {}, ONLY_COPY),
    "deleted and created again": (None, NEW, {}, ONLY_COPY),
    # committed by an owner that did not know of the new topic: nothing leads to them
    "our batch in another log is an orphan": (OURS, NEW, {}, ONLY_COPY),
    "and so is the one in doubt": (COMMITTED, NEW, {}, ONLY_COPY),
    "cut by an unclean election": (OLDER, OLD, {}, ONLY_COPY),
    "an old backup": (at(made(5, epoch=12), 14), NEW, {}, ONLY_COPY),
    "we have written to what was left": (OURS, OLD, {"replaced": True}, ONLY_COPY),
    "a newer owner continued": (at(made(10, epoch=40), 44), OLD, {}, LEADS_ON),
    "its chain began in a new log": (at(made(10, epoch=2, ids=NEW), 3), NEW, {}, LEADS_ON),
    # it recovered from a cut log and continued: neither state holds all
    "a newer owner is behind": (at(made(8, epoch=40), 44), OLD, {}, DISPUTED),
    "it is behind in a new log": (at(made(9, epoch=2, ids=NEW), 3), NEW, {}, DISPUTED),
    "an operator chose an older state": (
        at(made(4, epoch=40, decision=CHOSEN), 44), OLD, {}, LEADS_ON,
    ),
    "a process upgraded it": (at(made(4, epoch=40, decision=UPGRADED), 44), OLD, {}, DISPUTED),
    "an entry was corrected": (at(made(4, epoch=40, decision=PATCHED), 44), OLD, {}, DISPUTED),
    "a process chose it": (at(made(4, epoch=40, decision=BY_ITSELF), 44), OLD, {}, DISPUTED),
    # its claim came into the cut log at our offset, or below it; what we committed later is in doubt at most
    "an owner of a cut log continued": (at(made(10, epoch=30, later_ms=9), 37), OLD, {}, LEADS_ON),
    "an owner of a cut log is behind": (at(made(9, epoch=30, later_ms=9), 33), OLD, {}, DISPUTED),
    "its claim is below ours": (at(made(5, epoch=12, later_ms=9), 21), OLD, {}, DISPUTED),
    "ours, to what was left": (COMMITTED, OLD, {"replaced": True}, ONLY_COPY),
    # the other owner may have committed more than we know
    "fenced since, and the log is gone": (None, NEW, FENCED, DISPUTED),
    "fenced since, and the log is cut": (OLDER, OLD, FENCED, DISPUTED),
    "fenced since, and nothing was committed": (OURS, OLD, FENCED, SAME),
}  # fmt: skip


@pytest.mark.parametrize(("found", "ids", "kept", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_a_state_is_kept_until_the_log_holds_it(found, ids, kept, expected):
    """What the log ends with, in which topic, and what has become of us."""
    assert verdict(replace(KEPT, **kept), found, TOPIC, ids) is expected


@pytest.mark.parametrize(
    ("newest", "before", "is_written"),
    [
        (OURS, None, True),
        (OURS, OURS, False),
        (COMMITTED, OURS, True),
        (OLDER, OURS, False),
        (at(made(6, epoch=12, later_ms=5), 14), OURS, True),
        (at(made(5, epoch=2, ids=NEW), 3), OURS, True),
    ],
    ids=["into an empty log", "nothing", "behind", "a log that was cut", "into a log that was cut", "into a new topic"],
)
def test_only_what_was_written_since_ends_the_wait_for_another_process(newest, before, is_written):
    """A broker that lags behind, or one that has lost still more, has nothing new to say."""
    assert custody.is_written_after(newest, before, TOPIC) is is_written
