"""What every handler gets: the service's `Control` and the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

from fastapi import Depends, Request

from snapreplay.service.control.protocol import Control


class ApiContext(NamedTuple):
    control: Control
    now: Callable[[], float]  # Unix seconds


def _context(request: Request) -> ApiContext:
    context: ApiContext = request.app.state.context
    return context


Here = Annotated[ApiContext, Depends(_context)]
