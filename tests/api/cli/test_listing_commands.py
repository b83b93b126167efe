"""processes, operations, snapshots and history against a service on a real port."""

import json

import pytest

from snapreplay.service.control.kafka_reads import PartitionHistory, PastOwnership, PointedSnapshot
from snapreplay.service.control.operations import RetryPartition, TriggerSnapshot
from snapreplay.service.control.status import Decision
from tests.support.fake_control import FakeControl, ago
from tests.support.served import peer


@pytest.fixture
def control() -> FakeControl:
    made = FakeControl()
    owner = PastOwnership(130, "p1", "host-a", "host-a", ago(100), 60, ago(1))
    snapshot = PointedSnapshot("5c1d", 41, 90, 88, ago(99), is_kept=True)
    decision = Decision(77, 50, "state-patched-7", "one key", "1 entry", "a typo", "ada@host-a", ago(50))
    made.histories = PartitionHistory(0, (owner,), (snapshot,), is_whole=False, decisions=(decision,))
    return made


def test_operations_are_listed_newest_first_with_what_became_of_them(invoke, url, control):
    """The id is one that `cancel` takes."""
    first = control.perform(TriggerSnapshot((0,), "before deploy"))
    control.finish(first, "failed")
    second = control.perform(RetryPartition(2))
    shown = invoke("operations", "--url", url)
    assert shown.exit_code == 0, shown.output
    newer, older = shown.stdout.index(second.id), shown.stdout.index(first.id)
    assert newer < older
    for text in ("snapshot", "failed", "before deploy", "retry", "running", "host-a"):
        assert text in shown.stdout
    (only,) = json.loads(invoke("operations", "-n", "1", "--url", url, "-o", "json").stdout)["items"]
    assert only["id"] == second.id
    assert invoke("cancel", second.id, "--url", url).exit_code == 0


def test_processes_are_listed_with_their_addresses_and_why_one_cannot_be_asked(invoke, url, control):
    """As the API has them."""
    control.peers = (peer("p2", "", 4, 5),)
    shown = invoke("processes", "--url", url)
    assert shown.exit_code == 0, shown.output
    items = json.loads(invoke("processes", "-o", "json", "--url", url).stdout)["items"]
    assert [(each["process_id"], each["state"]) for each in items] == [("p1", "self"), ("p2", "no_address")]
    for text in ("p1", "host-a", "self", "p2", "host-p2", "no_address", "4, 5", items[1]["last_error"]):
        assert text in shown.stdout


def test_a_history_has_owners_snapshots_and_decisions(invoke, url):
    """What the log says, and that it has more."""
    shown = invoke("history", "0", "--url", url)
    assert shown.exit_code == 0, shown.output
    for text in ("130", "host-a", "60", "5c1d", "41", "yes", "state-patched-7", "a typo", "ada@host-a"):
        assert text in shown.stdout
    assert "the log has more" in shown.stderr
    found = json.loads(invoke("history", "0", "--url", url, "-o", "json").stdout)
    assert found["is_whole"] is False
    for at in (found["ownerships"][0]["claimed_at"], found["snapshots"][0]["batch_at"], found["decisions"][0]["at"]):
        assert f" {at[:19]}Z " in shown.stdout, at
    missing = invoke("history", "99", "--url", url)
    assert (missing.exit_code, "partition 99 does not exist" in missing.stderr) == (2, True)


def test_snapshots_are_listed_with_what_points_to_them(invoke, url, control):
    """As the API has them: each with its state, its reason, its batch and its manifest."""
    shown = invoke("snapshots", "--url", url)
    assert shown.exit_code == 0, shown.output
    items = json.loads(invoke("snapshots", "-o", "json", "--url", url).stdout)["items"]
    assert [each["snapshot_id"] for each in items] == [each.snapshot_id for each in control.document().snapshots]
    for name in ("snapshot_id", "state", "reason", "batch", "manifest_offset", "host"):
        assert name.replace("_", " ") in shown.stdout
        assert all(str(each[name]) in shown.stdout for each in items if each[name] is not None), name
    assert len(json.loads(invoke("snapshots", "-n", "1", "-o", "json", "--url", url).stdout)["items"]) == 1
