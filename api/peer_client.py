"""Asks other processes over HTTP. The head of an answer is bounded; its time and its body are the caller's matter."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import h11

from snapreplay.errors import described

READ_BYTES = 64 * 1024
Endpoint = tuple[str, int]
NO_HEADERS: Mapping[str, str] = {}


class NoAnswer(Exception):
    """There is no answer, or not in HTTP."""


class ConnectionsRefused(NoAnswer):
    """The machine is there, and its port is closed."""


class NotTrusted(NoAnswer):
    """Somebody may live there, and one of the two does not trust the other's certificate, or address without one."""


class Caller(NamedTuple):
    """The way in which this process asks others: what it says of itself, and whom it trusts."""

    headers: Callable[[], Mapping[str, str]] = dict
    context: Callable[[], ssl.SSLContext] = ssl.create_default_context
    has_certificate: bool = False
    """Whether it shows one. Then it asks no address without TLS: an eavesdropper would learn the token."""


UNKNOWN = Caller()
"""Says nothing of itself, and trusts whom this machine trusts."""


class Answer(NamedTuple):
    """An answer: its status code, its body as it comes, and the address that it comes from."""

    status: int
    parts: AsyncIterator[bytes]
    endpoint: Endpoint


@asynccontextmanager
async def asked(
    caller: Caller,
    url: str,
    method: str,
    target: str,
    body: bytes = b"",
    passed_on: Mapping[str, str] = NO_HEADERS,
    at: Endpoint | None = None,
) -> AsyncIterator[Answer]:
    """Ask the process at `url`, on a connection of its own; `body` is JSON, `passed_on` are headers of who has asked
    this one, `at` is its address where that is known.

    Raises:
        ConnectionsRefused, NotTrusted, NoAnswer: also while the body is read.
    """
    endpoint, is_tls = _endpoint(url)
    host = endpoint[0]
    if caller.has_certificate and not is_tls:
        raise NotTrusted(f"{url} has no TLS (http.tls_certificate_file), and this process has: no token is sent there")
    tls: dict[str, Any] = {"ssl": caller.context(), "server_hostname": host} if is_tls else {}
    reader, writer = await _connected(*(at or endpoint), **tls)
    connection = h11.Connection(h11.CLIENT)
    body_parts = _body(connection, reader)
    try:
        parts = urlsplit(url)
        about = {"Content-Length": str(len(body)), "Content-Type": "application/json"} if body else {}
        head = {"Host": parts.netloc, "Connection": "close", **about, **passed_on, **caller.headers()}
        # Of any bytes, as they came.
        headers = [(name.encode(), value.encode("latin-1")) for name, value in head.items()]
        request = h11.Request(method=method, target=parts.path.rstrip("/") + target, headers=headers)
        for each in (request, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(each) or b"")
        try:
            response = await _next(connection, reader)
        except NoAnswer as error:
            if caller.has_certificate and not connection.trailing_data[0]:
                # By TLS 1.3 a certificate is judged after the handshake, and asyncio's server does not say the verdict.
                raise NotTrusted(
                    "it closes the connection, perhaps because it does not trust the certificate of this process:"
                    f" {error}"
                ) from error
            raise
        if not isinstance(response, h11.Response):
            raise NoAnswer("the answer has no head")
        yield Answer(response.status_code, body_parts, writer.get_extra_info("peername")[:2])
    finally:
        await body_parts.aclose()
        writer.transport.abort()


async def whole(answer: Answer, bytes_max: int) -> bytes:
    """Read the body to its end. Raises NoAnswer: it ends too early, or has more than `bytes_max`."""
    body = bytearray()
    async for part in answer.parts:
        body += part
        if len(body) > bytes_max:
            raise NoAnswer(f"the answer has more than {bytes_max:,} bytes")
    return bytes(body)


def _endpoint(url: str) -> tuple[Endpoint, bool]:
    try:
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        host, port = parts.hostname, parts.port or (443 if is_tls else 80)
    except ValueError as error:
        raise NoAnswer(f"{url!r} is not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise NoAnswer(f"{url!r} is not an address that begins with http:// or https://")
    return (host, port), is_tls


async def _connected(host: str, port: int, **tls: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        return await asyncio.open_connection(host, port, **tls)
    except ConnectionRefusedError as error:
        raise ConnectionsRefused(f"{host} port {port} refuses connections") from error
    except ssl.SSLError as error:
        raise NotTrusted(f"{host} port {port}: {error}") from error
    except (OSError, ValueError) as error:
        raise NoAnswer(f"{host} port {port}: {described(error)}") from error


async def _next(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    try:
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await reader.read(READ_BYTES))
    except ssl.SSLError as error:
        raise NotTrusted(f"it ends the connection: {error}") from error
    except OSError as error:
        raise NoAnswer(f"the connection broke: {described(error)}") from error
    except h11.RemoteProtocolError as error:
        raise NoAnswer(f"the answer is not HTTP, or ends too early: {error}") from error
    return event


async def _body(connection: h11.Connection, reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    while isinstance(part := await _next(connection, reader), h11.Data):
        yield bytes(part.data)
