"""Topics as DataFrames, by the Java client that Spark brings, over offsets that were fixed before.

Every read of a topic sees the same records, whatever is appended meanwhile. A trim below a fixed start makes the read
fail (`failOnDataLoss`). Without that option Spark would leave out what is gone and say nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # py4j ships no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from snapreplay.snapshots.jobs.java_options import java_options

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
