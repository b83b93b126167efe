"""Changing what `get` handed out as its default is lost: the watch says so, and only then."""

import pytest

from snapreplay.app.harness import DefaultWatch, LostChange
from snapreplay.app.record import RawRecord
from snapreplay.state.map import MapState

RECORDS = [RawRecord("payments", 0, 7, 0, None, None)]


def watched(key="ada", value=None):
    state: MapState[str, dict[str, int]] = MapState(str, dict, default=dict)
    if value is not None:
        state[key] = value
    return state, DefaultWatch(state)


def test_a_changed_default_is_reported_with_record_and_key():
    """The message holds before, after and the ways out."""
    state, watch = watched()
    state.get("ada", {"n": 0})["n"] = 5
    with pytest.raises(LostChange) as caught:
        watch.check(RECORDS)
    for word in ("payments-0-7", "'ada'", "{'n': 0}", "{'n': 5}", "default="):
        assert word in str(caught.value)


@pytest.mark.parametrize("how", ["unchanged", "stored", "found", "none", "forgotten"])
def test_nothing_else_is_reported(how):
    """A default that is only read, or stored after all, or not used because the key was there, is fine."""
    state, watch = watched(value={"n": 1} if how == "found" else None)
    default = None if how == "none" else {"n": 0}
    got = state.get("ada", default)
    if how in {"stored", "found", "forgotten"}:
        got["n"] = 9
    if how == "stored":
        state["ada"] = got
    if how == "forgotten":
        watch.forget()
    watch.check(RECORDS)
    watch.check(RECORDS)


def test_a_watched_state_is_still_a_map_state():
    """Handlers may test its type; other states are left alone."""
    state, _ = watched()
    assert isinstance(state, MapState)
    DefaultWatch(object()).check(RECORDS)
