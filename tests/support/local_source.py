"""A `StatusSource` in the process of the service itself: how handlers are tried without a process of HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from snapreplay.service.control.document import Command, Family, Look, document_of, performed
from snapreplay.service.control.metrics import EVENTS, counted
from snapreplay.service.control.protocol import Control, Operation


class Local:
    """Asks `control` directly."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def look(self) -> Look:
        return Look(document_of(self._control), 0.0)

    async def counted(self) -> Sequence[Family]:
        return counted(EVENTS)

    async def perform(self, command: Command) -> Operation:
        return performed(self._control, command)
