"""Why brokers could not be reached, and which of the reasons is a refusal: a wrong password, an untrusted
certificate, another security protocol.

A broker often refuses by closing the connection. Then bare connections to its address find out which protocol it
speaks.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import ssl
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from aiokafka import errors as kafka
from aiokafka.protocol.admin import SaslHandShakeRequest

from snapreplay.errors import UsageError, described
from snapreplay.service.config.kafka_properties import TOKEN_PROVIDER, provider_shown
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import NotAuthenticated
from snapreplay.service.kafka import connection as connections
from snapreplay.service.kafka.config import client_arguments
from snapreplay.service.kafka.tokens import TOKEN_SECONDS, TokenFailure

KNOCK_S, ALL_S = 2.0, 8.0  # one bare connection; all of them
IN_VAIN_S = 5.0
"""After bare connections have shown no refusal, for how long no more are made to this address: the broker may be
closing connections because it has too many."""
_NAME_DIFFERS = {62, 64}  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and …_IP_ADDRESS_MISMATCH
_BAD_LOGIN = (kafka.SaslAuthenticationFailed, kafka.AuthenticationFailedError, kafka.AuthenticationMethodNotSupported)
_FAILURES = (kafka.KafkaError, kafka.IllegalOperation, AssertionError, NotImplementedError, OSError, TimeoutError)


class BrokerAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Verdicts:
    """The recent searches for a refusal that found none, of clients that share metadata."""

    def __init__(self) -> None:
        self._in_vain_at: dict[BrokerAddress, float] = {}  # of the monotonic clock
        self._searching: defaultdict[BrokerAddress, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of(
        self, address: BrokerAddress, search: Callable[[], Awaitable[NotAuthenticated | None]]
    ) -> NotAuthenticated | None:
        """Return what `search` finds; None without a search soon after one in vain."""
        async with self._searching[address]:
            if time.monotonic() - self._in_vain_at.get(address, -math.inf) < IN_VAIN_S:
                return None
            refused = await search()
            if refused is None:
                self._in_vain_at[address] = time.monotonic()
            return refused


class NotConnected(kafka.NodeNotReadyError):
    """No broker could be reached. Nothing was sent.

    Attributes:
        failures: why not, by address.
        verdicts: of its clients.
    """

    def __init__(
        self,
        message: str,
        failures: Mapping[BrokerAddress, BaseException] | None = None,
        verdicts: Verdicts | None = None,
    ) -> None:
        super().__init__(message)
        self.failures, self.verdicts = failures or {}, verdicts or Verdicts()

    def __str__(self) -> str:
        return str(self.args[0])


async def refusal(error: NotConnected, settings: Settings) -> NotAuthenticated | None:
    """Return the first refusal; None: there is none, or it could not be found out."""
    # A PEM file may be missing for a moment, while it is replaced.
    with suppress(TimeoutError, UsageError):
        async with asyncio.timeout(ALL_S):
            for address, why in error.failures.items():
                refused = await _Broker(address, settings, error.verdicts).refusal(why)
                if refused is not None:
                    return refused
    return None


class _Broker:
    """A broker that could not be reached, and the settings with which that was tried."""

    def __init__(self, address: BrokerAddress, settings: Settings, verdicts: Verdicts) -> None:
        self._address, self._verdicts = address, verdicts
        self._arguments = {**client_arguments(settings), "request_timeout_ms": int(KNOCK_S * 1000)}
        self._protocol = str(settings.kafka.get("security.protocol", "PLAINTEXT"))
        self._has_tls, self._has_sasl = "SSL" in self._protocol, self._protocol.startswith("SASL")
        self._mechanism = str(settings.kafka.get("sasl.mechanism", "PLAIN"))
        self._user = str(settings.kafka.get("sasl.plain.username", ""))
        self._provider = provider_shown(settings.kafka.get(TOKEN_PROVIDER, ""))
        self._has_certificate = "ssl.certfile" in settings.kafka

    async def refusal(self, error: BaseException) -> NotAuthenticated | None:
        """Return what the error means; None when it is no refusal: no listener, no such host, no answer."""
        if isinstance(error, TokenFailure):  # its cause is the user's
            return self._without_token(error)
        cause = _cause(error)
        match cause:
            case ssl.SSLCertVerificationError():
                return self._untrusted(cause)
            case ssl.SSLError() if "ALERT" in (cause.reason or ""):
                return self._certificate_refused(cause)
            case kafka.UnsupportedSaslMechanismError():
                offered = await self._mechanisms()
                return self._refused(
                    f"it does not offer SASL mechanism {self._mechanism}, only {', '.join(offered) or 'none'}",
                    f"--set kafka.sasl.mechanism={offered[0] if offered else 'NAME'}",
                )
            case kafka.IllegalSaslStateError():
                return self._other_protocol("does not use SASL", tls=self._has_tls, sasl=False)
            case kafka.KafkaError() if isinstance(cause, _BAD_LOGIN):
                return self._bad_login(cause)
            case OSError() if not isinstance(cause, ssl.SSLError | ConnectionResetError | BrokenPipeError):
                return None
            case _:
                return await self._verdicts.of(self._address, self._closed)

    async def _closed(self) -> NotAuthenticated | None:
        """Judge a connection that was closed without an answer: perhaps it uses another protocol."""
        if self._has_tls:
            if await self._answers_plainly():
                return self._other_protocol("does not use TLS", tls=False, sasl=self._has_sasl)
        elif await self._speaks_tls():
            return self._other_protocol("uses TLS", tls=True, sasl=self._has_sasl)
        if not self._has_sasl and (offered := await self._mechanisms()):
            said = f"requires SASL ({', '.join(offered)})"
            return self._other_protocol(said, tls=self._has_tls, sasl=True)
        return None

    def _untrusted(self, error: ssl.SSLCertVerificationError) -> NotAuthenticated:
        hint = "set kafka.ssl.cafile to the PEM file of the authority that signed the brokers' certificates"
        if error.verify_code in _NAME_DIFFERS:
            hint = (
                "use an address that is in the broker's certificate, in kafka.bootstrap.servers and in the brokers'"
                " advertised.listeners; or --set kafka.ssl.check.hostname=false"
            )
        return self._refused(f"its certificate is not trusted: {error.verify_message}", hint)

    def _certificate_refused(self, error: ssl.SSLError) -> NotAuthenticated:
        client = "the client certificate" if self._has_certificate else "a client without a certificate"
        return self._refused(
            f"it refuses {client}: {error.reason}",
            "set kafka.ssl.certfile and kafka.ssl.keyfile to a certificate that an authority trusted by the brokers"
            " has signed, and its key",
        )

    def _without_token(self, failure: TokenFailure) -> NotAuthenticated:
        return NotAuthenticated(
            failure.args[0],
            hint=f"its token() must return the token as a str within {TOKEN_SECONDS:g} s, without spaces or newlines;"
            " it is called again at the next attempt",
            provider=self._provider,
        )

    def _bad_login(self, error: BaseException) -> NotAuthenticated:
        said = error.args[0] if error.args and error.args[0] else described(error)
        if self._mechanism == "GSSAPI":  # a ticket says who we are, not a name and a password
            return self._refused(
                f"it refuses the principal of the Kerberos ticket: {said}",
                "`klist` must show a valid ticket (`kinit -kt KEYTAB PRINCIPAL`), and kafka.sasl.kerberos.service.name"
                " must be the brokers' sasl.kerberos.service.name",
            )
        if self._mechanism == "OAUTHBEARER":
            return self._refused(
                f"it refuses the token of {self._provider}: {said}",
                "the provider must return tokens that the brokers accept: not expired, and with the issuer, audience"
                " and scope that the brokers require",
                provider=self._provider,
            )
        return self._refused(
            f"it refuses user {self._user!r} by {self._mechanism}: {said}",
            "correct kafka.sasl.plain.username and kafka.sasl.plain.password",
            user=self._user,
        )

    def _other_protocol(self, said: str, *, tls: bool, sasl: bool) -> NotAuthenticated:
        transport = "SSL" if tls else "PLAINTEXT"
        wanted = f"SASL_{transport}" if sasl else transport
        credentials = ", with kafka.sasl.mechanism, .plain.username and .plain.password" if sasl else ""
        return self._refused(
            f"it {said}, but kafka.security.protocol is {self._protocol}",
            f"--set kafka.security.protocol={wanted}{credentials}",
        )

    async def _mechanisms(self) -> Sequence[str]:
        """Return what the listener offers; empty when it uses no SASL, or does not say."""
        bare = {**self._arguments, "security_protocol": "SSL" if self._has_tls else "PLAINTEXT"}
        try:
            connection = await connections.connect(*self._address, bare)
            try:
                answer = await connection.send(SaslHandShakeRequest(self._mechanism))
            finally:
                connection.close()
        except _FAILURES:
            return ()
        return tuple(answer.enabled_mechanisms)

    async def _answers_plainly(self) -> bool:
        try:
            connection = await connections.connect(
                *self._address, {**self._arguments, "security_protocol": "PLAINTEXT"}
            )
        except _FAILURES:
            return False
        connection.close()
        return True

    async def _speaks_tls(self) -> bool:
        """Say whether a TLS handshake starts. Any certificate will do: nothing is sent."""
        anybody = ssl.create_default_context()
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        try:
            async with asyncio.timeout(KNOCK_S):
                _, writer = await asyncio.open_connection(*self._address, ssl=anybody)
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")  # an alert is TLS, too
        except (OSError, UnicodeError):
            return False
        writer.close()
        return True

    def _refused(self, why: str, hint: str, **facts: object) -> NotAuthenticated:
        message, address = f"the broker at {self._address} denies access: {why}", str(self._address)
        return NotAuthenticated(message, hint=hint, address=address, **facts)


def _cause(error: BaseException) -> BaseException:
    """Return the error that the connection has wrapped. The cause of a TimeoutError is a mere cancellation."""
    return error if isinstance(error, TimeoutError) else error.__cause__ or error


def why_silent(error: BaseException, timeout_s: float) -> str:
    """Say why a broker does not answer, in the words of the operating system."""
    cause = _cause(error)
    match cause:
        case TimeoutError():
            return f"no answer within {timeout_s:g} s"
        case EOFError() | kafka.KafkaConnectionError() | ConnectionResetError():
            return (
                "it closes the connection without an answer: another security protocol, no Kafka broker, or more"
                " connections than max.connections or max.connections.per.ip allows"
            )
        case socket.gaierror():
            return str(cause.strerror)
        case OSError(errno=int(number)):
            return os.strerror(number)
        case _:
            return described(cause)
