"""operations, history and group-changes against a service on a real port."""

from __future__ import annotations

import json

import pytest

from snapreplay.service.control.partition_history import Ownership, PartitionHistory, PointedSnapshot
from snapreplay.service.control.protocol import Retry, TriggerSnapshot
from snapreplay.service.core.group_changes import GroupChange, GroupMember
from tests.support.fake_control import NOW, FakeControl, ago

EVE = GroupMember("p9", "eve", "host-9")


@pytest.fixture
def control() -> FakeControl:
    made = FakeControl()
    made.group_changes = (
        GroupChange(8, NOW, 2, (0, 1), expelled=(EVE,), is_anew=True),
        GroupChange(7, ago(60), 3, (0,), joined=(EVE,)),
    )
    owner = Ownership(130, "p1", "host-a", "host-a", ago(100), 60, ago(1))
    snapshot = PointedSnapshot("5c1d", 41, 90, 88, ago(99), is_kept=True)
    made.histories = PartitionHistory(0, (owner,), (snapshot,), is_whole=False)
    return made


def test_operations_are_listed_newest_first_with_what_became_of_them(invoke, url, control):
    """The id is one that `cancel` takes."""
    first = control.perform(TriggerSnapshot((0,), "before deploy"))
    control.finish(first, "failed")
    second = control.perform(Retry(2))
    shown = invoke("operations", "--url", url)
    assert shown.exit_code == 0, shown.output
    newer, older = shown.stdout.index(second.id), shown.stdout.index(first.id)
    assert newer < older
    for text in ("snapshot", "failed", "before deploy", "retry", "running", "host-a"):
        assert text in shown.stdout
    (only,) = json.loads(invoke("operations", "-n", "1", "--url", url, "-o", "json").stdout)["items"]
    assert only["id"] == second.id
    assert invoke("cancel", second.id, "--url", url).exit_code == 0


def test_a_history_has_owners_and_snapshots(invoke, url):
    """What the log says, and that it has more."""
    shown = invoke("history", "0", "--url", url)
    assert shown.exit_code == 0, shown.output
    for text in ("130", "host-a", "60", "5c1d", "41", "True"):
        assert text in shown.stdout
    assert "the log has more" in shown.stderr
    assert json.loads(invoke("history", "0", "--url", url, "-o", "json").stdout)["is_whole"] is False
    missing = invoke("history", "99", "--url", url)
    assert (missing.exit_code, "partition 99 does not exist" in missing.stderr) == (2, True)


def test_changes_of_the_group_say_who_came_and_went(invoke, url):
    """As each process has seen it; of each the newest ones."""
    shown = invoke("group-changes", "--url", url)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.index("eve expelled; this process came back") < shown.stdout.index("eve joined")
    (one,) = json.loads(invoke("group-changes", "-n", "1", "--url", url, "-o", "json").stdout)["items"]
    assert [each["generation"] for each in one["changes"]] == [8]
