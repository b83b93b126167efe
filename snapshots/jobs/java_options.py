"""The service's client properties as the Java client of Spark names them. Pure except for reading PEM files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from snapreplay.errors import UsageError

_AS_THEY_ARE = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.kerberos.service.name",
    "client.id",
    "retry.backoff.ms",
    "metadata.max.age.ms",
    "connections.max.idle.ms",
)


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties for connecting, without those for producing and consuming.

    User and password become a JAAS line. The Java client also accepts PEM files, but a private key
    only as text.

    Raises:
        UsageError: a PEM file cannot be read.
    """
    given = {name: options[name] for name in _AS_THEY_ARE if name in options}
    if "sasl.plain.username" in options:
        given["sasl.jaas.config"] = _jaas(options)
    if "ssl.cafile" in options:
        given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": options["ssl.cafile"]}
    if "ssl.certfile" in options:
        given |= _key_store(options)
    if options.get("ssl.check.hostname", "true").lower() == "false":
        given["ssl.endpoint.identification.algorithm"] = ""
    return given


def _jaas(options: Mapping[str, str]) -> str:
    scram = options.get("sasl.mechanism", "").startswith("SCRAM")
    module = "scram.ScramLoginModule" if scram else "plain.PlainLoginModule"
    user, password = options["sasl.plain.username"], options.get("sasl.plain.password", "")
    return (
        f"org.apache.kafka.common.security.{module} required"
        f" username={json.dumps(user)} password={json.dumps(password)};"
    )


def _key_store(options: Mapping[str, str]) -> dict[str, str]:
    certificates = options["ssl.certfile"]
    store = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": _text(certificates),
        "ssl.keystore.key": _text(options.get("ssl.keyfile", certificates)),
    }
    if "ssl.password" in options:
        store["ssl.key.password"] = options["ssl.password"]
    return store


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise UsageError(f"the PEM file {path} cannot be read: {error.strerror}") from error
