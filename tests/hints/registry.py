"""Which test carries out which hint. A hint without an entry fails `test_inventory.py`.

A place is a function with a hint, "service/topics/requirements.py::missing_topic"; where it has several, one test
stands for them. Kinds say what the test does: types a command of ours as printed, sets
a setting and starts, runs Kafka's own class, changes the app or what it does, or asks the HTTP API.
"""

FIRST = "tests/hints/test_first_start.py"
FAILED = "tests/hints/test_failed_partitions.py"
DOCTOR = "tests/hints/test_doctor.py"
CODE = "tests/hints/test_in_code.py::test_the_code_is_taken_once_it_is_as_the_hint_says"
LOAD = "tests/hints/test_in_code.py::test_an_app_is_loaded_once_it_is_where_the_hint_says"
ASKING = "tests/hints/test_asking.py"
B3 = "tests/attacks/test_b3_a_way_out_of_failed.py::test_b3_the_printed_command_leads_out"
BACKUP = f"{FAILED}::test_topics_are_brought_back_from_a_backup"
ONLY_COPY = "tests/hints/test_only_copy.py"
RUNNING = "tests/hints/test_while_it_runs.py"
MACHINE = "tests/hints/test_machine.py"
ENTRY = "tests/service/kafka/test_entry.py"
SEVERAL = "tests/hints/test_several_brokers.py"
NOTHING_LEFT = (
    f"{FAILED}::test_without_a_snapshot_no_acceptance_is_printed_and_a_new_app_id_goes_on"
)

