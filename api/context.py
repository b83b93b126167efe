"""The objects that every handler gets: the service's status, its line for commands, and the clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, NamedTuple

from fastapi import Depends, Request

from snapreplay.api.answers import LOOK
from snapreplay.service.control.document import Look, StatusDocument, StatusSource


class ApiContext(NamedTuple):
    source: StatusSource
    look: Look
    now: Callable[[], datetime]

    @property
    def status(self) -> StatusDocument:
        """The status, if the service answers.
        Raises:
            Silent: the service does not answer.
        """
        return self.look.fresh


async def _context(request: Request) -> ApiContext:
    source, now = request.app.state.context
    # `Answers` has looked already, to know whether it must ask a handler at all.
    look = request.scope.get(LOOK) or await source.look()
    return ApiContext(source, look, now)


Here = Annotated[ApiContext, Depends(_context)]
