"""The two roads."""

from snapreplay.service.core.road import Road


def test_each_road_is_the_others_fallback():
    """And their values are those of restore.road."""
    assert Road("changes").other is Road.REPLAY
    assert Road("replay").other is Road.CHANGES
