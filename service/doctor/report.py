"""All checks of the facts, and the report of their findings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from snapreplay.service.config.typed import addressed
from snapreplay.service.doctor import cluster_checks, key_checks, state_checks, topic_checks
from snapreplay.service.doctor.facts import Diagnosis, DoctorFacts

CHECKS: tuple[Callable[[DoctorFacts], Iterator[Diagnosis]], ...] = (
    cluster_checks.brokers,
    cluster_checks.timeout_limits,
    cluster_checks.transaction_log,
    cluster_checks.accidental_topics,
    cluster_checks.quotas,
    cluster_checks.clock,
    cluster_checks.writes,
    cluster_checks.identities,
    cluster_checks.foreign,
    topic_checks.existence,
    topic_checks.partition_counts,
    topic_checks.patterns,
    topic_checks.kept_for_ever,
    topic_checks.replayable,
    topic_checks.own_of_others,
    key_checks.keyed_alike,
    topic_checks.durability,
    topic_checks.replicas,
    topic_checks.record_sizes,
    cluster_checks.pinned,
    cluster_checks.stuck,
    state_checks.recoverable,
    state_checks.paused,
    state_checks.same_cluster,
    state_checks.same_topics,
    state_checks.snapshot_age,
    state_checks.record_times,
    cluster_checks.client,
    cluster_checks.memory,
)


class DoctorReport(msgspec.Struct, frozen=True):
    """The report; `looked_at` counts what was examined: "no findings" alone could mean that nothing was. `not_read`: a
    sentence for each topic that matches a pattern and belongs to another app, which is in order."""

    app_id: str | None
    looked_at: dict[str, int]
    findings: list[Diagnosis]
    seconds: float
    not_read: list[str] = []


def report_of(facts: DoctorFacts, seconds: float) -> DoctorReport:
    return DoctorReport(
        facts.app.app_id if facts.app else None,
        {
            "checks": len(CHECKS),
            "brokers": len(facts.brokers),
            "topics": len(facts.topics),
            "partitions": len(facts.logs),
            "states": len(facts.states),
        },
        [_shown(each, facts) for each in (*facts.refusals, *(found for check in CHECKS for found in check(facts)))],
        round(seconds, 3),
        list(facts.left_out.values()),
    )


def _shown(finding: Diagnosis, facts: DoctorFacts) -> Diagnosis:
    """Give the commands in a remedy the options with which this command reached its cluster."""
    return msgspec.structs.replace(finding, remedy=addressed(finding.remedy, facts.settings))
