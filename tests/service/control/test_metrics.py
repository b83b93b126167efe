"""Metrics: names, values, series that exist."""

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from snapreplay.service.clock import time_of
from snapreplay.service.control.counters import EVENTS, PartitionMetrics, Result
from snapreplay.service.control.metrics import DocumentCollector
from snapreplay.service.control.status import BlockedTopic, InputStatus, OpenTransactionStatus, StandbyStatus
from snapreplay.service.core.assignment import Copies
from snapreplay.service.core.phase import CopyState, Phase
from tests.support.fake_control import ASSIGNED, LIVE, LOADING, FakeControl

Key = tuple[str, tuple[tuple[str, str], ...]]


def scrape(control: FakeControl) -> dict[Key, float]:
    """Every sample as Prometheus would read it: the text is parsed by the strict OpenMetrics parser."""
    text = generate_latest(DocumentCollector(control.document(), EVENTS), version="1.0.0").decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labels(partition: int, **more: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"app": "ledger", "partition": str(partition), **more}.items()))


def test_values_are_those_of_control():
    """What is: read from the statuses at the moment of the scrape."""
    found = scrape(FakeControl())
    assert found["snapreplay_input_lag_records", labels(0)] == 22
    assert found["snapreplay_batch", labels(0)] == 60
    assert found["snapreplay_owner_epoch", labels(0)] == 130
    assert found["snapreplay_records_total", labels(0)] == 480
    assert found["snapreplay_skipped_total", labels(0)] == 2
    assert found["snapreplay_restore_progress_ratio", labels(1)] == 0.125
    assert found["snapreplay_restore_attempt", labels(1)] == 2
    pointed_at = LIVE.last_pointed_snapshot_at
    assert pointed_at
    assert found["snapreplay_snapshot_last_timestamp_seconds", labels(0)] == pointed_at.timestamp()
    assert found["snapreplay_partitions_assigned", (("app", "ledger"),)] == 4
    assert found["snapreplay_ready", (("app", "ledger"),)] == 0


def test_a_store_has_its_own_series():
    """Their sum is that of the state; where nothing is due, there is no sample."""
    found = scrape(FakeControl())
    for store, *values in (("carts", 200, 20_000, 90, 1000.5), ("items", 1000, 30_000, 700, None)):
        for name, value in zip(
            ("state_entries", "state_bytes", "state_largest_entry_bytes", "next_due_timestamp_seconds"),
            values,
            strict=True,
        ):
            assert found.get((f"snapreplay_{name}", labels(0, store=store))) == value


def test_copies_are_counted_by_state():
    """Each state has a series; a copy shows how far it is behind, and how often it was proven."""
    copies = (StandbyStatus(4, CopyState.WARM, lag_offsets=7, digests_compared=12), StandbyStatus(5))
    document = msgspec.structs.replace(FakeControl().document(), standbys=copies)
    found = {
        (sample.name, sample.labels.get("state") or sample.labels.get("partition")): sample.value
        for family in DocumentCollector(document, CollectorRegistry()).collect()
        for sample in family.samples
        if "standby" in sample.name
    }
    states = {
        ("snapreplay_standbys", "loading"): 1,
        ("snapreplay_standbys", "warm"): 1,
        ("snapreplay_standbys", "ahead"): 0,
    }
    behind = {("snapreplay_standby_lag_offsets", "4"): 7, ("snapreplay_standby_lag_offsets", "5"): 0}
    proven = {("snapreplay_standby_digests_total", "4"): 12, ("snapreplay_standby_digests_total", "5"): 0}
    assert found == states | behind | proven


def test_missing_copies_are_counted_over_the_partitions_of_a_process():
    """Four partitions are to have two copies each, and have one. Before anybody has said so, nothing is."""
    control = FakeControl()
    document = msgspec.structs.replace(control.document(), copies=Copies(2, 1, "why", 3, "why"))
    found = {
        sample.name.removeprefix("snapreplay_copies_"): sample.value
        for family in DocumentCollector(document, CollectorRegistry()).collect()
        for sample in family.samples
    }
    assert (found["wanted"], found["missing"], found["on_owners_rack"]) == (8, 4, 3)
    assert not [name for name, _ in scrape(control) if "snapreplay_copies" in name]


def test_phase_is_one_of_all():
    """Exactly one phase of a partition is 1, and every phase has a series."""
    found = scrape(FakeControl([LOADING]))
    phases = {phase: found["snapreplay_partition_phase", labels(1, phase=phase)] for phase in Phase}
    assert [phase for phase, value in phases.items() if value] == [Phase.LOADING]


