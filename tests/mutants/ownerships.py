"""Rules of membership, of stepping down for a process of the same name, and of retrying what failed."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MEMBERSHIP = "tests/service/kafka/test_membership.py"
RUNNER = "tests/service/partition/test_runner.py"

MUTANTS = (
    Mutant(
        "named-after-the-host",
        "two processes without a name of their own are two",
        "service/runtime/context.py",
        'named = instance_id or f"{host}-{process_id[:8]}"',
        "named = instance_id or host",
        ("tests/service/runtime/test_context.py",),
    ),
    Mutant(
        "back-at-first-sight",
        "a namesake that is restarted in good order is gone for a moment only",
        "service/core/step_down.py",
        "gone=True, over=self.gone)",
        "gone=True, over=True)",
        (f"{MEMBERSHIP}::test_who_stood_aside_does_not_come_back_for_a_restart",),
    ),
    Mutant(
        "woken-by-old-news",
        "an assignment from before does not wake who stepped down",
        "service/partition/runner.py",
        "        if isinstance(error, DuplicateInstance):\n            self._takeover.forget_assignment()\n",
        "",
        (f"{RUNNER}::test_who_steps_down_stops_also_where_nobody_claimed",),
    ),
    Mutant(
        "down-for-ever",
        "who stepped down is back when the group gives it the partition again",
        "service/partition/runner.py",
        "            await self._takeover.until_assigned(self._lifecycle.stopped)",
        "            await self._lifecycle.stopped.wait()",
        ("tests/simulation", f"{RUNNER}::test_a_younger_process_of_the_same_name_ends_it"),
    ),
    Mutant(
        "retried-with-the-old-view",
        "a retry looks at the cluster again",
        "service/partition/runner.py",
        "replace(self._context, view=found)",
        "replace(self._context)",
        (f"{RUNNER}::test_a_retry_sees_the_cluster_as_it_is_now",),
    ),
    Mutant(
        "live-is-success",
        "a retry has succeeded when the partition got past what it failed at",
        "service/partition/incarnation.py",
        "            live.at_work = self._retry.succeeded",
        "            self._retry.succeeded()",
        (f"{RUNNER}::test_a_retry_goes_on_at_exactly_the_failed_record",),
    ),
    Mutant(
        "refused-for-ever",
        "a cluster that is right again refuses nothing that starts later",
        "service/supervisor.py",
        "        self._view, self._refused = view, None",
        "        self._view = view",
        (
            "tests/service/test_supervisor.py::test_a_cluster_that_is_as_it_was_is_live_again_by_retry",
        ),
    ),
    Mutant(
        "state-of-a-defect",
        "after a defect the state in memory counts for nothing",
        "service/partition/runner.py",
        "        if failed.is_defect:\n            await self._memory.forget_if_proven()\n",
        "        if failed.is_defect:\n            pass\n",
        (f"{RUNNER}::test_a_defect_stops_this_partition_and_says_so",),
    ),
)
