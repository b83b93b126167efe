"""Connections to brokers, as every client of ours has them. aiokafka 0.14.0

- lets the brokers create each topic that it asks for, so a deleted one would be back at once;
- takes a refused token for accepted, and gives no reason;
- lets an error of a login library, such as an expired Kerberos ticket, end the task that renews the metadata;
- counts the time that a fetch or a join waits at the broker as part of request.timeout.ms, and relies on that alone to
  notice a network that drops all packets;
- connects to the next address of a name only when the first has refused, and not where a firewall drops packets;
- does not wait where a quota is used up (`throttling.py`);
- connects with the certificates that were there when the client was made;
- uses a connection until the broker closes it, as it does when a login is over (KIP-368): what is under way is lost.

Only our clients are changed: a program that embeds a service may have others.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from types import FunctionType
from typing import Any

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaError, SaslAuthenticationFailed
from aiokafka.protocol.admin import SaslAuthenticateRequest
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest
from aiokafka.protocol.metadata import MetadataRequest

from snapreplay.errors import described
from snapreplay.service.kafka.config import renewed
from snapreplay.service.kafka.fetches import Fetch
from snapreplay.service.kafka.throttling import THROTTLING, ThrottledWait, wait_of

LOGIN_SHARES = (0.6, 0.8)
"""Of the time of a login, after which a new connection takes over; at random, so that not all of them do at once."""
_AGAIN_SHARE = 0.05
_UNDERSTOOD = b"\x01"
"""What a client says to a refusal (RFC 7628); then the broker tells the reason."""


def _hides_login(record: logging.LogRecord) -> bool:
    """Leave passwords and tokens out of the client's log of requests, which is written at level debug."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            "SaslAuthenticate (hidden)"
            if isinstance(each, RequestStruct) and each.API_KEY == SaslAuthenticateRequest.API_KEY
            else each
            for each in record.args
        )
    return True


logging.getLogger(AIOKafkaConnection.__module__).addFilter(_hides_login)


KERNEL_ENDS_SILENCE = hasattr(socket, "TCP_USER_TIMEOUT")
_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2}
"""Where the system has these options: after so many seconds of silence, and then so often, the kernel asks."""


NEXT_ADDRESS_SECONDS = 0.25
"""After so long without an answer the next address of a name is tried beside the first (RFC 8305)."""


class _RacingLoop:
    """The event loop, whose connections race for the first address of a name that answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, *place: Any, **given: Any) -> Any:
        if not isinstance(self._loop, asyncio.BaseEventLoop):  # others, such as uvloop's, have no such option
            return await self._loop.create_connection(*place, **given)
        race = self._loop.create_connection(*place, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, **given)
        connecting = asyncio.create_task(race)
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(_close_unwanted)
            raise


def _close_unwanted(connecting: asyncio.Future[Any]) -> None:
    """Close a connection that was made after its caller was cancelled. A race that is cancelled itself loses the socket
    without closing it (CPython 3.11)."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result()[0].close()


