"""The compaction on Spark: its tasks fold and write, its own Kafka client reads back what they wrote. The owner's next
increments say what became of the proposals."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec
from pyspark.sql import SparkSession

from snapreplay.app.load import checked_app, load_app
from snapreplay.errors import SnapreplayError, UsageError
from snapreplay.snapshots.jobs.compaction import Compaction, CompactionReport, Outcome, PartitionResult, looked
from snapreplay.snapshots.jobs.fixed_logs import LogClient, OpenClient, freeze
from snapreplay.snapshots.jobs.second_reading import KafkaSource, witnessed
from snapreplay.snapshots.jobs.session import check, spark_session, stopping
from snapreplay.snapshots.jobs.spark_tasks import for_each
from snapreplay.snapshots.proof.compaction import Written
from snapreplay.snapshots.proof.records import Moment
from snapreplay.snapshots.proof.state import At, last_batch
from snapreplay.state.digest import Digest

T = TypeVar("T")

_PAUSE_SECONDS = 1.0


class Owner(Protocol):
    """The service, if it can be asked."""

    def tell(self, partition: int, manifest_offset: int) -> None:
        """Tell the owner of a proposal. Does not raise: the owner finds it by itself, later."""

    def rejection(self, partition: int, manifest_offset: int) -> str | None:
        """Say why this proposal was not adopted; None: it is not known to be rejected."""


def draft_upgrade(
    open_client: OpenClient, kafka: Mapping[str, str], app: str, now_ms: Callable[[], int], master: str | None = None
) -> CompactionReport:
    """Draft upgrades as `snapreplay.spark.draft_upgrade` says.

    Raises:
        TopicMissing, Unreachable, JarsUnavailable, UsageError, TaskFailed, SparkFailed: it could not run. Nothing was
            drafted.
    """
    loaded = load_app(app)
    if not loaded.upgrades:
        raise UsageError(
            f"{loaded.app_id!r} declares no upgrade of its stored entries",
            hint="raise schema_version and declare it: `@app.upgrade(from_schema=…, value=…)`",
        )
    return _run("draft-upgrade", open_client, kafka, loaded.app_id, now_ms, app, master, drafts=True)


def compact(
    open_client: OpenClient,
    kafka: Mapping[str, str],
    app_id: str,
    now_ms: Callable[[], int],
    app: str | None = None,
    *,
    wait_s: float = 0.0,
    owner: Owner | None = None,
    master: str | None = None,
) -> CompactionReport:
    """Propose snapshots as `snapreplay.spark.compact` says. `kafka`: the service's client properties, for the witness.

    Raises:
        TopicMissing, Unreachable, JarsUnavailable, UsageError, TaskFailed, SparkFailed: it could not run. Nothing
            was proposed.
    """
    started = time.monotonic()
    report = _run("compact", open_client, kafka, app_id, now_ms, app, master)
    results = answered(open_client, app_id, report.partitions, wait_s, owner)
    return CompactionReport(app_id, results, round(time.monotonic() - started, 3))


def _run(
    name: str,
    open_client: OpenClient,
    kafka: Mapping[str, str],
    app_id: str,
    now_ms: Callable[[], int],
    app: str | None,
    master: str | None,
    *,
    drafts: bool = False,
) -> CompactionReport:
    started = time.monotonic()
    check(master)
    with open_client() as client:  # before Spark is started for nothing
        freeze(client, app_id)
    if app is not None:
        checked_app(app, app_id)
    by = f"{name}@{socket.gethostname()}/{os.getpid()}"
    with spark_session(f"snapreplay {name}", master) as spark:
        engine = SparkEngine(spark, kafka)
        results = Compaction(engine, open_client, app_id, by, now_ms, app, drafts=drafts).run()
    return CompactionReport(app_id, results, round(time.monotonic() - started, 3))


class SparkEngine:
    """A `compaction.Engine` on Spark."""

    def __init__(self, spark: SparkSession, kafka: Mapping[str, str]) -> None:
        self._spark = spark
        options = dict(kafka)
        self._source = KafkaSource(spark, options.pop("bootstrap.servers"), options)

    def for_each(
        self,
        parts: Sequence[Moment],
        open_client: OpenClient,
        work: Callable[[LogClient, Moment], object],
        kind: type[T],
    ) -> list[T]:
        with stopping("compaction"):
            return for_each(self._spark, parts, open_client, work, kind)

    def witnessed(self, topic: str, partition_count: int, written: Mapping[int, Written]) -> dict[int, Digest]:
        with stopping("compaction"):
            return witnessed(self._spark, self._source, topic, partition_count, written)


def answered(
    open_client: OpenClient, app_id: str, results: Sequence[PartitionResult], wait_s: float, owner: Owner | None
) -> list[PartitionResult]:
    """Tell the owner of the proposals among `results`, and wait until each is adopted or rejected, up to `wait_s`; or
    until the log cannot be read any more."""
    proposed = [each for each in results if each.outcome is Outcome.PROPOSED]
    if owner is not None:
        for each in proposed:
            owner.tell(each.partition, each.manifest_offset)
    if wait_s <= 0 or not proposed:
        return list(results)
    answers = {each.partition: each for each in results}
    deadline = time.monotonic() + wait_s
    with open_client() as client:
        while True:
            for number, each in enumerate(proposed):
                try:
                    answers[each.partition] = _answer(client, app_id, each, owner)
                except SnapreplayError as error:
                    return list((answers | _unanswered(proposed[number:], error)).values())
            proposed = [each for each in proposed if answers[each.partition].outcome is Outcome.WAITING]
            if not proposed or time.monotonic() >= deadline:
                return list(answers.values())
            # Between two questions to the owner or the log.
            time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))


def _unanswered(proposed: Sequence[PartitionResult], error: SnapreplayError) -> dict[int, PartitionResult]:
    """Let the proposals wait: they stay, whoever could not be asked about them."""
    reason = f"the log could not be asked whether it was adopted: {error.message}"
    return {each.partition: msgspec.structs.replace(each, outcome=Outcome.WAITING, reason=reason) for each in proposed}


def _answer(client: LogClient, app_id: str, proposed: PartitionResult, owner: Owner | None) -> PartitionResult:
    last = looked(client, app_id, proposed.partition, lambda at, logs: last_batch(at, logs, At()))
    pointers = last.increment.pointers if last is not None else []
    if any(pointer.snapshot_id == proposed.snapshot_id for pointer in pointers):
        return msgspec.structs.replace(proposed, outcome=Outcome.ADOPTED)
    for pointer in pointers[:1]:
        if pointer.batch >= proposed.batch:
            return msgspec.structs.replace(
                proposed,
                outcome=Outcome.SUPERSEDED,
                reason=f"the owner points to snapshot {pointer.snapshot_id} of batch {pointer.batch} instead",
            )
    reason = None if owner is None else owner.rejection(proposed.partition, proposed.manifest_offset)
    if reason is not None:
        return msgspec.structs.replace(proposed, outcome=Outcome.REJECTED, reason=reason)
    return msgspec.structs.replace(
        proposed,
        outcome=Outcome.WAITING,
        reason="no increment points to it yet: an owner looks about once a minute, unless `snapshot.by` is owner",
    )