COMMANDS = {
    "api/cli/dev.py::module": f"{FIRST}::test_what_dev_does_without_its_broker_is_done_on_another_cluster",
    "api/cli/remote_commands.py::_ZeroOrOne.parse_args": f"{ASKING}::test_the_command_that_is_named_answers",
    "api/cli/remote_commands.py::_failed": f"{ASKING}::test_the_command_that_is_named_answers",
    "service/core/custody.py::disputed": f"{ONLY_COPY}::"
    "test_a_disputed_state_is_given_up_by_a_restart_and_the_next_error_leads_on",
    "service/core/custody.py::missing": f"{ONLY_COPY}::test_a_deleted_topic_is_created_as_printed_while_its_owner_runs",
    "service/core/custody.py::unresolved": f"{ONLY_COPY}::test_a_doubt_ends_when_the_output_is_there_again",
    "service/core/custody.py::unsaved": f"{ONLY_COPY}::test_a_deleted_topic_is_created_as_printed_while_its_owner_runs",
    "service/service.py::Service._raise_unsaved": f"{ONLY_COPY}::"
    "test_a_disputed_state_is_given_up_by_a_restart_and_the_next_error_leads_on",
    "service/core/batch_failures.py::BatchFailures.refused": f"{RUNNING}::"
    "test_an_output_that_was_deleted_is_created_as_printed",
    "service/kafka/cluster.py::_no_topic": f"{RUNNING}::test_an_output_that_was_deleted_is_created_as_printed",
    "service/kafka/errors.py::_forbidden": "tests/service/test_access.py::"
    "test_every_missing_acl_is_named_by_the_command_that_gives_it",
    "snapreplay/devbroker/errors.py::ToolsMissing.or_else": f"{FIRST}::"
    "test_what_dev_does_without_its_broker_is_done_on_another_cluster",
    "service/recovery/recreated_topic.py::module": f"{ONLY_COPY}::"
    "test_what_was_in_a_topic_that_was_made_again_is_brought_back",
    "api/cli/service_commands.py::init": f"{FIRST}::test_where_to_begin_is_named_with_its_app",
    "service/core/refusals.py::no_genesis": f"{FIRST}::test_a_new_app_is_led_from_nothing_to_live",
    "service/core/refusals.py::pinned": f"{RUNNING}::"
    "test_a_foreign_transaction_that_hides_our_claim_is_ended_as_doctor_says",
    "service/core/refusals.py::damaged": BACKUP,
    "service/core/refusals.py::refuse": f"{FAILED}::test_other_inputs_take_the_state_along_or_go_back",
    "service/core/refusals.py::keys_moved_hint": f"{FIRST}::"
    "test_moved_keys_leave_the_state_to_be_taken_to_a_topic_with_the_old_count",
    "service/decisions/accept.py::propose": f"{FAILED}::test_accept_asks_for_a_reason_and_names_the_right_finding",
    "service/decisions/accept.py::_proposal": f"{FAILED}::test_accept_asks_for_a_reason_and_names_the_right_finding",
    "service/decisions/baseline.py::_present_state": NOTHING_LEFT,
    "service/decisions/state_import.py::_same_positions": f"{FAILED}::"
    "test_where_positions_mean_nothing_another_beginning_is_named",
    "service/decisions/state_import.py::_not_to_be_had": f"{FAILED}::"
    "test_a_lean_state_is_taken_over_once_its_app_has_written_a_snapshot",
    "service/doctor/access_checks.py::_remedy": "tests/service/test_access.py::"
    "test_what_doctor_names_is_given_until_it_names_nothing",
    "service/publish/publish.py::publish": f"{RUNNING}::"
    "test_an_acceptance_that_came_too_late_is_no_longer_needed",
    "service/doctor/access_checks.py::refusals": f"{DOCTOR}::"
    "test_what_could_not_be_looked_at_is_looked_at_again",
    "service/doctor/state_checks.py::same_topics": f"{DOCTOR}::"
    "test_a_topic_that_was_made_again_is_gone_on_with_as_a_copy",
    "service/doctor/state_checks.py::snapshot_age": f"{DOCTOR}::"
    "test_a_snapshot_that_its_input_outlives_no_longer_is_written_again",
    "service/doctor/state_checks.py::recoverable": f"{DOCTOR}::test_without_an_owner_no_trigger_is_recommended",
    "service/doctor/state_checks.py::_remedy": f"{DOCTOR}::"
    "test_while_the_owner_lives_its_memory_is_written_once_more",
    "service/doctor/topic_checks.py::existence": f"{DOCTOR}::test_missing_topics_are_created",
    "service/doctor/transaction_checks.py::_remedy": f"{DOCTOR}::"
    "test_a_foreign_transaction_ends_with_a_producer_of_its_id",
    "service/decisions/init.py::init_with_state": f"{FAILED}::test_a_state_is_not_replaced_and_another_id_takes_it",
    "service/decisions/init.py::_owner_hint": f"{FIRST}::test_a_state_that_nobody_has_any_more_is_given_up",
    "service/decisions/init.py::_refuse_lost": "tests/service/decisions/test_state_import.py::"
    "test_what_was_interrupted_is_completed",
    "service/decisions/init.py::_last": f"{FIRST}::test_init_does_not_take_lost_increments_for_a_new_app",
    "service/topics/log_bounds.py::_cut": BACKUP,
    "service/recovery/ways_out.py::with_way_out": B3,
    "service/recovery/ways_out.py::nothing_left": NOTHING_LEFT,
    "service/preflight.py::_check_present": f"{FIRST}::"
    "test_missing_topics_of_our_own_are_created_and_initialised",
    "service/topics/requirements.py::missing_topic": f"{FIRST}::test_a_new_app_is_led_from_nothing_to_live",
    "service/topics/requirements.py::incomplete": f"{FIRST}::"
    "test_one_lost_topic_is_replaced_and_what_its_counterpart_holds_goes_on",
    "snapshots/plan.py::_way_out": NOTHING_LEFT,
    "snapreplay/app/ways.py::new_app": f"{FIRST}::test_lost_topics_leave_a_new_app_id",
}

SETTINGS = {
    "service/doctor/cluster_checks.py::accidental_topics": f"{DOCTOR}::"
    "test_a_broker_that_creates_whatever_is_asked_for_is_set_right",
    "service/doctor/cluster_checks.py::transaction_limits": f"{DOCTOR}::"
    "test_a_transaction_timeout_above_the_brokers_is_found_and_lowered",
    "service/kafka/entry.py::_Door._untrusted": f"{ENTRY}::test_settings_that_a_hint_names_let_us_in",
    "service/recovery/mismatch.py::state_differs": f"{FAILED}::"
    "test_a_digest_that_differs_leads_to_the_other_mode_and_on",
    "service/recovery/advance.py::_with_changes": f"{FAILED}::"
    "test_changed_code_goes_by_changes_where_all_of_them_are_there",
    "service/preflight.py::_transaction_timeout_max_ms": f"{FIRST}::"
    "test_a_transaction_timeout_above_the_brokers_is_lowered",
}

