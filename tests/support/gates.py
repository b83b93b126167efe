"""A service process pauses at a chosen point, says so, and continues when told: what a test does to it there
happens at that point and no other.

    gate = Gate(tmp_path / "gate", "ReadWindow")
    with gate.armed():
        child = children.start("ledger", app_id)
    child.until(gate.reached, "the gate")
    ...                                   # cut a broker's network, SIGSTOP the process, SIGKILL it
    gate.open()

A point is the name of an effect of the recovery (service/core/effects.py), held before it is performed, or of
a request to a broker, by its class, held before it is sent. `passes` of them are let through first. Whoever else comes
to a closed gate stands there too.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from snapreplay.service.kafka.shared import Client
from snapreplay.service.recovery.driver import RecoveryDriver

VARIABLE = "TEST_GATE"
LOOK_S = 0.01


class Gate:
    """The test's side of it: a folder of its own, in which the two sides leave files."""

    def __init__(self, folder: Path, point: str, passes: int = 0) -> None:
        folder.mkdir()
        self._reached, self._open = folder / "reached", folder / "open"
        self._told = json.dumps({"folder": str(folder), "point": point, "passes": passes})

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Processes that start in this block have the gate."""
        with mock.patch.dict(os.environ, {VARIABLE: self._told}):
            yield

    def reached(self) -> bool:
        return self._reached.exists()

    def open(self) -> None:
        """Open it for good."""
        self._open.touch()


class _Guard:
    def __init__(self, folder: str, point: str, passes: int) -> None:
        self._reached, self._open = Path(folder) / "reached", Path(folder) / "open"
        self._point, self._passes = point, passes

    async def pass_by(self, something: object) -> None:
        if type(something).__name__ != self._point or self._open.exists():
            return
        if self._passes > 0:
            self._passes -= 1
            return
        self._reached.touch()
        while not self._open.exists():  # noqa: ASYNC110 - another process opens it
            await asyncio.sleep(LOOK_S)


def install_from_environment() -> None:
    """Install the gate in the process that is to pause, before any client is made. Nothing happens without a
    gate."""
    told = os.environ.get(VARIABLE)
    if told is None:
        return
    guard = _Guard(**json.loads(told))
    send, perform = Client.send, RecoveryDriver._perform

    async def guarded_send(client: Any, node_id: int, request: Any, **keywords: Any) -> Any:
        await guard.pass_by(request)
        return await send(client, node_id, request, **keywords)

    async def guarded_perform(recoverer: RecoveryDriver, effect: Any) -> Any:
        await guard.pass_by(effect)
        return await perform(recoverer, effect)

    mock.patch.object(Client, "send", guarded_send).start()
    mock.patch.object(RecoveryDriver, "_perform", guarded_perform).start()
