"""Topics as DataFrames, by the Java client that Spark brings, over offsets that were fixed before.

Every read of a topic sees the same records, whatever is appended meanwhile. A trim below a fixed start makes the read
fail (`failOnDataLoss`). Without that option Spark would leave out what is gone and say nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # py4j ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from snapreplay.errors import UsageError

Isolation = Literal["read_committed", "read_uncommitted"]

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What an action raises; a failed read of Kafka raises the second, unwrapped (4.2.0)."""


@dataclass(frozen=True)
class Frozen:
    """A topic between two offsets per partition (index = partition number), half-open; `start <= end`."""

    topic: str
    starts: Sequence[int]
    ends: Sequence[int]
    isolation: Isolation


class KafkaSource:
    """Reads topics of one cluster. `options` are the service's client properties."""

    def __init__(
        self, spark: SparkSession, bootstrap_servers: str, options: Mapping[str, str]
    ) -> None:
        self._spark = spark
        self._options = {**java_options(options), "bootstrap.servers": bootstrap_servers}

    def frame(self, frozen: Frozen, columns: Sequence[str]) -> DataFrame:
        """Return its records (`columns` of `partition`, `offset`, `value`, `headers`), with one Spark
        partition per partition of the topic.

        Running it fails if a start offset has been trimmed meanwhile.
        """
        options = {
            **{f"kafka.{name}": value for name, value in self._options.items()},
            "subscribe": frozen.topic,
            "startingOffsets": _as_json(frozen.topic, frozen.starts),
            "endingOffsets": _as_json(frozen.topic, frozen.ends),
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            "kafka.isolation.level": frozen.isolation,
            # Each read ends in an empty long poll: 0.15 s for a tiny one instead of 0.6 s
            # (measured).
            "kafka.fetch.max.wait.ms": "20",
            "kafka.max.poll.records": "5000",
        }
        return self._spark.read.format("kafka").options(**options).load().select(*columns)


def _as_json(topic: str, offsets: Sequence[int]) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(offsets)}})


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
