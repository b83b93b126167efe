"""Tests of what the watch over the cluster's topics means for one partition."""

from types import SimpleNamespace
from typing import Any

from snapreplay.service.partition.incarnation import TopicChanges, TopicsSeen

CONTEXT: Any = SimpleNamespace(
    input_names=("in",), increments=SimpleNamespace(topic="log"), snapshots=SimpleNamespace(topic="snaps")
)
RECORDED = {"in": "A", "log": "B", "snaps": "C"}


class Told:
    """A note of what was heard."""

    def __init__(self):
        self.inputs: list[TopicChanges] = []
        self.own: list[TopicChanges] = []
        self.seen = TopicsSeen(CONTEXT, self.inputs.append, self.own.append)

    def see(self, **found):
        self.seen.seen(RECORDED, RECORDED | found)


def test_an_input_is_told_each_time():
    """Looking again costs little, not looking may cost everything."""
    told = Told()
    told.see(**{"in": "Z"})
    told.see(**{"in": "Z"})
    assert [change.found_id for (change,) in told.inputs] == ["Z", "Z"]
    assert told.own == []


def test_an_own_topic_is_told_once_by_the_second_look():
    """A broker that lags may not know it yet; and once more when it is again what is recorded."""
    told = Told()
    told.see(log="Z")
    assert told.own == []
    for _ in range(3):
        told.see(log="Z")
    assert [[change.topic for change in changes] for changes in told.own] == [["log"]]
    told.see()
    told.see(log="Z")
    told.see()
    told.see()
    assert [len(changes) for changes in told.own] == [1, 0]
