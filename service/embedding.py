"""The questions of a program that runs a service inside itself: views of the state, news of failures, and the waiting
until all partitions are LIVE, or have processed their inputs."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from snapreplay.errors import (
    AccessError,
    NotCaughtUp,
    NotLive,
    PartitionNotLive,
    RetryableError,
    ServiceClosed,
    SnapreplayError,
    UnknownPartition,
    UsageError,
)
from snapreplay.service.control.state_reads import AnsweredBy, NotReadable, Readable
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core.phase import Phase
from snapreplay.service.partition.runner import PartitionRunner
from snapreplay.service.partition.standby import Standbys
from snapreplay.service.ports import Cluster, TopicPartition
from snapreplay.service.runtime.context import ClusterView
from snapreplay.service.service_control import ServiceControl
from snapreplay.service.state_reads import find_readable
from snapreplay.service.topics.reading import reading
from snapreplay.snapshots.format.records import NO_REASON
from snapreplay.state.view import Position, View, view_of

log = logging.getLogger("snapreplay")

LOOK_SECONDS = 0.02
RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.5, 10.0
NOT_REACHED_HINT = "check that the cluster is up, and that kafka.bootstrap.servers has its address"

OnFailed = Callable[[int, BaseException], None]
"""Called with a partition that became FAILED, and why."""

Runners = Callable[[], Mapping[int, PartitionRunner]]
"""Those of the partitions that are ours now."""


class Views:
    """The views of the partitions of one service. `open` in the loop that runs the handlers."""

    def __init__(self, partition_count: Callable[[], int | None]) -> None:
        """Take `partition_count`: of the app; None as long as the cluster was not reached."""
        self._partition_count = partition_count
        self._runners: Runners | None = None
        self._standbys: Callable[[], Standbys | None] = lambda: None
        self._thread = 0

    def open(self, runners: Runners, standbys: Callable[[], Standbys | None] = lambda: None) -> None:
        self._runners, self._standbys, self._thread = runners, standbys, threading.get_ident()

    def close(self) -> None:
        self._runners = None

    def view(self, partition: int, *, stale: bool = False) -> View[Any]:
        return view_of(
            partition, partial(self._look, partition, stale=stale), partial(self._position, partition, stale=stale)
        )

    def views(self) -> dict[int, View[Any]]:
        live = [number for number, each in self._mine().items() if each.store is not None]
        return {number: self.view(number) for number in sorted(live)}

    def _look(self, partition: int, *, stale: bool) -> Any:
        return self._found(partition, stale=stale).store.committed_view()

    def _position(self, partition: int, *, stale: bool) -> Position:
        found = self._found(partition, stale=stale)
        return Position(
            found.last.batch, dict(found.last.positions), found.role is AnsweredBy.STANDBY, found.age_seconds
        )

    def _found(self, partition: int, *, stale: bool) -> Readable:
        runners, count = self._mine(), self._partition_count()
        if type(partition) is not int or partition < 0 or (count is not None and partition >= count):
            raise UnknownPartition(partition, count)
        try:
            return find_readable(runners, self._standbys(), partition, is_stale_allowed=stale)
        except NotReadable as error:
            raise PartitionNotLive(
                partition,
                error.reason,
                hint="`await service.wait_live()` waits until all partitions of this process are;"
                " `service.views()` has those that are LIVE here now",
            ) from None

    def check_open(self) -> None:
        """Raise ServiceClosed if it is not started yet, or stopped."""
        if self._runners is None:
            raise ServiceClosed(
                "the service is not running: it was not started yet, or it was stopped",
                hint="use it inside of `async with running(app, settings) as service:`",
            )

    def _mine(self) -> Mapping[int, PartitionRunner]:
        self.check_open()
        assert self._runners is not None  # noqa: S101 - it is open
        if threading.get_ident() != self._thread:
            raise UsageError(
                "the state belongs to the thread of the service's event loop, and this is another one",
                hint="read it in an `async def`, which runs in that loop",
            )
        return self._runners()


class FailureNews:
    """Tells callbacks of FAILED partitions."""

    def __init__(self) -> None:
        self._callbacks: list[OnFailed] = []

    def add(self, callback: OnFailed) -> None:
        if not callable(callback):
            raise UsageError(
                f"on_failed({callback!r}): the callback cannot be called", hint="pass a function of (partition, error)"
            )
        if inspect.iscoroutinefunction(callback):
            raise UsageError(
                f"on_failed({getattr(callback, '__name__', callback)}): it is a coroutine function,"
                " which would never be awaited",
                hint="pass a plain function; it may call `asyncio.create_task(…)`",
            )
        self._callbacks.append(callback)

    def tell(self, partition: int, error: BaseException) -> None:
        for callback in self._callbacks:
            try:
                answer: object = callback(partition, error)
                if inspect.iscoroutine(answer):
                    answer.close()
                    raise TypeError("it returned a coroutine, which is never awaited")
            except Exception:  # the program's own
                log.exception("partition %d FAILED, and the callback of on_failed raised", partition)


class Readiness:
    """The waiting for the partitions of one service, in its loop."""

    def __init__(self, control: ServiceControl, board: StatusBoard, check_open: Callable[[], None]) -> None:
        """Take `check_open`, which raises ServiceClosed once the service is stopped."""
        self._control = control
        self._board = board
        self._check_open = check_open

    async def until_ready(self) -> None:
        """Wait until all are LIVE, or raise NotLive (one FAILED) or ServiceClosed (stopped meanwhile)."""
        with self._control.changes(asyncio.get_running_loop()) as changed:
            while not self._control.ready():
                self.raise_hopeless()
                await changed.wait()
                changed.clear()

    def raise_hopeless(self) -> None:
        """Raise NotLive if a partition FAILED, ServiceClosed if the service was stopped meanwhile."""
        self._check_open()
        if any(each.phase is Phase.FAILED for each in self._board.all()):
            raise self.not_live("a partition FAILED")

    def not_live(self, why: str) -> NotLive:
        """Make the error with what each partition does, the first error, and what the whole process waits for."""
        states = ", ".join(f"{s.partition}: {s.phase.value}" for s in self._board.all())
        reasons, hint = self._reasons()
        return NotLive(f"{why} (partitions: {'; '.join([states or 'none assigned', *reasons])})", hint=hint)

    def not_caught_up(self, seconds: float | None, missing: Mapping[int, str]) -> NotCaughtUp:
        """Make the error with what is `missing`, the first error, and what the whole process waits for."""
        reasons, hint = self._reasons()
        reasons = [*(missing.values() or ["no partition is assigned"]), *reasons]
        return NotCaughtUp(f"not caught up after {seconds} s: {'; '.join(reasons)}", hint=hint)

    def _reasons(self) -> tuple[list[str], str]:
        """Return the first error and what the process waits for, and a hint, which may be empty."""
        errors = [s.error for s in self._board.all() if s.error is not None]
        awaited = self._control.awaited
        reasons = [
            *(error.message for error in errors[:1]),
            *([awaited.message] if awaited else []),
            *([self._control.trouble] if self._control.trouble else []),
        ]
        hints = [*(error.hint for error in errors[:1]), *([awaited.hint] if awaited else [])]
        return reasons, hints[0] if hints else ""


class CatchingUp:
    """The waiting for a state that has caught up; `wait` once. `missing` says what is not there yet."""

    def __init__(self, cluster: Cluster, runners: Runners, raise_hopeless: Callable[[], None]) -> None:
        """Take `raise_hopeless`, which raises if a partition is FAILED or the service was stopped."""
        self._cluster = cluster
        self._raise_hopeless = raise_hopeless
        self._runners = runners
        # By partition, of the inputs, when it was asked for first.
        self._ends: dict[int, dict[str, int]] = {}

    async def wait(self) -> None:
        """Wait until every partition that is ours by then is LIVE and has committed what was there.

        Raises:
            NotCaughtUp: one that is behind is paused, so that time alone does not help.
        """
        while True:
            await self._ask_for_ends()
            self._raise_hopeless()  # a stopped service has no partition, so it would miss nothing
            if not (missing := self.missing()):
                return
            self._raise_paused(missing)
            await asyncio.sleep(LOOK_SECONDS)

    def missing(self) -> dict[int, str]:
        """Describe each partition that is not caught up in one phrase."""
        found = {}
        for number, runner in sorted(self._runners().items()):
            reached, ends = runner.reached, self._ends.get(number)
            if reached is None or ends is None:
                found[number] = f"partition {number} is {runner.phase.value}"
                continue
            behind = [name for name, end in ends.items() if reached.get(name, -1) < end]
            if behind:
                found[number] = f"partition {number}: {_listed(behind, reached, ends)}"
        return found

    def _raise_paused(self, missing: Mapping[int, str]) -> None:
        runners = self._runners()
        paused = {number: it for number in missing if (it := runners[number].paused) is not None}
        if paused:
            said = (f"{missing[number]}, and it is paused: {it.reason or NO_REASON}" for number, it in paused.items())
            chosen = "".join(f" --partition {number}" for number in paused)
            raise NotCaughtUp(
                f"not caught up, and will not be: {'; '.join(said)}",
                hint=f"`snapreplay resume{chosen} --wait`, then wait again",
            )

    async def _ask_for_ends(self) -> None:
        new = {number: runner.inputs for number, runner in self._runners().items() if number not in self._ends}
        if not new:
            return
        try:
            async with reading(self._cluster) as reader:
                for number, inputs in sorted(new.items()):
                    self._ends[number] = {
                        name: (await reader.bounds(TopicPartition(name, number))).end_offset for name in inputs
                    }
        except RetryableError:
            await asyncio.sleep(LOOK_SECONDS)


def _listed(behind: list[str], reached: Mapping[str, int], ends: Mapping[str, int]) -> str:
    return ", ".join(f"{name} is at {reached.get(name)} of {ends[name]}" for name in behind)


async def reached(
    begin: Callable[[], Awaitable[ClusterView]], unreachable: Callable[[SnapreplayError], None]
) -> ClusterView:
    """Begin, again and again while the cluster is unreachable; a mistyped password is reported at once."""
    pause, hinted = RETRY_SECONDS_MIN, ""
    while True:
        try:
            return await begin()
        except AccessError:
            raise
        except RetryableError as error:
            unreachable(error)
            hint = error.hint or NOT_REACHED_HINT
            log.warning(
                "cluster not reached, next try in %.1f s: %s%s",
                pause,
                error.message,
                f" ({hint})" if hint != hinted else "",
            )
            hinted = hint
            await asyncio.sleep(pause)
            pause = min(RETRY_SECONDS_MAX, pause * 2)