LOSES = f"{DOCTOR}::test_what_would_lose_or_refuse_records_is_changed_as_printed"
KAFKAS_TOOLS = {
    "service/doctor/state_checks.py::record_times": LOSES,
    "service/doctor/topic_checks.py::_dead_letter_sizes": LOSES,
    "service/doctor/topic_checks.py::_in_sync_minimum": LOSES,
    "service/doctor/topic_checks.py::durability": LOSES,
    "service/kafka/admin.py::KafkaAdmin.delete_records": f"{RUNNING}::"
    "test_a_compacted_topic_is_trimmed_once_its_policy_is_as_printed",
    "service/kafka/errors.py::_refused_hint": f"{RUNNING}::"
    "test_a_record_that_its_topic_refuses_is_taken_once_the_topic_takes_it",
    "service/kafka/batching.py::_too_large": f"{RUNNING}::"
    "test_an_output_that_is_too_large_for_its_topic_is_taken_once_the_topic_takes_it",
    "service/doctor/topic_checks.py::kept_for_ever": f"{DOCTOR}::test_the_settings_of_topics_are_changed_as_printed",
    "service/doctor/topic_checks.py::record_sizes": f"{DOCTOR}::test_the_settings_of_topics_are_changed_as_printed",
    "service/doctor/topic_checks.py::replayable": f"{DOCTOR}::test_the_settings_of_topics_are_changed_as_printed",
    "service/topics/requirements.py::check_own_topic": f"{FIRST}::"
    "test_own_topics_are_configured_with_the_printed_command",
    "service/topics/requirements.py::check_replayable": f"{FIRST}::"
    "test_a_compacted_input_is_read_by_changes_or_no_longer_compacted",
}

APPS = {
    "service/core/refusals.py::schema_differs": "tests/attacks/test_b3_every_stop_is_known.py::"
    "test_b3_another_schema_names_the_one_to_go_back_to",
    "service/live/dead_letter_limit.py::DeadLetterCheck.check": "tests/service/live/test_pipeline.py::"
    "test_a_flood_of_dead_letters_stops_the_partition",
    "service/doctor/topic_checks.py::partition_counts": f"{DOCTOR}::"
    "test_inputs_that_differ_before_there_is_any_state_get_equally_many_partitions",
    "service/recovery/mismatch.py::module": f"{FAILED}::"
    "test_lean_and_changed_code_the_old_version_writes_a_snapshot_first",
    "snapreplay/state/values.py::module": "tests/service/live/test_value_check.py::"
    "test_a_type_that_cannot_read_what_is_stored_never_goes_live",
    "service/live/pipeline.py::Live._handler_failed": f"{FAILED}::"
    "test_a_record_that_cannot_be_processed_gets_another_handler_or_policy",
    "service/preflight.py::_check_dead_letters": f"{FIRST}::"
    "test_a_state_that_cannot_roll_back_gets_the_policy_that_is_named",
    "service/topics/requirements.py::partition_count": f"{FIRST}::test_inputs_get_equally_many_partitions",
    "snapreplay/testing.py::check": "tests/snapreplay/test_testing.py::test_no_records_are_no_check",
    "snapreplay/app/load.py::load_app": LOAD,
    "snapreplay/app/load.py::_import_module": LOAD,
    "snapreplay/app/load.py::_import_file": LOAD,
    "snapreplay/app/load.py::_import_hint": LOAD,
    "snapreplay/app/load.py::_attribute": LOAD,
    **dict.fromkeys(
        (
            "service/kafka/batching.py::_no_such_partition",
            "snapshots/format/changes.py::_groups",
            "snapshots/format/chunks.py::ChunkWriter._halves",
            "snapshots/format/envelope.py::_too_large",
            "snapreplay/app/app.py::App.handler",
            "snapreplay/app/app.py::App.validate",
            "snapreplay/app/app.py::check_handler",
            "snapreplay/app/app.py::_check_app_id",
            "snapreplay/app/app.py::_check_versions",
            "snapreplay/app/app.py::_check_topics",
            "snapreplay/app/failure.py::_bad_bytes",
            "snapreplay/app/fold.py::Fold.__init__",
            "snapreplay/app/harness.py::Harness._numbered",
            "snapreplay/app/out.py::_undeclared",
            "snapreplay/app/out.py::_unencodable",
            "snapreplay/app/out.py::_too_large",
            "snapreplay/app/topic.py::check_topic_name",
            "snapreplay/app/topic.py::_checked_codec",
            "snapreplay/state/keys.py::KeyCodec.__init__",
            "snapreplay/state/keys.py::KeyCodec.refusal",
            "snapreplay/state/map.py::_encoded_default",
            "snapreplay/state/objects.py::ObjectStore.__init__",
            "snapreplay/state/objects.py::ObjectStore.committed_view",
            "snapreplay/state/objects.py::_entries",
            "snapreplay/state/objects.py::_pairs",
            "snapreplay/state/staging.py::_refuse_too_large",
            "snapreplay/state/store.py::store_of",
            "snapreplay/state/values.py::ValueCodec.__init__",
            "snapreplay/state/values.py::ValueCodec.unencodable",
            "snapreplay/state/values.py::ValueCodec.verify",
            "snapreplay/state/values.py::shared_object",
        ),
        CODE,
    ),
}

