"""Reading the broker's log."""

from pathlib import Path

from snapreplay.devbroker.node import port_was_taken, says_started


def test_what_stands_before_the_given_byte_is_history(tmp_path: Path) -> None:
    """A port that was taken in an earlier run is no cause of a failure today."""
    log = tmp_path / "broker.log"
    log.write_text("Address already in use\n")
    before = log.stat().st_size
    assert port_was_taken(log)
    assert not port_was_taken(log, before)
    assert not says_started(log, before)
