"""One partition's runner as the supervisor has it, without a group."""

from __future__ import annotations

import asyncio
from typing import Any

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.partition.runner import PartitionRunner
from snapreplay.service.runtime.context import Context
from tests.support import reference
from tests.support.deadlines import scaled
from tests.support.stage import Stage, until


class Owner:
    """Runs until `end`. `phases` are those its status went through; `runner` is Any: tests look inside."""

    def __init__(self, here: Stage, context: Context) -> None:
        self.here, self.context, self.board = here, context, StatusBoard()
        self.failures: list[BaseException] = []
        self.phases: list[str] = []
        self.board.subscribe(lambda status: self.phases.append(status.phase.value))
        self.runner: Any = PartitionRunner(context, self.board, self.failures.append)
        self.task = asyncio.create_task(self.runner.run())

    @property
    def status(self) -> Any:
        return self.board.get(0)

    async def phase(self, name: str) -> Any:
        await until(lambda: self.status.phase == name, name)
        return self.status

    async def position(self, offset: int) -> None:
        await until(lambda: self.status.inputs and self.status.inputs[0].position >= offset, offset)

    async def end(self) -> None:
        self.runner.stop(final_snapshot=False)
        await asyncio.wait_for(self.task, scaled(20))

    async def outputs(self) -> list[str]:
        """Ids of the input records that the committed outputs name, in order."""
        return reference.ids((await self.here.read(self.here.app.outputs[0].name))[0])