REQUESTS = {
    "api/cli/audit_command.py::_app_id": f"{ASKING}::test_the_option_that_is_named_is_taken",
    "api/cli/client.py::Client._ask": f"{ASKING}::test_a_service_is_asked_where_it_is",
    "api/cli/options.py::_split": f"{ASKING}::test_the_option_that_is_named_is_taken",
    "api/cli/options.py::service_url": f"{ASKING}::test_the_option_that_is_named_is_taken",
    "api/cli/options.py::_url_of": f"{ASKING}::test_a_service_is_asked_where_it_is",
    "api/problems.py::not_reached": f"{ASKING}::"
    "test_before_any_broker_has_answered_readiness_says_what_is_met",
    "api/problems.py::_as_problem": f"{ASKING}::test_the_request_that_is_named_is_answered",
    "api/problems.py::_busy": f"{ASKING}::test_a_running_snapshot_is_followed",
    "api/problems.py::_framework": f"{ASKING}::test_the_request_that_is_named_is_answered",
    "api/problems.py::_invalid": f"{ASKING}::test_a_body_is_sent_as_json",
    "api/routes/operations.py::_checked": f"{ASKING}::test_without_a_live_partition_the_status_says_what_they_do",
    "api/routes/operations.py::get_operation": f"{ASKING}::test_the_request_that_is_named_is_answered",
    "api/server.py::_refused": f"{ASKING}::test_another_port_is_taken",
}

KAFKAS_TOOLS["service/doctor/facts.py::Facts.alter"] = KAFKAS_TOOLS[
    "service/doctor/topic_checks.py::kept_for_ever"
]
KAFKAS_TOOLS["snapreplay/app/ways.py::alter"] = KAFKAS_TOOLS[
    "service/topics/requirements.py::check_own_topic"
]

