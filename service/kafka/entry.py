"""The reason why no broker accepts a connection. The client reports a wrong password, an untrusted certificate and an
absent broker alike, as "unable to bootstrap". So a second, bare connection to each address finds the reason.

Also the URL at which others reach this process: by the address that a broker sees.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from aiokafka import errors as kafka
from aiokafka.conn import collect_hosts
from aiokafka.protocol.admin import SaslHandShakeRequest
from aiokafka.protocol.metadata import MetadataRequest

from snapreplay.errors import described
from snapreplay.service.config.kafka_properties import TOKEN_PROVIDER, provider_shown
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.protocol import Address
from snapreplay.service.core.kafka_errors import NotAuthenticated
from snapreplay.service.kafka import connection as connections
from snapreplay.service.kafka.config import client_arguments
from snapreplay.service.kafka.errors import CLIENT_ERRORS, NobodyAnswers
from snapreplay.service.kafka.tokens import TOKEN_SECONDS, TokenFailure

KNOCK_S, ALL_S = 2.0, 8.0  # one address; all of them
_NAME_DIFFERS = {62, 64}  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and …_IP_ADDRESS_MISMATCH
_BAD_LOGIN = (kafka.SaslAuthenticationFailed, kafka.AuthenticationFailedError, kafka.AuthenticationMethodNotSupported)


async def entered(start: Coroutine[Any, Any, object], settings: Settings) -> None:
    """Start a client.

    Raises:
        NotAuthenticated, NobodyAnswers: instead of the client's error, if this is the reason.
    """
    try:
        await start
    except (kafka.KafkaConnectionError, kafka.NodeNotReadyError) as error:
        door = Door(settings)
        refused = await door.refusal_in_time()
        if refused is not None:
            raise refused from error
        if door.silent:
            told = sorted(f"{place} ({why})" for place, why in door.silent.items())
            raise NobodyAnswers(*told) from error
        raise


async def refusal(settings: Settings) -> NotAuthenticated | None:
    """Say why access is refused; None when it is not, or when no broker answers."""
    return await Door(settings).refusal_in_time()


class BrokerAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Door:
    """The way into one cluster with one set of credentials."""

    def __init__(self, settings: Settings) -> None:
        self._arguments = {**client_arguments(settings), "request_timeout_ms": int(KNOCK_S * 1000)}
        self._places = [BrokerAddress(host, port) for host, port, _ in collect_hosts(settings.bootstrap_servers)]
        self._protocol = str(settings.kafka.get("security.protocol", "PLAINTEXT"))
        self._mechanism = str(settings.kafka.get("sasl.mechanism", "PLAIN"))
        self._user = str(settings.kafka.get("sasl.plain.username", ""))
        self._provider = provider_shown(settings.kafka.get(TOKEN_PROVIDER, ""))
        self._has_certificate = "ssl.certfile" in settings.kafka
        self.silent: dict[BrokerAddress, str] = {}
        """The addresses that were tried, with the reason, as long as none has answered."""

    async def refusal_in_time(self) -> NotAuthenticated | None:
        """Return the refusal, if there is one; None also when the time is over."""
        try:
            async with asyncio.timeout(ALL_S):
                return await self.refusal()
        except TimeoutError:
            return None

    async def refusal(self) -> NotAuthenticated | None:
        """Return the first refusal; if an address accepts us, the first of the brokers that it advertises."""
        refused = None
        for place in self._places:
            try:
                advertised = await self._knock(place)
            except CLIENT_ERRORS as error:
                refused = refused or await self._judged(place, error)
                self.silent[place] = _why(error)
                if isinstance(error, TokenFailure):  # whatever the address is
                    break
                continue
            self.silent = {}
            return await self._advertised_refusal(advertised)
        return refused

    async def _advertised_refusal(self, places: Sequence[BrokerAddress]) -> NotAuthenticated | None:
        for place in places:
            try:
                await self._knock(place)
            except CLIENT_ERRORS as error:
                refused = await self._judged(place, error)
                if refused is not None:
                    return refused
        return None

    async def _knock(self, place: BrokerAddress) -> Sequence[BrokerAddress]:
        """Connect and ask for the cluster's brokers: some refusals come only after the first request."""
        connection = await connections.connect(*place, self._arguments)
        try:
            answer = await connection.send(MetadataRequest([]))
        finally:
            connection.close()
        return [BrokerAddress(host, port) for _, host, port, *_ in answer.brokers]

    async def _judged(self, place: BrokerAddress, error: BaseException) -> NotAuthenticated | None:
        """Judge the error; None when it is no refusal: nobody listens, no such host, no answer."""
        if isinstance(error, TokenFailure):  # its cause is the user's
            return self._without_token(error)
        cause = _cause(error)
        match cause:
            case ssl.SSLCertVerificationError():
                return self._untrusted(place, cause)
            case ssl.SSLError() if "ALERT" in (cause.reason or ""):
                return self._certificate_refused(place, cause)
            case kafka.UnsupportedSaslMechanismError():
                offered = await self._mechanisms(place)
                return _refused(
                    place,
                    f"it does not offer SASL mechanism {self._mechanism}, only {', '.join(offered) or 'none'}",
                    f"--set kafka.sasl.mechanism={offered[0] if offered else 'NAME'}",
                )
            case kafka.IllegalSaslStateError():
                return self._other_protocol(place, "does not use SASL", sasl=False)
            case kafka.KafkaError() if isinstance(cause, _BAD_LOGIN):
                return self.bad_login(place, cause)
            case ConnectionRefusedError() | TimeoutError():
                return None
            case _:
                return await self._closed(place)

    async def _closed(self, place: BrokerAddress) -> NotAuthenticated | None:
        """Judge a connection that was closed without an answer: perhaps it uses another protocol."""
        if "SSL" in self._protocol:
            if await self._answers_plainly(place):
                return self._other_protocol(place, "does not use TLS", tls=False)
        elif await _speaks_tls(place):
            return self._other_protocol(place, "uses TLS", tls=True)
        if not self._protocol.startswith("SASL"):
            offered = await self._mechanisms(place)
            if offered:
                said = f"requires SASL ({', '.join(offered)})"
                return self._other_protocol(place, said, sasl=True)
        return None

    def _untrusted(self, place: BrokerAddress, error: ssl.SSLCertVerificationError) -> NotAuthenticated:
        hint = "set kafka.ssl.cafile to the PEM file of the authority that signed the brokers' certificates"
        if error.verify_code in _NAME_DIFFERS:
            hint = (
                "use an address that is in the broker's certificate, in kafka.bootstrap.servers and in the brokers'"
                " advertised.listeners; or --set kafka.ssl.check.hostname=false"
            )
        return _refused(place, f"its certificate is not trusted: {error.verify_message}", hint)

    def _certificate_refused(self, place: BrokerAddress, error: ssl.SSLError) -> NotAuthenticated:
        client = "the client certificate" if self._has_certificate else "a client without a certificate"
        return _refused(
            place,
            f"it refuses {client}: {error.reason}",
            "set kafka.ssl.certfile and kafka.ssl.keyfile to a certificate that an authority trusted by the brokers"
            " has signed, and its key",
        )

    def _without_token(self, failure: TokenFailure) -> NotAuthenticated:
        return NotAuthenticated(
            failure.args[0],
            hint=f"its token() must return the token as a text within {TOKEN_SECONDS:g} s, without spaces or line ends;"
            " it is called again at the next attempt",
            provider=self._provider,
        )

    def bad_login(self, place: BrokerAddress, error: BaseException) -> NotAuthenticated:
        said = error.args[0] if error.args and error.args[0] else described(error)
        if self._mechanism == "GSSAPI":  # there is no name or password of ours: a ticket says who we are
            return _refused(
                place,
                f"it refuses the principal of the Kerberos ticket: {said}",
                "`klist` must show a valid ticket (`kinit -kt KEYTAB PRINCIPAL`), and kafka.sasl.kerberos.service.name"
                " must be the brokers' sasl.kerberos.service.name",
            )
        if self._mechanism == "OAUTHBEARER":
            return _refused(
                place,
                f"it refuses the token of {self._provider}: {said}",
                "the provider must give tokens that the brokers accept: not ended, and of the issuer, the audience and"
                " the scope that they ask for",
                provider=self._provider,
            )
        return _refused(
            place,
            f"it refuses user {self._user!r} by {self._mechanism}: {said}",
            "correct kafka.sasl.plain.username and kafka.sasl.plain.password",
            user=self._user,
        )

    def _other_protocol(
        self, place: BrokerAddress, said: str, *, tls: bool | None = None, sasl: bool | None = None
    ) -> NotAuthenticated:
        tls = "SSL" in self._protocol if tls is None else tls
        sasl = self._protocol.startswith("SASL") if sasl is None else sasl
        transport = "SSL" if tls else "PLAINTEXT"
        wanted = f"SASL_{transport}" if sasl else transport
        credentials = ", with kafka.sasl.mechanism, .plain.username and .plain.password" if sasl else ""
        return _refused(
            place,
            f"it {said}, but kafka.security.protocol is {self._protocol}",
            f"--set kafka.security.protocol={wanted}{credentials}",
        )

    async def _mechanisms(self, place: BrokerAddress) -> Sequence[str]:
        """Return what the listener offers; empty when it uses no SASL, or does not say."""
        transport = "SSL" if "SSL" in self._protocol else "PLAINTEXT"
        try:
            bare = {**self._arguments, "security_protocol": transport}
            connection = await connections.connect(*place, bare)
            try:
                answer = await connection.send(SaslHandShakeRequest(self._mechanism))
            finally:
                connection.close()
        except CLIENT_ERRORS:
            return ()
        return tuple(answer.enabled_mechanisms)

    async def _answers_plainly(self, place: BrokerAddress) -> bool:
        try:
            connection = await connections.connect(*place, {**self._arguments, "security_protocol": "PLAINTEXT"})
        except CLIENT_ERRORS:
            return False
        connection.close()
        return True


