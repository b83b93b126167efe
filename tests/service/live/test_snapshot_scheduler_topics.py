"""Whoever waits for a snapshot when its topic is another one. Without a broker."""

from types import SimpleNamespace
from typing import Any

from snapreplay.service.core.topic_changes import TopicChange
from snapreplay.service.live.snapshot_scheduler import SnapshotScheduler


def test_who_waits_for_a_pointer_into_a_deleted_topic_waits_for_the_next_snapshot():
    """The pointer is dropped: nothing else would ever answer."""
    keeper: Any = SnapshotScheduler.__new__(SnapshotScheduler)
    keeper._context = SimpleNamespace(partition=0)
    keeper._watch = SimpleNamespace(topic_missing=lambda _: None)
    keeper._committer = SimpleNamespace(
        chain=SimpleNamespace(in_new_topic=lambda *_: SimpleNamespace())
    )
    heard: list[str] = []
    keeper._task, keeper._waiting = None, []
    keeper._pointing = [("old", [lambda state, *_: heard.append(state)])]
    keeper.topic_changed(TopicChange("snaps", "A", "B"))
    assert keeper._pointing == []
    keeper._fail_waiting("why")
    assert heard == ["failed"]
