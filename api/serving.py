"""The work of the HTTP process: answers requests from the service's status, until the service ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket

from snapreplay.api.app import create_app
from snapreplay.api.connections import Server, tuned
from snapreplay.api.guard import Hosts, allowed_hosts
from snapreplay.api.http_process import Arguments
from snapreplay.api.link import ServiceLink

PARENT_SECONDS = 0.5


async def serve(arguments: Arguments) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=arguments.line))
    link = ServiceLink(reader, writer)
    logging.basicConfig(level=logging.WARNING, handlers=[_ToService(link)], force=True)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # a bad request is the client's matter
    app = create_app(link, Hosts(arguments.bound, allowed_hosts(arguments.allowed)))
    server = Server(app)
    app.openapi()
    gc.freeze()
    serving = asyncio.create_task(server.serve([tuned(socket.socket(fileno=arguments.listener))]))
    linked = asyncio.create_task(link.run())
    parent = asyncio.create_task(_until_orphaned(arguments.parent))
    await asyncio.wait([serving, linked, parent], return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving


async def _until_orphaned(parent: int) -> None:
    """Wait until the parent is gone, where the kernel does not know the call above."""
    while os.getppid() == parent:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(PARENT_SECONDS)


class _ToService(logging.Handler):
    def __init__(self, link: ServiceLink) -> None:
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        self._link.log(record, self.format(record))
