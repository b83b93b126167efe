"""Publishes a state that no increment leads to: fence, claim, full snapshot, and the increment that points to it.

That increment begins the chain anew: nothing before its claim is ever walked over. Nothing changes before it is
committed.
"""

from __future__ import annotations

import getpass
import os
import socket

import msgspec

from snapreplay.errors import ReleaseError
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.publish.owned import owned
from snapreplay.service.publish.state import Begun, begin_anew
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.format.records import Increment
from snapreplay.state.contract import Image


class LogWentOn(ReleaseError):
    """Somebody has committed to the partition since it was examined."""


async def publish(
    context: Context,
    image: Image,
    before: Increment,
    decision: dict[str, str],
    end_offset: int,
    *,
    begins: bool = False,
) -> Begun:
    """Make this state the partition's.

    Args:
        image: a store, or the entries of a state that no process holds.
        before: stands for that state as if it had been committed: batch number, positions, anchors, digest. The
            increment that is written has the number after it.
        decision: who decided what, and why; kept in the increment.
        end_offset: of the increments topic, up to which it was examined.
        begins: for `init`; see `owned`.

    Raises:
        LogWentOn, Superseded, Fenced: another owner was quicker; nothing was decided.
        CommitInDoubt, Unreachable: only the log shows what happened.
        ImageDiffers: the entries do not have the digest in `before`; nothing was decided.
    """
    async with owned(context, begins=begins) as ours:
        newer = await ours.last_increment(end_offset)
        if newer is not None:
            raise LogWentOn(
                f"partition {context.partition} went on to batch {newer.increment.batch} since it was examined:"
                " nothing was decided",
                hint="`snapreplay restore-status` shows whether there is still an error",
            )
        standing = msgspec.structs.replace(before, topic_ids=dict(context.view.topic_ids))
        if begins:  # else the log has an increment, and a decision is numbered behind the witness
            await ours.give_up_later(standing)
        reporter = Reporter(StatusBoard(), context.partition)
        epoch = ours.owner_epoch
        return await begin_anew(context, ours.producer, epoch, image, standing, decision, reporter)


def by_whom() -> str:
    """Name us as user@host; a container may have no name for its user."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
