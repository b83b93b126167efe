"""Tests of the time for which retention leaves a record where it is, by the growth of its log."""

import pytest

from snapreplay.app.record import RawRecord
from snapreplay.service.core.headroom import RECORD_BYTES, Growth, Retention, retention_of


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({}, Retention()),
        ({"retention.ms": "60000", "retention.bytes": "-1"}, Retention(60_000)),
        ({"retention.ms": "-1", "retention.bytes": "0"}, Retention(None, 0)),
        ({"cleanup.policy": "compact", "retention.ms": "60000"}, Retention()),
        ({"cleanup.policy": "compact,delete", "retention.ms": "60000"}, Retention(60_000)),
    ],
)
def test_a_topic_keeps_what_its_config_says(config, kept):
    """Compaction alone deletes nothing for age or size."""
    assert retention_of(config) == kept


def records(*offsets):
    """Return records of 20 bytes."""
    return [RawRecord("t", 0, offset, 0, b"key12", b"value12345", (("h", b"1234"),)) for offset in offsets]


def test_the_bytes_that_are_left_are_divided_by_the_growth():
    """By the oldest and the newest look; a gap in the offsets, such as a marker, takes nothing but its own bytes."""
    growth = Growth()
    growth.look(100.0, 1000)
    assert growth.seconds_left(10_000, 0) == "it has no record yet"
    growth.sample(records(0, 1, 3))
    assert growth.offset_bytes == RECORD_BYTES + 60 / 4
    assert growth.seconds_left(10_000, 0) == "its growth is not measured yet"
    growth.look(110.0, 1050)
    growth.look(120.0, 1200)
    assert growth.offsets_per_second == 10.0
    size = int(100 * growth.offset_bytes)
    assert growth.seconds_left(size, 0) == pytest.approx(10.0)
    assert growth.seconds_left(size, 40) == pytest.approx(6.0)
    assert growth.seconds_left(size, 500) == 0.0


def test_a_log_that_does_not_grow_deletes_nothing_and_one_that_shrank_is_measured_anew():
    """Another log may have taken its name."""
    growth = Growth()
    growth.sample(records(0))
    growth.look(0.0, 50)
    growth.look(0.0, 50)
    assert growth.seconds_left(10_000, 10) == "its growth is not measured yet"
    growth.look(10.0, 50)
    assert growth.seconds_left(10_000, 10) is None
    growth.look(20.0, 5)
    assert growth.seconds_left(10_000, 5) == "its growth is not measured yet"
