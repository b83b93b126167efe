"""docs/runbook.md: its commands, typed as they stand at an app with a dead letter, and each section in the condition
of its alert."""

from __future__ import annotations

import ast
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.docs.snippets import blocks
from tests.support.deadlines import scaled
from tests.support.stage import until
from tests.support.symptoms import RUNBOOK, rules, written
from tests.support.tampering import configure, delete

ELSEWHERE = {
    "snapreplay audit APP --level changes --since-last": (
        "api/cli/test_spark_commands.py",
        '"--since-last", "--master"',
    ),
    "snapreplay retry --url URL --wait": ("hints/test_while_it_runs.py", 'type("retry", "--wait")'),
}
"""Commands that have a test of their own. That of the first looks at the options only: an audit needs Spark."""


HERE = "hints/test_runbook.py"
IN_ITS_CONDITION = {
    "PartitionFailed": (
        "hints/test_while_it_runs.py::test_what_was_accepted_is_looked_at_again_by_the_process_that_runs",
        'who.follow(way_with(hint, "snapreplay accept"))',
    ),
    "PartitionNotLive": (
        "hints/test_while_it_runs.py::test_an_input_that_was_deleted_is_brought_back_with_its_old_offsets",
        "write_again(",
    ),
    "PartitionNotOwned": ("service/test_crashes.py::test_killed_at_random_moments_under_load", "here.running("),
    "PartitionStuck": (
        "service/test_frozen.py::test_a_blocked_handler_does_not_outlast_the_deadline_of_a_stop",
        "os.kill(one.pid, signal.SIGUSR1)",
    ),
    "PartitionPaused": ("service/test_pause.py::test_a_pause_outlives_its_owner", '"resume"'),
    "BlockedByTransaction": (
        "hints/test_doctor.py::test_a_foreign_transaction_ends_with_a_producer_of_its_id",
        "successor.start()",
    ),
    "LagGrows": (
        "service/test_two_processes.py::test_a_lag_that_grows_is_worked_off_by_a_second_process",
        '"snapreplay_apply_seconds_sum"',
    ),
    "StandbyBehind": (
        "service/test_standbys.py::test_a_copy_that_falls_behind_is_told_and_goes_to_another_process",
        "slow.terminate",
    ),
    "CommitsInDoubt": (
        "hints/test_several_brokers.py::test_commits_that_are_not_answered_are_settled_and_their_broker_is_started",
        "await start(broker, behind",
    ),
    "PartitionRestarts": (
        "hints/test_while_it_runs.py::test_of_two_that_take_a_partition_from_each_other_one_is_stopped",
        "owners.pop(other).end()",
    ),
    "DeadLetters": (f"{HERE}::test_each_command_of_the_runbook_does_what_it_says", "in commands()"),
    "StandbyNotWarm": (
        "service/partition/test_standby.py::test_a_copy_that_is_ahead_of_the_log_is_kept",
        "copied.handed_over()",
    ),
    "CopyMissing": (
        "service/test_standbys.py::test_it_is_said_which_copies_are_missing_and_which_are_on_the_rack_of_their_owner",
        '["restore-status"',
    ),
    "NotRecoverable": (
        "hints/test_only_copy.py::test_a_deleted_topic_is_created_as_printed_while_its_owner_runs",
        "who.follow(",
    ),
    "SnapshotTooOld": (
        "hints/test_doctor.py::test_a_snapshot_that_its_input_outlives_no_longer_is_written_again",
        "who.follow(remedy)",
    ),
    "SnapshotsFail": (f"{HERE}::test_snapshots_that_fail_succeed_again", '"doctor"'),
    "DrillFailed": (
        "service/test_drill.py::test_a_chunk_that_was_damaged_on_its_way_is_told_and_mended",
        '"drill", "--wait"',
    ),
    "AuditFailed": ("service/test_audits.py::test_a_damaged_log_is_a_failure_with_its_findings", '"drill", "--wait"'),
    "ObjectiveMissed": (
        "service/test_restore_plan.py::test_an_objective_that_cannot_be_met_is_told_beside_the_plan",
        '["plan"',
    ),
    "ProposalsRejected": (
        "attacks/test_b18_forged_proposals.py::test_nothing_forged_is_adopted",
        "status.rejected_proposals",
    ),
    "AuditTooOld": (
        "snapshots/jobs/test_since_last.py::test_a_proof_is_recorded_and_built_on",
        "again = asked.audit()",
    ),
    "EntryTooLarge": (
        "snapreplay/app/test_upgrading.py::test_an_entry_of_half_of_its_limit_becomes_entries_of_its_elements",
        "upgraded(new, old)",
    ),
    "StreamTimeStands": ("service/live/test_idle_time.py::test_quiet_input_lets_time_pass", "idle_advance_ms"),
    "StreamTimeAhead": (f"{HERE}::test_a_record_of_next_week_is_refused_and_corrected", '"patch"'),
    "ProcessSilent": ("service/test_crashes.py::test_killed_at_random_moments_under_load", "children.start(kind"),
    "ProcessIdle": (
        "api/cli/test_service_commands.py::test_run_waits_for_its_beginning_and_goes_on",
        'invoke("restore-status"',
    ),
}
"""For each alert the test that makes its condition and does what the section says, and the words by which it does."""


