"""Who owns the partition: the log says who claimed it, the group's coordinator whom it is given to.

The log alone decides whether somebody is to be fenced at all: it is the only witness that two owners share. But a
process that is cut off from the coordinator goes on believing that the partition is its own; when the log shows
another's claim, only the coordinator's word lets it fence that process in return.
"""

from __future__ import annotations

import asyncio
import logging
import math

from snapreplay.service.core.backoff import fenced_pause_seconds
from snapreplay.service.core.search import Window
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.increments import last_in_window, newer_claim
from snapreplay.service.partition.inputs import ASK_AGAIN_SECONDS, STALE_LEADER_SECONDS
from snapreplay.service.partition.tasks import ended
from snapreplay.service.ports import Bounds, OffsetBeyondEnd, Reader
from snapreplay.snapshots.errors import ReleaseError, SnapreplayError
from snapreplay.snapshots.format.records import NO_OFFSET, Claim

log = logging.getLogger("snapreplay.partition")

IN_A_ROW_SECONDS = 60.0  # taken from us again within it: nobody owns the partition in peace


class TakenAgain(ReleaseError):
    """Others claimed the partition twice within a minute, each time after us."""


class StandBack:
    """What a process does whose partition another one has claimed. One per partition and process."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._times = 0  # in a row
        self._taken_at = -math.inf
        self._given_again = asyncio.Event()

    def taken(self, newer: Claim, error: ReleaseError) -> ReleaseError:
        """Count it. Returns what to report: `error`, or that it happens again and again."""
        now = asyncio.get_running_loop().time()
        again = now - self._taken_at < IN_A_ROW_SECONDS
        self._times = self._times + 1 if again else 1
        self._taken_at = now
        if not again:
            return error
        return TakenAgain(
            f"partition {self._context.partition} was taken from us {self._times} times in a row, the last time by"
            f" process {newer.pid} on host {newer.host} (instance id {newer.instance_id!r})",
            hint="is it cut off from the group's coordinator, or does a second deployment use the same app id?"
            " Stop one of the two",
            host=newer.host,
            pid=newer.pid,
            instance_id=newer.instance_id,
        )

    def given_again(self) -> None:
        """The group has had a rebalance and we have the partition: no reason to wait any longer."""
        self._given_again.set()

    def forget_assignment(self) -> None:
        """We are no member any more: only a later assignment counts."""
        self._given_again.clear()

    async def until_assigned(self, stopped: asyncio.Event) -> None:
        """Wait for an assignment that holds the partition, since `forget_assignment`, or until `stopped` is set."""
        await self._either(stopped, None)

    async def until_given(self, stopped: asyncio.Event) -> None:
        """Wait, then ask the coordinator, ever more slowly, until it gives us the partition or `stopped` is set.

        No answer is no: who cannot reach the coordinator is not the owner for long.
        """
        self._given_again.clear()
        times = max(1, self._times)
        while not stopped.is_set():
            await self._pause(times, stopped)
            if stopped.is_set() or await self._given():
                return
            times += 1

    async def _given(self) -> bool:
        group, number = self._context.group, self._context.partition
        if group is None:
            return True
        try:
            given = await group.gives_us(number)
        except SnapreplayError as error:
            log.warning("partition %d: whose is it? %s", number, error)
            return False
        if not given:
            log.info("partition %d: the group does not give it to us (now)", number)
        return given

    async def _pause(self, times: int, stopped: asyncio.Event) -> None:
        seconds = fenced_pause_seconds(
            times, self._context.identity.process_id, self._context.partition
        )
        await self._either(stopped, seconds)

    async def _either(self, stopped: asyncio.Event, seconds: float | None) -> None:
        """Until stopped, given again, or so many seconds later."""
        loop = asyncio.get_running_loop()
        waiting = [loop.create_task(each.wait()) for each in (stopped, self._given_again)]
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                await ended(task)
        self._given_again.clear()


async def newer_owner(
    context: Context, owner_epoch: int, known_offset: int = NO_OFFSET
) -> Claim | None:
    """The newest claim after ours, None when nobody claimed since. One that its owner has trimmed by now counts, too:
    what it committed bears its epoch.

    A fence and a transaction timeout raise the same error; only a newer claim tells them apart. Who does not even know
    our own claim is a stale leader: others are asked, for half a minute.

    Args:
        known_offset: something was committed here after our claim, says another log. Who does not know it is as stale;
            if after half a minute nobody else is found, it is gone.

    Raises:
        Unreachable, ReadStalled, OffsetBeyondEnd: the log could not be asked.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + STALE_LEADER_SECONDS
    while True:
        late = loop.time() > deadline
        try:
            newer, end_offset = await _newer_owner(context, owner_epoch)
            if newer is not None or end_offset > known_offset or late:
                return newer
        except OffsetBeyondEnd:
            if late:
                raise
        await asyncio.sleep(ASK_AGAIN_SECONDS)


async def _newer_owner(context: Context, owner_epoch: int) -> tuple[Claim | None, int]:
    """And where the log ends for whoever was asked."""
    reader = await context.cluster.reader()
    try:
        bounds = await reader.bounds(context.increments)
        if bounds.end_offset <= owner_epoch:
            raise OffsetBeyondEnd(
                f"{context.increments} ends at {bounds.end_offset}, our own claim is at {owner_epoch}:"
                " a stale leader, or the log is shorter than it was",
                end_offset=bounds.end_offset,
                owner_epoch=owner_epoch,
            )
        after = max(owner_epoch, bounds.start_offset - 1)
        if bounds.end_offset <= after + 1:
            return None, bounds.end_offset
        newer = await newer_claim(reader, context.increments, after, bounds.end_offset)
        if newer is None and bounds.start_offset > owner_epoch:
            newer = await _trimmed_claim(context, reader, owner_epoch, bounds)
        return newer, bounds.end_offset
    finally:
        await reader.close()


async def _trimmed_claim(
    context: Context, reader: Reader, owner_epoch: int, bounds: Bounds
) -> Claim | None:
    window = Window(bounds.start_offset, bounds.end_offset, 0)
    found = await last_in_window(reader, context.increments, window)
    if found is None or found.increment.owner_epoch <= owner_epoch:
        return None
    expected = context.expected
    return Claim(
        claim_id="",
        app_id=expected.app_id,
        cluster_id=expected.cluster_id,
        process_id="",
        instance_id="",
        host="unknown (its claim is trimmed)",
        pid=0,
        started_at_ms=0,
    )
