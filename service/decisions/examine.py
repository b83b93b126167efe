"""What a recovery would find now: its reading part, run without fencing or claiming anything."""

from __future__ import annotations

from snapreplay.service.core import effects, events
from snapreplay.service.core.located import Found
from snapreplay.service.core.recovery import Recovery, step
from snapreplay.service.core.road import Road
from snapreplay.service.partition import increments
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.recoverer import Recoverer, preferred_road
from snapreplay.service.partition.replay import Replayer
from snapreplay.service.partition.report import Reporter
from snapreplay.service.status import StatusBoard
from snapreplay.snapshots.errors import SnapreplayError, StopError
from snapreplay.snapshots.plan import Start
from snapreplay.snapshots.state.contract import Store


class Examiner(Recoverer):
    """Use once: `examine`, then perhaps one of the others, then `close`. The log's end takes the place of the claim.

    Attributes:
        end_offset: of T-ZengLiang when the examination began.
        store: the state it came to.
    """

    def __init__(self, context: Context, store: Store) -> None:
        super().__init__(context, store, Reporter(StatusBoard(), context.partition))
        self.store = store
        self.end_offset = 0
        self._recovery = Recovery(context.expected, preferred_road(context, store))
        self._advanced = False

    @property
    def last(self) -> Found | None:
        """The last increment; None when there is none that can be read."""
        return self._recovery.last

    @property
    def start(self) -> Start:
        """Where the state comes from; only after something was loaded."""
        if self._recovery.start is None:
            raise AssertionError("nothing was loaded")
        return self._recovery.start

    async def examine(self) -> SnapreplayError | None:
        """What makes a recovery fail now; None when it would go LIVE.

        Raises:
            RetryableError: it could not be found out.
        """
        event: events.Event = events.Begin()
        while True:
            self._recovery, effect = step(self._recovery, event)
            match effect:
                case effects.GoLive():
                    return None
                case effects.Fail(error):
                    return error
                case effects.Wait(_, error):
                    raise error
                case _:
                    event = await self._attempt(effect)
            self._advanced = self._advanced or isinstance(event, events.Advanced)

    async def bring_forward(self) -> bool:
        """Whether the store holds the state of the last increment; else it is that of the start.

        An input that fails the examination may have closed the road by replay, not that by changes.
        """
        if self._advanced or self.last is None:
            return self._advanced
        event = await self._perform(effects.Advance(self.start, self.last, Road.CHANGES))
        if isinstance(event, events.Advanced):
            return True
        await self._load_start()
        return False

    async def replay(self) -> None:
        """Make the state that of the start, brought forward by this code; recorded digests are not compared.

        Raises:
            StopError: a handler refuses a record that was processed.
        """
        await self._load_start()
        base, last, context = self._base, self.last, self._context
        if base is None or last is None:
            raise AssertionError("replaying comes after loading")
        replayer = Replayer(context, self.store, base.positions, last.increment.positions)
        walk = increments.walk(await self._reader(), context.increments, base, last.offset)
        try:
            async for each in walk:
                await replayer.apply(each)
                self.store.stream_time_ms = each.increment.stream_time_ms
        finally:
            await replayer.close()

    async def close(self) -> None:
        self._end_load()
        await self._close_log_reader()

    async def _load_start(self) -> None:
        event = await self._perform(effects.Load(self.start))
        match event:
            case events.SnapshotUnusable(snapshot_id, reason):
                raise StopError(f"snapshot {snapshot_id} was usable a moment ago: {reason}")
            case _:
                pass

    async def _fence(self) -> events.Event:
        return events.FenceDone()

    async def _claim(self) -> events.Event:
        reader = await self._reader()
        self.end_offset = (await reader.bounds(self._context.increments)).end_offset
        return events.ClaimAcknowledged("", self.end_offset)

    async def _see_claim(self, effect: effects.SeeClaim) -> events.Event:
        del effect  # there is none
        reader = await self._reader()
        bounds = await reader.bounds(self._context.increments)
        return events.ClaimSeen(bounds.start_offset, None)