def commands() -> list[str]:
    """All lines of the blocks, in order."""
    return [
        line for each in blocks("sh") if each.place.startswith("docs/runbook.md") for line in each.text.splitlines()
    ]


def test_what_is_carried_out_elsewhere_is() -> None:
    """The commands are still on the page, and their tests where they were."""
    assert ELSEWHERE.keys() <= set(commands())
    for file, words in ELSEWHERE.values():
        assert words in (Path(__file__).parents[1] / file).read_text(encoding="utf-8")


def test_each_section_begins_with_what_its_alert_says() -> None:
    """With severity and delay, one section for each alert: `python -m tests.support.symptoms` writes them."""
    text = RUNBOOK.read_text(encoding="utf-8")
    assert written(text) == text
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [rule["alert"] for rule in rules()]
    for section in text.split("\n## ")[1:]:
        assert re.findall(r"^\*\*(\w+)\.\*\*", section, re.MULTILINE) == ["Symptom", "Meaning", "Safe", "Do"], section


def test_each_section_is_carried_out_in_the_condition_of_its_alert() -> None:
    """The test is where it was, and still does it."""
    alerts = {rule["alert"].removeprefix("Snapreplay") for rule in rules()}
    assert alerts == {*IN_ITS_CONDITION}
    for alert, (test, words) in IN_ITS_CONDITION.items():
        file, _, name = test.partition("::")
        text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
        found = [each for each in ast.parse(text).body if getattr(each, "name", "") == name]
        assert [words in str(ast.get_source_segment(text, each)) for each in found] == [True], (alert, test)


@pytest.mark.kafka
async def test_each_command_of_the_runbook_does_what_it_says(newcomer) -> None:
    """All end well; the dead letter is read and sent back."""
    who = newcomer(errors={"policy": "dead_letter"})
    name = who.here.app.app_id
    who.change(f"apps.ledger({name!r}, apps.refuse_poison)")
    await who.type("topics", "ensure", "hinted:app", "--partitions", "1", "--set", "errors.policy=dead_letter")
    await who.type("init", "hinted:app")
    async with who.served() as service:
        await service.wait_live(scaled(60))
        await who.here.send([("k", {"amount": 1}), ("k", {"amount": 2, "poison": True})])
        await until(lambda: service.restore_status()[0].skipped_total == 1, "a dead letter")
        await who.type("pause", "-p", "0", "--reason", "repairs", "--wait")
        said = {}
        for command in commands():
            if command not in ELSEWHERE:
                words = command.replace("APP", "hinted:app").replace(" --url URL", "").split()
                assert words[0] == "snapreplay"
                said[command] = await who.type(*words[1:], code=None if words[1] == "doctor" else 0)
    assert "paused since" in said["snapreplay restore-status --url URL"]
    assert ": 1 live" in said["snapreplay restore-status --url URL"]
    assert said["snapreplay redrive APP"].startswith("sent back")


@pytest.mark.kafka
async def test_snapshots_that_fail_succeed_again(newcomer) -> None:
    """Their topic is gone: the operation and doctor name it, and it is created as they say."""
    who = newcomer()
    await who.here.prepare()
    async with who.served() as service:
        await service.wait_live(scaled(60))
        await who.here.feed(20)
        await who.here.all_processed(service)
        delete(who.here.bootstrap_servers, who.here.snapshots)
        wait = ("trigger-snapshot", "--wait")
        assert f"topic {who.here.snapshots} does not exist" in await who.type(*wait, code=1)
        assert who.here.snapshots in await who.type("doctor", "hinted:app", code=1)
        await who.type("topics", "ensure", "hinted:app")
        await until(lambda: service.restore_status()[0].recoverable, "recoverable again")
        await who.here.feed(20)
        await who.here.all_processed(service)
        assert "succeeded" in await who.type(*wait)


@pytest.mark.kafka
async def test_a_record_of_next_week_is_refused_and_corrected(newcomer, desk) -> None:
    """The topic takes it, and stream time is ahead. By the setting of the section it takes no second one; what the
    first has done is corrected."""
    who = newcomer()
    await who.here.prepare()
    here, limit = who.here, "message.timestamp.after.max.ms"
    producer = Producer({"bootstrap.servers": here.bootstrap_servers})
    refused: list[Any] = []

    def send() -> None:
        at_ms = int(time.time() * 1000) + 7 * 86_400_000
        producer.produce(
            *(here.input, b'{"amount": 1}', b"k", 0, lambda error, _: refused.append(error)), timestamp=at_ms
        )
        assert producer.flush(60) == 0

    configure(here.bootstrap_servers, here.input, limit, str(30 * 86_400_000))
    async with who.served() as service:
        await service.wait_live(scaled(60))
        send()
        await here.all_processed(service)
        assert service.restore_status()[0].stream_time_ms > (time.time() + 3600) * 1000
        configure(here.bootstrap_servers, here.input, limit, "3600000")
        send()
        assert [each and each.name() for each in refused] == [None, "INVALID_TIMESTAMP"]
        line = {"key": "k", "expected": {"n": 1, "sum": 1}, "value": {"n": 0, "sum": 0}}
        (desk / "wrong.jsonl").write_text(json.dumps(line))
        await who.type("patch", "hinted:app", "wrong.jsonl", "--reason", "of next week", "--yes")
        await here.feed(1)
        await here.all_processed(service)
        assert service.view(0)["k"] == {"n": 0, "sum": 0}
