"""The fate of proposals: the owner's next increments say it. Without Spark in it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import msgspec

from snapreplay.errors import SnapreplayError
from snapreplay.snapshots.jobs.compaction import looked
from snapreplay.snapshots.jobs.compaction_report import Outcome, PartitionResult
from snapreplay.snapshots.jobs.fixed_logs import LogClient, OpenClient
from snapreplay.snapshots.proof.state import At, last_batch

_PAUSE_SECONDS = 1.0


class Owner(Protocol):
    """The service, if it can be asked."""

    def tell(self, partition: int, manifest_offset: int) -> None:
        """Tell the owner of a proposal. Does not raise: the owner finds it by itself, later."""

    def rejection(self, partition: int, manifest_offset: int) -> str | None:
        """Say why this proposal was not adopted; None: it is not known to be rejected."""


class Nobody:
    """No service to ask."""

    def tell(self, partition: int, manifest_offset: int) -> None: ...

    def rejection(self, partition: int, manifest_offset: int) -> None: ...


def answered(
    open_client: OpenClient,
    app_id: str,
    results: Sequence[PartitionResult],
    wait_s: float,
    owner: Owner,
) -> list[PartitionResult]:
    """Tell the owner of the proposals among `results`, and wait until each is adopted or rejected, up to `wait_s`; or
    until the log cannot be read any more."""
    proposed = [each for each in results if each.outcome is Outcome.PROPOSED]
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
            proposed = [
                each for each in proposed if answers[each.partition].outcome is Outcome.WAITING
            ]
            if not proposed or time.monotonic() >= deadline:
                return list(answers.values())
            # Between two questions to the owner or the log.
            time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))


def _unanswered(
    proposed: Sequence[PartitionResult], error: SnapreplayError
) -> dict[int, PartitionResult]:
    """Let the proposals wait: they stay, whoever could not be asked about them."""
    reason = f"the log could not be asked whether it was adopted: {error.message}"
    return {
        each.partition: msgspec.structs.replace(each, outcome=Outcome.WAITING, reason=reason)
        for each in proposed
    }


def _answer(
    client: LogClient, app_id: str, proposed: PartitionResult, owner: Owner
) -> PartitionResult:
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
    if (reason := owner.rejection(proposed.partition, proposed.manifest_offset)) is not None:
        return msgspec.structs.replace(proposed, outcome=Outcome.REJECTED, reason=reason)
    return msgspec.structs.replace(
        proposed,
        outcome=Outcome.WAITING,
        reason="no increment points to it yet: an owner looks about once a minute, unless `snapshot.by` is owner",
    )
