"""Kafka's own client properties that a user may set under `kafka.`, and why the others may not be set.

The names are those of aiokafka's arguments with dots, which are Kafka's own wherever Kafka has one; PEM files
replace Java key stores. Pure: no Kafka client is imported here, a test compares with aiokafka.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

PropertyKind = Literal["str", "int", "bool", "provider"]
ClientKind = Literal["common", "consumer", "producer", "ssl"]


class TokenProvider(Protocol):
    """Gives tokens for OAUTHBEARER. `token` is a function or a coroutine function; `extensions`, which need not be
    there, returns a dict of texts that go with the token."""

    def token(self) -> Any: ...


Value = str | int | bool


class Property(Struct, frozen=True):
    """One accepted property. `client` says which clients get it; "ssl" properties make the SSL context.

    An int is ≥ `minimum`; `choices`, where there are any, are the only values.
    """

    kind: PropertyKind
    client: ClientKind
    description: str
    choices: tuple[str, ...] = ()
    minimum: int = 0
    secret: bool = False


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

TOKEN_PROVIDER = "sasl.oauth.token.provider"  # noqa: S105 - the name of a property
_LOGIN = ("sasl.plain.username", "sasl.plain.password")
_CREDENTIALS: dict[str, tuple[str, ...]] = {"GSSAPI": (), "OAUTHBEARER": (TOKEN_PROVIDER,)}
"""What a mechanism needs; the others need `_LOGIN`."""

PROPERTIES: dict[str, Property] = {
    "bootstrap.servers": Property("str", "common", "host:port, comma-separated; several are better"),
    "client.id": Property("str", "common", "name of this client in broker logs and quotas"),
    "security.protocol": Property("str", "common", "protocol for the connections to brokers", _PROTOCOLS),
    "sasl.mechanism": Property("str", "common", "SASL mechanism", _MECHANISMS),
    "sasl.plain.username": Property("str", "common", "user for PLAIN and SCRAM"),
    "sasl.plain.password": Property("str", "common", "password for PLAIN and SCRAM", secret=True),
    "sasl.kerberos.service.name": Property("str", "common", "Kerberos service of the brokers"),
    "sasl.kerberos.domain.name": Property("str", "common", "Kerberos domain of the brokers"),
    TOKEN_PROVIDER: Property(
        "provider",
        "common",
        "source of the tokens for OAUTHBEARER: `module:factory`, in Python also an object ([how](tls.md#a-token))",
    ),
    "ssl.cafile": Property("str", "ssl", "PEM file of the trusted authorities; default: the system's"),
    "ssl.certfile": Property("str", "ssl", "PEM file of the client's certificate chain"),
    "ssl.keyfile": Property("str", "ssl", "PEM file of the client's private key; default: in ssl.certfile"),
    "ssl.password": Property("str", "ssl", "password of the private key", secret=True),
    "ssl.check.hostname": Property("bool", "ssl", "check the broker's host name against its certificate"),
    "request.timeout.ms": Property(
        "int", "common", "longest wait for an answer (ms), without a fetch's wait for records", minimum=100
    ),
    "retry.backoff.ms": Property("int", "common", "pause before a retry (ms)", minimum=1),
    "metadata.max.age.ms": Property("int", "common", "maximum age of metadata (ms)", minimum=1000),
    "connections.max.idle.ms": Property(
        "int", "common", "longest idle time of a reused connection (ms); at most 5,000 between clients", minimum=1000
    ),
    "fetch.min.bytes": Property("int", "consumer", "bytes that a fetch waits for", minimum=1),
    "fetch.max.wait.ms": Property("int", "consumer", "longest time that a fetch waits for them (ms)", minimum=1),
    "fetch.max.bytes": Property("int", "consumer", "maximum bytes per fetch", minimum=1024),
    "max.partition.fetch.bytes": Property(
        "int", "consumer", "maximum bytes per partition and fetch; above 2 MiB is slower", minimum=1024
    ),
    "check.crcs": Property("bool", "consumer", "check the checksum of every batch read"),
    "client.rack": Property("str", "consumer", "read from replicas in this rack"),
    "compression.type": Property("str", "producer", "compression of outputs", ("gzip", "snappy", "lz4", "zstd")),
    "max.batch.size": Property("int", "producer", "maximum bytes per batch of outputs", minimum=1024),
}

OWNED: dict[str, str] = {
    "group.id": "it is the app id; another group would not match this app's topics",
    "group.instance.id": "set instance_id",
    "transactional.id": "it is the app id and the partition: the fence depends on it",
    "transaction.timeout.ms": "set timeouts.transaction_ms",
    "isolation.level": "reads are read_committed: anything else would apply aborted records",
    "enable.auto.commit": "positions are in the increments, never in committed offsets",
    "auto.commit.interval.ms": "positions are in the increments, never in committed offsets",
    "auto.offset.reset": "if the record at a position was deleted, that is an error; the position never jumps",
    "enable.idempotence": "it is always on: exactly-once needs it",
    "acks": "it is always all: exactly-once needs it",
    "linger.ms": "set batch.linger_ms",
    "max.poll.records": "set batch.records_max",
    "max.poll.interval.ms": "the group member polls in its own thread, so handlers cannot delay it",
    "max.request.size": "record sizes follow each topic's max.message.bytes",
    "session.timeout.ms": "set group.session_timeout_ms",
    "heartbeat.interval.ms": "set group.heartbeat_interval_ms",
    "rebalance.timeout.ms": "set group.rebalance_timeout_ms",
    "partition.assignment.strategy": "only the increments topic's partitions are assigned",
    "exclude.internal.topics": "Kafka's own topics never match a pattern of an app",
    "key.serializer": "codecs belong to the app's topics",
    "value.serializer": "codecs belong to the app's topics",
    "key.deserializer": "codecs belong to the app's topics",
    "value.deserializer": "codecs belong to the app's topics",
    "partitioner": "Kafka's murmur2 hash of the key chooses the partition of an output",
}

# Names that the Java client and librdkafka have for properties with another name here.
_OTHER_NAMES = {
    "ssl.truststore.location": "ssl.cafile",
    "ssl.ca.location": "ssl.cafile",
    "ssl.keystore.location": "ssl.certfile",
    "ssl.certificate.location": "ssl.certfile",
    "ssl.key.location": "ssl.keyfile",
    "ssl.key.password": "ssl.password",
    "ssl.keystore.password": "ssl.password",
    "ssl.endpoint.identification.algorithm": "ssl.check.hostname",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.jaas.config": "sasl.plain.username",
    "sasl.username": "sasl.plain.username",
    "sasl.password": "sasl.plain.password",
    "sasl.login.callback.handler.class": TOKEN_PROVIDER,
    "oauth.cb": TOKEN_PROVIDER,
    "batch.size": "max.batch.size",
}

# A name, or an IPv6 address in brackets; without a port the client takes 9092.
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+)(?::(?P<port>[0-9]{1,5}))?")
_PORT_MAX = 65_535

BOOLS = {"true": True, "1": True, "yes": True, "on": True}
BOOLS |= {"false": False, "0": False, "no": False, "off": False}


class PropertyRefused(ValueError):
    """Names the property, what is wrong and what to do; never shows a secret."""


def dotted(name: str) -> str:
    """Write a name in lower case with dots: underscores count as dots, upper case as lower case."""
    return name.lower().replace("_", ".")


def parse_property(name: str, value: object) -> Value | TokenProvider:
    """Convert the value to what aiokafka wants, or raise PropertyRefused: unknown, set by snapreplay itself, or not a
    value of its kind. `name` is dotted."""
    known = PROPERTIES.get(name)
    if known is None:
        raise PropertyRefused(_unknown(name))
    if known.kind == "provider":
        return _provider(value)
    parsed = _parse(known.kind, value)
    shown = "(hidden)" if known.secret else repr(value)
    if parsed is None or parsed == "":
        raise PropertyRefused(f"{shown} is not a valid {known.kind}: {known.description}")
    if name == "bootstrap.servers":
        _check_servers(str(parsed))
    if known.choices and parsed not in known.choices:
        raise PropertyRefused(f"{shown} is not one of {', '.join(known.choices)}")
    if known.kind == "int" and int(parsed) < known.minimum:
        raise PropertyRefused(f"{shown} is below {known.minimum}: {known.description}")
    return parsed


def is_provider(value: object) -> bool:
    """Say whether it is an object that gives tokens; a class is none."""
    return not isinstance(value, type) and callable(getattr(value, "token", None))


def provider_shown(value: object) -> str:
    """Name a provider; how it would show itself may be a secret."""
    kind = type(value)
    return value if isinstance(value, str) else f"{kind.__module__}.{kind.__qualname__}"


def _provider(value: Any) -> str | TokenProvider:
    """Return a provider or its name. Anything else is not shown: it may be a token."""
    text = value.strip() if isinstance(value, str) else ""
    place, _, attribute = text.rpartition(":")
    if place and attribute.isidentifier():
        return text
    if isinstance(value, str) or not is_provider(value):
        raise PropertyRefused(
            f"a {type(value).__name__} that is not a token provider: give `module:factory`, or in Python an object with"
            " a method token()"
        )
    provider: TokenProvider = value
    return provider


def _check_servers(value: str) -> None:
    """Refuse an invalid address: the client would take it for an absent host, or raise a bare ValueError."""
    for address in value.split(","):
        found = _ADDRESS.fullmatch(address.strip())
        if found is None or int(found["port"] or 0) > _PORT_MAX:
            raise PropertyRefused(f"{address.strip()!r} is not host:port; write it as in broker-1:9092,broker-2:9092")


def _parse(kind: PropertyKind, value: object) -> Value | None:
    if isinstance(value, list | tuple):  # bootstrap.servers as a TOML array
        value = ",".join(str(item) for item in value)
    text = str(value).strip()
    if kind == "bool":
        return BOOLS.get(text.lower())
    if kind == "int":
        return int(text) if text.isdecimal() else None
    return text


def _unknown(name: str) -> str:
    if name in OWNED:
        return f"cannot be set: {OWNED[name]}"
    if name in _OTHER_NAMES:
        return f"unknown property; its name in snapreplay is kafka.{_OTHER_NAMES[name]} (PEM files, plain user names)"
    near = difflib.get_close_matches(name, PROPERTIES, n=1)
    remedy = f"did you mean kafka.{near[0]}?" if near else "docs/settings.md lists all of them"
    return f"unknown property; {remedy}"


def contradictions(properties: Mapping[str, object]) -> list[str]:
    """Find what is wrong between accepted properties: one sentence each, none when they agree."""
    found = []
    protocol = str(properties.get("security.protocol", "PLAINTEXT"))
    ssl_names = sorted(name for name in properties if name.startswith("ssl."))
    if ssl_names and "SSL" not in protocol:
        found.append(f"kafka.{ssl_names[0]} has no effect with security.protocol={protocol}")
    sasl_names = sorted(name for name in properties if name.startswith("sasl."))
    if sasl_names and not protocol.startswith("SASL"):
        found.append(f"kafka.{sasl_names[0]} has no effect with security.protocol={protocol}")
    if protocol.startswith("SASL"):
        mechanism = properties.get("sasl.mechanism", "PLAIN")
        needed = _CREDENTIALS.get(str(mechanism), _LOGIN)
        found += [
            f"kafka.{name} is missing: security.protocol={protocol} with sasl.mechanism={mechanism} needs it"
            for name in needed
            if name not in properties
        ]
        found += [
            f"kafka.{name} has no effect with sasl.mechanism={mechanism}"
            for name in (*_LOGIN, TOKEN_PROVIDER)
            if name in properties and name not in needed
        ]
    return found
