"""Tests of what `tail` makes of our own records: keys and values as the app wrote them."""

import pytest

from snapreplay.api.cli.shown_records import Shower
from snapreplay.app.app import App
from snapreplay.app.record import RawRecord
from snapreplay.app.topic import Topic
from snapreplay.snapshots.format.envelope import encode
from snapreplay.snapshots.format.records import ChangesRecord
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.store import TimedStore
from snapreplay.state.stores import Stores


@pytest.mark.parametrize(
    ("key_type", "key", "shown"),
    [
        (str, "ada", "ada"),
        (int, -7, -7),
        (tuple[str, int], ("tea", -1), ["tea", -1]),
        (bytes, b"\xff", {"base64": "/w=="}),
    ],
)
def test_changes_are_shown_as_the_app_wrote_them(key_type, key, shown):
    """Tuple keys, values with the time of their last touch, and timers by store, name and key."""
    state = Stores(items=MapState(key_type, dict, ttl_ms=5))
    store = TimedStore(state.__snapreplay_store__(), ["ring"])
    store.stream_time_ms = 3
    state.items[key] = {"n": 1}
    state.items.schedule(key, 9)
    all_of(store.staging())
    changes = all_of(store.sealing()).changes
    entry = encode(ChangesRecord(1, 0, changes))
    app = App("a", inputs=[Topic("t")], state=lambda: state)
    document = Shower(app).document(RawRecord("a-increments", 0, 5, 0, None, entry))
    assert document["stores"] == {
        "items": [[shown, {"n": 1}]],
        "_timers": [[["items", "ring", shown], 9]],
    }
