"""Which partitions are ours, and a runner for each. Lives in the loop of the runners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from snapreplay.service.core.stops import DuplicateInstance
from snapreplay.service.partition.context import ClusterView, Context, Identity
from snapreplay.service.partition.runner import PartitionRunner
from snapreplay.service.ports import Cluster, Group
from snapreplay.service.preflight import inspect
from snapreplay.service.settings import Settings
from snapreplay.service.status import StatusBoard
from snapreplay.snapshots.errors import Reaction, SnapreplayError
from snapreplay.snapshots.program.app import App

log = logging.getLogger("snapreplay.supervisor")

# Kafka clients refresh metadata as often; a changed partition count moves keys at once.
WATCH_SECONDS = 30.0


class Supervisor:
    """Starts and ends runners as the group says. `assigned` and `stop` from the runners' loop only.

    Partitions stay with their runner through a rebalance: safety is the fence's, so nothing stops until the
    group has really given a partition to somebody else.
    """

    def __init__(
        self,
        app: App[Any],
        settings: Settings,
        cluster: Cluster,
        view: ClusterView,
        identity: Identity,
        board: StatusBoard,
        on_duplicate: Callable[[DuplicateInstance], None],
    ) -> None:
        self._app = app
        self._settings = settings
        self._cluster = cluster
        self._view = view
        self._identity = identity
        self._board = board
        self._on_duplicate = on_duplicate
        self.group: Group | None = None
        """Whom to ask after a fence; to be set before the first assignment."""
        self._restores = asyncio.Semaphore(settings.restore.concurrency)
        self._runners: dict[int, PartitionRunner] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ending: dict[int, asyncio.Task[None]] = {}
        self._stopped = False
        self._refused: SnapreplayError | None = None
        self._watch = asyncio.get_running_loop().create_task(self._watch_cluster())

    @property
    def runners(self) -> Mapping[int, PartitionRunner]:
        """Of the partitions that are ours now."""
        return self._runners

    def assigned(self, partitions: set[int]) -> None:
        """The whole new assignment. Those we keep run on. Nothing starts after `stop`: we are members a little longer,
        and a rebalance in that time would begin a second life that nobody ends."""
        if self._stopped:
            return
        for number in sorted(set(self._runners) - partitions):
            self._release(number)
        for runner in self._runners.values():
            runner.given_again()
        for number in sorted(partitions - set(self._runners)):
            self._start(number)

    def suspect(self) -> None:
        """Another process seems to use our instance id: each partition looks who owns it."""
        for runner in self._runners.values():
            runner.suspect()

    async def stop(self, *, final_snapshot: bool, deadline_seconds: float) -> None:
        """End every runner: the batch under way is finished, a last snapshot written if asked for. What is not
        done by the deadline is cut off: the log is complete without it."""
        self._stopped = True
        self._watch.cancel()
        for runner in self._runners.values():
            runner.stop(final_snapshot=final_snapshot)
        tasks = [*self._tasks.values(), *self._ending.values()]
        self._runners.clear()
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=deadline_seconds)
        for task in late:
            task.cancel()
        if late:
            log.warning("%d partitions did not end within %.1f s", len(late), deadline_seconds)
            await asyncio.wait(late)

    def _start(self, number: int) -> None:
        context = Context(
            self._app,
            self._settings,
            self._cluster,
            self._view,
            self._identity,
            number,
            self._restores,
            self.group,
        )
        runner = PartitionRunner(context, self._board, self._failed)
        self._runners[number] = runner
        if self._refused is not None:
            runner.refuse(self._refused)
        earlier = self._ending.get(number)
        self._tasks[number] = asyncio.get_running_loop().create_task(
            _after(earlier, runner), name=f"partition-{number}"
        )

    def _release(self, number: int) -> None:
        """Another process owns it now, or will: it fences us, so there is no time for a last snapshot."""
        self._runners.pop(number).stop(final_snapshot=False)
        task = self._tasks.pop(number)
        self._ending[number] = task
        loop = asyncio.get_running_loop()
        late = loop.call_later(self._settings.timeouts.revoke_ms / 1000, task.cancel)
        task.add_done_callback(lambda _: late.cancel())
        task.add_done_callback(lambda _: self._forget(number, task))

    def _forget(self, number: int, task: asyncio.Task[None]) -> None:
        if self._ending.get(number) is task:
            del self._ending[number]
        if number not in self._runners:
            self._board.forget(number)

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, DuplicateInstance):
            self._on_duplicate(error)

    async def _watch_cluster(self) -> None:
        """Partitions added to an input move keys at once: that must not wait for a restart."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await inspect(self._app, self._settings, self._cluster)
            except SnapreplayError as error:
                if error.reaction is Reaction.RETRY:
                    continue
                log.error("the cluster has changed: %s", error)  # noqa: TRY400 - its text says all
                self._refused = error  # what is assigned later would start with the old view
                for runner in self._runners.values():
                    runner.refuse(error)


async def _after(earlier: asyncio.Task[None] | None, runner: PartitionRunner) -> None:
    """One runner at a time per partition: the same transactional id."""
    if earlier is not None:
        await asyncio.wait([earlier])
    await runner.run()
