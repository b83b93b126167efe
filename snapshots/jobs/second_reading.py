"""Snapshots read again by the Java client that Spark brings, and hashed by Spark itself: none of our code but the
decoding.

Offsets are fixed before: every read of a topic sees the same records, whatever is appended meanwhile. A trim below a
fixed start makes the read fail (`failOnDataLoss`). Without that option Spark would leave out what is gone and say
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from snapreplay.errors import UsageError
from snapreplay.snapshots.format.envelope import decode
from snapreplay.snapshots.format.records import Chunk, Manifest
from snapreplay.snapshots.proof.compaction import Written
from snapreplay.state.digest import EMPTY, MASK, Digest

ENTRIES = pa.schema({"partition": pa.int32(), "store": pa.string(), "k": pa.binary(), "v": pa.binary()})
"""An entry of a chunk, key and value as stored."""

_DIGESTS = """
    SELECT partition, store, count(*) AS entries,
        sum(a & 4294967295) AS a_low, sum(shiftrightunsigned(a, 32)) AS a_high,
        sum(b & 4294967295) AS b_low, sum(shiftrightunsigned(b, 32)) AS b_high
    FROM (SELECT partition, store, xxhash64(k, v) AS a, xxhash64(v, k) AS b FROM {entries})
    GROUP BY partition, store"""
# In halves: ANSI mode refuses sums beyond 2^63. Good for 2^31 entries of a partition.

_ROWS_MAX = 10_000
"""Of an Arrow batch."""

Batches = Iterator[pa.RecordBatch]
Wanted = Mapping[tuple[int, int], tuple[str, int]]
"""Partition and offset of a chunk → its snapshot's id and its sequence in it."""


def witnessed(
    spark: SparkSession,
    source: KafkaSource,
    topic: str,
    partition_count: int,
    snapshots: Mapping[int, Manifest | Written],
) -> dict[int, Digest]:
    """Map each partition to the digest of what is in the chunks of its snapshot. Partitions without entries are absent.

    Fails on a damaged chunk: only whole snapshots belong here.
    """
    wanted: Wanted = {
        (partition, ref.offset): (each.snapshot_id, ref.sequence)
        for partition, each in snapshots.items()
        for ref in each.chunks
    }
    if not wanted:
        return {}
    chunks = source.frame(_only(topic, partition_count, wanted), ("partition", "offset", "value"))
    rows = spark.sql(_DIGESTS, entries=decode_entries(chunks, wanted)).collect()
    found: dict[int, Digest] = {}
    for row in rows:
        found[row.partition] = found.get(row.partition, EMPTY).plus(_digest(row).in_store(row.store))
    return found


def decode_entries(records: DataFrame, wanted: Wanted) -> DataFrame:
    """Return the entries of the `wanted` chunks among records (partition, offset, value), in the columns of `ENTRIES`.

    A chunk that says that it is of another snapshot or place gives none, as a restore would refuse it.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            yield from _entry_rows(batch, wanted)

    return records.mapInArrow(run, from_arrow_schema(ENTRIES))


def _entry_rows(batch: pa.RecordBatch, wanted: Wanted) -> Batches:
    places = zip(*(batch.column(name).to_pylist() for name in ("partition", "offset")), strict=True)
    for (partition, offset), value in zip(places, batch.column("value"), strict=True):
        place = wanted.get((partition, offset))
        if place is None:
            continue
        chunk = decode(value.as_py())
        if not isinstance(chunk, Chunk):
            raise TypeError(f"a verified chunk is a {type(chunk).__name__}")
        if (chunk.snapshot_id, chunk.sequence) != place:
            continue
        for entries in _blocks(chunk):
            columns = [
                pa.repeat(pa.scalar(partition, pa.int32()), len(entries)),
                pa.repeat(chunk.store, len(entries)),
                pa.array([key for key, _ in entries], pa.binary()),
                pa.array([value for _, value in entries], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=ENTRIES)


def _blocks(chunk: Chunk) -> Iterator[list[tuple[bytes, bytes]]]:
    entries = chain.from_iterable(part.entries.items() for part in chunk.slices)
    while block := list(islice(entries, _ROWS_MAX)):
        yield block


def _only(topic: str, partition_count: int, wanted: Wanted) -> Frozen:
    """Freeze the topic from the first to the last of these records, per partition; nothing of the others."""
    starts, ends = [0] * partition_count, [0] * partition_count
    for number in {partition for partition, _ in wanted}:
        offsets = [offset for partition, offset in wanted if partition == number]
        starts[number], ends[number] = min(offsets), max(offsets) + 1
    return Frozen(topic, starts, ends, "read_uncommitted")


def _digest(row: Row) -> Digest:
    a, b = ((high << 32) + low for low, high in ((row.a_low, row.a_high), (row.b_low, row.b_high)))
    return Digest(row.entries, a & MASK, b & MASK)


Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True)
class Frozen:
    """A topic between two offsets per partition (index = partition number), half-open; `start <= end`."""

    topic: str
    starts: Sequence[int]
    ends: Sequence[int]
    isolation: Isolation


class KafkaSource:
    """Reads topics of one cluster. `options` are the service's client properties."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, options: Mapping[str, str]) -> None:
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
        UsageError: a PEM file cannot be read; or the login is by tokens of a provider in Python.
    """
    if options.get("sasl.mechanism") == "OAUTHBEARER":
        raise UsageError(
            "kafka.sasl.mechanism=OAUTHBEARER: Spark reads with Kafka's Java client, which cannot ask a token provider"
            " in Python",
            hint="give the job another login: a user, by --set kafka.sasl.mechanism=SCRAM-SHA-512 with"
            " kafka.sasl.plain.username and kafka.sasl.plain.password, or a client certificate",
        )
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
