"""Topics as DataFrames over offsets that are fixed before anything is read.

The cluster is asked for offsets once, with the Java client that Spark brings. From then on every
read of a topic sees the same records, whatever is appended meanwhile. A trim beyond a fixed start
makes the read fail (`failOnDataLoss`); otherwise Spark would silently leave out what is gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # py4j ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from snapreplay.errors import RetryableError, UsageError
from snapreplay.snapshots.jobs.java_options import java_options

Isolation = Literal["read_committed", "read_uncommitted"]

_DEADLINE_MS = 30_000


class TopicMissing(UsageError):
    """A topic does not exist on this cluster."""


SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What an action raises; a failed read of Kafka raises the second, unwrapped (4.2.0)."""


class ClusterUnavailable(RetryableError):
    """The cluster did not answer."""


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

    def starts(self, topic: str) -> list[int]:
        """First offset of each partition.

        Raises:
            TopicMissing, ClusterUnavailable.
        """
        with _Admin(self._spark, self._options) as admin:
            return admin.offsets(
                topic, admin.partition_count(topic), "earliest", "read_uncommitted"
            )

    def freeze(self, topic: str, starts: Sequence[int], isolation: Isolation) -> Frozen:
        """The topic from `starts` to its present ends: last stable offsets under read_committed.

        Raises:
            TopicMissing, ClusterUnavailable.
        """
        with _Admin(self._spark, self._options) as admin:
            ends = admin.offsets(topic, len(starts), "latest", isolation)
        return Frozen(
            topic, starts, [max(pair) for pair in zip(starts, ends, strict=True)], isolation
        )

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


class _Admin:
    """The Java admin client, by way of the driver's JVM."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._jvm: Any = cast(Any, spark)._jvm  # noqa: SLF001 - Spark has no public way to its JVM
        properties = self._jvm.java.util.Properties()
        for name, value in options.items():
            properties.setProperty(name, value)
        properties.setProperty("default.api.timeout.ms", str(_DEADLINE_MS))
        properties.setProperty("request.timeout.ms", str(_DEADLINE_MS // 3))
        self._kafka = self._jvm.org.apache.kafka
        try:
            self._client = self._kafka.clients.admin.AdminClient.create(properties)
        except Py4JJavaError as error:
            raise UsageError(
                f"Spark's Kafka client refuses its settings: {_cause(error)}"
            ) from error

    def __enter__(self) -> _Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def partition_count(self, topic: str) -> int:
        names = self._jvm.java.util.ArrayList()
        names.add(topic)
        described = self._answer(self._client.describeTopics(names).allTopicNames(), topic)
        return int(described.get(topic).partitions().size())

    def offsets(
        self,
        topic: str,
        partition_count: int,
        which: Literal["earliest", "latest"],
        level: Isolation,
    ) -> list[int]:
        partitions = [
            self._kafka.common.TopicPartition(topic, number) for number in range(partition_count)
        ]
        wanted = self._jvm.java.util.HashMap()
        for partition in partitions:
            wanted.put(partition, getattr(self._kafka.clients.admin.OffsetSpec, which)())
        isolation = getattr(self._kafka.common.IsolationLevel, level.upper())
        options = self._kafka.clients.admin.ListOffsetsOptions(isolation)
        answer = self._answer(self._client.listOffsets(wanted, options).all(), topic)
        return [int(answer.get(partition).offset()) for partition in partitions]

    def _answer(self, future: Any, topic: str) -> Any:
        try:
            return future.get()
        except Py4JJavaError as error:
            cause = _cause(error)
            if "UnknownTopicOrPartition" in cause:
                raise TopicMissing(
                    f"there is no topic {topic!r} on this cluster: check the app id and kafka.bootstrap.servers",
                    topic=topic,
                ) from error
            raise ClusterUnavailable(
                f"the cluster does not answer a question about topic {topic!r}: {cause}",
            ) from error


def _as_json(topic: str, offsets: Sequence[int]) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(offsets)}})


def _cause(error: Py4JJavaError) -> str:
    cause = error.java_exception.getCause()
    return str((cause or error.java_exception).toString())
