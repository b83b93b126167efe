"""The registry of tests that carry out hints: types the command, sets the option, runs Kafka's own class or changes
the app, as printed. A hint that no test names fails `test_inventory.py`.

A place is a function with a hint, "service/topics/requirements.py::missing_topic"; where it has several, one test
stands for them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
T = TypeVar("T", bound=Callable[..., object])

ELSEWHERE = {
    "service/control/draining.py::NoSuccessor.__init__": "test_a_program_drains_its_service",
    "api/problems.py::no_token": "test_everything_but_the_probes_needs_a_token",
    "api/cli/client.py::_refusal": "test_commands_send_the_token_of_their_file",
    "api/problems.py::role_too_low": "test_each_role_may_do_what_it_may",
    "api/cli/options.py::_token_in": "test_the_log_says_who_did_what_and_no_token",
    "api/tls.py::_wrong": "test_files_of_no_use_are_refused_at_the_start",
    "api/problems.py::not_at_this_port": "test_probes_and_metrics_need_no_login_there_and_nothing_else_is_there",
    "api/problems.py::no_certificate": "test_with_an_authority_for_clients_only_probes_go_without_a_certificate",
    "api/tokens.py::_wrong": "test_a_file_of_no_use_is_refused_at_the_start",
    "service/decisions/patch.py::_refuse_other_fields": "test_"
    "other_fields_than_the_running_version_has_are_not_recorded",
    "service/decisions/patch.py::_went_on": "test_without_recorded_changes_an_owner_that_goes_on_is_followed_by_replay",
    "api/cli/workers.py::module": "test_a_parent_waits_for_no_workers_of_another_one_and_says_what_to_do",
    "service/decisions/patch.py::_follow": "test_of_two_patches_at_once_the_slower_one_is_told_of_the_other",
    "service/core/refusals.py::not_to_be_upgraded": "test_"
    "a_state_that_only_a_replay_leads_to_needs_a_last_stop_of_the_old_version",
    "service/recovery/examine.py::Examiner.refuse_older": "test_commands_leave_a_state_that_is_to_be_upgraded_alone",
    "snapreplay/app/upgrading.py::_failed": "test_an_upgrade_that_fails_changes_nothing_and_names_the_entry",
    "snapreplay/app/upgrade.py::check_upgrade_function": "test_wrong_declarations_are_refused_at_once",
    "snapreplay/app/upgrade.py::check_leads_on": "test_wrong_declarations_are_refused_at_once",
    "snapreplay/app/upgrade.py::check_upgrades": "test_wrong_declarations_are_refused_at_once",
    "api/cli/repair_commands.py::patch": "test_lines_that_were_carried_out_half_way_are_carried_out_to_the_end",
    "api/cli/repair_commands.py::_lines": "test_a_live_app_is_corrected_between_two_records",
    "api/cli/output.py::must_ask": "test_a_live_app_is_corrected_between_two_records",
    "api/cli/savepoint_commands.py::delete": "test_an_app_is_deleted_after_its_id_was_typed",
    "api/cli/service_commands.py::_savepoint_id": "test_a_savepoint_from_its_beginning_to_its_end",
    "service/decisions/deletion.py::_runs": "test_an_app_is_deleted_after_its_id_was_typed",
    "service/decisions/deletion.py::_unknown": "test_its_topics_and_groups_go_and_what_others_may_need_stays",
    "service/decisions/reset.py::Target.check": "test_what_is_no_place_is_refused",
    "service/decisions/reset.py::_ground": "test_a_savepoint_of_another_input_starts_another_app",
    "service/decisions/savepoints.py::create": "test_a_name_is_taken_until_it_is_dropped",
    "service/decisions/savepoints.py::_refuse_given_up": "test_"
    "parts_of_a_state_that_was_given_up_since_are_not_completed",
    "service/decisions/savepoints.py::_refuse_name": "test_a_name_that_is_no_topic_name_is_refused",
    "service/decisions/savepoints.py::_chains": "test_an_app_without_a_state_has_none_to_keep",
    "service/decisions/savepoints.py::unusable": "test_a_killed_create_leaves_what_is_not_usable_or_whole",
    "service/decisions/before_init.py::place_ms": "test_a_new_input_begins_where_it_is_told",
    "service/decisions/inputs.py::_change": "test_what_only_a_replay_restores_is_not_retired",
    "service/decisions/inputs.py::_end": "test_one_is_added_another_retired_and_taken_back",
    "service/decisions/inputs.py::_half_retired": "test_records_that_came_between_two_retirements_are_processed",
    "service/decisions/inputs.py::_is_retirable": "test_a_topic_that_is_deleted_is_waited_for_until_it_is_retired",
    "service/decisions/inputs.py::_resumed": "test_every_reader_of_the_log_follows_an_input_that_is_taken_in_again",
    "service/decisions/inputs.py::_carried_out": "test_what_only_a_replay_restores_is_not_retired",
    "service/decisions/inputs.py::propose": "test_records_that_nobody_wants_are_left",
    "snapreplay/app/topic.py::TopicPattern._compile": "test_what_is_no_expression_is_refused",
    "service/redrive.py::_shifted": "test_dead_letters_that_were_copied_with_other_offsets_are_refused_by_name",
    "service/decisions/patch.py::carry_out": "test_a_patch_that_is_fenced_every_time_gives_up_with_a_way_out",
    "snapreplay/state/correction.py::corrections_of": "test_a_file_without_lines_and_one_with_too_many_are_refused",
    "snapreplay/state/correction.py::module": "test_the_line_in_the_hint_can_be_read",
    "snapreplay/state/gate.py::refuse_write": "test_nothing_is_written_after_the_handler_has_ended",
    "snapreplay/state/values.py::_refuse_unstorable": "test_a_dict_with_other_keys_than_texts_is_refused_at_once",
    "snapreplay/state/fields.py::_unknown": "test_a_removed_field_is_declared_and_remembered",
    "snapreplay/state/fields.py::_missing": "test_a_removed_field_is_declared_and_remembered",
    "snapreplay/state/fields.py::check_dropped": "test_what_is_dropped_must_be_names",
    "snapreplay/app/topic.py::all_of": "test_one_topic_and_one_state_are_no_lists_and_no_functions",
    "snapreplay/app/app.py::_check_state": "test_one_topic_and_one_state_are_no_lists_and_no_functions",
    "snapreplay/app/batch.py::check_policy": "test_a_policy_and_a_topic_are_no_texts",
    "snapreplay/app/made_record.py::check_topic": "test_a_policy_and_a_topic_are_no_texts",
    "service/kafka/errors.py::_forbidden": "test_every_missing_acl_is_named_by_the_command_that_gives_it",
    "service/doctor/cluster_checks.py::_remedy": "test_what_doctor_names_is_given_until_it_names_nothing",
    "service/decisions/init.py::_refuse_given_up": "test_"
    "the_rest_does_not_begin_with_another_state_than_the_first_partition",
    "service/decisions/init.py::_refuse_lost": "test_what_was_interrupted_is_completed",
    "service/core/witness.py::behind": "test_"
    "c6_an_older_directory_is_noticed_and_the_way_out_repeats_no_more_than_it_says",
    "service/topics/targets.py::check_last": "test_b21_the_cause_is_named_and_the_way_out_leads_on",
    "service/recovery/acceptable_failures.py::with_way_out": "test_b3_the_printed_command_leads_out",
    "service/kafka/entry.py::Door._untrusted": "test_settings_that_a_hint_names_let_us_in",
    "service/core/refusals.py::schema_differs": "test_b3_another_schema_names_the_one_to_go_back_to",
    "service/live/live_report.py::DeadLetterCheck.check": "test_a_flood_of_dead_letters_stops_the_partition",
    "snapreplay/state/values.py::module": "test_a_type_that_cannot_read_what_is_stored_never_goes_live",
    "snapreplay/state/keys.py::KeyCodec.misfit": "test_another_type_of_keys_is_named_too",
    "api/cli/json_records.py::records_of": "test_a_bad_line_is_named_by_its_number",
    "api/cli/record_commands.py::_unknown": "test_nothing_is_half_fed_and_every_wrong_name_is_told",
    "api/server.py::_check_interpreter": "test_a_program_without_an_interpreter_is_refused_by_name",
    "api/cli/author_commands.py::module_of": "test_a_name_that_cannot_be_imported_is_refused",
    "snapreplay/testing/checks.py::check": "test_no_records_are_no_check",
    "snapreplay/testing/checks.py::_passing": "test_time_does_not_pass_backwards",
    "snapreplay/testing/real_harness.py::RealHarness.__init__": "test_an_app_without_a_name_is_refused",
    "snapreplay/testing/real_harness.py::RealHarness._take_place": "test_two_harnesses_never_share_an_app",
    "snapreplay/testing/real_service.py::_alone": "test_two_harnesses_never_share_an_app",
    "snapreplay/testing/real_service.py::Answerer._look": "test_a_handler_that_waits_is_named_at_the_deadline",
    "snapreplay/testing/service_process.py::ServiceProcess._running": "test_"
    "a_failing_record_is_told_and_a_dead_letter_read",
    "snapreplay/devbroker/broker.py::LocalBroker._on_free_ports": "test_a_port_of_ones_own_is_kept_or_refused",
    "snapreplay/state/contract.py::unknown_store": "test_"
    "a_store_that_nobody_declares_stops_the_partition_and_both_ways_out_lead_on",
    "snapreplay/state/keys.py::KeyCodec.bounds": "test_a_map_that_keeps_no_order_has_no_ranges",
    "snapreplay/state/keys.py::KeyCodec._check_bound": "test_a_bound_of_another_type_is_refused",
    "service/core/refusals.py::beside": "test_"
    "what_fails_behind_a_snapshot_that_was_passed_over_is_told_with_its_reason",
    "service/core/refusals.py::duplicate_instance": "test_"
    "the_older_of_two_with_one_instance_id_steps_down_until_it_is_alone",
    "service/kafka/errors.py::client_error": "test_a_codec_that_is_missing_stops_and_says_what_to_install",
    "snapshots/proof/state.py::state_at": "test_what_was_trimmed_cannot_be_asked_for",
    "snapshots/proof/state.py::_not_recorded": "test_a_batch_without_changes_is_not_passed",
    "snapshots/proof/compaction.py::_folded_from": "test_without_changes_the_handlers_lead_to_the_state",
    "snapshots/proof/compaction.py::_with_digest": "test_a_state_that_is_no_map_is_compacted_up_to_its_last_digest",
    "snapshots/proof/compaction.py::to_be_upgraded": "test_a_state_that_is_upgraded_needs_no_draft",
    "snapshots/jobs/compact.py::draft_upgrade": "test_an_app_without_upgrades_has_no_draft",
    "snapshots/proof/compaction.py::folded": "test_what_cannot_be_proved_is_not_proposed",
    "snapshots/proof/replay.py::replayed": "test_other_handlers_lead_to_no_snapshot",
    "snapshots/jobs/typed.py::Stored.array": "test_what_is_not_of_the_type_is_named",
    "snapshots/jobs/typed.py::stored_types": "test_a_state_that_is_no_map_has_no_types",
    "snapshots/jobs/source_views.py::_too_early": "test_changes_that_were_trimmed_are_not_left_out_silently",
    "snapshots/jobs/source.py::_time_ms": "test_a_wrong_option_is_named",
    "api/cli/output.py::_named": "test_a_page_that_cannot_be_written_is_refused_before_the_work",
    "service/kafka/group_offsets.py::_refuse": "test_a_group_that_somebody_consumes_with_takes_no_proof",
    "service/auditing/work.py::_app_of": "test_code_that_was_changed_since_the_start_is_not_replayed",
    "service/partition/audits.py::Audits._order": "test_an_app_that_no_process_can_import_is_replayed_by_spark_only",
    "snapshots/jobs/audit.py::_imported": "test_an_app_that_executors_cannot_import_is_named",
    "snapshots/jobs/session.py::check": "test_two_masters_are_one_too_many",
    "service/kafka/producer.py::clock_compared": "test_"
    "a_claim_is_refused_by_the_clock_s_name_and_succeeds_when_it_is_set_right",
    "service/config/settings.py::seals_of": "test_a_file_that_cannot_be_read_is_refused_at_start",
    "service/redrive.py::_check_same": "test_another_record_at_the_offset_of_a_dead_letter_is_never_sent",
    "snapshots/format/seal.py::Seals._check_sealed": "test_a_new_key_writes_and_the_old_one_is_read",
    "snapshots/format/seal.py::_unsealed": "test_the_seal_is_introduced_and_then_required",
    "service/kafka/entry.py::Door._without_token": "test_a_provider_that_is_repaired_heals_the_service",
    "service/kafka/tokens.py::_useless": "test_what_is_no_provider_is_refused_by_its_name",
    "service/partition/audits.py::_given": "test_an_audit_asks_the_provider_in_its_own_process",
    "snapshots/jobs/second_reading.py::java_options": "test_a_login_by_tokens_is_refused_with_another_way",
}
"""Tests in other folders; those in this one say it themselves, by `carries_out`."""

IN_CODE = {
    "service/kafka/batching.py": "_no_such_partition",
    "snapshots/format/changes.py": "_groups",
    "snapshots/format/chunks.py": "ChunkWriter._halves",
    "snapshots/format/envelope.py": "_too_large",
    "service/config/settings.py": "used_settings",
    "service/config/table.py": "_NamesProblems.__call__",
    "snapreplay/app/app.py": "App.handler App.validate check_app check_handler _check_app_id _check_versions",
    "snapreplay/app/made_record.py": "checked_records",
    "snapreplay/state/round_trip.py": "_surrogates lost_attribute",
    "snapreplay/app/codecs.py": "_codec",
    "snapreplay/app/failure.py": "_bad_bytes",
    "snapreplay/app/harness.py": "Harness._numbered",
    "snapreplay/app/out.py": "checked_headers _undeclared _too_large",
    "snapreplay/app/topic.py": "check_topic_name _checked_codec check_topics",
    "snapreplay/state/keys.py": "MissingKey.__init__ KeyCodec.__init__ KeyCodec.refusal",
    "snapreplay/state/objects.py": "ObjectStore.__init__ ObjectStore.committed_view _entries _pairs",
    "snapreplay/state/staging.py": "_refuse_too_large encoded_default",
    "snapreplay/state/stores.py": "store_of",
    "snapreplay/state/values.py": "ValueCodec.__init__ ValueCodec.unencodable "
    "ValueCodec.reading_back ValueCodec._read_back shared_object",
    "snapreplay/app/load.py": "load_app load_module _import_module _import_file _import_hint _attribute",
}
"""By file; all are carried out by the two tables of test_in_code.py and the one of test_in_calls.py."""

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
        "snapshots/jobs/verdict.py::at_one_moment",
    ),
}
"""Places whose hint nobody has carried out yet, and why: they only become fewer."""

STILL_OPEN = frozenset(place for places in OPEN_BECAUSE.values() for place in places)


def carries_out(*places: str) -> Callable[[T], T]:
    """Said above a test of this folder: it does what the hints of these places say."""
    del places
    return lambda test: test


def carried_out() -> dict[str, str]:
    """Return each place for which there is a test, with the name of that test, or the file of the tables."""
    found = {f"{file}::{name}": "test_in_code.py" for file, names in IN_CODE.items() for name in names.split()}
    found |= ELSEWHERE
    for path in HERE.glob("test_*.py"):
        for name, test in functions_in(path).items():
            calls = [each for each in test.decorator_list if isinstance(each, ast.Call)]
            said = [each for each in calls if getattr(each.func, "id", "") == carries_out.__name__]
            assert name.startswith("test_") or not said, f"{path}: {name} is no test"
            found |= {ast.literal_eval(place): name for each in said for place in each.args}
    return found


def functions_in(path: Path) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions of a module."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {n.name: n for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
