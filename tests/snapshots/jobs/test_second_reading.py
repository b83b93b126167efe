"""The entries of chunks as Spark sees them; topics as DataFrames over fixed offsets, on a real broker; the service's
words for a connection as Java has them."""

import re

import pytest

from snapreplay.errors import UsageError
from snapreplay.snapshots.jobs.second_reading import Frozen, KafkaSource, decode_entries, java_options
from snapreplay.snapshots.jobs.session import SPARK_ERRORS
from tests.golden.make import FILES, GOLDEN
from tests.support.audited_log import Story
from tests.support.audited_topics import BrokerTopics
from tests.support.entries import entries_of


@pytest.mark.spark
@pytest.mark.parametrize(("snapshot_id", "sequence"), [("5eed", 1), ("5eed", 2), ("other", 1)])
def test_entries_of_a_chunk(spark, snapshot_id, sequence) -> None:
    """Keys and values as stored; none of a chunk that says it belongs elsewhere."""
    rows = [(0, 7, (FILES / "chunk.bin").read_bytes()), (0, 8, b"not asked for")]
    records = spark.createDataFrame(rows, "partition INT, offset LONG, value BINARY")
    found = decode_entries(records, {(0, 7): (snapshot_id, sequence)}).collect()
    chunk = GOLDEN["chunk"].entry
    expected = entries_of(chunk) if (snapshot_id, sequence) == ("5eed", 1) else {}  # type: ignore[arg-type] # it is a chunk
    assert {bytes(row.k): bytes(row.v) for row in found} == expected


@pytest.mark.kafka
@pytest.mark.spark
def test_a_part_of_a_topic_is_read_or_the_read_fails(spark, broker, unique) -> None:
    """Half-open offsets per partition, committed records only; once some are trimmed, never fewer in silence."""
    story = Story(BrokerTopics(broker.bootstrap_servers, unique("teller")), unique("read"), 2)
    story.tell({})
    source = KafkaSource(spark, broker.bootstrap_servers, {"client.id": "test"})

    def offsets(starts, ends):
        frozen = Frozen(story.log, starts, ends, "read_committed")
        rows = source.frame(frozen, ("partition", "offset")).collect()
        return sorted((row.partition, row.offset) for row in rows)

    (claim,), (genesis,) = (story.partitions[0].written[s] for s in ("claim", "genesis"))
    assert offsets([0, 2], [genesis + 1, 2]) == [(0, claim), (0, genesis)]
    story.trim(0, 5, 0)
    with pytest.raises(SPARK_ERRORS, match=r"out of range|may be lost"):
        offsets([0, 2], [genesis + 1, 2])


def test_plain_options_pass_and_others_are_left_out() -> None:
    """What says how to connect; nothing of how to produce or consume."""
    given = {"security.protocol": "SSL", "linger.ms": "5", "client.id": "me", "acks": "all"}
    assert java_options(given) == {"security.protocol": "SSL", "client.id": "me"}


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")]
)
def test_user_and_password_become_a_jaas_line(mechanism, module) -> None:
    """Quotes in a password do not end the line early."""
    options = java_options({"sasl.mechanism": mechanism, "sasl.plain.username": "u", "sasl.plain.password": 'a"b\\c'})
    line = options["sasl.jaas.config"]
    assert line.startswith(f"org.apache.kafka.common.security.{module} required")
    assert line.endswith('username="u" password="a\\"b\\\\c";')
    assert "sasl.plain.password" not in options


def test_pem_files_are_given_as_they_are(tmp_path) -> None:
    """The authorities by their file, the private key by its text, its password beside it."""
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_text("CERTIFICATE")
    key.write_text("PRIVATE KEY")
    options = java_options(
        {"ssl.cafile": "ca.pem", "ssl.certfile": str(chain), "ssl.keyfile": str(key), "ssl.password": "secret"}
    )
    assert options == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERTIFICATE",
        "ssl.keystore.key": "PRIVATE KEY",
        "ssl.key.password": "secret",
    }


def test_a_key_may_stand_in_the_certificate_file(tmp_path) -> None:
    """Without ssl.keyfile both are read from one file."""
    both = tmp_path / "both.pem"
    both.write_text("BOTH")
    options = java_options({"ssl.certfile": str(both)})
    assert options["ssl.keystore.key"] == options["ssl.keystore.certificate.chain"] == "BOTH"


def test_an_unreadable_pem_file_is_named() -> None:
    """Before Spark starts, by its path."""
    with pytest.raises(UsageError, match=r"/nowhere/c\.pem"):
        java_options({"ssl.certfile": "/nowhere/c.pem"})


@pytest.mark.parametrize(("given", "expected"), [("false", ""), ("False", ""), ("true", None)])
def test_host_names_are_checked_unless_told_otherwise(given, expected) -> None:
    """An empty algorithm is how the Java client is told."""
    options = java_options({"ssl.check.hostname": given})
    assert options.get("ssl.endpoint.identification.algorithm") == expected


def test_a_login_by_tokens_is_refused_with_another_way():
    """Spark's client is Java's. A user, as the hint says, is accepted."""
    with pytest.raises(UsageError, match=r"sasl\.mechanism=OAUTHBEARER: .* cannot ask a token provider") as refused:
        java_options({"sasl.mechanism": "OAUTHBEARER", "sasl.oauth.token.provider": "auth:made"})
    mechanism = re.search(r"kafka\.sasl\.mechanism=(\S+)", refused.value.hint)
    assert mechanism is not None
    assert java_options({"sasl.mechanism": mechanism[1], "sasl.plain.username": "u"})["sasl.mechanism"] == mechanism[1]
