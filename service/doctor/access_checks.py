"""The permissions that this user lacks, found by trying. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

from snapreplay.service.doctor.facts import Diagnosis, Facts

IDEMPOTENT_WRITES = "idempotent writes"


def refusals(facts: Facts) -> Iterator[Diagnosis]:
    """Tell what could not be examined. The rest of the report is silent about it."""
    for each in facts.refusals:
        yield Diagnosis(
            "access",
            each.where,
            f"{each.what}: {each.problem}",
            each.hint or f"run `snapreplay doctor {facts.app_name}` again when the brokers answer",
        )


def writes(facts: Facts) -> Iterator[Diagnosis]:
    """Tell what the probe's transaction was not allowed."""
    if facts.probe is None:
        return
    for what, reason in facts.probe.refused.items():
        yield Diagnosis("access", what, f"this user may not write: {reason}", _remedy(facts, what))


def identities(facts: Facts) -> Iterator[Diagnosis]:
    """Check the permissions on the app's group and the transactional ids of its partitions: without them no
    partition has an owner."""
    app_id = facts.app.app_id if facts.app else ""
    for what, reason in facts.refused.items():
        if what == app_id:
            remedy = f"{_add(facts)} Read --group {app_id}"
            yield Diagnosis(
                "access", f"group {app_id}", f"this user may not join it: {reason}", remedy
            )
    ids = [what for what in facts.refused if what != app_id]
    if ids:
        more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
        yield Diagnosis(
            "access",
            ", ".join(ids[:3]) + more,
            f"this user may not use these transactional ids: {facts.refused[ids[0]]}",
            _remedy(facts, ids[0]),
        )


def _add(facts: Facts) -> str:
    return f"kafka-acls.sh {facts.to_cluster} --add --allow-principal User:NAME --operation"


def _remedy(facts: Facts, what: str) -> str:
    add = _add(facts)
    if what == IDEMPOTENT_WRITES:
        return f"{add} IdempotentWrite --cluster"
    if what in (*facts.outputs, *facts.own):
        return f"{add} Write --topic {what}"
    app_id = facts.app.app_id if facts.app else what
    return f"{add} Write --transactional-id {app_id} --resource-pattern-type prefixed"