def test_unknown_values_have_no_sample():
    """Not known is absent, never 0: a lag of 0 would mean that all is read."""
    unread = msgspec.structs.replace(
        LIVE, inputs=(InputStatus("a", 5, 9), InputStatus("b", 5)), last_pointed_snapshot_at=None
    )
    found = scrape(FakeControl([unread, ASSIGNED]))
    assert ("snapreplay_input_lag_records", labels(0)) not in found
    assert ("snapreplay_snapshot_last_timestamp_seconds", labels(0)) not in found
    assert ("snapreplay_batch", labels(3)) not in found
    assert ("snapreplay_recoverable", labels(3)) not in found


def test_an_outlook_is_a_number():
    """0 is the alarm; what an open transaction holds back is added up over the inputs."""
    blocked = (BlockedTopic("a", 5, 2), BlockedTopic("b", 7, 3))
    bad = msgspec.structs.replace(LIVE, recoverable=False, blocked_by_open_transaction=blocked)
    found = scrape(FakeControl([bad]))
    assert found["snapreplay_recoverable", labels(0)] == 0
    assert found["snapreplay_blocked_records", labels(0)] == 5
    good = msgspec.structs.replace(LIVE, recoverable=True)
    found = scrape(FakeControl([good]))
    assert found["snapreplay_recoverable", labels(0)] == 1
    assert found["snapreplay_blocked_records", labels(0)] == 0


def test_both_lags_and_the_age_of_a_transaction_are_numbers():
    """The second lag counts what lies behind open transactions. Of a hanging one the last record counts."""
    known = OpenTransactionStatus(9, 0, 5, "other", time_of(1_000_000), 60.0, time_of(2_000_000))
    blocked = (
        BlockedTopic("a", 5, 2, known),
        BlockedTopic("b", 7, 3, OpenTransactionStatus(8, 0, 7, last_record_at=time_of(3_000_000))),
        BlockedTopic("c", 7, 3),
    )
    inputs = (InputStatus("a", 5, 5, 9), InputStatus("b", 7, 8, 8))
    found = scrape(FakeControl([msgspec.structs.replace(LIVE, inputs=inputs, blocked_by_open_transaction=blocked)]))
    assert found["snapreplay_input_lag_records", labels(0)] == 1
    assert found["snapreplay_input_high_watermark_lag_records", labels(0)] == 5
    since = {key[1]: value for key, value in found.items() if key[0].startswith("snapreplay_blocking_transaction")}
    assert since == {labels(0, topic="a"): 1000, labels(0, topic="b"): 3000}


def test_partition_that_was_handed_over_is_gone():
    """Its new owner exports it: two owners would be a false alarm."""
    closed = msgspec.structs.replace(LIVE, phase=Phase.CLOSED)
    found = scrape(FakeControl([closed]))
    assert found["snapreplay_partitions_assigned", (("app", "ledger"),)] == 0
    assert ("snapreplay_batch", labels(0)) not in found


def test_events_are_counted_per_partition():
    """What happens: each call of a runner shows up in its own series."""
    counted = PartitionMetrics("ledger", 77)
    counted.batch_committed(0.004)
    counted.batch_committed(0.3)
    counted.batch_applied(0.02)
    counted.snapshot_ended(Result.SUCCEEDED, seconds=1.5, size_bytes=2000)
    counted.snapshot_ended(Result.FAILED)
    counted.restore_ended(Result.SUCCEEDED, "replay", seconds=0.2)
    counted.restore_ended(Result.ABANDONED, None)
    counted.fenced()
    counted.failed("UsageError", "refuse")
    found = scrape(FakeControl())
    assert found["snapreplay_batches_total", labels(77)] == 2
    assert found["snapreplay_commit_seconds_sum", labels(77)] == pytest.approx(0.304)
    assert found["snapreplay_commit_seconds_bucket", labels(77, le="0.005")] == 1
    assert found["snapreplay_apply_seconds_sum", labels(77)] == pytest.approx(0.02)
    assert found["snapreplay_snapshots_total", labels(77, result="failed")] == 1
    assert found["snapreplay_snapshot_seconds_count", labels(77)] == 1
    assert found["snapreplay_snapshot_bytes_sum", labels(77)] == 2000
    assert found["snapreplay_restores_total", labels(77, result="succeeded", mode="replay")] == 1
    assert found["snapreplay_restores_total", labels(77, result="abandoned", mode="none")] == 1
    assert found["snapreplay_restore_seconds_count", labels(77)] == 1
    assert found["snapreplay_fences_total", labels(77)] == 1
    assert found["snapreplay_failures_total", labels(77, kind="UsageError", reaction="refuse")] == 1


def test_fences_start_at_zero():
    """The first fence must show as an increase, so the series exists before it."""
    PartitionMetrics("ledger", 78)
    assert scrape(FakeControl())["snapreplay_fences_total", labels(78)] == 0
