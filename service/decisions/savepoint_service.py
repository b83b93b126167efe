"""The savepoints of a running app, for its program and for HTTP. They take the share of a drill of
the loop of the runners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from snapreplay.app.app import App
from snapreplay.errors import SnapreplayError
from snapreplay.service.clock import time_of
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.protocol import OnDone, OperationState
from snapreplay.service.control.savepoint_list import (
    DropSavepoint,
    KeepSavepoint,
    SavepointList,
    SavepointPart,
    SavepointShown,
    SavepointsUnread,
)
from snapreplay.service.decisions import savepoints
from snapreplay.service.decisions.savepoints import Deleting, KeptPart, NoSuchSavepoint, Savepoint
from snapreplay.service.decisions.state_import import STATE_BATCH
from snapreplay.service.runtime.cooperative import throttled
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.service.topics.savepoint_names import names_of

log = logging.getLogger("snapreplay")


class Savepoints:
    """The savepoints of an app."""

    def __init__(self, app: App[Any], settings: Settings, cluster: Deleting) -> None:
        self._app, self._settings, self._cluster = app, settings, cluster
        self._one = asyncio.Lock()  # none is dropped while it is being kept
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._cancelled: set[str] = set()

    async def create(
        self, name: str, reason: str = "", *, by: str = "", kept: Callable[[int], object] = lambda _: None
    ) -> SavepointShown:
        """Keep the state of every partition of the app, whoever owns it, as `snapreplay savepoint create`. `kept` is
        told of each.

        Raises:
            SnapreplayError: as `savepoints.create`.
        """
        with throttled(self._settings.restore.drill_share):
            found = await savepoints.create(self._app, self._settings, self._cluster, name, reason, by=by, kept=kept)
        return shown(found)

    async def all(self) -> SavepointList:
        """List them, also those that cannot be used."""
        names = await names_of(self._app.app_id, self._cluster)
        return SavepointList(tuple([await self._find(name) for name in names]))

    async def drop(self, name: str) -> None:
        """Delete one for good.

        Raises:
            SnapreplayError: as `savepoints.drop`.
        """
        await savepoints.drop(self._app.app_id, name, self._cluster)

    async def read(self, name: str) -> SavepointList:
        """List the one of this name, or all ("").

        Raises:
            SavepointsUnread: the cluster does not answer, or does not allow it.
        """
        try:
            return SavepointList((await self._find(name),)) if name else await self.all()
        except NoSuchSavepoint:
            return SavepointList()
        except SnapreplayError as error:
            raise SavepointsUnread(error.message) from error

    def begin(self, operation_id: str, asked: KeepSavepoint | DropSavepoint, dones: Sequence[OnDone]) -> None:
        """Keep a savepoint, or drop it, one after the other; each of `dones` hears of its partition."""
        task = asyncio.get_running_loop().create_task(self._work(operation_id, asked, dones))
        self._tasks[operation_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(operation_id))

    def cancel(self, operation_id: str) -> None:
        """Give up this operation, if it is under way. What is kept already stays, and can be completed or dropped."""
        task = self._tasks.get(operation_id)
        if task is not None:
            self._cancelled.add(operation_id)
            task.cancel()

    async def close(self) -> None:
        """Give up what is under way, and wait for its end."""
        for task in tuple(self._tasks.values()):
            await cancel_and_wait(task)

    async def _find(self, name: str) -> SavepointShown:
        return shown(await savepoints.find(self._app.app_id, name, self._settings, self._cluster, prove=False))

    async def _work(self, operation_id: str, asked: KeepSavepoint | DropSavepoint, dones: Sequence[OnDone]) -> None:
        why = "the process ended first"
        try:
            async with self._one:
                if isinstance(asked, KeepSavepoint):
                    await self.create(asked.name, asked.reason, by=asked.by, kept=lambda number: _kept(dones[number]))
                else:
                    await self.drop(asked.name)
        except SnapreplayError as error:
            why = str(error)
        except Exception as error:  # else the operation would never end
            log.exception("a savepoint could not be kept or dropped")
            why = repr(error)
        else:
            for done in dones:
                done(OperationState.SUCCEEDED, None, "")
        finally:
            is_cancelled = operation_id in self._cancelled
            self._cancelled.discard(operation_id)
            for done in dones:  # those that have not ended
                if is_cancelled:
                    done(OperationState.CANCELLED, None, "it is kept, and not proven")
                done(OperationState.FAILED, None, why)


def _kept(done: OnDone) -> None:
    done(OperationState.RUNNING, None, "kept; not proven yet")


def shown(savepoint: Savepoint) -> SavepointShown:
    """Return a savepoint as it is shown."""
    decision = next((part.increment.decision for part in savepoint.parts if part.increment), None) or {}
    return SavepointShown(
        savepoint.app_id,
        savepoint.name,
        not savepoint.problems,
        decision.get("by"),
        decision.get("reason"),
        tuple(map(_part, savepoint.parts)),
    )


def _part(part: KeptPart) -> SavepointPart:
    increment = part.increment
    if increment is None:
        return SavepointPart(part.partition, problem=part.problem or None)
    digest = increment.digest
    return SavepointPart(
        part.partition,
        int((increment.decision or {}).get(STATE_BATCH, 0)),
        digest.count if digest else None,
        str(digest) if digest else None,
        dict(increment.positions),
        time_of(increment.written_at_ms),
        part.problem or None,
    )
