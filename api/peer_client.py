"""Asks other processes over HTTP. The head of an answer is bounded; its time and its body are the caller's matter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

READ_BYTES = 64 * 1024
Endpoint = tuple[str, int]


class NoAnswer(Exception):
    """Nobody answers there, or not in HTTP."""


class ConnectionsRefused(NoAnswer):
    """The machine is there, and nobody listens at the port."""


class Answer(NamedTuple):
    """An answer: its status code, its body as it comes, and the address that it comes from."""

    status: int
    parts: AsyncIterator[bytes]
    endpoint: Endpoint


@asynccontextmanager
async def asked(
    url: str, method: str, target: str, headers: Mapping[str, str], body: bytes = b"", at: Endpoint | None = None
) -> AsyncIterator[Answer]:
    """Ask the process at `url`, on a connection of its own; `at` is its address, where that is known already.

    Raises:
        ConnectionsRefused, NoAnswer: also while the body is read.
    """
    reader, writer = await _connected(*(at or _endpoint(url)))
    connection = h11.Connection(h11.CLIENT)
    body_parts = _body(connection, reader)
    try:
        parts = urlsplit(url)
        length = {"Content-Length": str(len(body))} if body else {}
        head = {"Host": parts.netloc, "Connection": "close", **length, **headers}
        request = h11.Request(method=method, target=parts.path.rstrip("/") + target, headers=list(head.items()))
        for each in (request, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(each) or b"")
        response = await _next(connection, reader)
        if not isinstance(response, h11.Response):
            raise NoAnswer("the answer has no head")
        yield Answer(response.status_code, body_parts, writer.get_extra_info("peername")[:2])
    finally:
        await body_parts.aclose()
        writer.transport.abort()


async def whole(answer: Answer, bytes_max: int) -> bytes:
    """Read the body to its end.

    Raises:
        NoAnswer: it ends too early, or has more than `bytes_max`.
    """
    body = bytearray()
    async for part in answer.parts:
        body += part
        if len(body) > bytes_max:
            raise NoAnswer(f"the answer has more than {bytes_max:,} bytes")
    return bytes(body)


def _endpoint(url: str) -> Endpoint:
    try:
        parts = urlsplit(url)
        endpoint = parts.hostname, parts.port or 80
    except ValueError as error:
        raise NoAnswer(f"{url!r} is no address: {error}") from None
    if parts.scheme != "http" or not endpoint[0]:
        raise NoAnswer(f"{url!r} is no address that begins with http://")
    return endpoint[0], endpoint[1]


async def _connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_connection(host, port)
    except ConnectionRefusedError as error:
        raise ConnectionsRefused(f"{host} port {port} refuses connections") from error
    except (OSError, ValueError) as error:
        raise NoAnswer(f"{host} port {port}: {error}") from error


async def _next(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    try:
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await reader.read(READ_BYTES))
    except OSError as error:
        raise NoAnswer(f"the connection broke: {error}") from error
    except h11.RemoteProtocolError as error:
        raise NoAnswer(f"the answer is not HTTP, or ends too early: {error}") from error
    return event


async def _body(connection: h11.Connection, reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    while isinstance(part := await _next(connection, reader), h11.Data):
        yield bytes(part.data)
