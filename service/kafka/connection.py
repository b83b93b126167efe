"""A connection to a broker: requests in order, each with a deadline of its own, by aiokafka's protocol classes.

Each name is tried at its next address while the first has not answered (RFC 8305): a firewall may drop packets. The
kernel ends a connection whose other side acknowledges nothing. Another connection takes over before a login ends
(KIP-368), with the certificates and the token of that moment.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any, Protocol, cast

from aiokafka.conn import OAuthAuthenticator, SaslGSSAPIAuthenticator, SaslPlainAuthenticator, ScramAuthenticator
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    RequestTimedOutError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
    for_code,
)
from aiokafka.protocol.admin import ApiVersionRequest, SaslAuthenticateRequest, SaslHandShakeRequest
from aiokafka.protocol.api import RequestStruct

from snapreplay.errors import described
from snapreplay.service.kafka.config import renewed

log = logging.getLogger(__name__)

LOGIN_SHARES = (0.6, 0.8)
"""Of the time of a login, after which a new connection takes over; at random, so that not all of them do at once."""
_AGAIN_SHARE = 0.05
_UNDERSTOOD = b"\x01"
"""What a client says to a refusal (RFC 7628); then the broker tells the reason."""
KERNEL_ENDS_SILENCE = hasattr(socket, "TCP_USER_TIMEOUT")
_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2}
"""Where the system has these options: after so many seconds of silence, and then so often, the kernel asks."""
NEXT_ADDRESS_SECONDS = 0.25
"""After so long without an answer the next address of a name is tried beside the first (RFC 8305)."""
IDLE_S = 540.0
"""The default of connections.max.idle.ms, as in Kafka's clients; brokers close a connection that is idle for 600 s."""
CLOSE_S = 2.0
"""For the bytes that are still to be sent when a connection is closed."""

Arguments = Mapping[str, Any]
"""As `config.client_arguments` returns them."""


class AnyRequest(Protocol):
    """A request, of aiokafka or of `requests.py`."""

    def prepare(self, versions: dict[int, tuple[int, int]]) -> RequestStruct:
        """Return the newest version that the broker speaks. `versions`: API key → its oldest and newest version."""


