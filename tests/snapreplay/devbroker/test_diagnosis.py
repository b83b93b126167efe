"""Reading the likely cause from the broker's log."""

from pathlib import Path

import pytest

from snapreplay.devbroker.node import likely_cause, port_was_taken, says_started

# Lines as Kafka 4.3.1 and its JVM write them.
LOGS = {
    "the port is taken by another program": (
        "org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:20001:"
        " Address already in use."
    ),
    "the data directory belongs to another broker": (
        "java.lang.RuntimeException: Stored node id 1 doesn't match previous node id 2 in /data"
    ),
    "the JVM does not start: Unrecognized VM option 'UseSerialGC2'": (
        "Unrecognized VM option 'UseSerialGC2'\nError: Could not create the Java Virtual Machine."
    ),
    "the broker says: Invalid value x for configuration num.io.threads": (
        "org.apache.kafka.common.config.ConfigException: Invalid value x for configuration num.io.threads."
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
