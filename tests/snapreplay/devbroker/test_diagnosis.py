"""Reading the likely cause from the broker's log."""

from pathlib import Path

import pytest

from snapreplay.devbroker.node import last_lines, likely_cause, port_was_taken, says_started

# Lines as Kafka 4.3.1 and its JVM write them.
LOGS = {
    "this Java is older than 17": "Error: java.lang.UnsupportedClassVersionError: kafka/Kafka",
    "not enough memory": "Error occurred: Could not reserve enough space for 9999999KB object heap",
    "the disk is full": "java.io.IOException: No space left on device",
    "the port is taken by another program": (
        "org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:20001:"
        " Address already in use."
    ),
    "another broker uses this data directory": (
        "org.apache.kafka.common.KafkaException: Failed to acquire lock on file .lock in /data."
    ),
    "the data directory belongs to another broker": (
        "java.lang.RuntimeException: Stored node id 1 doesn't match previous node id 2 in /data"
    ),
    "a jar is missing or damaged": "java.lang.NoClassDefFoundError: scala/Option",
    "the broker refuses its settings: Invalid value x for configuration num.io.threads": (
        "org.apache.kafka.common.config.ConfigException: Invalid value x for configuration num.io.threads."
    ),
    "the JVM does not start: Unrecognized VM option 'UseSerialGC2'": (
        "Unrecognized VM option 'UseSerialGC2'\nError: Could not create the Java Virtual Machine."
    ),
    "the JVM does not start: Too small maximum heap": (
        "Error occurred during initialization of VM\nToo small maximum heap"
    ),
    "the broker says: Found directory /data/tmp, 'tmp' is not in the form of topic-partition": (
        "org.apache.kafka.common.KafkaException: Found directory /data/tmp, 'tmp' is not in the"
        " form of topic-partition."
    ),
    "unknown": "[main] INFO KafkaServer - started",
}


@pytest.mark.parametrize(("cause", "line"), LOGS.items())
def test_the_cause_is_named_in_one_clause(tmp_path: Path, cause: str, line: str) -> None:
    """Each known failure has its sentence, and the rest is called unknown."""
    log = tmp_path / "broker.log"
    log.write_text(f"[main] INFO starting\n{line}\n\tat kafka.Kafka.main(Kafka.scala)\n")
    assert likely_cause(log) == cause


def test_what_stands_before_the_given_byte_is_history(tmp_path: Path) -> None:
    """A port that was taken in an earlier run is no cause of a failure today."""
    log = tmp_path / "broker.log"
    log.write_text("Address already in use\n")
    before = log.stat().st_size
    assert port_was_taken(log)
    assert not port_was_taken(log, before)
    assert not says_started(log, before)
    assert likely_cause(log, before) == "unknown"


def test_the_last_lines_are_what_was_said_at_the_end(tmp_path: Path) -> None:
    """Not where in Kafka it was said, nor the orderly stop, nor which classes the JVM does not keep. Of a log of
    gigabytes only the end is read, and without a log the diagnosis hides no error."""
    log = tmp_path / "broker.log"
    assert (likely_cause(log), last_lines(log)) == ("unknown", "")
    frames = "\tat a.B.c(B.java:1)\n" * 50
    chatter = "[main] INFO Metrics - Metrics reporters closed\n" * 50
    classes = "[0.929s][warning][cds] Pre JDK 6 class not supported by CDS: 48.0 scala/Choice\n" * 50
    log.write_text(f"first\nlast words\n{frames}\t... 4 more\n{chatter}{classes}")
    assert last_lines(log) == "first\nlast words"
    log.write_text("No space left on device\n" + "[main] INFO nothing\n" * 10_000)
    assert likely_cause(log) == "unknown"
    assert len(last_lines(log).splitlines()) == 12