class Connection(asyncio.Protocol):
    """A connection to a broker. Made by `connect`.

    Attributes:
        versions: the oldest and newest version of each request that the broker speaks, by API key.
        muted_until: monotonic time until which a quota keeps the broker from reading this connection.
        used_at: monotonic time of the last request or answer.
        on_lost: called once when the connection ends without having been closed here.
    """

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float, idle_s: float = IDLE_S) -> None:
        self.host, self.port = host, port
        self.versions: dict[int, tuple[int, int]] = {}
        self.muted_until, self.used_at = 0.0, time.monotonic()
        self.on_lost: Callable[[Connection], None] | None = None
        self._client_id, self._timeout_s, self._idle_s = client_id, timeout_s, idle_s
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked: deque[tuple[int, RequestStruct, asyncio.Future[Any]]] = deque()
        self._number = 0
        self._received = bytearray()
        self._login_s, self._due_at = 0.0, math.inf
        self._is_over = False
        self._error: BaseException | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    # ------------------------------------------------------------------------ what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            with memoryview(self._received) as received:
                frame = bytes(received[4:end])
            del self._received[:end]
            try:
                self._answered(frame)
            except Exception as error:  # noqa: BLE001 - invalid bytes make a decoder raise any error
                self.lose(KafkaConnectionError(f"the broker at {self} sent an invalid response: {described(error)}"))
                return

    def _answered(self, frame: bytes) -> None:
        number, request, answer = self._asked[0]
        data = BytesIO(frame)
        if request.parse_response_header(data).correlation_id != number:
            raise ValueError("the response belongs to another request")
        if not answer.done():  # else its caller has given up
            answer.set_result(request.RESPONSE_TYPE.decode(data))
        self._asked.popleft()
        self.used_at = time.monotonic()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lose(exc)
        if not self._closed.done():
            self._closed.set_result(None)

    # ------------------------------------------------------------------------ what its user calls

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._is_over

    @property
    def oldest(self) -> object | None:
        """The request that waits longest for its answer; None: nothing is under way."""
        return self._asked[0] if self._asked else None

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits for an answer."""
        return not all(answer.done() for _, _, answer in self._asked)

    @property
    def is_due(self) -> bool:
        """Whether its login ends soon or the broker may close it as idle, and nothing is under way."""
        now_s = time.monotonic()
        return not self._asked and (now_s >= self._due_at or now_s >= self.used_at + self._idle_s)

    def put_off(self) -> None:
        """Keep it in use, because no other connection could be made."""
        self._due_at = max(self._due_at, time.monotonic() + _AGAIN_SHARE * self._login_s)

    async def send(self, request: AnyRequest, kept_s: float = 0.0) -> Any:
        """Send a request; return its answer. `kept_s`: how long the broker may keep it before it answers.

        Raises:
            RequestTimedOutError: there was no answer in time. The connection is lost.
            KafkaConnectionError: the connection is lost or closed.
            IncompatibleBrokerVersion: the broker does not speak it. Nothing was sent.
        """
        if self._transport is None or not self.is_open:
            raise KafkaConnectionError(f"no connection to the broker at {self}") from self._error
        try:
            prepared = request.prepare(self.versions)
        except NotImplementedError as error:
            raise IncompatibleBrokerVersion(str(error)) from error
        self._number = (self._number + 1) % 2**31
        head = prepared.build_request_header(correlation_id=self._number, client_id=self._client_id)
        body = head.encode() + prepared.encode()
        log.debug("%s to %s", type(request).__name__, self)  # not what is in it: a login has a password
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.append((self._number, prepared, answer))
        self._transport.write(len(body).to_bytes(4, "big") + body)
        self.used_at = time.monotonic()
        try:
            async with asyncio.timeout(self._timeout_s + kept_s):
                return await answer
        except TimeoutError as error:
            self.lose(error)
            raise RequestTimedOutError(f"no answer from the broker at {self}") from error

    def lose(self, error: BaseException | None) -> None:
        """End the connection at once as lost, with this error as the cause."""
        on_lost, self.on_lost = self.on_lost, None
        self._error = self._error or error
        self._end(error)
        if self._transport is not None:
            self._transport.abort()
        if on_lost is not None:
            on_lost(self)

    def close(self) -> asyncio.Future[None]:
        """Close it. What is returned is done when its socket is closed."""
        self.on_lost = None
        self._end(None)
        if self._transport is not None:
            self._transport.close()
            if not self._closed.done():  # a broker that reads nothing must not hold the socket
                asyncio.get_running_loop().call_later(CLOSE_S, self._transport.abort)
        return self._closed

    def _end(self, error: BaseException | None) -> None:
        self._is_over = True
        for _, _, answer in self._asked:
            if not answer.done():
                lost = KafkaConnectionError(f"the connection to the broker at {self} was closed")
                lost.__cause__ = error
                answer.set_exception(lost)
        self._asked.clear()

    # ------------------------------------------------------------------------ its beginning

    async def begin(self, given: Arguments) -> None:
        """Ask for the versions, and log in. Raises as `connect` does."""
        wire = self._transport.get_extra_info("socket") if self._transport is not None else None
        if wire is not None:  # else it is lost already
            end_when_silent(wire, self._timeout_s)
        answer = await self.send(ApiVersionRequest())
        self.versions = {key: (lowest, newest) for key, lowest, newest in answer.api_versions}
        if given.get("security_protocol", "").startswith("SASL"):
            try:
                await self._log_in(given)
            except (KafkaError, OSError):
                raise
            except Exception as error:  # noqa: BLE001 - a login library (Kerberos, tokens) has errors of its own
                raise SaslAuthenticationFailed(described(error)) from None

    async def _log_in(self, given: Arguments) -> None:
        mechanism = given.get("sasl_mechanism", "PLAIN")
        offered = await self.send(SaslHandShakeRequest(mechanism))
        if offered.error_code:
            raise for_code(offered.error_code)(f"the broker at {self} offers {', '.join(offered.enabled_mechanisms)}")
        if mechanism not in offered.enabled_mechanisms:
            raise UnsupportedSaslMechanismError(mechanism)
        authenticator, answer = authenticator_of(mechanism, self.host, given), None
        while (step := await authenticator.step(None if answer is None else answer.sasl_auth_bytes)) is not None:
            answer = await self.send(SaslAuthenticateRequest(step[0]))
            if answer.error_code:
                raise for_code(answer.error_code)(answer.error_message)
            if mechanism == "OAUTHBEARER" and answer.sasl_auth_bytes:
                refused = await self.send(SaslAuthenticateRequest(_UNDERSTOOD))
                raise SaslAuthenticationFailed(refused.error_message or answer.sasl_auth_bytes.decode(errors="replace"))
        self._login_s = getattr(answer, "session_lifetime_ms", 0) / 1000  # brokers before 2.2 do not say
        if self._login_s:
            self._due_at = time.monotonic() + random.uniform(*LOGIN_SHARES) * self._login_s


def authenticator_of(mechanism: str, host: str, given: Arguments) -> Any:
    """Return aiokafka's part of a login: each `step` takes the broker's bytes and returns the next ones to send."""
    loop = asyncio.get_running_loop()
    user, password = given.get("sasl_plain_username"), given.get("sasl_plain_password")
    match mechanism:
        case "OAUTHBEARER":
            return OAuthAuthenticator(sasl_oauth_token_provider=given["sasl_oauth_token_provider"])
        case "GSSAPI":
            at = given.get("sasl_kerberos_domain_name") or host
            return SaslGSSAPIAuthenticator(
                loop=loop, principal=f"{given.get('sasl_kerberos_service_name', 'kafka')}@{at}"
            )
        case "PLAIN":
            return SaslPlainAuthenticator(loop=loop, sasl_plain_username=user, sasl_plain_password=password)
        case _:
            return ScramAuthenticator(
                loop=loop, sasl_plain_username=user, sasl_plain_password=password, sasl_mechanism=mechanism
            )


def idle_s(given: Arguments) -> float:
    """Return how long a connection may be idle before it is used again, in seconds."""
    return float(given.get("connections_max_idle_ms", 1000 * IDLE_S) / 1000)


async def connect(host: str, port: int, given: Arguments) -> Connection:
    """Connect and log in.

    Raises:
        OSError, TimeoutError: no answer, or the name has no address.
        KafkaError: the other side is not a broker, or it refuses this client.
    """
    context = given.get("ssl_context") if "SSL" in given.get("security_protocol", "").split("_") else None
    timeout_s = given["request_timeout_ms"] / 1000
    connection = Connection(host, port, given.get("client_id", ""), timeout_s, idle_s(given))
    loop = asyncio.get_running_loop()
    # Other loops, such as uvloop's, have no such option.
    race: dict[str, Any] = (
        {"happy_eyeballs_delay": NEXT_ADDRESS_SECONDS} if isinstance(loop, asyncio.BaseEventLoop) else {}
    )
    ssl = None if context is None else renewed(context)
    making = loop.create_task(loop.create_connection(lambda: connection, host, port, ssl=ssl, **race))
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.shield(making)
    except UnicodeError:
        raise socket.gaierror(socket.EAI_NONAME, f"{host!r} is not a host name") from None
    except BaseException:
        # A race that is cancelled loses the socket without closing it (CPython 3.11).
        making.add_done_callback(_close_unwanted)
        raise
    try:
        await connection.begin(given)
    except BaseException:
        connection.close()
        raise
    return connection


def _close_unwanted(making: asyncio.Future[Any]) -> None:
    """Close a connection that was made after its caller had given up."""
    if not making.cancelled() and making.exception() is None:
        making.result()[0].close()


def end_when_silent(wire: socket.socket, seconds: float) -> None:
    """Let the kernel end a connection whose other side has acknowledged nothing for so long."""
    options = {**_KEEPALIVE, "TCP_USER_TIMEOUT": round(1000 * seconds)}
    with suppress(OSError):  # it is closed already, or the kernel is older than this Python
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            if hasattr(socket, name):
                wire.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def closed(connections: Collection[Connection]) -> None:
    """Close them, and wait until the sockets are. Bounded."""
    if ends := [each.close() for each in connections]:
        await asyncio.wait(ends, timeout=2 * CLOSE_S)
