"""Limits how much of a request is read, because the loop that reads it also sends the group's heartbeats."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES_MAX = 256 * 1024
"""Twice what the largest valid request needs: 10,000 partitions and a reason. 300 MB of JSON stopped the heartbeats for
30 s and took 1.2 GB (measured), and the process lost its partitions."""


class BodyLimit:
    """ASGI middleware: a body beyond `BODY_BYTES_MAX` is not read to its end, but answered with 413."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        received_bytes = 0

        async def limited() -> Message:
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            if received_bytes > BODY_BYTES_MAX:
                # FastAPI would report any other class as a body that cannot be parsed.
                raise HTTPException(413, f"the body has more than {BODY_BYTES_MAX} bytes")
            return message

        await self._app(scope, limited, send)
