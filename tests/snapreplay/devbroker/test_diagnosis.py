"""Reading the broker's log."""

from pathlib import Path

import pytest

from snapreplay.devbroker.node import known_cause, port_was_taken, says_started


@pytest.mark.parametrize(
    ("line", "cause"),
    [  # as Kafka 4.3.1 writes them
        (
            "org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:20001:"
            " Address already in use.",
            "the port is taken by another program",
        ),
        (
            "java.lang.RuntimeException: Stored node id 1 doesn't match previous node id 2 in /data",
            "the data directory belongs to another broker",
        ),
        ("[main] INFO KafkaServer - started", ""),
    ],
)
def test_the_cause_is_named_in_one_clause(tmp_path: Path, line: str, cause: str) -> None:
    log = tmp_path / "broker.log"
    log.write_text(f"[main] INFO starting\n{line}\n\tat kafka.Kafka.main(Kafka.scala)\n")
    assert known_cause(log) == cause


def test_what_stands_before_the_given_byte_is_history(tmp_path: Path) -> None:
    """A port that was taken in an earlier run is no cause of a failure today."""
    log = tmp_path / "broker.log"
    log.write_text("Address already in use\n")
    before = log.stat().st_size
    assert port_was_taken(log)
    assert not port_was_taken(log, before)
    assert not says_started(log, before)
    assert known_cause(log, before) == ""
