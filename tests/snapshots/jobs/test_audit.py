"""The audit of what a service left behind, whole and running."""

import msgspec
import pytest

from snapreplay.snapshots.jobs import audit as module
from snapreplay.snapshots.jobs.audit import Topics, as_text, freeze, main
from snapreplay.snapshots.jobs.report import AuditReport, RecordedDecision, Violation
from tests.support.audited_log import Story

pytestmark = pytest.mark.timeout(300)  # the first one pays for Spark's start


@pytest.fixture(scope="module")
def story(broker, unique):
    """A whole log of two partitions, whose owner is in the middle of its next transaction."""
    story = Story(broker.bootstrap_servers, unique("audited"), 2)
    story.tell({})
    story.open_transaction(0)
    return story


def test_a_whole_log_is_fine(spark, broker, story, capsys) -> None:
    """Exit code 0, nothing found, everything looked at: aborted transactions and markers are no gaps, an open
    transaction is neither looked at nor waited for."""
    arguments = ["--bootstrap-servers", broker.bootstrap_servers, "--app-id", story.app_id]
    assert main([*arguments, "--output", "json"]) == 0
    report = msgspec.json.decode(capsys.readouterr().out, type=AuditReport)
    assert report.findings == []
    assert (report.app_id, report.partition_count) == (story.app_id, 2)
    written = [partition.written for partition in story.partitions]
    assert report.checked == {
        "claims": 4,
        "increments": 12,
        "changes_records": 16,
        "pointers": 4,
        "manifests": 4,
        "chunks": sum(len(w["snapshot2"]) + len(w["snapshot4"]) for w in written),
        "input_records": 40,
        "snapshots_hashed": 2,
        "entries_hashed": sum(len(partition.state) for partition in story.partitions),
    }
    assert set(report.notes.values()) == {0}


@pytest.mark.slow
def test_an_owner_that_trims_meanwhile_is_waited_out(spark, broker, unique, monkeypatch) -> None:
    """What was trimmed between fixing the offsets and reading is read again from the new starts."""
    story = Story(broker.bootstrap_servers, unique("trimming"), 1)
    story.tell({})
    frozen: list[Topics] = []

    def freeze_then_trim(*arguments):
        frozen.append(freeze(*arguments))
        pointer = story.partitions[0].pointers[0]
        story.trim(0, pointer.increment_offset, pointer.first_chunk_offset)
        return frozen[-1]

    monkeypatch.setattr(module, "freeze", freeze_then_trim)
    report = module.audit(broker.bootstrap_servers, story.app_id)
    assert report.findings == []
    assert report.notes["trimmed_pointers"] == 1
    assert [topics.log.starts == [0] for topics in frozen] == [True, False]


def test_an_app_that_is_not_there_cannot_be_audited(spark, broker, unique, capsys) -> None:
    """Exit code 2, with the topic's name: no findings is not the same as nothing looked at."""
    name = unique("nobody")
    assert main(["--bootstrap-servers", broker.bootstrap_servers, "--app-id", name]) == 2
    assert f"{name}-increments" in capsys.readouterr().err


def test_what_was_found_and_decided_is_printed_with_its_place() -> None:
    """The table names check, topic, partition, offset and what is wrong; a clean audit of a log that an operator or an
    owner intervened in says so. Findings alone decide the exit code, and sort by check and place."""
    found = [Violation("chain", "a-increments", 3, offset, "gap") for offset in (17, 9)]
    by_hand = RecordedDecision(3, 17, "input-gap-1", "goes on at 130", "known outage", "ada@here")
    owned = RecordedDecision(3, 17, "increments-replaced-1", "is written", "gone", "process 7")
    wrong = AuditReport("a", 4, {"increments": 1234}, sorted(found), {"foreign_records": 0}, 1.0)
    fine = AuditReport("a", 4, {}, [], {"foreign_records": 7}, 1.0, [by_hand, owned])
    assert (wrong.exit_code, fine.exit_code) == (1, 0)
    assert as_text(wrong).splitlines()[1:] == [
        "  checked         1,234 increments",
        "  FINDING  chain: a-increments-3 offset 9: gap",
        "  FINDING  chain: a-increments-3 offset 17: gap",
        "findings",
    ]
    assert as_text(fine).splitlines()[1:] == [
        "  note                7 foreign_records",
        "  ACCEPTED input-gap-1: partition 3 offset 17, by ada@here: known outage (goes on at 130)",
        "  DECIDED  increments-replaced-1: partition 3 offset 17, by process 7: gone (is written)",
        "fine",
    ]