def _cause(error: BaseException) -> BaseException:
    """Return the error that the client has wrapped. The cause of a TimeoutError is a mere cancellation."""
    return error if isinstance(error, TimeoutError) else error.__cause__ or error


def _why(error: BaseException) -> str:
    """Say why nobody answers, in the words of the operating system."""
    cause = _cause(error)
    match cause:
        case TimeoutError():
            return f"no answer within {KNOCK_S:.0f} s"
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


async def _speaks_tls(place: BrokerAddress) -> bool:
    """Say whether a TLS handshake starts. Any certificate will do: nothing is sent."""
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(KNOCK_S):
            _, writer = await asyncio.open_connection(*place, ssl=anybody)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # an alert is TLS, too
    except (OSError, UnicodeError):
        return False
    writer.close()
    return True


def _refused(place: BrokerAddress, why: str, hint: str, **facts: object) -> NotAuthenticated:
    return NotAuthenticated(f"the broker at {place} denies access: {why}", hint=hint, address=str(place), **facts)


async def advertised_url(settings: Settings, bound: Address | None, path: str = "") -> str:
    """Return the URL by which other processes reach the HTTP API of this one; empty: there is none.

    Args:
        bound: where it listens.
        path: of the app, below which the API is.
    """
    url = settings.http.advertised_url
    if bound is None:
        return ""
    if url or not bound.is_any:
        return (url or bound.url) + path
    family = socket.AF_INET6 if ":" in bound.host else socket.AF_INET
    host = await asyncio.to_thread(local_host, settings.bootstrap_servers, family)
    return type(bound)(host, bound.port).url + path if host else ""


def local_host(bootstrap_servers: list[str], family: socket.AddressFamily) -> str:
    """Return the local address of this family on the way to the first broker that has one; empty: none has. Nothing
    is sent; names are resolved, which may take time."""
    for host, port, _ in collect_hosts(bootstrap_servers):
        try:
            for *_, address in socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM):
                with socket.socket(family, socket.SOCK_DGRAM) as towards:
                    towards.connect(address)
                    return str(towards.getsockname()[0])
        except OSError:
            continue
    return ""
