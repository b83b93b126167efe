"""Source files that are tested elsewhere than in a file of the same name."""

# Source files without a test file of their own: the test file that covers them, and why there.
# A directory name ends in "/" and speaks for the files in it.
COVERED_BY: dict[str, tuple[str, str]] = {
    "service/decisions/start_offsets.py": (
        "tests/service/decisions/test_init.py",
        "init writes them into the genesis",
    ),
    "service/kafka/log_history.py": (
        "tests/service/kafka/test_reader.py",
        "a reader asks with it",
    ),
    "service/kafka/read_errors.py": (
        "tests/service/kafka/test_reader.py",
        "a reader raises them",
    ),
    "service/recovery/anchors.py": (
        "tests/service/recovery/test_inputs.py",
        "the comparison of inputs asks them",
    ),
    "service/decisions/owned_before.py": (
        "tests/service/decisions/test_first_start.py",
        "who was owned before is not new",
    ),
    "service/topics/way_back.py": (
        "tests/service/recovery/test_copy_in_log.py",
        "a state in memory is dropped only if it finds a way; the watch of a LIVE partition asks the same",
    ),
    "service/program.py": (
        "tests/service/test_service.py",
        "a service runs inside of it",
    ),
    "service/partition/incarnation.py": (
        "tests/service/partition/test_runner.py",
        "the runner has one at a time, and decides what its end means",
    ),
    "snapreplay/app/sent.py": (
        "tests/snapreplay/app/test_harness.py",
        "what a harness shows",
    ),
    "service/live/at_work.py": (
        "tests/service/partition/test_runner.py",
        "a retry has succeeded when the partition is at work",
    ),
    "service/live/snapshot_requests.py": (
        "tests/service/live/test_snapshot_scheduler.py",
        "who waits for a snapshot hears what became of it",
    ),
    "service/live/dead_letter_check.py": (
        "tests/service/live/test_pipeline.py",
        "a flood stops the partition",
    ),
    "service/topics/proposals.py": (
        "tests/service/live/test_adopter.py",
        "the adopter reads with it; the forgeries are in tests/attacks, B18",
    ),
    "service/topics/manifests.py": (
        "tests/service/topics/test_log_bounds.py",
        "the check for a cut log looks for the newest one",
    ),
    "api/requests.py": (
        "tests/api/routes/test_operations.py",
        "what these routes take",
    ),
    "service/runner_requests.py": (
        "tests/service/test_service.py",
        "snapshots, adoptions and retries of a running service go through it",
    ),
    "service/core/next_steps.py": (
        "tests/service/core/test_ownership.py",
        "what the machine answers: data without behaviour",
    ),
    "service/core/outcomes.py": (
        "tests/service/core/test_ownership.py",
        "what the machine is told: data without behaviour",
    ),
    "service/core/effects.py": (
        "tests/service/core/test_recovery.py",
        "the machine asks for them",
    ),
    "service/core/events.py": (
        "tests/service/core/test_recovery.py",
        "the machine is told them; mypy knows whether each is in the union",
    ),
    "service/clock.py": (
        "tests/service/live/test_idle_time.py",
        "on quiet input timers fire by it",
    ),
    "service/core/kafka_errors.py": (
        "tests/service/core/test_ownership.py",
        "what each of them is followed by",
    ),
    "service/core/restore_mode.py": (
        "tests/service/core/test_recovery.py",
        "each is the other's fallback",
    ),
    "snapshots/log/loading.py": (
        "tests/service/topics/test_snapshots.py",
        "a recovery loads with it; damaged ones: tests/damage",
    ),
    "snapshots/log/reading.py": ("tests/snapshots/log/test_by_replay.py", "a replay asks with it"),
    "snapshots/log/by_changes.py": (
        "tests/service/recovery/test_follower.py",
        "the first of its two modes",
    ),
    "snapshots/log/place.py": ("tests/snapshots/log/test_decode.py", "errors name it"),
    "service/publish/owned.py": (
        "tests/service/decisions/test_init.py",
        "every decision is written in one",
    ),
    "service/core/inspected.py": (
        "tests/service/kafka/test_diagnostics.py",
        "it is what they find",
    ),
    "service/core/owners.py": (
        "tests/service/core/test_ownership.py",
        "the machine of ownership raises them",
    ),
    "service/topics/reading.py": (
        "tests/service/topics/test_claims.py",
        "whatever reads, reads with it",
    ),
    "service/topics/stale_leader.py": (
        "tests/service/recovery/test_inputs.py",
        "an input that seems too short is asked for with it",
    ),
    "snapshots/proof/": (
        "tests/snapshots/proof/test_partition.py",
        "each check has a fault there",
    ),
    "snapshots/jobs/fixed_logs.py": (
        "tests/snapshots/jobs/test_audit.py",
        "a job reads through it",
    ),
    "snapshots/jobs/spark_tasks.py": ("tests/snapshots/jobs/test_audit.py", "a job runs in them"),
    "snapshots/jobs/causes.py": ("tests/snapshots/jobs/test_audit.py", "a job that stops says it"),
    "snapshots/jobs/compaction_task.py": (
        "tests/snapshots/jobs/test_compaction.py",
        "its first step",
    ),
    "snapshots/jobs/compaction_report.py": (
        "tests/snapshots/jobs/test_compaction.py",
        "what it reports",
    ),
    "snapreplay/spark.py": ("tests/snapshots/jobs/test_audit.py", "it begins there"),
    "service/kafka/group_offsets.py": (
        "tests/snapshots/jobs/test_since_last.py",
        "the proofs are such offsets",
    ),
    "api/audit_picture.py": ("tests/api/test_audit_page.py", "the page shows it"),
    "api/link.py": ("tests/api/test_keeper.py", "it is the other end of the keeper's line"),
    "api/http_process.py": ("tests/api/test_keeper.py", "the keeper starts it"),
    "api/serving.py": ("tests/api/test_keeper.py", "the keeper starts it"),
    "service/control/document.py": ("tests/api/test_keeper.py", "what goes over the line"),
    "service/control/wire.py": ("tests/api/test_keeper.py", "how it goes over the line"),
    "service/control/fields.py": ("tests/api/test_openapi.py", "OpenAPI says what they say"),
    "service/blocking.py": ("tests/snapshots/jobs/test_audit.py", "its tasks read with it"),
    "snapreplay/__init__.py": ("tests/test_packaging.py", "what it does is being importable"),
    "api/cli/dev_command.py": ("tests/api/cli/test_dev.py", "its options are tried there"),
    "snapreplay/testing/real_broker.py": (
        "tests/snapreplay/devbroker/test_broker.py",
        "a local broker is what it makes",
    ),
    "snapreplay/testing/real_messages.py": (
        "tests/snapreplay/testing/test_real_harness.py",
        "both sides of the pipe are at work there",
    ),
    "snapreplay/testing/service_process.py": (
        "tests/snapreplay/testing/test_real_harness.py",
        "the harness kills it, and waits for it",
    ),
    "snapreplay/testing/real_service.py": (
        "tests/snapreplay/testing/test_real_harness.py",
        "it is the process that the harness kills",
    ),
    "snapreplay/devbroker/errors.py": (
        "tests/snapreplay/devbroker/test_node.py",
        "it raises them",
    ),
    "snapreplay/state/entry_index.py": (
        "tests/snapreplay/state/test_mapstore_ordered.py",
        "the order of a map's keys through all that happens to a batch",
    ),
    "snapreplay/state/steps.py": (
        "tests/snapreplay/state/test_staging.py",
        "whatever takes long is done in them",
    ),
    "snapreplay/app/batch.py": ("tests/snapreplay/app/test_fold.py", "the fold takes and gives it"),
    "snapreplay/app/halving.py": (
        "tests/snapreplay/app/test_fold_batches.py",
        "the fold isolates with it",
    ),
    "snapreplay/state/stamp.py": (
        "tests/snapreplay/state/test_scheduled.py",
        "values of a map with a ttl have one",
    ),
    "snapreplay/state/timers.py": (
        "tests/snapreplay/app/test_timer.py",
        "handlers set and cancel them",
    ),
    "snapreplay/state/timetable.py": (
        "tests/snapreplay/app/test_turns.py",
        "its order is compared with one by hand",
    ),
    "snapreplay/state/slices.py": (
        "tests/snapreplay/app/test_harness.py",
        "it crashes and restores with them",
    ),
}
