"""The questions of a program that runs a service inside itself: views of the state, and news of failures."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from snapreplay.errors import PartitionNotLive, ServiceClosed, UnknownPartition, UsageError
from snapreplay.service.partition.runner import PartitionRunner
from snapreplay.state.view import View, view_of

log = logging.getLogger("snapreplay")

OnFailed = Callable[[int, BaseException], None]
"""Called with a partition that became FAILED, and why."""


class Views:
    """The views of the partitions of one service. `open` in the loop that runs the handlers."""

    def __init__(self, partition_count: Callable[[], int | None]) -> None:
        """Take `partition_count`: of the app; None as long as the cluster was not reached."""
        self._partition_count = partition_count
        self._runners: Callable[[], Mapping[int, PartitionRunner]] | None = None
        self._thread = 0

    def open(self, runners: Callable[[], Mapping[int, PartitionRunner]]) -> None:
        self._runners, self._thread = runners, threading.get_ident()

    def close(self) -> None:
        self._runners = None

    def view(self, partition: int) -> View[Any]:
        return view_of(partition, partial(self._look, partition))

    def views(self) -> dict[int, View[Any]]:
        live = [number for number, each in self._mine().items() if each.store is not None]
        return {number: self.view(number) for number in sorted(live)}

    def _look(self, partition: int) -> Any:
        runner = self._mine().get(partition)
        if runner is not None and runner.store is not None:
            return runner.store.committed_view()
        count = self._partition_count()
        if (
            type(partition) is not int
            or partition < 0
            or (count is not None and partition >= count)
        ):
            raise UnknownPartition(partition, count)
        raise PartitionNotLive(
            partition,
            f"it is {runner.phase.value}" if runner else "another process owns it, or nobody yet",
            hint="`await service.wait_live()` waits until all partitions of this process are;"
            " `service.views()` has those that are LIVE here now",
        )

    def check_open(self) -> None:
        """Raise ServiceClosed if it is not started yet, or stopped."""
        if self._runners is None:
            raise ServiceClosed(
                "the service does not run: it was not started yet, or it was stopped",
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
                f"on_failed({callback!r}): the callback cannot be called",
                hint="pass a function of (partition, error)",
            )
        if inspect.iscoroutinefunction(callback):
            raise UsageError(
                f"on_failed({getattr(callback, '__name__', callback)}): nobody would await it",
                hint="pass a plain function; it may call `asyncio.create_task(…)`",
            )
        self._callbacks.append(callback)

    def tell(self, partition: int, error: BaseException) -> None:
        for callback in self._callbacks:
            try:
                answer: object = callback(partition, error)
                if inspect.iscoroutine(answer):
                    answer.close()
                    raise TypeError("it returned a coroutine, which nobody awaits")
            except Exception:  # the program's own
                log.exception(
                    "partition %d FAILED, and the callback of on_failed raised", partition
                )
