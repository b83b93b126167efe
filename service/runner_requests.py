"""The requests of HTTP to the runners, carried from its thread into their loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from snapreplay.service.control.protocol import OnDone, OperationState
from snapreplay.service.kafka.membership import Membership
from snapreplay.service.partition.runner import PartitionRunner
from snapreplay.service.supervisor import Supervisor


class RunnerRequests:
    """The way to the partitions of one service, from any thread. Before `open` each request fails at once."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._supervisor: Supervisor | None = None
        self._membership: Membership | None = None

    def open(self, supervisor: Supervisor, membership: Membership) -> None:
        """Let requests reach the runners from now on. To be called in their loop."""
        self._membership = membership
        self._supervisor = supervisor
        self._loop = asyncio.get_running_loop()

    def snapshot(self, partition: int, reason: str, done: OnDone) -> None:
        self._ask(partition, lambda runner: runner.request_snapshot(reason, done), done)

    def adoption(self, partition: int, manifest_offset: int, done: OnDone) -> None:
        self._ask(partition, lambda runner: runner.request_adoption(manifest_offset, done), done)

    def _ask(self, partition: int, ask: Callable[[PartitionRunner], bool], done: OnDone) -> None:
        """Call `ask`, which returns whether the partition is LIVE; else tell `done`."""
        if self._loop is None or self._supervisor is None:
            done(OperationState.FAILED, None, "the service is not running")
            return
        supervisor = self._supervisor

        def asked() -> None:
            runner = supervisor.runners.get(partition)
            if runner is None or not ask(runner):
                done(OperationState.FAILED, None, "the partition is not LIVE here any more")

        self._loop.call_soon_threadsafe(asked)

    def retry(self, partition: int, done: OnDone) -> None:
        aside = self.standing_aside()
        if self._loop is None or self._supervisor is None or self._membership is None:
            done(OperationState.FAILED, None, "the service is not running")
        elif aside is not None:  # it would claim what is the other process's
            done(OperationState.FAILED, None, aside)
        else:
            self._membership.come_back()
            self._loop.call_soon_threadsafe(self._supervisor.retry, partition, done)

    def trouble(self) -> str | None:
        """Say why the group gives this process no partitions; None: it does."""
        return self._membership.trouble if self._membership is not None else None

    def standing_aside(self) -> str | None:
        """Say for which process of the same name this one has stepped down; None: for nobody."""
        return self._membership.aside if self._membership is not None else None