SURROUNDINGS = {
    "service/core/refusals.py::duplicate_instance": "tests/service/test_two_processes.py::"
    "test_the_older_of_two_with_one_instance_id_steps_down_until_it_is_alone",
    "service/kafka/config.py::_load_context": f"{MACHINE}::"
    "test_certificate_and_key_are_of_one_pair_and_an_encrypted_key_has_its_password",
    "service/kafka/errors.py::client_error": "tests/service/kafka/test_compression.py::"
    "test_a_codec_that_is_missing_stops_and_says_what_to_install",
    "snapreplay/spark.py::audit": f"{MACHINE}::test_spark_is_installed_by_the_extra_that_an_audit_names",
    "service/doctor/cluster_checks.py::client": f"{MACHINE}::test_what_the_client_lacks_is_installed",
    "snapreplay/devbroker/cluster.py::LocalCluster.start": f"{MACHINE}::"
    "test_a_broker_starts_again_once_nothing_listens_on_its_ports",
    "snapreplay/devbroker/node.py::_keeper_for": f"{MACHINE}::test_a_limit_of_processes_is_raised",
    "snapreplay/jars/cache.py::copy_dependencies": f"{MACHINE}::test_jars_are_fetched_once_the_network_is_there",
    "snapshots/jobs/session.py::local_session": f"{MACHINE}::test_a_whole_java_runtime_is_installed_for_spark",
    "snapreplay/devbroker/files.py::_cannot_keep": f"{MACHINE}::test_a_directory_that_can_be_written_is_taken",
    "snapreplay/devbroker/node.py::LocalNode._fail": f"{MACHINE}::"
    "test_the_log_of_a_broker_that_failed_is_where_the_hint_says",
    "snapreplay/devbroker/jars.py::_unavailable": f"{MACHINE}::"
    "test_without_maven_the_package_is_installed_or_the_jars_are_named",
    "snapreplay/jars/cache.py::check": f"{MACHINE}::test_java_and_maven_are_installed_as_one_hint_says",
    "service/recovery/custody.py::resolved": f"{ONLY_COPY}::"
    "test_an_undecided_output_is_decided_when_the_transaction_before_it_is_over",
    "service/core/owners.py::Takeovers.taken": f"{RUNNING}::"
    "test_of_two_that_take_a_partition_from_each_other_one_is_stopped",
    "service/recovery/inputs.py::topic_ids": f"{RUNNING}::"
    "test_an_input_that_was_deleted_is_brought_back_with_its_old_offsets",
    "snapreplay/jars/cache.py::_only_one": f"{MACHINE}::test_a_directory_that_can_be_written_is_taken",
    "snapreplay/jars/cache.py::find_maven": f"{MACHINE}::"
    "test_without_maven_the_package_is_installed_or_the_jars_are_named",
    "service/kafka/clocks.py::_compared": "tests/service/kafka/test_clocks.py::"
    "test_a_claim_is_refused_by_the_clock_s_name_and_succeeds_when_it_is_set_right",
}

BROKERS = {
    "service/doctor/cluster_checks.py::brokers": f"{SEVERAL}::test_a_broker_that_is_away_is_started",
    "service/doctor/topic_checks.py::replicas": f"{SEVERAL}::"
    "test_replicas_that_are_behind_are_named_and_catch_up",
    "service/doctor/cluster_checks.py::transaction_log": f"{SEVERAL}::"
    "test_a_topic_with_one_copy_gets_those_that_are_printed",
    "service/kafka/reader.py::KafkaReader._stalled": f"{SEVERAL}::"
    "test_a_read_that_stalls_names_the_command_that_names_the_broker",
    "service/kafka/corrupt_batches.py::CorruptBatches._count": f"{SEVERAL}::"
    "test_an_intact_replica_leads_and_the_damaged_copy_is_made_anew",
}

CARRIED_OUT = {
    **COMMANDS,
    **SETTINGS,
    **KAFKAS_TOOLS,
    **APPS,
    **REQUESTS,
    **SURROUNDINGS,
    **BROKERS,
}

OPEN_BECAUSE: dict[str, tuple[str, ...]] = {
    "needs another machine: its clock, memory, packages, limits of processes, network": (
        "service/doctor/cluster_checks.py::clock",
        "service/doctor/cluster_checks.py::memory",
    ),
    "needs a version of snapreplay that does not exist yet, or a defect in it": (
        "service/runtime/report.py::problem_of",
        "service/publish/snapshot_writer.py::module",
        "snapshots/format/envelope.py::_unknown",
    ),
    "needs a moment that cannot be met from outside: a topic exchanged, trimmed or deleted between two requests": (
        "snapshots/jobs/audit.py::audit",
    ),
}
"""Places whose hint nobody has carried out yet, and why: they only become fewer."""

STILL_OPEN = frozenset(place for places in OPEN_BECAUSE.values() for place in places)
