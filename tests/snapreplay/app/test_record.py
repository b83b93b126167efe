"""Tests that what a handler sees of a record is the same on every pass."""

import pytest

from snapreplay.app.record import RawRecord, Record


def test_id_names_topic_partition_and_offset():
    """A record's id is its place in Kafka."""
    assert Record("app", "pay-ments", 3, 1042, 0, "k", None).id == "pay-ments-3-1042"


def test_random_depends_on_app_and_record_only():
    """Two passes over a record draw the same numbers; another record or app draws others."""
    one = Record("app", "payments", 3, 7, 5, "k", {"amount": 1})
    again = Record("app", "payments", 3, 7, 6, "other", None)
    draws = [record.random.random() for record in (one, again, one)]
    assert len(set(draws)) == 1
    assert Record("app", "payments", 3, 8, 5, "k", None).random.random() != draws[0]
    assert Record("other", "payments", 3, 7, 5, "k", None).random.random() != draws[0]


def test_records_are_frozen():
    """A handler cannot change what the next line of its batch would see."""
    with pytest.raises(AttributeError):
        setattr(RawRecord("payments", 0, 0, 0, None, None), "offset", 1)  # noqa: B010 - mypy knows better