class Connection(AIOKafkaConnection):
    """A connection that knows when its login ends, and takes the first address of a name that answers."""

    _loop: Any
    _request_timeout: float
    muted_until = 0.0
    """Of the monotonic clock: before, the broker reads nothing of this connection, because a quota is used up."""
    _login_s = 0.0
    _due_at = math.inf
    _rebalance_s = 0.0

    async def connect(self) -> Any:
        loop = self._loop
        self._loop = _RacingLoop(loop)
        try:
            return await super().connect()
        finally:
            self._loop = loop

    @property
    def is_due(self) -> bool:
        """Whether its login ends soon, and nothing is under way."""
        return not self._requests and time.monotonic() >= self._due_at

    @property
    def is_muted(self) -> bool:
        """Whether the broker reads nothing of it now, because a quota is used up."""
        return time.monotonic() < self.muted_until

    def put_off(self) -> None:
        """Go on with this one: no other one could be made now."""
        self._due_at = time.monotonic() + _AGAIN_SHARE * self._login_s

    def send(self, request: Any, **how: Any) -> Any:
        if isinstance(request, MetadataRequest):
            request._allow_auto_topic_creation = False
        timeout_s = self._request_timeout
        self._request_timeout += self._kept_s(request)
        try:
            answer = super().send(request, **how)
        finally:
            self._request_timeout = timeout_s
        return self._logged_in(answer) if isinstance(request, SaslAuthenticateRequest) else answer

    def _kept_s(self, request: Any) -> float:
        """Return how long the broker may keep a request before it answers. A heartbeat is answered at once: with the
        deadline of a join, a frozen coordinator would be noticed only after more than half a minute."""
        match request:
            case Fetch():
                return request.wait_ms / 1000
            case JoinGroupRequest():
                self._rebalance_s = float(request._rebalance_timeout) / 1000
                return self._rebalance_s
            case SyncGroupRequest():
                return self._rebalance_s
            case _:
                return 0.0

    async def _do_sasl_handshake(self) -> None:
        try:
            await super()._do_sasl_handshake()
        except (KafkaError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the library of the mechanism raises
            raise SaslAuthenticationFailed(described(error)) from None

    async def _logged_in(self, answer: Awaitable[Any]) -> Any:
        said = await answer
        if self._sasl_mechanism == "OAUTHBEARER" and said.error_code == 0 and said.sasl_auth_bytes:
            refused = await super().send(SaslAuthenticateRequest(_UNDERSTOOD))
            raise SaslAuthenticationFailed(refused.error_message or said.sasl_auth_bytes.decode(errors="replace"))
        self._login_s = getattr(said, "session_lifetime_ms", 0) / 1000  # brokers before 2.2 do not say
        if self._login_s:
            self._due_at = time.monotonic() + random.uniform(*LOGIN_SHARES) * self._login_s
        return said


async def connect(host: str, port: int, **given: Any) -> Connection:
    """Connect; arguments and errors are those of aiokafka's `create_conn`. A name that nobody can be asked for is that
    of an unknown host: the client expects no other error."""
    if given.get("ssl_context") is not None:
        given["ssl_context"] = renewed(given["ssl_context"])
    connection = Connection(host, port, **given)
    try:
        await connection.connect()
    except UnicodeError:
        raise socket.gaierror(socket.EAI_NONAME, f"{host!r} is not a host name") from None
    if connection._writer is not None:  # None: it is closed already, and whoever uses it learns that
        end_when_silent(connection._writer.get_extra_info("socket"), connection._request_timeout)
    return connection


def end_when_silent(wire: socket.socket, seconds: float) -> None:
    """Let the kernel end a connection whose other side has acknowledged nothing for so long."""
    options = {**_KEEPALIVE, "TCP_USER_TIMEOUT": round(1000 * seconds)}
    with suppress(OSError):  # it is closed already, or the kernel is older than this Python
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            if hasattr(socket, name):
                wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def _connected(*place: Any, **given: Any) -> Connection:
    return await connect(*place, **given)  # by its name: tests put a wire in between


def _with_ours(method: Any) -> Any:
    """Return a method of the client, which makes connections of ours and is its own otherwise."""
    known = {**method.__globals__, "create_conn": _connected}
    made = FunctionType(method.__code__, known, method.__name__)
    made.__kwdefaults__ = method.__kwdefaults__
    return made


class BareClient(AIOKafkaClient):
    """The client inside consumers, producers and admin clients; `bootstrap` it where that is enough. Its connections
    are ours. Before a login ends, another connection takes over."""

    _throttled_until = 0.0  # of the monotonic clock: before, what is written only lengthens the wait
    _deadline: asyncio.Timeout | None = None  # which each wait moves
    bootstrap = _with_ours(AIOKafkaClient.bootstrap)
    _connected = _with_ours(AIOKafkaClient._get_conn)

    async def _get_conn(
        self, node_id: Any, *, group: int = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> Connection | None:
        held: Connection | None = self._conns.get((node_id, group))
        if held is None or not held.is_due:
            return await self._connected(node_id, group=group, no_hint=no_hint)  # type: ignore[no-any-return]
        held.put_off()  # until it is known whether another one can be made, also for whoever asks meanwhile
        return await self._successor(held, node_id, group)

    async def send(self, node_id: Any, request: Any, *, group: int = ConnectionGroup.DEFAULT) -> Any:
        """Send as the client does, when the broker reads this connection again, and note what it says of a quota."""
        held: Connection | None = self._conns.get((node_id, group))
        if held is not None and (muted_seconds := held.muted_until - time.monotonic()) > 0:
            await asyncio.sleep(muted_seconds)
        answer = await super().send(node_id, request, group=group)
        seconds = wait_of(answer)
        if seconds:
            self._throttled(self._conns.get((node_id, group)), request, seconds)
        return answer

    def _throttled(self, by: Connection | None, request: Any, seconds: float) -> None:
        until = time.monotonic() + seconds
        if by is not None:
            by.muted_until = max(by.muted_until, until)
            name = type(request).__name__.removesuffix("Request")
            THROTTLING.note(ThrottledWait(name, f"{by.host}:{by.port}", str(self._client_id), seconds, until))
        if not isinstance(request, Fetch):
            self._throttled_until = max(self._throttled_until, until)
            if self._deadline is not None and not self._deadline.expired():
                self._deadline.reschedule((self._deadline.when() or 0.0) + seconds)

    @asynccontextmanager
    async def writing(self, within_seconds: float) -> AsyncIterator[None]:
        """Begin the block once no quota makes the broker wait. Its deadline is moved by each wait meanwhile.

        Raises:
            TimeoutError: the block has taken longer.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as deadline:
                self._deadline = deadline
                await asyncio.sleep(max(0.0, self._throttled_until - time.monotonic()))
                deadline.reschedule(loop.time() + within_seconds)
                yield
        finally:
            self._deadline = None

    def end_writing(self) -> None:
        """Let the block that is `writing` end now, with TimeoutError."""
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time())

    async def _successor(self, held: Connection, node_id: Any, group: int) -> Connection:
        """Return a new connection in the place of this one, or this one if none can be made."""
        del self._conns[node_id, group]
        kept: Connection | None = None
        try:
            kept = await self._connected(node_id, group=group) or self._conns.setdefault((node_id, group), held)
        finally:
            if kept is not held:  # nobody else knows it, also where the one who asked is cancelled
                held.close(CloseReason.SHUTDOWN)
        return kept
