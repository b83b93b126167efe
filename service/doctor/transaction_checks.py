"""Transactions that hold readers or owners back. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

from snapreplay.app import names
from snapreplay.service.core.inspected import OpenTransaction
from snapreplay.service.core.refusals import beyond_an_older_disk
from snapreplay.service.doctor.facts import Diagnosis, Facts, Log, partitions

OPEN_MS_MAX = 60_000  # of a transaction in an input or output: its readers wait for that long


def pinned(facts: Facts) -> Iterator[Diagnosis]:
    """Check that nothing committed is hidden behind somebody's open transaction (the last stable offset is below
    the high watermark). In our own topics a foreign one is wrong at once: it hides our claims and increments."""
    for log in facts.logs:
        opened = log.pinned_by
        if opened is None or log.held_back <= 0 or not _too_long(facts, log, opened):
            continue
        yield Diagnosis(
            "open transaction",
            str(log.partition),
            f"last stable offset {log.last_stable_offset}, high watermark {log.high_watermark}: {log.held_back}"
            f" offsets are held back by {_who(facts, opened)}",
            _remedy(facts, log, opened),
        )


def stuck(facts: Facts) -> Iterator[Diagnosis]:
    """Check that the coordinators can end what the owners began. Until then nobody can fence."""
    if facts.app is None or not facts.stuck:
        return
    app_id, first = facts.app.app_id, min(facts.stuck)
    seen = facts.stuck[first]
    yield Diagnosis(
        "transactions",
        partitions(sorted(facts.stuck)),
        f"the coordinator cannot end the last transaction of {names.transactional_id(app_id, first)} ({seen.state},"
        f" epoch {seen.producer_epoch}): until it has, there is no owner",
        f"start the brokers that are away. If none is away, {beyond_an_older_disk(app_id)}",
    )


def _too_long(facts: Facts, log: Log, opened: OpenTransaction) -> bool:
    if opened.transactional_id is None or opened.started_at_ms is None:
        return True
    ours = facts.app is not None and opened.transactional_id == names.transactional_id(
        facts.app.app_id, log.partition.partition
    )
    if log.partition.topic in facts.own and not ours:
        return True
    longest_ms = facts.settings.timeouts.transaction_ms if ours else OPEN_MS_MAX
    return facts.now_ms - opened.started_at_ms > longest_ms


def _who(facts: Facts, opened: OpenTransaction) -> str:
    if opened.transactional_id is None:
        return (
            f"a hanging transaction of producer id {opened.producer_id}, epoch {opened.producer_epoch}, from offset"
            f" {opened.start_offset} on, which no coordinator knows"
        )
    text = f"transactional id {opened.transactional_id!r} (producer id {opened.producer_id})"
    if opened.started_at_ms is None or opened.timeout_ms is None:
        return text
    open_s = (facts.now_ms - opened.started_at_ms) / 1000
    return f"{text}, open for {open_s:.0f} s of at most {opened.timeout_ms / 1000:.0f} s"


def _remedy(facts: Facts, log: Log, opened: OpenTransaction) -> str:
    if opened.transactional_id is None:
        topic, partition = log.partition
        return (
            f"kafka-transactions.sh {facts.to_cluster} abort --topic {topic} --partition {partition}"
            f" --start-offset {opened.start_offset}"
        )
    keep_out = (
        " and revoke its permission to write here" if log.partition.topic in facts.own else ""
    )
    return (
        f"stop the process that uses {opened.transactional_id}{keep_out}. Its transaction ends at its timeout, or when"
        f" a producer of this id starts; to see it: kafka-transactions.sh {facts.to_cluster} describe"
        f" --transactional-id {opened.transactional_id}"
    )
